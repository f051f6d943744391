//! The client's side of a keeper's socket: what a front, `debug` and `status` do before anything
//! else is said.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use mcp_sessiond_process::{self as process, PinnedProcess};
use mcp_sessiond_proto::backends::frame::{CHUNK, Frame, FrameBuffer, Kind, frame};
use mcp_sessiond_proto::backends::{
    KeeperReply, KeeperRequest, OLDEST_KEEPER_VERSION, RELAYED_MAX,
};
use mcp_sessiond_proto::hello::{Hello, HelloError, greet_blocking};
use mcp_sessiond_proto::{KeeperName, paths};
use socket2::{Domain, SockAddr, Socket, Type};

pub use super::dial_error::DialError;
use super::silence::{LOOK, Silence, stalled_sentence};

/// How long a keeper may take for its hello, and for its answer. Whoever attaches waits while the
/// keeper asks the daemon.
const ANSWER_WAIT: Duration = Duration::from_secs(4);

/// The pause before a keeper is asked again that has no descriptor free.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

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
    dial_for(
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
    in_its_version(|version| {
        let stream = connected(socket, patience)?;
        ask(stream, request, version, patience, &mut |_| {
            Err(DialError::Silent)
        })
    })
}

/// The same for a keeper that is waited for: as long as it can't answer or has not hung, but no
/// longer than `until`. `on_look` is called whenever its process was looked at.
///
/// # Errors
/// [`DialError`]; [`DialError::Stalled`], [`DialError::Silent`] and [`DialError::Busy`] say that the
/// keeper lives, and is to be asked again.
pub fn dial_waiting(
    directory: &Path,
    request: &KeeperRequest,
    until: Instant,
    silence: &mut Silence,
    on_look: &mut dyn FnMut(&mut Silence),
) -> Result<Dialled, DialError> {
    let socket = paths::keeper_socket(directory, silence.keeper());
    silence.resume();
    in_its_version(|version| {
        let left = until.saturating_duration_since(Instant::now());
        // A socket takes no patience of nothing.
        let stream = connected(&socket, left.max(Duration::from_millis(1)))?;
        let dialled = ask(stream, request, version, LOOK, &mut |stream| {
            silence.look(directory, stream)?;
            on_look(silence);
            if Instant::now() >= until {
                return Err(silence.given_up());
            }
            Ok(())
        });
        if matches!(dialled, Ok(_) | Err(DialError::Busy)) {
            silence.answered();
        }
        dialled
    })
}

/// Asks a keeper whether it does its work, and waits until it has answered. Nothing has come from it
/// since `quiet`. While it is stalled, its user, who calls its server so, is told by `print`, once.
/// Blocks.
///
/// # Errors
/// [`DialError::Hung`]; and the others where it is gone, or does not let this process in.
pub(crate) fn ping(
    directory: &Path,
    keeper: KeeperName,
    server: &str,
    quiet: Instant,
    print: &dyn Fn(&str),
) -> Result<(), DialError> {
    let mut silence = Silence::since(keeper, quiet);
    loop {
        let asked = dial_waiting(
            directory,
            &KeeperRequest::Ping {},
            Instant::now() + ANSWER_WAIT,
            &mut silence,
            &mut |silence| {
                if let Some(pid) = silence.notice() {
                    print(&stalled_sentence(server, pid, &pid));
                }
            },
        );
        match asked {
            Err(DialError::Stalled(_) | DialError::Silent) => {}
            Err(DialError::Busy) => std::thread::sleep(BUSY_PAUSE),
            asked => return asked.map(drop),
        }
    }
}

fn in_its_version(
    mut dial: impl FnMut(u16) -> Result<Dialled, DialError>,
) -> Result<Dialled, DialError> {
    let newest = super::version();
    match dial(newest) {
        Err(DialError::Hello(HelloError::Version { theirs, .. }))
            if (OLDEST_KEEPER_VERSION..newest).contains(&theirs) =>
        {
            dial(theirs)
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

/// What is done while a keeper is silent: it is waited for, or given up.
type OnSilence<'a> = dyn FnMut(&UnixStream) -> Result<(), DialError> + 'a;

/// Greets and asks. `on_silence` is called whenever the keeper was silent for `patience`.
fn ask(
    stream: UnixStream,
    request: &KeeperRequest,
    version: u16,
    patience: Duration,
    on_silence: &mut OnSilence<'_>,
) -> Result<Dialled, DialError> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut waited = Waited {
        stream: &stream,
        on_silence,
        given_up: None,
    };
    let request = serde_json::to_vec(request).map_err(io::Error::other)?;
    let asked = greet_blocking(&mut waited, &Hello::keeper(version))
        .map_err(|error| match error {
            HelloError::Io(error) => error.into(),
            HelloError::Busy => DialError::Busy,
            error => DialError::Hello(error),
        })
        .and_then(|_| Ok(waited.write_all(&frame(Kind::Request, 0, &request))?))
        .and_then(|()| first_frame(&mut waited));
    let (reply, frames) = asked.map_err(|error| waited.given_up.take().unwrap_or(error))?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    match serde_json::from_slice(reply.bytes()).map_err(|_| DialError::Answer)? {
        KeeperReply::Refused(error) => Err(DialError::Refused(error)),
        reply => Ok(Dialled {
            stream,
            frames,
            reply,
        }),
    }
}

/// What a keeper answers, and what was read behind that.
fn first_frame(stream: &mut impl Read) -> Result<(Frame, FrameBuffer), DialError> {
    // With the host's own ids a message may be a little longer.
    let mut frames = FrameBuffer::with_line_max(RELAYED_MAX + MARGIN);
    let mut chunk = vec![0; CHUNK];
    loop {
        match frames.next_frame() {
            Ok(Some(reply)) if reply.kind == Kind::Reply => return Ok((reply, frames)),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(DialError::Answer),
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => frames.room().extend_from_slice(&chunk[..read]),
        }
    }
}

/// A connection whose silence is waited for, or given up.
struct Waited<'a, 'b> {
    stream: &'a UnixStream,
    on_silence: &'a mut OnSilence<'b>,
    given_up: Option<DialError>,
}

impl Waited<'_, '_> {
    fn wait<T>(&mut self, mut attempt: impl FnMut(&UnixStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            let error = match attempt(self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
                done => return done,
            };
            if !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) {
                return Err(error);
            }
            if let Err(why) = (self.on_silence)(self.stream) {
                self.given_up = Some(why);
                return Err(error);
            }
        }
    }
}

impl Read for Waited<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait(|mut stream| stream.read(bytes))
    }
}

impl Write for Waited<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.wait(|mut stream| stream.write(bytes)) {
            // It has refused and hung up, before it was asked. Its answer is there to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
