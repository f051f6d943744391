//! A front's way to a shared server: it connects to the sharer, or starts it. A host that can't
//! share gets a server of its own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_client::Outcome;
use mcp_sessiond_process::{self as process, Health, HealthWatch, executable};
use mcp_sessiond_proto::backends::frame::{FrameBuffer, Kind, frame};
use mcp_sessiond_proto::backends::{Attached, KEEPER_VERSION, RELAYED_MAX};
use mcp_sessiond_proto::hello::{HELLO_LEN, Hello};
use mcp_sessiond_proto::{Json, paths};
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Looking, Reply, Report, Request, Shared, VARIABLES};
use crate::frames::FrameSender;
use crate::keeper::dial::MARGIN;
use crate::keeper::silence::{NOTICE_AFTER, stalled_sentence};
use crate::memory::while_dumpable;
use crate::notices::print;
use crate::server::attach::{Attaching, Attachment, KEEPER_REPLACED, NoBackend};
use crate::server::kept::{Door, Releaser, Stopper};
use crate::signals::GivenMask;
use crate::waits::{ATTACH_WAIT, PAUSE};

/// The longest pause between attempts to reach a sharer that another front is starting.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long a sharer may take to be reached, or started: it may wait for a former one to end, and
/// its keeper for a former server.
const START: Duration = Duration::from_secs(2 * ATTACH_WAIT.as_secs());

/// How often it is looked whether a sharer is stopped that does not answer, in ms.
const LOOK: u8 = 250;

/// How long another front may take that has the right to start a sharer.
const STARTER_WAIT: Duration = Duration::from_secs(2);

/// How often a host that comes again is told to come later, before it gets a server of its own: a
/// quarter of a minute, with the pauses that fronts make.
const REFUSALS: u32 = 16;

/// A way to a shared server, and to one of the host's own.
#[derive(Debug)]
pub struct Place {
    shared: Shared,
    looking: Looking,
    /// Whether it has had the server: what the entry stands for may have changed since.
    had: bool,
    /// What the host has said first.
    first: Bytes,
    mask: GivenMask,
    /// The way to a server of its own.
    door: Door,
    /// Why that is the one, if it is.
    own: Option<String>,
    /// How often it was told to come later, one after the other.
    refusals: u32,
    /// Whether that was said.
    told: bool,
    /// The stalled keeper that was said to be one.
    said_stalled: AtomicU32,
    /// Nobody waits for the server any more once the other end of this is closed.
    wanted: Option<UnixStream>,
}

/// What comes of asking for a place.
enum Answer {
    Welcome(Box<Attachment>),
    Own(String),
    Later(String),
    /// Nobody listens.
    Absent,
}

impl Place {
    /// `first` is the host's first line; `door` leads to the same program, where the host gets a
    /// server of its own.
    pub fn new(
        shared: Shared,
        looking: Looking,
        first: Bytes,
        mask: GivenMask,
        door: Door,
    ) -> Self {
        Self {
            shared,
            looking,
            had: false,
            first,
            mask,
            door,
            own: None,
            refusals: 0,
            told: false,
            said_stalled: AtomicU32::new(0),
            wanted: None,
        }
    }

    /// What gives the lease of a server of its own up.
    pub fn releaser(&self) -> Releaser {
        self.door.releaser()
    }

    /// What ends a server of its own.
    pub fn stopper(&self) -> Stopper {
        self.door.stopper()
    }

    /// It is given up once the other end of this is closed.
    pub fn while_wanted(self, wanted: UnixStream) -> Self {
        Self {
            wanted: Some(wanted),
            ..self
        }
    }

    fn attach_shared(&self, line: &[u8], again: bool) -> Result<Answer, NoBackend> {
        let passing = |error: &dyn std::fmt::Display| {
            NoBackend::Passing(format!("the shared server: {error}"))
        };
        let directory = paths::directory().map_err(|error| passing(&error))?;
        let socket = self.shared.socket(&directory);
        let until = Instant::now() + START;
        let mut pause = PAUSE;
        let mut is_awake = false;
        // Since when another front is about to start it.
        let mut held: Option<Instant> = None;
        loop {
            match self
                .ask(&socket, line, again)
                .map_err(|error| passing(&error))?
            {
                Answer::Absent => {}
                answer => return Ok(answer),
            }
            if !is_awake {
                // Not by the sharer: a daemon that it starts would have its variables, and no
                // directory is there without one.
                self.door.wake_daemon()?;
                is_awake = true;
            }
            let lock = self
                .lock(&directory, &socket)
                .map_err(|error| passing(&error))?;
            // Whoever has the right to start it may be stopped. Of two that are started, the daemon
            // gives the session to one, and the other one exits.
            let is_late = held.is_some_and(|since| since.elapsed() >= STARTER_WAIT);
            if lock.is_some() || is_late {
                held = None;
                // It may have been started before the lock was ours.
                match self
                    .ask(&socket, line, again)
                    .map_err(|error| passing(&error))?
                {
                    Answer::Absent => {}
                    answer => return Ok(answer),
                }
                let report = self.start(&directory).map_err(|error| passing(&error))?;
                drop(lock);
                match report {
                    Report::Ready {} => continue,
                    Report::Stalled { keeper } => {
                        let why = stalled_sentence("the shared server", keeper, &keeper);
                        if self.said_stalled.swap(keeper, Ordering::Relaxed) != keeper {
                            print(&why);
                        }
                        return Err(NoBackend::Stalled(why));
                    }
                    Report::NoProgram { code, sentence } => {
                        return Err(NoBackend::NoProgram { code, sentence });
                    }
                    Report::Failed {
                        sentence,
                        passing: false,
                    } => {
                        return Err(NoBackend::NoSession(None, sentence));
                    }
                    Report::Failed { sentence, .. } if Instant::now() >= until => {
                        return Err(passing(&sentence));
                    }
                    Report::Failed { .. } => {}
                }
            } else {
                held.get_or_insert_with(Instant::now);
            }
            if Instant::now() >= until {
                return Err(passing(&"it did not start in time"));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks who listens there for a place, and waits for the answer as long as somebody is there:
    /// the server may take its time.
    fn ask(&self, socket: &Path, line: &[u8], again: bool) -> io::Result<Answer> {
        let Ok(mut stream) = UnixStream::connect(socket) else {
            return Ok(Answer::Absent);
        };
        // Another user's process is none of ours.
        if !process::is_ours(&stream) {
            return Ok(Answer::Absent);
        }
        let request = Request::Place {
            key: self.shared.key.clone(),
            again,
            host: std::os::unix::process::parent_id(),
        };
        // It has not to be asked who we are, so all of this can be said at once.
        let hello = Hello::keeper(KEEPER_VERSION);
        let asking = [
            &hello.encode()[..],
            &frame(Kind::Request, 0, &serde_json::to_vec(&request)?),
            &frame(Kind::Line, 0, line),
        ];
        if stream.write_all(&asking.concat()).is_err() {
            return Ok(Answer::Absent);
        }
        let (mut theirs, mut greeted) = ([0; HELLO_LEN], 0);
        let mut frames = FrameBuffer::with_line_max(RELAYED_MAX + MARGIN);
        let mut chunk = [0; 4096];
        let said = loop {
            match frames.next_frame() {
                Ok(None) => {}
                said => break said.ok().flatten(),
            }
            if !self.wait_for(&stream) {
                return Err(io::Error::other("the host is gone"));
            }
            let room = match greeted {
                HELLO_LEN => &mut chunk[..],
                greeted => &mut theirs[greeted..],
            };
            match stream.read(room) {
                // It ends, or was killed.
                Ok(0) => return Ok(Answer::Absent),
                Ok(read) if greeted < HELLO_LEN => {
                    greeted += read;
                    let is_whole = greeted == HELLO_LEN;
                    if is_whole && !is_welcome(&theirs, &hello) {
                        break None;
                    }
                }
                Ok(read) => frames.room().extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(Answer::Absent),
            }
        };
        let reply = said
            .filter(|said| said.kind == Kind::Reply)
            .and_then(|said| serde_json::from_slice(said.bytes()).ok());
        let ended = match reply.unwrap_or(Reply::Other {}) {
            Reply::Welcome { ended } => ended,
            Reply::Own { why } => return Ok(Answer::Own(why)),
            Reply::Later { why } => return Ok(Answer::Later(why)),
            Reply::Other {} | Reply::Status { .. } => {
                return Ok(Answer::Own(
                    "another server or another version has its socket".to_owned(),
                ));
            }
        };
        Ok(Answer::Welcome(Box::new(Attachment {
            sender: Arc::new(FrameSender::new(stream.try_clone()?)),
            reader: stream,
            frames,
            attached: Attached {
                ended,
                ..Attached::default()
            },
            outcome: Outcome::Held,
            loss: None,
            differing: Vec::new(),
            watch: None,
        })))
    }

    /// Waits until the sharer has said something. False: nobody waits for that any more.
    fn wait_for(&self, stream: &UnixStream) -> bool {
        let output = io::stdout();
        let mut awaited = vec![
            PollFd::new(stream.as_fd(), PollFlags::POLLIN),
            // Errors and hang-ups are told without being asked for.
            PollFd::new(output.as_fd(), PollFlags::empty()),
        ];
        awaited.extend(
            self.wanted
                .as_ref()
                .map(|wanted| PollFd::new(wanted.as_fd(), PollFlags::POLLIN)),
        );
        let mut sharer = process::peer(stream)
            .ok()
            .map(|peer| HealthWatch::new(peer.process().clone()));
        let mut stalled: Option<Instant> = None;
        loop {
            // Only whether the sharer is stopped is to be looked at.
            let patience = if sharer.is_some() {
                PollTimeout::from(LOOK)
            } else {
                PollTimeout::NONE
            };
            match poll(&mut awaited, patience) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return true,
                Ok(0) => {
                    let Some(watch) = &mut sharer else { continue };
                    if watch.look() != Health::Stalled {
                        stalled = None;
                        continue;
                    }
                    let since = *stalled.get_or_insert_with(Instant::now);
                    if since.elapsed() >= NOTICE_AFTER {
                        let pid = watch.process().id().pid;
                        print(&format_args!(
                            "the process that shares this server (pid {pid}) is stopped; waiting for it; `kill -KILL {pid}` ends it"
                        ));
                        sharer = None;
                    }
                }
                Ok(_) => return awaited[0].any().unwrap_or(true),
            }
        }
    }

    /// The right to start the sharer. None: another front has it.
    fn lock(&self, directory: &Path, socket: &Path) -> io::Result<Option<Flock<File>>> {
        match DirBuilder::new()
            .mode(0o700)
            .create(paths::shared(directory))
        {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = socket.with_extension("lock");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// Starts the sharer, with nothing of this process but what every server of every host has, and
    /// waits for its report.
    fn start(&self, directory: &Path) -> io::Result<Report> {
        let shared = if self.had {
            (self.looking.0)()
        } else {
            Ok(self.shared.clone())
        };
        let shared = match shared {
            Ok(shared) => shared,
            // Not the former secret.
            Err(sentence) => {
                return Ok(Report::Failed {
                    sentence,
                    passing: false,
                });
            }
        };
        let mut command = Command::new(executable::own().ok_or(io::ErrorKind::NotFound)?);
        command.arg("share").env_clear();
        let ours = VARIABLES
            .into_iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(ours);
        if std::env::var_os(paths::DIRECTORY_VARIABLE).is_some() {
            command.env(paths::DIRECTORY_VARIABLE, directory);
        }
        command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = self.mask.while_in_force(|| command.spawn())?;
        let errand = serde_json::to_vec(&shared)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&errand)?;
        }
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        // What we have started passes the report on and exits.
        child.wait()?;
        serde_json::from_str(&line)
            .map_err(|_| io::Error::other("it ended before it had said anything"))
    }
}

fn is_welcome(theirs: &[u8; HELLO_LEN], ours: &Hello) -> bool {
    Hello::decode(theirs).is_ok_and(|said| said.welcome(ours.version, ours.codec).is_ok())
}

impl Attaching for Place {
    fn attach(
        &mut self,
        initialize: Option<Json>,
        until: Instant,
    ) -> Result<Attachment, NoBackend> {
        if self.own.is_none() {
            let again = initialize.is_some();
            let line = initialize
                .as_ref()
                .map_or(&self.first[..], |line| line.as_str().as_bytes());
            match self.attach_shared(line, again)? {
                Answer::Welcome(attachment) => {
                    (self.refusals, self.had) = (0, true);
                    return Ok(*attachment);
                }
                Answer::Later(why) if self.refusals < REFUSALS => {
                    self.refusals += 1;
                    return Err(NoBackend::Passing(why));
                }
                Answer::Own(why) | Answer::Later(why) => self.own = Some(why),
                Answer::Absent => {
                    return Err(NoBackend::Passing("the shared server is gone".to_owned()));
                }
            }
        }
        // That took the shared server's time.
        let until = until.max(Instant::now() + ATTACH_WAIT);
        if self.door.has_claimed() {
            return self.door.attach(initialize, until);
        }
        // A host that has shared the server until now has claimed nothing.
        while_dumpable(|| self.door.attach(initialize, until))
    }

    fn reattached(&self) -> &'static str {
        match self.own {
            Some(_) => KEEPER_REPLACED,
            None => "the connection to the shared server had ended; there is a new one",
        }
    }

    fn notice(&mut self) -> Option<String> {
        let why = self.own.as_ref().filter(|_| !self.told)?;
        self.told = true;
        Some(format!(
            "{why}; so this host does not share the server, and gets one of its own"
        ))
    }
}
