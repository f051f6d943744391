//! How a front goes: it says so to the keeper first, so that nobody waits for it longer than for
//! one that was cut off.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::sync::watch;

use super::forward::Carrier;
use super::input_end::InputEnd;
use super::probe::count_if_only_probed;
use crate::server::child::forward_signal;
use crate::signals::{die_of, note_signal, when_told_to_end};

/// How long a signal waits until whoever carries lines has told the keepers: long enough for a few
/// bytes to each of them. The host may have no patience for more.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(50);

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
    pub fn listen(carrier: &Arc<Carrier>) -> io::Result<Self> {
        let leaver = Self(Arc::default());
        let (this, carrier) = (leaver.clone(), carrier.clone());
        when_told_to_end(move |signal| this.leave(&carrier, signal))?;
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
    pub(super) fn at_input_end(&self, carrier: &Arc<Carrier>) -> InputEnd {
        let (this, asked, carrier) = (self.clone(), self.clone(), carrier.clone());
        InputEnd {
            leave: Box::new(move || {
                // Not while the way is locked: whoever writes to the host may hold the carrier.
                let by = match &*this.way() {
                    Way::Orderly => None,
                    Way::By(leave) => Some(leave.clone()),
                    Way::AtOnce | Way::HandedOn(_) => return,
                };
                match by {
                    None => carrier.send_leave(),
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

    fn leave(&self, carrier: &Carrier, signal: Signal) {
        note_signal(signal);
        let mut way = self.way();
        match std::mem::take(&mut *way) {
            Way::AtOnce => {
                count_if_only_probed();
                die_of(signal)
            }
            Way::Orderly => {
                carrier.send_leave_within(LAST_WORDS);
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
