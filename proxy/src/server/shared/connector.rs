//! A front's way to a shared server: it joins the keeper, or starts it. A host that can't share gets
//! a server of its own.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_client::{Outcome, SessionId};
use mcp_sessiond_process::{self as process, Health, HealthWatch, executable};
use mcp_sessiond_proto::backends::frame::{CHUNK, FrameBuffer, Kind, frame};
use mcp_sessiond_proto::backends::{Join, KeeperReply, KeeperRequest};
use mcp_sessiond_proto::{Json, KeeperName, paths};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Looking, Shared, VARIABLES};
use crate::frames::FrameSender;
use crate::keeper::dial::{DialError, Dialled, dial_waiting};
use crate::keeper::launch::{BackendOf, Launch, Report};
use crate::keeper::silence::{NOTICE_AFTER, Silence, stalled_sentence};
use crate::memory::while_dumpable;
use crate::notices::print;
use crate::server::attach::{Attaching, Attachment, KEEPER_REPLACED, NoBackend};
use crate::server::kept::Door;
use crate::signals::GivenMask;
use crate::waits::{ATTACH_WAIT, PAUSE};

/// What its user calls the server.
const SERVER: &str = "the shared server";

/// The longest pause between attempts to join a keeper that another front is starting.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long a keeper may take to be joined, or started: it may wait for a former server to end.
const START: Duration = Duration::from_secs(2 * ATTACH_WAIT.as_secs());

/// The time between two attempts to start a keeper. Of several that are started the daemon gives the
/// session to one, and the others exit.
const START_PAUSE: Duration = Duration::from_millis(250);

/// How long nobody may join a keeper that has just been started: whoever has started it joins at
/// once.
const FIRST: Duration = Duration::from_secs(20);

/// How often it is looked whether a keeper is stopped that does not answer, in ms.
const LOOK: u8 = 250;

/// How often a host that comes again is told to come later, before it gets a server of its own: a
/// quarter of a minute, with the pauses that fronts make.
const REFUSALS: u32 = 16;

/// A way to a shared server, and to one of the host's own.
#[derive(Debug)]
pub struct SharedConnector {
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
    /// The keeper that was asked last, in vain so far.
    silence: Option<Silence>,
    /// Nobody waits for the server any more once the other end of this is closed.
    wanted: Option<UnixStream>,
}

/// What comes of asking for a place.
enum Answer {
    Attached(Box<Attachment>),
    Own(String),
    Later(String),
    /// Nobody listens.
    Absent,
}

impl SharedConnector {
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
            silence: None,
            wanted: None,
        }
    }

    /// It is given up once the other end of this is closed.
    pub fn while_wanted(self, wanted: UnixStream) -> Self {
        Self {
            wanted: Some(wanted),
            ..self
        }
    }

    fn attach_shared(
        &mut self,
        line: &[u8],
        again: bool,
        mut until: Instant,
    ) -> Result<Answer, NoBackend> {
        let passing =
            |error: &dyn std::fmt::Display| NoBackend::Passing(format!("{SERVER}: {error}"));
        let directory = paths::directory().map_err(|error| passing(&error))?;
        let began = Instant::now();
        let mut pause = PAUSE;
        let mut is_awake = false;
        let mut started: Option<Instant> = None;
        loop {
            match self.join(&directory, line, again, until)? {
                Answer::Absent => {}
                answer => return Ok(answer),
            }
            if !is_awake {
                // Not by the keeper: a daemon that it starts would have its variables, and no
                // directory is there without one.
                self.door.wake_daemon()?;
                is_awake = true;
            }
            let mut why = "it did not start in time".to_owned();
            if started.is_none_or(|at| at.elapsed() >= START_PAUSE) {
                started = Some(Instant::now());
                match self.start(began + START)? {
                    Report::Ready(_) => {
                        pause = PAUSE;
                        // So far it was the server's time.
                        until = until.max(Instant::now() + ATTACH_WAIT);
                    }
                    Report::NoProgram { code, sentence } => {
                        return Err(NoBackend::NoProgram { code, sentence });
                    }
                    // Another front starts it, or a former one is about to end.
                    Report::NoLease(sentence)
                    | Report::NoSession(sentence)
                    | Report::Failed(sentence) => why = sentence,
                }
            }
            if began.elapsed() >= START {
                return Err(passing(&why));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks the keeper for a place, and waits for its answer as long as somebody is there: the server
    /// may take its time. The keeper itself has to answer by `until`.
    fn join(
        &mut self,
        directory: &Path,
        line: &[u8],
        again: bool,
        until: Instant,
    ) -> Result<Answer, NoBackend> {
        let Some(keeper) = self.shared.keeper() else {
            return Ok(Answer::Own("its key is too short".to_owned()));
        };
        let request = KeeperRequest::Join(Join {
            key: self.shared.key.clone(),
            host: std::os::unix::process::parent_id(),
            again,
        });
        let silence = self.silence.get_or_insert_with(|| Silence::of(keeper));
        let notice = &mut |silence: &mut Silence| {
            if let Some(pid) = silence.notice() {
                print(&stalled_sentence(SERVER, pid, &pid));
            }
        };
        let why = match dial_waiting(directory, &request, until, silence, notice) {
            Ok(Dialled {
                stream,
                frames,
                reply: KeeperReply::Joining { session },
            }) => {
                self.silence = None;
                return self.await_place(stream, frames, line, keeper, session, directory);
            }
            Ok(_) => DialError::Answer,
            Err(why) => why,
        };
        match why {
            // It lives.
            DialError::Stalled(_) | DialError::Silent | DialError::Busy => {
                return Err(NoBackend::Stalled(why.to_string()));
            }
            _ => self.silence = None,
        }
        match why {
            DialError::Hung => Err(self.door.end_hung(keeper)),
            DialError::Hello(_) | DialError::Answer | DialError::Refused(_) => Ok(Answer::Own(
                "another server or another version has its socket".to_owned(),
            )),
            _ => Ok(Answer::Absent),
        }
    }

    /// Sends the host's first message, and waits until the keeper says what becomes of it.
    fn await_place(
        &self,
        mut stream: UnixStream,
        mut frames: FrameBuffer,
        line: &[u8],
        keeper: KeeperName,
        session: SessionId,
        directory: &Path,
    ) -> Result<Answer, NoBackend> {
        if stream.write_all(&frame(Kind::Line, 0, line)).is_err() {
            return Ok(Answer::Absent);
        }
        let mut chunk = vec![0; CHUNK];
        let reply = loop {
            match frames.next_frame() {
                Ok(None) => {}
                Ok(Some(said)) if said.kind == Kind::Reply => break said,
                Ok(Some(_)) | Err(_) => return Ok(Answer::Absent),
            }
            if !self.wait_for(&stream) {
                return Err(NoBackend::Passing(format!("{SERVER}: the host is gone")));
            }
            match stream.read(&mut chunk) {
                Ok(read @ 1..) => frames.room().extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It ends, or was killed.
                Ok(0) | Err(_) => return Ok(Answer::Absent),
            }
        };
        let attached = match serde_json::from_slice(reply.bytes()) {
            Ok(KeeperReply::Attached(attached)) => attached,
            Ok(KeeperReply::Own { why }) => return Ok(Answer::Own(why)),
            Ok(KeeperReply::Later { why }) => return Ok(Answer::Later(why)),
            _ => return Ok(Answer::Absent),
        };
        let passing = |error: io::Error| NoBackend::Passing(format!("{SERVER}: {error}"));
        Ok(Answer::Attached(Box::new(Attachment {
            sender: Arc::new(FrameSender::new(stream.try_clone().map_err(passing)?)),
            reader: stream,
            frames,
            attached,
            outcome: Outcome::Held,
            loss: None,
            differing: Vec::new(),
            watch: Some(self.door.watch_of(directory, keeper, SERVER, session)),
        })))
    }

    /// Waits until the keeper has said something. False: nobody waits for that any more.
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
        let mut keeper = process::peer(stream)
            .ok()
            .map(|peer| HealthWatch::new(peer.process().clone()));
        let mut stalled: Option<Instant> = None;
        loop {
            // Only whether the keeper is stopped is to be looked at.
            let patience = if keeper.is_some() {
                PollTimeout::from(LOOK)
            } else {
                PollTimeout::NONE
            };
            match poll(&mut awaited, patience) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return true,
                Ok(0) => {
                    let Some(watch) = &mut keeper else { continue };
                    if watch.look() != Health::Stalled {
                        stalled = None;
                        continue;
                    }
                    let since = *stalled.get_or_insert_with(Instant::now);
                    if since.elapsed() >= NOTICE_AFTER {
                        let pid = watch.process().id().pid;
                        print(&stalled_sentence(SERVER, pid, &pid));
                        keeper = None;
                    }
                }
                Ok(_) => return awaited[0].any().unwrap_or(true),
            }
        }
    }

    /// Starts a keeper, with nothing of this process but what every server of every host has, and
    /// waits for its report.
    fn start(&self, until: Instant) -> Result<Report, NoBackend> {
        let shared = if self.had {
            // Not with the former secret.
            (self.looking.0)().map_err(|sentence| NoBackend::NoSession(None, sentence))?
        } else {
            self.shared.clone()
        };
        let passing = |error: io::Error| NoBackend::Passing(format!("{SERVER}: {error}"));
        let binary = executable::own().ok_or_else(|| passing(io::ErrorKind::NotFound.into()))?;
        let (mut environment, cwd) = shared.launch_env();
        if let Some(directory) = std::env::var_os(paths::DIRECTORY_VARIABLE) {
            environment.push((paths::DIRECTORY_VARIABLE.into(), directory));
        }
        let home = cwd.or_else(|| std::env::home_dir().filter(|home| home.is_dir()));
        let launch = Launch {
            descriptors: None,
            binary: &binary,
            of: BackendOf::Hosts {
                key: shared.key.clone(),
                linger_ms: u64::try_from(shared.linger.as_millis()).unwrap_or(u64::MAX),
            },
            wait: FIRST,
            program: &shared.program(),
            inherits: Some(&VARIABLES),
            environment: &environment,
            home: home.as_deref(),
        };
        launch.start(&self.mask, until).map_err(passing)
    }
}

impl Attaching for SharedConnector {
    fn attach(
        &mut self,
        initialize: Option<Json>,
        until: Instant,
    ) -> Result<Attachment, NoBackend> {
        if self.own.is_none() {
            let again = initialize.is_some();
            let line = initialize.as_ref().map_or_else(
                || self.first.clone(),
                |line| Bytes::copy_from_slice(line.as_str().as_bytes()),
            );
            match self.attach_shared(&line, again, until)? {
                Answer::Attached(attachment) => {
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
