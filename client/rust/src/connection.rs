//! One connection to a daemon that is ours.

#[cfg(unix)]
mod unix;
#[cfg(not(unix))]
mod unsupported;

use std::ops::Deref;
use std::time::Duration;

use mcp_sessiond_proto::client::Client;
#[cfg(feature = "sessions")]
use mcp_sessiond_proto::hello::{CLOSES, EXPIRES, SECRETS, WILLS};
use mcp_sessiond_proto::hello::{Hello, REQUESTS};
use tokio::sync::watch;

use crate::directory::Directory;
use crate::error::ConnectError;
use crate::runtime::driven;
use crate::start::Start;
#[cfg(unix)]
pub(crate) use unix::connect_within;
#[cfg(not(unix))]
pub(crate) use unsupported::connect_within;

/// How long [`connect`] tries, with starting the daemon.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the daemon: the service's calls, by [`Deref`], each with the time that it may
/// take. They may be made from several tasks at once. Unlike [`Sessiond`](crate::Sessiond), they
/// need a tokio runtime.
#[derive(Debug, Clone)]
pub struct Connection {
    client: Client,
    hello: Hello,
    /// Its sender goes with the connection.
    open: watch::Receiver<()>,
}

impl Connection {
    /// What the daemon said of itself.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether writing and emptying may say a `request`: a daemon of before would refuse that.
    pub(crate) fn takes_requests(&self) -> bool {
        self.hello.features & REQUESTS != 0
    }

    /// Whether a stream may have a will: a daemon of before would refuse that.
    #[cfg(feature = "sessions")]
    pub(crate) fn takes_wills(&self) -> bool {
        self.hello.features & WILLS != 0
    }

    /// Whether an append may close its stream: a daemon of before would refuse that.
    #[cfg(feature = "sessions")]
    pub(crate) fn takes_close(&self) -> bool {
        self.hello.features & CLOSES != 0
    }

    /// Whether state values may expire: a daemon of before would refuse that.
    #[cfg(feature = "sessions")]
    pub(crate) fn takes_expiry(&self) -> bool {
        self.hello.features & EXPIRES != 0
    }

    /// Whether services have secrets: a daemon of before would not know the call.
    #[cfg(feature = "sessions")]
    pub(crate) fn knows_secrets(&self) -> bool {
        self.hello.features & SECRETS != 0
    }

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
