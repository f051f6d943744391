//! How a daemon is reached: on its socket, where it is ours.

use std::io;
use std::time::Duration;

use mcp_sessiond_proto::client;
use mcp_sessiond_proto::hello::{Codec, HelloError, greet};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Absent, Connection};
use crate::directory::Directory;
use crate::error::ConnectError;
use crate::start::{self, Start};

/// The first and the longest pause between two attempts to connect; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long a daemon that was started has to appear before another is started: the one that held
/// the lock may have been about to exit.
const START_AGAIN: Duration = Duration::from_millis(500);

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
                Start::Never if absent == Absent::Fails => {
                    return Err(ConnectError::NotRunning { socket });
                }
                Start::Auto { binary } if started.is_none_or(|at| at.elapsed() >= START_AGAIN) => {
                    start::start(directory, binary.as_deref(), until).await?;
                    started = Some(Instant::now());
                    pause = PAUSE_MIN;
                    last = ConnectError::NotRunning { socket }.to_string();
                }
                Start::Never | Start::Auto { .. } => {
                    last = ConnectError::NotRunning { socket }.to_string();
                }
            },
            Ok(Err(error)) if passes(&error) => last = error.to_string(),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
        let wake = Instant::now() + pause;
        if wake >= until {
            return Err(ConnectError::Timeout {
                socket: directory.socket(),
                waited: patience,
                last,
            });
        }
        sleep_until(wake).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether the next attempt may go better.
fn passes(error: &ConnectError) -> bool {
    match error {
        // EAGAIN: so many connect at once that the backlog is full. ECONNRESET: the daemon was
        // killed while this connection was in it.
        ConnectError::Io { error, .. } => matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset
        ),
        ConnectError::Hello(error) => {
            matches!(
                error,
                HelloError::Io(_) | HelloError::Busy | HelloError::Draining
            )
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
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
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
    Ok(Connection { client, open })
}
