//! The client's side of a keeper's socket: what a front, `debug` and `status` do before anything
//! else is said.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use mcp_sessiond_process::{self as process, PeerError, PinnedProcess};
use mcp_sessiond_proto::backends::{KeeperReply, KeeperRequest};
use mcp_sessiond_proto::hello::{Hello, HelloError, greet_blocking};
use mcp_sessiond_proto::{Error, KeeperName, OLDEST_PROTOCOL_VERSION, paths};
use socket2::{Domain, SockAddr, Socket, Type};

/// How long a keeper may take for its hello, and for its answer. Whoever attaches waits while the
/// keeper asks the daemon.
const ANSWER_WAIT: Duration = Duration::from_secs(4);

/// Why a keeper did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens any more, or the connection broke.
    #[error("the keeper can't be reached: {0}")]
    Io(io::Error),
    /// It is there, and does not answer: it hangs, or is stopped.
    #[error("the keeper did not answer in time")]
    Silent,
    /// It ended the connection with its hello.
    #[error(transparent)]
    Hello(HelloError),
    /// It can't be known which process listens there.
    #[error("the keeper can't be identified: {0}")]
    Unidentified(#[from] PeerError),
    /// Its answer can't be read.
    #[error("the keeper's answer can't be understood")]
    Answer,
    /// It refused.
    #[error(transparent)]
    Refused(Error),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // What a socket's timeouts come to.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

/// A connection to a keeper that has answered. What it says from then on may be in the reader's
/// buffer already.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub reader: BufReader<UnixStream>,
    /// What the keeper answered.
    pub reply: KeeperReply,
}

/// The same, with less patience where `until` comes before.
///
/// # Errors
/// [`DialError`].
pub fn dial_until(
    socket: &Path,
    request: &KeeperRequest,
    until: Instant,
) -> Result<Dialled, DialError> {
    let left = until.saturating_duration_since(Instant::now());
    // A socket takes no patience of nothing.
    dial_within(
        socket,
        request,
        left.clamp(Duration::from_millis(1), ANSWER_WAIT),
    )
}

/// Connects and asks, in the keeper's own version of the protocol if that is an older one.
///
/// # Errors
/// [`DialError`].
pub fn dial(socket: &Path, request: &KeeperRequest) -> Result<Dialled, DialError> {
    dial_within(socket, request, ANSWER_WAIT)
}

fn dial_within(
    socket: &Path,
    request: &KeeperRequest,
    patience: Duration,
) -> Result<Dialled, DialError> {
    let newest = super::version();
    match dial_in(socket, request, newest, patience) {
        Err(DialError::Hello(HelloError::Version { theirs, .. }))
            if (OLDEST_PROTOCOL_VERSION..newest).contains(&theirs) =>
        {
            dial_in(socket, request, theirs, patience)
        }
        dialled => dialled,
    }
}

/// A connection, whose writes have this much patience, too. Whoever listens may be stopped, and
/// take none.
///
/// # Errors
/// When nobody listens; after that time [`io::ErrorKind::WouldBlock`].
pub fn connected(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let connecting = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Linux waits that long for a place in the listener's queue. macOS does not wait.
    connecting.set_write_timeout(Some(patience))?;
    connecting.connect(&SockAddr::unix(socket)?)?;
    Ok(OwnedFd::from(connecting).into())
}

/// The process that listens on a keeper's socket, whether it answers or not.
///
/// # Errors
/// [`DialError::Io`] when nobody listens; [`DialError::Unidentified`] when the process is not of
/// this user, or can't be known.
pub fn keeper_of(directory: &Path, keeper: KeeperName) -> Result<PinnedProcess, DialError> {
    let stream = connected(&paths::keeper_socket(directory, keeper), ANSWER_WAIT)?;
    Ok(process::listener(
        &stream,
        &paths::keeper_locks(directory),
        keeper.0,
    )?)
}

fn dial_in(
    socket: &Path,
    request: &KeeperRequest,
    version: u16,
    patience: Duration,
) -> Result<Dialled, DialError> {
    let mut stream = connected(socket, patience)?;
    stream.set_read_timeout(Some(patience))?;
    greet_blocking(&mut stream, &Hello::lines(version)).map_err(|error| match error {
        HelloError::Io(error) => error.into(),
        error => DialError::Hello(error),
    })?;
    let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reader = BufReader::with_capacity(crate::lines::CHUNK, stream);
    let mut answer = Vec::new();
    reader.read_until(b'\n', &mut answer)?;
    if !answer.ends_with(b"\n") {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let stream = reader.get_ref();
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    match serde_json::from_slice(&answer).map_err(|_| DialError::Answer)? {
        KeeperReply::Refused(error) => Err(DialError::Refused(error)),
        reply => Ok(Dialled { reader, reply }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_takes_no_connection_any_more_is_silent() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keeper");
        let address = SockAddr::unix(&path).expect("a short path");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        listener
            .bind(&address)
            .and_then(|()| listener.listen(1))
            .expect("it listens");
        let mut waiting = Vec::new();
        loop {
            let next = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            next.set_nonblocking(true).expect("set");
            if next.connect(&address).is_err() {
                break;
            }
            waiting.push(next);
        }
        assert!(!waiting.is_empty(), "its queue has had room");
        let until = Instant::now() + Duration::from_millis(50);
        let dialled = dial_until(&path, &KeeperRequest::Status {}, until);
        // macOS says at once that there is no room.
        assert!(
            matches!(dialled, Err(DialError::Silent)) || cfg!(target_os = "macos"),
            "{dialled:?}"
        );
    }
}
