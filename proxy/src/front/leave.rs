//! How a front goes: it says so to the keeper first, so that nobody waits for it longer than for
//! one that was cut off.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_sessiond_proto::Lock as _;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use super::input_end::InputEnd;
use super::probe::count_if_only_probed;
use crate::closed;
use crate::frames::FrameSender;
use crate::server::child::forward_signal;
use crate::server::keeper_connector::SessionCalls;
use crate::signals::{Heard, Leaving, die_of, exit, leaving_now, when_signalled};
use crate::stderr::until_heard;

/// How long a front whose servers stay waits by a signal until its keepers have heard of that: long
/// enough for a few bytes to each of them. The host may have no patience for more.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// How long a keeper may take beyond what it grants its server.
const KEEPER_GRACE: Duration = Duration::from_secs(1);

/// How long the daemon may take to take a lease back.
const RELEASE_WAIT: Duration = Duration::from_millis(250);

/// How long a front waits at most for servers that end with it: for the end of their input, SIGTERM
/// and SIGKILL.
pub(crate) fn server_wait(stop_wait: Duration) -> Duration {
    stop_wait * 3 + KEEPER_GRACE
}

/// Ends this process at the latest after this time.
pub(crate) fn exit_within(time: Duration) {
    let waiting = move || {
        std::thread::sleep(time);
        exit()
    };
    let timer = std::thread::Builder::new().name("exit".into());
    drop(timer.spawn(waiting));
}

/// Signals for servers, for all that carry lines to them.
static FOR_SERVERS: LazyLock<broadcast::Sender<Signal>> =
    LazyLock::new(|| broadcast::Sender::new(SIGNALS_MAX));

/// Signals that wait for whoever hands them on. Of one kind there is one more at most.
const SIGNALS_MAX: usize = 16;

/// The signals that are for servers from now on.
pub(crate) fn signals_for_servers() -> broadcast::Receiver<Signal> {
    FOR_SERVERS.subscribe()
}

/// A signal is for the servers.
pub(crate) fn hand_on(signal: Signal) {
    // Where there is none, it goes nowhere.
    let _ = FOR_SERVERS.send(signal);
}

/// The keeper that a front has at the moment, for the threads that end this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct CurrentKeeper(Arc<Mutex<Option<Arc<FrameSender>>>>);

impl CurrentKeeper {
    pub(crate) fn set(&self, keeper: Option<Arc<FrameSender>>) {
        *self.0.locked() = keeper;
    }

    /// Tells the keeper to end its server, and itself.
    pub(crate) fn end(&self) {
        let keeper = self.0.locked().clone();
        keeper.iter().for_each(|keeper| keeper.end());
    }

    /// Tells the keeper that this front is about to leave. Waits so long for the end of a line that
    /// is on its way.
    fn leave_within(&self, patience: Duration) {
        let keeper = self.0.locked().clone();
        if let Some(keeper) = keeper {
            keeper.leave_within(leaving_now(), patience);
        }
    }
}

/// Waits for signals.
#[derive(Debug, Clone)]
pub struct Leaver {
    way: Arc<Mutex<Way>>,
    leave: watch::Sender<Leaving>,
    stop_wait: Duration,
    /// Whether a conversation has begun, where the session is closed by a mark, as there is no keeper
    /// that could tell the daemon.
    marks: Option<Arc<AtomicBool>>,
}

/// What becomes of the host's leave, and of signals.
#[derive(Debug, Default)]
enum Way {
    /// There is nothing yet to be said to anybody.
    #[default]
    AtOnce,
    /// This keeper hears of it, and whoever carries lines to it.
    Keeper,
    /// Whoever carries lines tells the keepers.
    Carriers,
    /// The host has only probed, perhaps on a connection of its own: what was started for it waits for
    /// the next one, as if this process was killed.
    Probed,
    /// The command gets the signal, and ends this process by its own end.
    HandedOn(Pid),
}

impl Leaver {
    /// Begins to wait. `stop_wait`: how long a server has to end.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn listen(
        current: &CurrentKeeper,
        stop_wait: Duration,
        marks: Option<Arc<AtomicBool>>,
    ) -> io::Result<Self> {
        let leaver = Self {
            way: Arc::default(),
            leave: watch::Sender::default(),
            stop_wait,
            marks,
        };
        let (this, current) = (leaver.clone(), current.clone());
        when_signalled(move |heard| this.hear(&current, heard))?;
        Ok(leaver)
    }

    /// From now on there may be a keeper.
    pub fn tells_keeper(&self) {
        self.set(Way::Keeper);
    }

    /// From now on there may be keepers, which others know.
    pub fn tells_carriers(&self) {
        self.set(Way::Carriers);
    }

    /// The host has only probed so far, perhaps on a connection of its own.
    pub(crate) fn has_only_probed(&self) {
        self.set(Way::Probed);
    }

    /// From now on signals are the command's.
    pub fn hand_on_to(&self, command: Pid) {
        self.set(Way::HandedOn(command));
    }

    /// How far this front has come that leaves.
    pub(crate) fn leave(&self) -> &watch::Sender<Leaving> {
        &self.leave
    }

    /// What happens when the host has closed its end.
    pub(super) fn at_input_end(&self, current: &CurrentKeeper) -> InputEnd {
        let (this, done, current) = (self.clone(), self.clone(), current.clone());
        InputEnd {
            leave: Box::new(move || {
                until_heard();
                match *this.way() {
                    Way::Keeper => current.leave_within(Duration::ZERO),
                    Way::Carriers | Way::AtOnce => {}
                    Way::Probed => exit(),
                    Way::HandedOn(_) => return,
                }
                advance(&this.leave, Leaving::Closed);
            }),
            done: Box::new(move |leaving| match *done.way() {
                Way::AtOnce => {
                    count_if_only_probed();
                    exit()
                }
                Way::Probed => exit(),
                Way::HandedOn(_) => {}
                Way::Keeper | Way::Carriers => done_within(&done.leave, leaving, done.stop_wait),
            }),
        }
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, way: Way) {
        *self.way() = way;
    }

    fn hear(&self, current: &CurrentKeeper, heard: Heard) {
        let way = self.way();
        match (&*way, heard) {
            (Way::HandedOn(command), Heard::End(signal) | Heard::ForServer(signal)) => {
                forward_signal(*command, signal);
            }
            (_, Heard::ForServer(signal)) => hand_on(signal),
            (Way::Probed, Heard::End(signal)) => die_of(signal),
            (Way::AtOnce, Heard::End(signal)) => {
                count_if_only_probed();
                die_of(signal)
            }
            (Way::Keeper, Heard::End(_)) => {
                until_heard();
                current.leave_within(LAST_WORDS);
                done_within(&self.leave, Leaving::Done, self.stop_wait);
            }
            // It ends already, and its servers with it.
            (Way::Carriers, Heard::End(signal)) if *self.leave.borrow() >= Leaving::Late => {
                hand_on(signal);
            }
            (Way::Carriers, Heard::End(_)) => {
                until_heard();
                let marks = self.marks.as_ref();
                if marks.is_some_and(|has_begun| has_begun.load(Ordering::Relaxed)) {
                    closed::mark();
                }
                done_within(&self.leave, Leaving::Done, self.stop_wait);
            }
        }
    }
}

/// Gives the lease up before a server ends with this front, so that the daemon knows that nobody
/// resumes the session. A daemon that hangs must not delay that for long.
pub(crate) async fn release(session: SessionCalls) {
    let _ = timeout(RELEASE_WAIT, session.release()).await;
}

/// Says that this front has come so far, unless it has come further.
pub(crate) fn advance(leave: &watch::Sender<Leaving>, to: Leaving) {
    leave.send_if_modified(|leaving| {
        let is_further = to > *leaving;
        *leaving = to.max(*leaving);
        is_further
    });
}

/// This front waits for no answer any more, for this reason, and ends when the servers have that end
/// with it.
pub(crate) fn done_within(leave: &watch::Sender<Leaving>, to: Leaving, stop_wait: Duration) {
    exit_within(server_wait(stop_wait));
    advance(leave, to);
}
