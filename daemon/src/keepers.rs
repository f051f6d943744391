//! What keepers are asked by their sockets, where the records do not say.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mcp_sessiond_process::health::is_stopped;
use mcp_sessiond_process::{self as process, PeerError, PinnedProcess, socket};
use mcp_sessiond_proto::backends::frame::{FrameBuffer, Kind, frame};
use mcp_sessiond_proto::backends::{
    KEEPER_VERSION, KeeperName, KeeperReply, KeeperRequest, OLDEST_KEEPER_VERSION,
};
use mcp_sessiond_proto::hello::{Hello, HelloError, greet_blocking};
use mcp_sessiond_proto::paths;

/// How long a keeper may take for an answer, and how long where it is stopped. Hosts are waiting for
/// the daemon.
const ASK_WAIT: Duration = Duration::from_secs(2);
const STOPPED_WAIT: Duration = Duration::from_millis(250);

/// The keepers that have a socket in a runtime directory. A keeper registers before it listens, so
/// whoever wants to know which of them are not on record looks here first, and at the records then.
pub fn listening(directory: &Path) -> Vec<KeeperName> {
    let found = std::fs::read_dir(paths::keepers(directory))
        .into_iter()
        .flatten()
        .flatten();
    found
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Whoever listens on a keeper's socket: a process of this user's that leads a session of
/// processes, as a keeper does.
#[derive(Debug)]
pub struct Listener {
    /// The process that called listen(2).
    pub process: PinnedProcess,
    path: PathBuf,
    stream: UnixStream,
}

impl Listener {
    /// None: nobody listens there any more.
    ///
    /// # Errors
    /// When it is somebody else, or can't be found out.
    pub fn find(directory: &Path, keeper: KeeperName) -> io::Result<Option<Self>> {
        let path = paths::keeper_socket(directory, keeper);
        let stream = match socket::connect_now(&path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
                ) =>
            {
                return Ok(None);
            }
            connected => connected?,
        };
        let locks = paths::keeper_locks(directory);
        let process = match process::listener(&stream, &locks, keeper.0) {
            Ok(process) => process,
            Err(PeerError::Gone) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        if !process::leads_session(&process)? {
            return Err(io::Error::other(
                "it leads no session of processes, as a keeper does",
            ));
        }
        Ok(Some(Self {
            process,
            path,
            stream,
        }))
    }

    /// Asks it, in its own version of the protocol. None: it does not answer, or not what was asked
    /// for.
    pub fn ask(self, request: &KeeperRequest) -> Option<KeeperReply> {
        let patience = if is_stopped(&self.process) {
            STOPPED_WAIT
        } else {
            ASK_WAIT
        };
        let asked = match ask(self.stream, KEEPER_VERSION, request, patience) {
            Err(Unanswered::Version(theirs))
                if (OLDEST_KEEPER_VERSION..KEEPER_VERSION).contains(&theirs) =>
            {
                ask(
                    socket::connect_now(&self.path).ok()?,
                    theirs,
                    request,
                    patience,
                )
            }
            asked => asked,
        };
        asked.ok()
    }
}

enum Unanswered {
    Version(u16),
    Silent,
}

impl<E: std::error::Error> From<E> for Unanswered {
    fn from(_: E) -> Self {
        Self::Silent
    }
}

fn ask(
    mut stream: UnixStream,
    version: u16,
    request: &KeeperRequest,
    patience: Duration,
) -> Result<KeeperReply, Unanswered> {
    let until = Instant::now() + patience;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    match greet_blocking(&mut stream, &Hello::keeper(version)) {
        Err(HelloError::Version { theirs, .. }) => return Err(Unanswered::Version(theirs)),
        welcome => drop(welcome?),
    }
    stream.write_all(&frame(Kind::Request, 0, &serde_json::to_vec(request)?))?;
    let (mut frames, mut chunk) = (FrameBuffer::default(), [0; 4096]);
    loop {
        match frames.next_frame()? {
            Some(answer) if answer.kind == Kind::Reply => {
                return Ok(serde_json::from_slice(answer.bytes())?);
            }
            Some(_) => return Err(Unanswered::Silent),
            None => {}
        }
        let left = until
            .checked_duration_since(Instant::now())
            .ok_or(Unanswered::Silent)?;
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut chunk)? {
            0 => return Err(Unanswered::Silent),
            read => frames.room().extend_from_slice(&chunk[..read]),
        }
    }
}
