//! The calls on a connection that may break at any moment, each within the deadline of its caller.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_sessiond_proto::client::CallError;
use mcp_sessiond_proto::types::{LeaseRef, StoreRequest, Stored};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::connection::{Absent, Connection, connect_within};
use crate::deadline::Deadline;
use crate::directory::Directory;
use crate::error::{Reason, SessionError};
use crate::options::Options;

/// When to try again after the daemon had too many requests of this connection in flight: they are
/// short.
const CROWDED_PAUSE: Duration = Duration::from_millis(50);

/// The pause after a broken connection, so that a daemon that breaks each one does not cause a busy
/// loop.
pub(crate) const BROKEN_PAUSE: Duration = Duration::from_millis(5);

/// When to try again after the daemon went during a call and did not come back in time, in ms.
const AWAY_MS: u32 = 1_000;

/// Calls under way on one connection: somewhat fewer than a daemon takes by default, so that it
/// need not refuse any.
pub(crate) const CALLS_MAX: usize = 24;

/// Why a call on a connection failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection broke. Whether the call was carried out is unknown; it may be repeated.
    Disconnected,
    /// The daemon refused.
    Refused(Error),
    /// The time is over.
    Gone(Reason),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// A connection, and which one it is: they are counted from 1.
#[derive(Debug, Clone)]
pub(crate) struct NumberedConnection {
    pub(crate) connection: Connection,
    pub(crate) number: u64,
}

/// The connection, made anew when it breaks. Calls may be made from several tasks at once.
#[derive(Debug)]
pub(crate) struct RetryingClient {
    slot: StdMutex<Slot>,
    /// Held by the task that connects.
    connecting: Mutex<()>,
    /// A permit for each call that may be under way.
    permits: Arc<Semaphore>,
    /// Whether a daemon has answered before, on whichever connection.
    known: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Slot {
    link: Option<NumberedConnection>,
    /// How many connections there were.
    number: u64,
}

impl Default for RetryingClient {
    fn default() -> Self {
        Self::knowing(Arc::default())
    }
}

impl RetryingClient {
    fn knowing(known: Arc<AtomicBool>) -> Self {
        let permits = Arc::new(Semaphore::new(CALLS_MAX));
        Self {
            slot: StdMutex::default(),
            connecting: Mutex::default(),
            permits,
            known,
        }
    }

    /// Another connection to the same daemon.
    pub(crate) fn sibling(&self) -> Self {
        Self::knowing(self.known.clone())
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current connection.
    pub(crate) fn current(&self) -> Option<NumberedConnection> {
        self.slot()
            .link
            .clone()
            .filter(|link| !link.connection.is_ended())
    }

    /// Drops the connection. Calls that are under way on it go on.
    pub(crate) fn hang_up(&self) {
        self.slot().link = None;
    }

    /// Drops a faulty connection, so that the next call makes a new one.
    fn forget(&self, number: u64) {
        let mut slot = self.slot();
        if slot.link.as_ref().is_some_and(|link| link.number == number) {
            slot.link = None;
        }
    }

    /// Connects, unless there is a connection.
    pub(crate) async fn connect(
        &self,
        options: &Options,
        deadline: Deadline,
    ) -> Result<NumberedConnection, Reason> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let _connecting = deadline.bound(self.connecting.lock()).await?;
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let directory = match &options.directory {
            Some(path) => Directory::at(path)?,
            None => Directory::of_user()?,
        };
        // A daemon that has answered before is restarting; this client must not start another.
        let absent = if self.known.load(Ordering::Relaxed) {
            Absent::Waits
        } else {
            Absent::Fails
        };
        let connection =
            connect_within(&directory, &options.start, absent, deadline.remaining()).await?;
        self.known.store(true, Ordering::Relaxed);
        let mut slot = self.slot();
        slot.number += 1;
        let link = NumberedConnection {
            connection,
            number: slot.number,
        };
        slot.link = Some(link.clone());
        Ok(link)
    }

    /// A place for a call, if there is one.
    pub(crate) fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// A place for a call, when there is one.
    pub(crate) async fn permit(&self, deadline: Deadline) -> Result<OwnedSemaphorePermit, Reason> {
        let place = deadline.bound(self.permits.clone().acquire_owned()).await?;
        // It is never closed.
        place.map_err(|_| deadline.passed())
    }

    /// Claims, over as many connections as it takes. Returns the last one, too.
    pub(crate) async fn claim(
        &self,
        request: ClaimRequest,
        options: &Options,
        deadline: Deadline,
    ) -> Result<(Claimed, NumberedConnection), Reason> {
        loop {
            let link = self.connect(options, deadline).await?;
            match self.claim_on(&link, request.clone(), deadline).await {
                Ok(claimed) => return Ok((claimed, link)),
                Err(Failure::Disconnected) => {}
                Err(Failure::Refused(error)) => return Err(error.into()),
                Err(Failure::Gone(reason)) => return Err(reason),
            }
        }
    }

    /// Claims, on this connection.
    pub(crate) async fn claim_on(
        &self,
        link: &NumberedConnection,
        request: ClaimRequest,
        deadline: Deadline,
    ) -> Result<Claimed, Failure> {
        // A daemon that was suspended must not grant a lease later, when nobody waits for it any
        // more.
        let request = ClaimRequest {
            until_ms: deadline.until_ms(),
            ..request
        };
        self.call(link, deadline, |connection, context| {
            let request = request.clone();
            async move { connection.claim(context, request).await }
        })
        .await
    }

    /// Stores a token.
    pub(crate) async fn store(
        &self,
        link: &NumberedConnection,
        request: StoreRequest,
        deadline: Deadline,
    ) -> Result<Stored, Failure> {
        self.call(link, deadline, |connection, context| {
            let request = request.clone();
            async move { connection.store_token(context, request).await }
        })
        .await
    }

    /// Deletes the token.
    pub(crate) async fn reject(
        &self,
        link: &NumberedConnection,
        request: LeaseRef,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        self.call(link, deadline, |connection, context| {
            let request = request.clone();
            async move { connection.reject_token(context, request).await }
        })
        .await
    }

    /// Ends the lease, on the connection that there is.
    pub(crate) async fn release(
        &self,
        request: LeaseRef,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let Some(link) = self.current() else {
            return Err(Failure::Disconnected);
        };
        self.call(&link, Deadline::new(timeout), |connection, context| {
            let request = request.clone();
            async move { connection.release(context, request).await }
        })
        .await
    }

    /// One call, over as many connections as it takes. `ready` finds one, and what the call needs
    /// to know on it. Returns the last connection, too.
    pub(crate) async fn repeat<T, R, G, F>(
        &self,
        deadline: Deadline,
        ready: impl Fn() -> G,
        call: impl Fn(Connection, Duration, R) -> F,
    ) -> Result<(T, NumberedConnection), SessionError>
    where
        R: Clone,
        G: Future<Output = Result<(NumberedConnection, R), SessionError>>,
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        // Whether a connection broke while the call was under way.
        let mut is_in_doubt = false;
        loop {
            let known = ready().await;
            let failed = match known {
                Ok((link, known)) => {
                    let call = |connection, context| call(connection, context, known.clone());
                    match self.call(&link, deadline, call).await {
                        Ok(value) => return Ok((value, link)),
                        Err(Failure::Disconnected) => {
                            is_in_doubt = true;
                            continue;
                        }
                        Err(Failure::Refused(error)) => error.into(),
                        Err(Failure::Gone(reason)) => reason.into(),
                    }
                }
                Err(error) => error,
            };
            return Err(if is_in_doubt {
                in_doubt(failed)
            } else {
                failed
            });
        }
    }

    /// One call, repeated while the daemon asks to be asked again.
    pub(crate) async fn call<T, F>(
        &self,
        link: &NumberedConnection,
        deadline: Deadline,
        call: impl Fn(Connection, Duration) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        // The last error with an unknown outcome. If there was one, the outcome stays unknown.
        let mut doubt = None;
        loop {
            let calling = call(link.connection.clone(), deadline.remaining());
            let answer = match deadline.bound(calling).await {
                Ok(answer) => answer,
                Err(reason) => {
                    self.forget(link.number);
                    return Err(Failure::Gone(reason));
                }
            };
            let pause = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(
                    ref error @ (Error::Unavailable { retry_after_ms, .. }
                    | Error::OutcomeUnknown { retry_after_ms, .. }),
                )) => {
                    let pause = Duration::from_millis(retry_after_ms.into());
                    if matches!(error, Error::OutcomeUnknown { .. }) {
                        doubt = Some(error.clone());
                    }
                    if pause >= deadline.remaining() {
                        return Err(Failure::Gone(doubt.unwrap_or_else(|| error.clone()).into()));
                    }
                    pause
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(CallError::Refused(sentence)) => {
                    return Err(Error::InvalidArgument { sentence }.into());
                }
                Err(CallError::Crowded(_)) => CROWDED_PAUSE,
                Err(error @ CallError::NotSent(_)) => {
                    return Err(Error::InvalidArgument {
                        sentence: error.to_string(),
                    }
                    .into());
                }
                Err(CallError::Unreadable) => return Err(Error::Unknown.into()),
                Err(CallError::Late) => {
                    self.forget(link.number);
                    return Err(Failure::Gone(deadline.passed()));
                }
                // Ended, as whatever else may befall a connection.
                Err(_) => {
                    self.forget(link.number);
                    if deadline.remaining() <= BROKEN_PAUSE {
                        return Err(Failure::Gone(deadline.passed()));
                    }
                    sleep(BROKEN_PAUSE).await;
                    return Err(Failure::Disconnected);
                }
            };
            sleep(pause.min(deadline.remaining())).await;
        }
    }
}

/// The error of a call that the daemon may have carried out before the connection broke: an error
/// that says that nothing was done would be wrong.
fn in_doubt(error: SessionError) -> SessionError {
    let (sentence, retry_after_ms) = match error {
        SessionError::Refused(Error::Unavailable {
            sentence,
            retry_after_ms,
        }) => (sentence, retry_after_ms),
        SessionError::Connect(error) => (error.to_string(), AWAY_MS),
        error => return error,
    };
    SessionError::Refused(Error::OutcomeUnknown {
        sentence,
        retry_after_ms,
    })
}
