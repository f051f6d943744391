//! The control plane: calls of the service as it is, over as many connections as it takes.

use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_proto::backends::Backend;
use mcp_sessiond_proto::client::{CallError, Client};
use mcp_sessiond_proto::facts::Facts;
use mcp_sessiond_proto::services::ServiceLoss;
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error};

use crate::connection::Connection;
use crate::connections::Connections;
use crate::error::SessionError;
use crate::options::Options;
use crate::runtime::driven;

/// What a method answers.
pub trait Answer {
    /// What was asked for.
    type Value;

    /// It, unless the daemon has refused.
    ///
    /// # Errors
    /// The daemon's.
    fn value(self) -> Result<Self::Value, Error>;
}

impl<T> Answer for Result<T, Error> {
    type Value = T;
    fn value(self) -> Self {
        self
    }
}

/// What may be asked for is refused to nobody.
macro_rules! never_refused {
    ($($answer:ty),*) => {
        $(impl Answer for $answer {
            type Value = Self;
            fn value(self) -> Result<Self, Error> {
                Ok(self)
            }
        })*
    };
}

never_refused!((), Facts, Vec<Backend>, Vec<ServiceLoss>);

/// Calls the daemon, whatever happens to it between two calls, or during one: a connection that
/// breaks is made anew, and a daemon that is not there is started, within the timeout of the
/// options. For programs that are part of mcp-sessiond; a server has [`Sessiond`](crate::Sessiond).
#[derive(Debug, Clone)]
pub struct Control(Arc<Connections>);

impl Control {
    /// Connects at the first call.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self(Connections::new(options))
    }

    /// Claims.
    ///
    /// # Errors
    /// [`SessionError`], when the daemon refused or the time was over.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Claimed, SessionError> {
        let (claimed, _) = driven(
            self.0
                .client
                .claim(request, &self.0.options, self.0.deadline()),
        )
        .await?;
        Ok(claimed)
    }

    /// Asks by a method of the connection, such as `Client::release`. It may be repeated without harm.
    ///
    /// # Errors
    /// [`SessionError`], when the daemon refused or the time was over.
    pub async fn ask<R: Clone, A: Answer>(
        &self,
        method: impl AsyncFn(&Client, Duration, R) -> Result<A, CallError>,
        request: R,
    ) -> Result<A::Value, SessionError> {
        let method = &method;
        self.call(|connection, within| {
            let request = request.clone();
            async move { Ok(method(&connection, within, request).await?.value()) }
        })
        .await
    }

    /// One call, which may be repeated without harm.
    ///
    /// # Errors
    /// [`SessionError`], when the daemon refused or the time was over.
    pub async fn call<T, F>(
        &self,
        call: impl Fn(Connection, Duration) -> F,
    ) -> Result<T, SessionError>
    where
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        let deadline = self.0.deadline();
        let Connections {
            client, options, ..
        } = &*self.0;
        let ready = || async move { Ok((client.connect(options, deadline).await?, ())) };
        let repeated = client.repeat(deadline, ready, |connection, context, ()| {
            call(connection, context)
        });
        let (value, _) = driven(repeated).await?;
        Ok(value)
    }

    /// Lets the connection go. The next call makes another.
    pub fn hang_up(&self) {
        self.0.client.hang_up();
    }
}
