//! One connection to a daemon that is ours.

#[cfg(not(unix))]
mod nowhere;
#[cfg(unix)]
mod reach;

use std::ops::Deref;
use std::time::Duration;

use mcp_sessiond_proto::client::Client;
use tokio::sync::watch;

use crate::directory::Directory;
use crate::error::ConnectError;
use crate::runtime::driven;
use crate::start::Start;
#[cfg(not(unix))]
pub(crate) use nowhere::connect_within;
#[cfg(unix)]
pub(crate) use reach::connect_within;

/// How long [`connect`] tries, with starting the daemon.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the daemon: the service's calls, by [`Deref`], each with the time that it may
/// take. They may be made from several tasks at once. Unlike [`Sessiond`](crate::Sessiond), they
/// need a tokio runtime.
#[derive(Debug, Clone)]
pub struct Connection {
    client: Client,
    /// Its sender goes with the connection.
    open: watch::Receiver<()>,
}

impl Connection {
    /// Whether it has ended, as far as is known.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.open.has_changed().is_err()
    }

    /// Waits until it has ended: the daemon has exited, or has hung up.
    pub async fn ended(&self) {
        let mut open = self.open.clone();
        while open.changed().await.is_ok() {}
    }
}

impl Deref for Connection {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Connects to the daemon of `directory`, which is started where `start` says so, within
/// [`CONNECT_TIMEOUT`]. The tokio runtime around it drives the connection from then on, or else a
/// thread of this crate's own.
///
/// # Errors
/// [`ConnectError`]: nothing was sent to anybody but a daemon of this user's.
pub async fn connect(directory: &Directory, start: &Start) -> Result<Connection, ConnectError> {
    driven(connect_within(
        directory,
        start,
        Absent::Fails,
        CONNECT_TIMEOUT,
    ))
    .await
}

/// What an absent daemon means to who may not start one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// There is none.
    Fails,
    /// There was one a moment ago, and it is coming back.
    Waits,
}
