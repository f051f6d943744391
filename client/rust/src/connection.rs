//! One connection to a daemon that is ours.

use std::io;
use std::ops::Deref;
use std::time::Duration;

use mcp_sessiond_proto::client::{self, Client};
use mcp_sessiond_proto::hello::{Codec, Hello, HelloError, REQUESTS, greet};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::directory::Directory;
use crate::error::ConnectError;
use crate::runtime::driven;
use crate::start::{self, Start};

/// How long [`connect`] tries, with starting the daemon.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The first and the longest pause between two attempts to connect; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long a daemon that was started has to appear before another is started: the one that held the lock may have
/// been about to exit.
const START_AGAIN: Duration = Duration::from_millis(500);

/// A connection to the daemon: the service's calls, by [`Deref`], each with the time that it may take. They may be made from
/// several tasks at once.
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

/// Connects to the daemon of `directory`, which is started where `start` says so, within [`CONNECT_TIMEOUT`].
/// The tokio runtime around it drives the connection from then on, or else a thread of this crate's own.
///
/// # Errors
/// [`ConnectError`]: nothing was sent to anybody but a daemon of this user's.
pub async fn connect(directory: &Directory, start: &Start) -> Result<Connection, ConnectError> {
    driven(connect_within(directory, start, Absent::Fails, CONNECT_TIMEOUT)).await
}

/// What an absent daemon means to who may not start one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// There is none.
    Fails,
    /// There was one a moment ago, and it is coming back.
    Waits,
}

/// [`connect`], with patience of one's own.
pub(crate) async fn connect_within(
    directory: &Directory,
    start: &Start,
    absent: Absent,
    patience: Duration,
) -> Result<Connection, ConnectError> {
    let until = Instant::now() + patience;
    let mut pause = PAUSE_MIN;
    let mut last = String::from("it did not finish its hello");
    let mut started: Option<Instant> = None;
    loop {
        let attempt = timeout_at(until, attempt(directory)).await;
        match attempt {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(ConnectError::NotRunning { socket })) => match start {
                Start::Never if absent == Absent::Fails => return Err(ConnectError::NotRunning { socket }),
                Start::Auto { binary } if started.is_none_or(|at| at.elapsed() >= START_AGAIN) => {
                    start::start(directory, binary.as_deref(), until).await?;
                    started = Some(Instant::now());
                    pause = PAUSE_MIN;
                    last = ConnectError::NotRunning { socket }.to_string();
                }
                Start::Never | Start::Auto { .. } => last = ConnectError::NotRunning { socket }.to_string(),
            },
            Ok(Err(error)) if passes(&error) => last = error.to_string(),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
        let wake = Instant::now() + pause;
        if wake >= until {
            return Err(ConnectError::Timeout { socket: directory.socket(), waited: patience, last });
        }
        sleep_until(wake).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether the next attempt may go better.
fn passes(error: &ConnectError) -> bool {
    match error {
        // EAGAIN: so many connect at once that the backlog is full. ECONNRESET: the daemon was killed while this
        // connection was in it.
        ConnectError::Io { error, .. } => matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset
        ),
        ConnectError::Hello(error) => {
            matches!(error, HelloError::Io(_) | HelloError::Busy | HelloError::Draining)
        }
        _ => false,
    }
}

async fn attempt(directory: &Directory) -> Result<Connection, ConnectError> {
    directory.check()?;
    let socket = directory.socket();
    let mut stream = match UnixStream::connect(&socket).await {
        Ok(stream) => stream,
        // Refused: the daemon is gone, or between taking the path and listening.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(ConnectError::NotRunning { socket });
        }
        Err(error) => return Err(ConnectError::Io { socket, error }),
    };
    let daemon = match stream.peer_cred() {
        Ok(cred) => cred.uid(),
        Err(error) => return Err(ConnectError::Io { socket, error }),
    };
    if daemon != nix::unistd::geteuid().as_raw() {
        return Err(ConnectError::DaemonUid(daemon));
    }
    let hello = greet(&mut stream, Codec::MessagePack).await?;
    let (client, driven) = client::over(stream, hello.frame_max);
    let (connected, open) = watch::channel(());
    tokio::spawn(async move {
        driven.await;
        drop(connected);
    });
    Ok(Connection { client, hello, open })
}
