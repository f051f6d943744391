//! A front's way to a shared server: it joins the keeper, or starts it. A host that can't share gets
//! a server of its own.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_client::Outcome;
use mcp_sessiond_process::{self as process, Health, HealthWatch, executable};
use mcp_sessiond_proto::backends::frame::{FrameBuffer, Kind};
use mcp_sessiond_proto::backends::{Join, KeeperReply, KeeperRequest, StopReason};
use mcp_sessiond_proto::paths;
use tokio::time::sleep;

use super::{Looking, Shared, VARIABLES};
use crate::frames::{FrameSender, Frames, PendingFrames};
use crate::keeper::dial::{DialError, Dialled, dial_waiting};
use crate::keeper::launch::{BackendOf, Launch, Report};
use crate::keeper::silence::{NOTICE_AFTER, Silence, stalled_sentence};
use crate::notices::print;
use crate::server::connector::{
    ATTACH_WAIT, Attachment, Connected, Connector, Hello, NoBackend, PAUSE, START_MAX,
    WithoutKeeper,
};
use crate::server::keeper_connector::{KeeperConnector, KeeperWatch};
use crate::signals::GivenMask;
use crate::socket::SocketReader;

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

/// How often it is looked whether a keeper is stopped that does not answer.
const LOOK: Duration = Duration::from_millis(250);

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
    own_server: KeeperConnector,
    /// Why that is the one, if it is.
    own: Option<String>,
    /// How often it was told to come later, one after the other.
    refusals: u32,
    /// Whether that was said.
    told: bool,
    /// The keeper that was asked last, in vain so far.
    silence: Option<Silence>,
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
    /// `own_server` leads to the same program, where the host gets a server of its own.
    pub fn new(
        shared: Shared,
        looking: Looking,
        mask: GivenMask,
        own_server: KeeperConnector,
    ) -> Self {
        Self {
            shared,
            looking,
            had: false,
            first: Bytes::new(),
            mask,
            own_server,
            own: None,
            refusals: 0,
            told: false,
            silence: None,
        }
    }

    async fn attach_shared(
        &mut self,
        line: &Bytes,
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
            match self.join(&directory, line, again, until).await? {
                Answer::Absent => {}
                answer => return Ok(answer),
            }
            if !is_awake {
                // Not by the keeper: a daemon that it starts would have its variables, and no
                // directory is there without one.
                self.own_server.wake_daemon().await?;
                is_awake = true;
            }
            let mut why = "it did not start in time".to_owned();
            if started.is_none_or(|at| at.elapsed() >= START_PAUSE) {
                started = Some(Instant::now());
                match self.start(began + START).await? {
                    Report::Ready(_) => {
                        pause = PAUSE;
                        // So far it was the server's time.
                        until = until.max(Instant::now() + ATTACH_WAIT);
                    }
                    Report::NoProgram { code, sentence } => {
                        return Err(NoBackend::NoProgram { code, sentence });
                    }
                    // Another front starts it, or a former one is about to end; or it lives, and its
                    // socket is gone.
                    Report::NoLease(sentence) => {
                        why = sentence;
                        let keeper = self.shared.keeper();
                        if let Some(keeper) =
                            keeper.filter(|keeper| self.own_server.refuses_for_long(*keeper))
                        {
                            let reason = StopReason::KeeperUnreachable(keeper);
                            self.own_server.end_keeper_of_others(keeper, reason).await;
                        }
                    }
                    Report::NoSession(sentence) | Report::Failed(sentence) => why = sentence,
                }
            }
            if began.elapsed() >= START {
                return Err(passing(&why));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks the keeper for a place, and waits for its answer without limit: the server may take its
    /// time. The keeper itself has to answer by `until`.
    async fn join(
        &mut self,
        directory: &Path,
        line: &Bytes,
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
        let notice = |silence: &mut Silence| {
            if let Some(pid) = silence.notice() {
                print(&stalled_sentence(SERVER, pid, &pid));
            }
        };
        let why = match dial_waiting(directory, &request, until, silence, notice).await {
            Ok(Dialled {
                stream,
                frames,
                reply: KeeperReply::Joining { session },
            }) => {
                self.silence = None;
                self.own_server.reached();
                let watch = self.own_server.watch_of(directory, keeper, SERVER, session);
                let joined = joined(stream, frames, line.clone(), watch).await;
                return Ok(joined.unwrap_or(Answer::Absent));
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
            DialError::Hung => {
                let reason = StopReason::KeeperHung(keeper);
                Err(self.own_server.end_keeper_of_others(keeper, reason).await)
            }
            DialError::Hello(_) | DialError::Answer | DialError::Refused(_) => Ok(Answer::Own(
                "another server or another version has its socket".to_owned(),
            )),
            _ => Ok(Answer::Absent),
        }
    }

    /// Starts a keeper, with nothing of this process but what every server of every host has, and
    /// waits for its report.
    async fn start(&self, until: Instant) -> Result<Report, NoBackend> {
        let passing = |error: io::Error| NoBackend::Passing(format!("{SERVER}: {error}"));
        let shared = if self.had {
            // Not with the former secret, for which the user may be asked.
            let looking = self.looking.clone();
            let looked = tokio::task::spawn_blocking(move || (looking.0)()).await;
            let looked = looked.map_err(|error| passing(io::Error::other(error)))?;
            looked.map_err(|sentence| NoBackend::NoSession(None, sentence))?
        } else {
            self.shared.clone()
        };
        let binary = executable::own().ok_or_else(|| passing(io::ErrorKind::NotFound.into()))?;
        let (mut environment, cwd) = shared.launch_env();
        if let Some(directory) = std::env::var_os(paths::DIRECTORY_VARIABLE) {
            environment.push((paths::DIRECTORY_VARIABLE.into(), directory));
        }
        let of_user = || paths::user_directories().map(|user| user.home);
        let home = cwd.or_else(|| of_user().filter(|home| home.is_dir()));
        let launch = Launch {
            starts_daemon: false,
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
        let mut starting = launch.start(&self.mask).map_err(passing)?;
        starting
            .report(until, until + START_MAX)
            .await
            .map_err(passing)
    }
}

impl Connector for SharedConnector {
    fn connect<'a>(
        &'a mut self,
        hello: &'a Hello,
        until: Instant,
    ) -> BoxFuture<'a, Result<Connected, NoBackend>> {
        Box::pin(async move {
            if let Some(first) = &hello.first {
                self.first = first.clone();
            }
            if self.own.is_none() {
                let line = match &hello.initialize {
                    Some(line) => Bytes::copy_from_slice(line.as_str().as_bytes()),
                    None => self.first.clone(),
                };
                let again = hello.initialize.is_some();
                match self.attach_shared(&line, again, until).await? {
                    Answer::Attached(attachment) => {
                        (self.refusals, self.had) = (0, true);
                        return Ok(Connected::Keeper(attachment));
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
            let mut connected = self.own_server.connect(hello, until).await?;
            if let Connected::Keeper(attachment) = &mut connected {
                let is_news = !std::mem::replace(&mut self.told, true);
                attachment.notice = self.own.as_ref().filter(|_| is_news).map(|why| {
                    format!(
                        "{why}; so this host does not share the server, and gets one of its own"
                    )
                });
            }
            Ok(connected)
        })
    }

    /// A keeper that was started for all hosts ends by itself, if none joins it.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        self.own_server.release()
    }

    fn without_keeper(&mut self, why: &NoBackend) -> WithoutKeeper {
        self.own_server.without_keeper(why)
    }
}

/// Sends the host's first message, and waits until the keeper says what becomes of it. None: it ends,
/// or was killed.
async fn joined(
    stream: UnixStream,
    frames: FrameBuffer,
    line: Bytes,
    watch: KeeperWatch,
) -> Option<Answer> {
    let mut process = process::peer(&stream)
        .ok()
        .map(|peer| HealthWatch::new(peer.process().clone()));
    let sender = Arc::new(FrameSender::new(stream.try_clone().ok()?));
    let mut first = PendingFrames::default();
    first.put(Kind::Line, 0, line);
    sender.send(&mut first).await.ok()?;
    let reader = SocketReader::new(stream.try_clone().ok()?).ok()?;
    let mut frames = Frames::new(reader, frames);
    let mut stalled: Option<Instant> = None;
    let reply = loop {
        tokio::select! {
            biased;
            said = frames.next() => break said.ok()?.filter(|said| said.kind == Kind::Reply)?,
            () = sleep(LOOK), if process.is_some() => {}
        }
        let Some(watch) = &mut process else { continue };
        if watch.look() != Health::Stalled {
            stalled = None;
        } else if stalled.get_or_insert_with(Instant::now).elapsed() >= NOTICE_AFTER {
            let pid = watch.process().id().pid;
            print(&stalled_sentence(SERVER, pid, &pid));
            process = None;
        }
    };
    let attached = match serde_json::from_slice(reply.bytes()) {
        Ok(KeeperReply::Attached(attached)) => attached,
        Ok(KeeperReply::Own { why }) => return Some(Answer::Own(why)),
        Ok(KeeperReply::Later { why }) => return Some(Answer::Later(why)),
        _ => return None,
    };
    Some(Answer::Attached(Box::new(Attachment {
        sender,
        reader: stream,
        frames: frames.into_buffer(),
        attached,
        outcome: Outcome::Held,
        loss: None,
        differing: Vec::new(),
        watch: Some(watch),
        server: None,
        again: "the connection to the shared server had ended; there is a new one",
        notice: None,
    })))
}
