//! The client's side of a keeper's socket: what a front, `debug` and `status` do before anything
//! else is said.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use mcp_sessiond_process::{self as process, PinnedProcess};
use mcp_sessiond_proto::backends::frame::{CHUNK, FrameBuffer, Kind, frame};
use mcp_sessiond_proto::backends::{
    KeeperReply, KeeperRequest, OLDEST_KEEPER_VERSION, relayed_max,
};
use mcp_sessiond_proto::hello::{Hello, HelloError, greet_as, greet_blocking};
use mcp_sessiond_proto::{KeeperName, paths};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout_at};

pub use super::dial_error::DialError;
use super::silence::{LOOK, Silence, stalled_sentence};

/// How long a keeper may take for its hello, and for its answer. Whoever attaches waits while the
/// keeper asks the daemon.
const ANSWER_WAIT: Duration = Duration::from_secs(4);

/// The pause before a keeper is asked again that has no descriptor free.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The pause before another attempt to get into the queue of a keeper's socket, which is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(10);

/// Bytes by which a message may have grown when the host's own ids are put back into it.
pub(crate) const MARGIN: usize = 64 * 1024;

/// A connection to a keeper that has answered.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub stream: UnixStream,
    /// What the keeper has said since, as far as that was read.
    pub frames: FrameBuffer,
    /// What the keeper answered.
    pub reply: KeeperReply,
}

/// Connects and asks, in the keeper's own version of the protocol if that is an older one. Blocks.
///
/// # Errors
/// [`DialError`].
pub fn dial(socket: &Path, request: &KeeperRequest) -> Result<Dialled, DialError> {
    dial_for(socket, request, ANSWER_WAIT)
}

/// The same, with this much patience for each answer.
///
/// # Errors
/// [`DialError`].
pub fn dial_for(
    socket: &Path,
    request: &KeeperRequest,
    patience: Duration,
) -> Result<Dialled, DialError> {
    let ask = |version| ask_blocking(socket, request, version, patience);
    let asked = ask(super::version());
    older_version(&asked).map_or(asked, ask)
}

/// The same in a task, for a keeper that is waited for: as long as it can't answer or has not hung,
/// but no longer than `until`. `on_look` is called whenever its process was looked at. Dropped before its
/// end, it leaves nothing but a request that the keeper may have read.
///
/// # Errors
/// [`DialError`]; [`DialError::Stalled`], [`DialError::Silent`] and [`DialError::Busy`] say that the
/// keeper lives, and is to be asked again.
pub async fn dial_waiting(
    directory: &Path,
    request: &KeeperRequest,
    until: Instant,
    silence: &mut Silence,
    mut on_look: impl FnMut(&mut Silence),
) -> Result<Dialled, DialError> {
    let socket = paths::keeper_socket(directory, silence.keeper());
    silence.resume();
    let mut ask_waiting = async |version| {
        // It takes a moment also where the time is over.
        let patience = until.max(Instant::now() + LOOK);
        let connected = timeout_at(patience.into(), connect(&socket)).await;
        let stream = connected.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
        let looked_at = stream.as_fd().try_clone_to_owned()?;
        let mut asking = std::pin::pin!(ask(stream, request, version));
        let asked = loop {
            tokio::select! {
                biased;
                asked = &mut asking => break asked,
                () = sleep(LOOK) => {}
            }
            silence.look(directory, &looked_at)?;
            on_look(silence);
            if Instant::now() >= until {
                return Err(silence.given_up());
            }
        };
        if matches!(asked, Ok(_) | Err(DialError::Busy)) {
            silence.answered();
        }
        asked
    };
    let asked = ask_waiting(super::version()).await;
    match older_version(&asked) {
        Some(version) => ask_waiting(version).await,
        None => asked,
    }
}

/// Asks a keeper whether it does its work, and waits until it has answered. Nothing has come from it
/// since `quiet`. While it is stalled, its user, who calls its server so, is told by `print`, once.
///
/// # Errors
/// [`DialError::Hung`]; and the others where it is gone, or does not let this process in.
pub(crate) async fn ping(
    directory: &Path,
    keeper: KeeperName,
    server: &str,
    quiet: Instant,
    print: impl Fn(&str),
) -> Result<(), DialError> {
    let mut silence = Silence::since(keeper, quiet);
    loop {
        let asked = dial_waiting(
            directory,
            &KeeperRequest::Ping {},
            Instant::now() + ANSWER_WAIT,
            &mut silence,
            |silence| {
                if let Some(pid) = silence.notice() {
                    print(&stalled_sentence(server, pid, &pid));
                }
            },
        );
        match asked.await {
            Err(DialError::Stalled(_) | DialError::Silent) => {}
            Err(DialError::Busy) => sleep(BUSY_PAUSE).await,
            asked => return asked.map(drop),
        }
    }
}

/// The version in which a keeper is to be asked again that has refused ours, if it speaks one that
/// we do.
fn older_version(asked: &Result<Dialled, DialError>) -> Option<u16> {
    match asked {
        Err(DialError::Hello(HelloError::Version { theirs, .. }))
            if (OLDEST_KEEPER_VERSION..super::version()).contains(theirs) =>
        {
            Some(*theirs)
        }
        _ => None,
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

/// The same in a task, which waits for a place in the listener's queue.
async fn connect(socket: &Path) -> io::Result<tokio::net::UnixStream> {
    loop {
        match tokio::net::UnixStream::connect(socket).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(QUEUE_PAUSE).await,
            connected => return connected,
        }
    }
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

/// Greets and asks.
async fn ask(
    mut stream: tokio::net::UnixStream,
    request: &KeeperRequest,
    version: u16,
) -> Result<Dialled, DialError> {
    greet_as(&mut stream, &Hello::keeper(version))
        .await
        .map_err(of_hello)?;
    stream.write_all(&frame_of(request)?).await?;
    let mut frames = unread();
    let reply = loop {
        if let Some(reply) = reply_in(&mut frames)? {
            break reply;
        }
        if stream.read_buf(frames.room()).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    };
    let stream = stream.into_std()?;
    Ok(Dialled {
        stream,
        frames,
        reply,
    })
}

/// The same, and connects, with this much patience for each step.
fn ask_blocking(
    socket: &Path,
    request: &KeeperRequest,
    version: u16,
    patience: Duration,
) -> Result<Dialled, DialError> {
    let mut stream = connected(socket, patience)?;
    stream.set_read_timeout(Some(patience))?;
    greet_blocking(&mut stream, &Hello::keeper(version)).map_err(of_hello)?;
    stream.write_all(&frame_of(request)?)?;
    let mut frames = unread();
    let mut chunk = vec![0; CHUNK];
    let reply = loop {
        if let Some(reply) = reply_in(&mut frames)? {
            break reply;
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => frames.room().extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    };
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(Dialled {
        stream,
        frames,
        reply,
    })
}

fn of_hello(error: HelloError) -> DialError {
    match error {
        HelloError::Io(error) => error.into(),
        HelloError::Busy => DialError::Busy,
        error => DialError::Hello(error),
    }
}

fn frame_of(request: &KeeperRequest) -> io::Result<Vec<u8>> {
    let request = serde_json::to_vec(request).map_err(io::Error::other)?;
    Ok(frame(Kind::Request, 0, &request))
}

/// What will be read of a keeper. With the host's own ids a message may be a little longer.
fn unread() -> FrameBuffer {
    FrameBuffer::with_line_max(relayed_max() + MARGIN)
}

/// What a keeper answers, once it was read.
fn reply_in(frames: &mut FrameBuffer) -> Result<Option<KeeperReply>, DialError> {
    match frames.next_frame() {
        Ok(Some(reply)) if reply.kind == Kind::Reply => {
            match serde_json::from_slice(reply.bytes()).map_err(|_| DialError::Answer)? {
                KeeperReply::Refused(error) => Err(DialError::Refused(error)),
                reply => Ok(Some(reply)),
            }
        }
        Ok(None) => Ok(None),
        Ok(Some(_)) | Err(_) => Err(DialError::Answer),
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
        let patience = Duration::from_millis(50);
        let dialled = dial_for(&path, &KeeperRequest::Status {}, patience);
        // macOS says at once that there is no room.
        assert!(
            matches!(dialled, Err(DialError::Silent)) || cfg!(target_os = "macos"),
            "{dialled:?}"
        );
    }
}
