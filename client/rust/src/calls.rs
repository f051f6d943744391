//! The calls on a connection that may break at any moment, each within the patience of its caller.

use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use mcp_sessiond_proto::types::{LeaseRef, StoreRequest, Stored};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error};
use tarpc::client::RpcError;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::{Absent, Connection, connect_within};
use crate::directory::Directory;
use crate::error::{ConnectError, Reason};
use crate::options::Options;

/// When to try again after the daemon had too many requests of this connection in flight: they are short.
const CROWDED_PAUSE: Duration = Duration::from_millis(50);

/// The pause after a broken connection, so that a daemon that breaks each one is not asked in a hot loop.
const BROKEN_PAUSE: Duration = Duration::from_millis(5);

/// How long one call may take, and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    whole: Duration,
    until: Instant,
}

impl Patience {
    pub(crate) fn new(whole: Duration) -> Self {
        Self { whole, until: Instant::now() + whole }
    }

    fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn out(self) -> Reason {
        Reason::NoAnswer(self.whole)
    }
}

/// Why a call on a lease came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection broke. Whether the call was carried out is unknown; it may be repeated.
    Disconnected,
    /// The daemon refused.
    Refused(Error),
    /// The patience is at its end.
    Gone(Reason),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The connection, made anew when it breaks.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    connection: Option<Connection>,
    /// How many connections there were.
    number: u64,
}

impl Calls {
    /// Connects, unless there is a connection. Returns its number.
    pub(crate) async fn connect(
        &mut self,
        options: &Options,
        patience: Patience,
    ) -> Result<u64, ConnectError> {
        if self.connection.is_none() {
            let directory = match &options.directory {
                Some(path) => Directory::at(path)?,
                None => Directory::of_user()?,
            };
            // A daemon that answered before is restarting, and whoever restarts it is not us.
            let absent = if self.number == 0 { Absent::Fails } else { Absent::Waits };
            let connection = connect_within(&directory, &options.start, absent, patience.left()).await?;
            self.connection = Some(connection);
            self.number += 1;
        }
        Ok(self.number)
    }

    /// Claims, over as many connections as it takes. Returns the number of the last one.
    pub(crate) async fn claim(
        &mut self,
        request: ClaimRequest,
        options: &Options,
        patience: Patience,
    ) -> Result<(Claimed, u64), Reason> {
        loop {
            let number = self.connect(options, patience).await?;
            let call = |connection: Connection| {
                let request = request.clone();
                async move { connection.claim(Connection::context(patience.left()), request).await }
            };
            match self.call(patience, call).await {
                Ok(claimed) => return Ok((claimed, number)),
                Err(Failure::Disconnected) => {}
                Err(Failure::Refused(error)) => return Err(error.into()),
                Err(Failure::Gone(reason)) => return Err(reason),
            }
        }
    }

    /// Stores a token, on the connection that there is.
    pub(crate) async fn store(
        &mut self,
        request: StoreRequest,
        patience: Patience,
    ) -> Result<Stored, Failure> {
        self.call(patience, |connection| {
            let request = request.clone();
            async move { connection.store_token(Connection::context(patience.left()), request).await }
        })
        .await
    }

    /// Deletes the token, on the connection that there is.
    pub(crate) async fn reject(&mut self, request: LeaseRef, patience: Patience) -> Result<(), Failure> {
        self.call(patience, |connection| {
            let request = request.clone();
            async move { connection.reject_token(Connection::context(patience.left()), request).await }
        })
        .await
    }

    /// Ends the lease, on the connection that there is.
    pub(crate) async fn release(&mut self, request: LeaseRef, timeout: Duration) -> Result<(), Failure> {
        let patience = Patience::new(timeout);
        self.call(patience, |connection| {
            let request = request.clone();
            async move { connection.release(Connection::context(patience.left()), request).await }
        })
        .await
    }

    /// One call, repeated while the daemon asks to be asked again.
    async fn call<T, F>(&mut self, patience: Patience, call: impl Fn(Connection) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Result<T, Error>, RpcError>>,
    {
        loop {
            let Some(connection) = self.connection.clone() else { return Err(Failure::Disconnected) };
            let Ok(answer) = timeout_at(patience.until, call(connection)).await else {
                // Whatever is wrong with it, it is not left in the way of the next call.
                self.connection = None;
                return Err(Failure::Gone(patience.out()));
            };
            let pause = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(Error::Unavailable { sentence, retry_after_ms })) => {
                    let pause = Duration::from_millis(retry_after_ms.into());
                    if pause >= patience.left() {
                        let error = Error::Unavailable { sentence, retry_after_ms };
                        return Err(Failure::Gone(error.into()));
                    }
                    pause
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(RpcError::Server(error)) if error.kind == ErrorKind::InvalidData => {
                    return Err(Error::InvalidArgument { sentence: error.detail }.into());
                }
                Err(RpcError::Server(_)) => CROWDED_PAUSE,
                Err(RpcError::DeadlineExceeded) => {
                    self.connection = None;
                    return Err(Failure::Gone(patience.out()));
                }
                Err(RpcError::Shutdown | RpcError::Send(_) | RpcError::Channel(_)) => {
                    self.connection = None;
                    if patience.left() <= BROKEN_PAUSE {
                        return Err(Failure::Gone(patience.out()));
                    }
                    sleep(BROKEN_PAUSE).await;
                    return Err(Failure::Disconnected);
                }
            };
            sleep(pause.min(patience.left())).await;
        }
    }
}
