//! How a front comes to a connection to its server, again and again.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use mcp_sessiond_client::{Error, Outcome};
use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::backends::Attached;
use mcp_sessiond_proto::backends::frame::FrameBuffer;

use super::keeper_watch::KeeperWatch;
use crate::frames::FrameSender;
use crate::notices::CarriedLoss;
use crate::waits::{ATTACH_WAIT, PAUSE, Waits};

/// Why there is no backend to attach to.
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
    /// Something was lost on the way. The next attempt may go better.
    #[error("{0}")]
    Passing(String),
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

/// What has happened when a keeper was lost and there is another one.
pub(crate) const KEEPER_REPLACED: &str =
    "the keeper of the server had ended, and the server with it; a fresh one was started";

/// How a front gets to its backend, again and again.
pub(crate) trait Attaching: Send + Sync {
    /// Attaches to it; it is started if there is none. `initialize` is what the host has sent and
    /// got its answer to, from a backend that is lost. `until` is when nobody waits for it any
    /// more.
    ///
    /// # Errors
    /// [`NoBackend`].
    fn attach(&mut self, initialize: Option<Json>, until: Instant)
    -> Result<Attachment, NoBackend>;

    /// What has happened when it was lost and is there again.
    fn reattached(&self) -> &'static str {
        KEEPER_REPLACED
    }

    /// From now on a daemon that does not answer is waited for, as the server is kept that it would
    /// lead to.
    fn holds_while_daemon_hangs(&mut self) {}

    /// What the host's user should know of the way that was taken, once.
    fn notice(&mut self) -> Option<String> {
        None
    }
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
}

/// Attaches for the first time. What can pass is tried again, within the time that a host waits for
/// us.
pub(crate) fn attach_first(
    door: &mut dyn Attaching,
    waits: Waits,
) -> Result<Attachment, NoBackend> {
    let began = Instant::now();
    let mut until = began + waits.keeper;
    let mut pause = PAUSE;
    loop {
        let why = match door.attach(None, until) {
            Err(why @ NoBackend::Ending(_)) => {
                // So far it was the former server's time.
                until = (Instant::now() + waits.keeper).min(began + ATTACH_WAIT);
                why
            }
            Err(why @ (NoBackend::Passing(_) | NoBackend::Stalled(_))) => why,
            attached => return attached,
        };
        if Instant::now() + pause >= until {
            return Err(why);
        }
        std::thread::sleep(pause);
        // Many attempts fit into the time that there is.
        pause = (pause * 2).min(waits.keeper / 8);
    }
}

/// The same, where nothing else is to be done while the keeper lives and does not answer: it is
/// waited for without limit.
pub(crate) fn attach_first_waiting(
    door: &mut dyn Attaching,
    waits: Waits,
) -> Result<Attachment, NoBackend> {
    loop {
        match attach_first(door, waits) {
            Err(NoBackend::Stalled(_)) => {}
            attached => return attached,
        }
    }
}
