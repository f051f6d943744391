//! The control plane: calls of the service as it is, over as many connections as it takes.

use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_proto::client::CallError;
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error};

use crate::connection::Connection;
use crate::connections::Connections;
use crate::error::SessionError;
use crate::options::Options;
use crate::runtime::driven;

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
