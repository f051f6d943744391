//! How a front comes to a connection to its server, again and again.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_bundle::{Failure, FailureCode, Pipe};
use mcp_sessiond_client::{Error, Outcome};
use mcp_sessiond_process::ListenerLock;
use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::backends::Attached;
use mcp_sessiond_proto::backends::frame::FrameBuffer;

use super::keeper_watch::KeeperWatch;
use crate::frames::FrameSender;
use crate::notices::CarriedLoss;

/// How long it is tried to attach where a former server of this one is still being taken down: that
/// is the server's time.
pub(crate) const ATTACH_WAIT: Duration = Duration::from_secs(10);

/// How long a host waits for a keeper that starts and makes progress, from the start of the front:
/// Gemini waits 5 s, and the server has to start in these, too.
pub(crate) const START_MAX: Duration = Duration::from_secs(4);

/// The first pause between attempts to connect; each is twice the one before.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// Why there is no server to connect to.
#[derive(Debug, thiserror::Error)]
pub enum NoBackend {
    /// There can be no session: no daemon, or what the daemon refused, and why.
    #[error("{1}")]
    NoSession(Option<Error>, String),
    /// There is no such program, or none that may be run.
    #[error("{sentence}")]
    NoProgram {
        /// The exit code that a shell has for it.
        code: u8,
        /// One sentence.
        sentence: String,
    },
    /// What is written of the server can't be used, and why.
    #[error("{0}")]
    BadEntry(String),
    /// Something was lost on the way. The next attempt may go better.
    #[error("{0}")]
    Passing(String),
    /// The daemon has not answered in time, or only that it can't for now. Whether there is a server
    /// is not known.
    #[error("{0}")]
    Unanswered(String),
    /// A former server of this one is still being taken down.
    #[error("{0}")]
    Ending(String),
    /// The former front has closed, and the host's rule forbids to go on with its server.
    #[error("the previous server has ended with its connection")]
    Closed {
        /// Whether that server had been used.
        used: bool,
    },
    /// The session with the user's name is somebody else's now.
    #[error("{0}")]
    Taken(String),
    /// The server's keeper lives, and does not answer: it is waited for, and no other is started.
    #[error("{0}")]
    Stalled(String),
}

impl From<NoBackend> for Failure {
    fn from(why: NoBackend) -> Self {
        match why {
            NoBackend::NoProgram { sentence, .. } => Self::not_found(sentence),
            NoBackend::BadEntry(why) => Self::new(FailureCode::BadEntry, why),
            why => Self::new(FailureCode::NotStarted, why.to_string()),
        }
    }
}

/// What a front may do that can have no keeper.
#[derive(Debug)]
pub enum WithoutKeeper {
    /// Claim again: the daemon did not answer the claim, and can answer another one.
    ClaimAgain,
    /// Run the server without keeping it. The name that it has is this process's until this is
    /// dropped.
    RunUnkept(Option<NameLock>),
    /// Hold what the host asks until the daemon answers, and why.
    Wait(String),
    /// Refuse what the host asks until the daemon answers, and why.
    Refuse(String),
}

/// A name under which this process runs a server that is not kept.
#[derive(Debug)]
pub struct NameLock(
    #[expect(dead_code, reason = "it is held, and not used")] pub(super) ListenerLock,
);

/// How to reach one server, as often as it takes. It is used only to connect; no line passes through
/// it.
pub trait Connector: Send {
    /// Finds or starts the server, and connects. `until` is when nobody waits for it any more.
    /// Dropped before its end, it may leave a keeper: [`release`](Self::release) or another `connect`
    /// must follow.
    ///
    /// # Errors
    /// [`NoBackend`].
    fn connect<'a>(
        &'a mut self,
        hello: &'a Hello,
        until: Instant,
    ) -> BoxFuture<'a, Result<Connected, NoBackend>>;

    /// Gives up the right to the server, for the next process, and ends a keeper that was started and
    /// to which no front has attached.
    fn release(&mut self) -> BoxFuture<'_, ()>;

    /// What the front may do where no keeper can be had, for this reason. If it has to wait for a
    /// daemon that does not answer, so does each `connect` from now on.
    fn without_keeper(&mut self, _why: &NoBackend) -> WithoutKeeper {
        WithoutKeeper::RunUnkept(None)
    }
}

/// What the host has said before there is a connection, as far as a server has to know.
#[derive(Debug, Clone, Default)]
pub struct Hello {
    /// Its first line, where that was read.
    pub first: Option<Bytes>,
    /// Its `initialize`, where that was answered by a server that is lost.
    pub initialize: Option<Json>,
    /// A call of its that was open has failed with that server.
    pub has_failed_call: bool,
}

/// What was reached.
pub enum Connected {
    /// A keeper.
    Keeper(Box<Attachment>),
    /// A server, by a task of this process.
    Pipe(Pipe),
}

/// A connection to the keeper.
pub struct Attachment {
    /// How the keeper is asked whether it lives, where it is this server's own.
    pub(crate) watch: Option<KeeperWatch>,
    /// Where the keeper speaks.
    pub reader: UnixStream,
    /// What it has said already.
    pub frames: FrameBuffer,
    /// The way to the keeper.
    pub sender: Arc<FrameSender>,
    /// What the keeper found.
    pub attached: Attached,
    /// How the front came to its session.
    pub outcome: Outcome,
    /// What was lost before.
    pub(crate) loss: Option<CarriedLoss>,
    /// Variables that the server was started with in another way than this front, where the user
    /// has named it.
    pub differing: Vec<String>,
    /// By which name people find the server, where it is this front's own.
    pub server: Option<String>,
    /// What has happened if this front was connected before.
    pub again: &'static str,
    /// What the host's user should know of the way that was taken, once.
    pub notice: Option<String>,
}

/// Connects to a server that has no keeper.
///
/// # Errors
/// [`Failure`]: what was wrong.
pub async fn connect_unkept(connector: &mut dyn Connector) -> Result<Pipe, Failure> {
    let until = Instant::now() + ATTACH_WAIT;
    match connector.connect(&Hello::default(), until).await? {
        Connected::Pipe(pipe) => Ok(pipe),
        Connected::Keeper(_) => Err(Failure::new(FailureCode::NotStarted, "it has a keeper")),
    }
}

/// Connects for the first time. What can pass is tried again, within this time, for which a host waits
/// for us.
pub(crate) async fn connect_first(
    connector: &mut dyn Connector,
    hello: &Hello,
    wait: Duration,
) -> Result<Connected, NoBackend> {
    let began = Instant::now();
    let mut until = began + wait;
    let mut pause = PAUSE;
    loop {
        let why = match connector.connect(hello, until).await {
            Err(why @ NoBackend::Ending(_)) => {
                // So far it was the former server's time.
                until = (Instant::now() + wait).min(began + ATTACH_WAIT);
                why
            }
            Err(
                why @ (NoBackend::Passing(_) | NoBackend::Unanswered(_) | NoBackend::Stalled(_)),
            ) => why,
            connected => return connected,
        };
        if Instant::now() + pause >= until {
            return Err(why);
        }
        tokio::time::sleep(pause).await;
        // Many attempts fit into the time that there is.
        pause = (pause * 2).min(wait / 8);
    }
}

/// The same, where nothing else is to be done while the keeper lives and does not answer: it is
/// waited for without limit.
pub(crate) async fn connect_first_waiting(
    connector: &mut dyn Connector,
    hello: &Hello,
    wait: Duration,
) -> Result<Connected, NoBackend> {
    loop {
        match connect_first(connector, hello, wait).await {
            Err(NoBackend::Stalled(_)) => {}
            connected => return connected,
        }
    }
}
