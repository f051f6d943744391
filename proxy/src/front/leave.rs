//! How a front goes: it says so to the keeper first, so that nobody waits for it longer than for
//! one that was cut off.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_sessiond_proto::Lock as _;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::sync::watch;

use super::input_end::InputEnd;
use super::probe::count_if_only_probed;
use crate::frames::FrameSender;
use crate::server::child::forward_signal;
use crate::signals::{die_of, leaving_now, note_signal, when_told_to_end};

/// How long a signal waits until whoever carries lines has told the keepers: long enough for a few
/// bytes to each of them. The host may have no patience for more.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(50);

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

/// Waits for signals that ask this process to end.
#[derive(Debug, Clone)]
pub struct Leaver(Arc<Mutex<Way>>);

/// What a signal brings about.
#[derive(Debug, Default)]
enum Way {
    /// There is nothing yet to be said to anybody.
    #[default]
    AtOnce,
    /// The keeper is told. The daemon sees our exit, and the host may have no patience for more.
    Orderly,
    /// Whoever carries lines tells the keepers, once this is true.
    By(watch::Sender<bool>),
    /// The command gets the signal, and ends this process by its own end.
    HandedOn(Pid),
}

impl Leaver {
    /// Begins to wait.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn listen(current: &CurrentKeeper) -> io::Result<Self> {
        let leaver = Self(Arc::default());
        let (this, current) = (leaver.clone(), current.clone());
        when_told_to_end(move |signal| this.leave(&current, signal))?;
        Ok(leaver)
    }

    /// From now on there may be a keeper.
    pub fn tells_keeper(&self) {
        self.set(Way::Orderly);
    }

    /// From now on there may be keepers, which others know.
    pub fn leaves_by(&self, leave: watch::Sender<bool>) {
        self.set(Way::By(leave));
    }

    /// From now on signals are the command's.
    pub fn hand_on_to(&self, command: Pid) {
        self.set(Way::HandedOn(command));
    }

    /// What happens when the host has closed its end.
    pub(super) fn at_input_end(&self, current: &CurrentKeeper) -> InputEnd {
        let (this, asked, current) = (self.clone(), self.clone(), current.clone());
        InputEnd {
            leave: Box::new(move || {
                let by = match &*this.way() {
                    Way::Orderly => None,
                    Way::By(leave) => Some(leave.clone()),
                    Way::AtOnce | Way::HandedOn(_) => return,
                };
                match by {
                    None => current.leave_within(Duration::ZERO),
                    Some(leave) => _ = leave.send_replace(true),
                }
            }),
            exits: Box::new(move || !matches!(*asked.way(), Way::HandedOn(_))),
        }
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, way: Way) {
        *self.way() = way;
    }

    fn leave(&self, current: &CurrentKeeper, signal: Signal) {
        note_signal(signal);
        let mut way = self.way();
        match std::mem::take(&mut *way) {
            Way::AtOnce => {
                count_if_only_probed();
                die_of(signal)
            }
            Way::Orderly => {
                current.leave_within(LAST_WORDS);
                die_of(signal)
            }
            Way::By(leave) => {
                leave.send_replace(true);
                std::thread::sleep(LAST_WORDS);
                die_of(signal)
            }
            Way::HandedOn(command) => {
                forward_signal(command, signal);
                *way = Way::HandedOn(command);
            }
        }
    }
}
