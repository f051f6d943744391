//! What the one lock guards.

use std::collections::HashMap;

use mcp_sessiond_process::{ExitWatch, ProcessId, note};
use mcp_sessiond_proto::backends::Counts;
use mcp_sessiond_proto::end_note::EndNote;
use mcp_sessiond_proto::time::now_ms;
use mcp_sessiond_proto::{Epoch, Error};
use mcp_sessiond_registry::{Lease, Millis, Registry, Ticket};
use tokio::sync::oneshot;

use super::closes::Closes;
use super::faults::Advice;
use super::key_churn::KeyChurn;
use crate::ledger::{Ledger, Waiter};

#[derive(Debug)]
pub(super) struct State {
    pub(super) registry: Registry,
    pub(super) ledger: Ledger,
    pub(super) exits: ExitWatch,
    pub(super) answers: HashMap<Ticket, oneshot::Sender<Answer>>,
    pub(super) tickets: u64,
    /// Servers whose keys don't hold still.
    pub(super) key_churn: KeyChurn,
    pub(super) advice: Advice,
    /// Which fronts have closed their sessions.
    pub(super) closes: Closes,
    /// Why keepers have ended that have exited and are not swept.
    pub(super) end_notes: HashMap<ProcessId, String>,
    /// The lease of the latest front of each keeper.
    pub(super) fronts: HashMap<ProcessId, Epoch>,
    /// The totals that each keeper has told this daemon.
    pub(super) counts: HashMap<ProcessId, Counts>,
    /// Whether a former daemon's records are still compared with what is there: nobody has seen
    /// these exits.
    pub(super) is_starting: bool,
}

/// The answer to a claim, which counts once the ledger has kept it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) lease: Result<Lease, Error>,
    pub(super) kept: Waiter,
}

impl State {
    pub(super) fn new(
        registry: Registry,
        ledger: Ledger,
        exits: ExitWatch,
        closes: Closes,
    ) -> Self {
        // Who is on record has had a front.
        let fronts = registry
            .keepers()
            .map(|keeper| (keeper.process, Epoch(0)))
            .collect();
        Self {
            registry,
            ledger,
            exits,
            answers: HashMap::new(),
            tickets: 0,
            key_churn: KeyChurn::default(),
            advice: Advice::default(),
            closes,
            end_notes: HashMap::new(),
            fronts,
            counts: HashMap::new(),
            is_starting: true,
        }
    }

    pub(super) fn take_in_exits(&mut self, now: Millis) {
        self.registry.at(now);
        self.registry.time_of_day(now_ms());
        let exited = self.exits.drain();
        for process in &exited {
            tracing::debug!(pid = process.pid, "a process has exited");
        }
        self.advice.exited(&self.registry, &exited, now);
        self.tell_exits(&exited);
    }

    /// Tells the registry of exits, and before that what these processes have left behind to say.
    pub(super) fn tell_exits(&mut self, exited: &[ProcessId]) {
        self.closes.tell(&mut self.registry, exited, true);
        for process in exited {
            if !self.registry.is_keeper(process) {
                continue;
            }
            let directory = self.closes.directory();
            let path = EndNote::path(directory, process.pid, process.start.0);
            let Some(note) = note::read(&path) else {
                continue;
            };
            let _ = std::fs::remove_file(path);
            if let Ok(EndNote { because, why }) = serde_json::from_str(&note) {
                self.registry.note_end(*process, because);
                self.end_notes.insert(*process, why);
            }
        }
        self.registry.exited(exited);
    }

    /// Watches a process no longer, if nothing depends on it: a claimant may be a host as well.
    pub(super) fn unwatch(&mut self, process: &ProcessId) {
        if !self.registry.depends_on(process) {
            self.exits.remove(process);
        }
    }

    pub(super) fn ticket(&mut self) -> (Ticket, oneshot::Receiver<Answer>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let (sender, receiver) = oneshot::channel();
        self.answers.insert(ticket, sender);
        (ticket, receiver)
    }
}
