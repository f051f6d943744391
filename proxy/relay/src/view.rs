//! How a backend is, for whoever asks. No message and no part of one, except for the names of
//! methods.

use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use mcp_sessiond_proto::backends::{BackendState, CallInfo, ParkedInfo, Traffic};

use super::life::Life;
use super::numbers::{Answered, Open};
use super::{Millis, Relay};

/// How a backend and its calls are.
#[derive(Debug, Clone)]
pub struct View {
    /// What the backend is doing.
    pub state: BackendState,
    /// Calls that the backend has not answered.
    pub calls: Vec<CallInfo>,
    /// Requests of the backend that no host has answered.
    pub asks: Vec<CallInfo>,
    /// Answers to calls of former fronts, the latest last.
    pub parked: Vec<ParkedInfo>,
    /// Messages that wait for a front.
    pub waiting: usize,
    /// Bytes of them.
    pub waiting_bytes: usize,
    /// Messages that were on their way to a front that ended.
    pub lost: u64,
    /// Messages that were not passed on.
    pub dropped: u64,
    /// What the backend was handed.
    pub to_backend: Traffic,
    /// What the backend has sent.
    pub from_backend: Traffic,
    /// How often the backend was started again.
    pub restarts: u32,
    /// Why the backend ended the last time.
    pub last_error: Option<String>,
}

impl Relay {
    /// How the backend is.
    #[must_use]
    pub fn view(&self, now: Millis) -> View {
        let (unconfirmed, unconfirmed_bytes) = self.unconfirmed();
        View {
            state: self.state(),
            calls: self
                .calls
                .open
                .values()
                .filter(|call| !call.kind.ours())
                .map(|call| self.call(call, now))
                .collect(),
            asks: self
                .asks
                .open
                .values()
                .map(|ask| self.ask(ask, now))
                .collect(),
            parked: self
                .parked
                .iter()
                .map(|answer| parked(answer, now))
                .collect(),
            waiting: self.to_front.entries.len() + unconfirmed,
            waiting_bytes: self.to_front.bytes + unconfirmed_bytes,
            lost: self.counts.lost,
            dropped: self.counts.dropped,
            to_backend: self.counts.to_backend,
            from_backend: self.counts.from_backend,
            restarts: self.counts.restarts,
            last_error: self.last_error.clone(),
        }
    }

    /// How many messages were on their way to fronts when these ended, and how many answers were
    /// kept for nobody.
    #[must_use]
    pub fn losses(&self) -> (u64, u64) {
        (self.counts.lost, self.counts.parked)
    }

    /// Why the backend ended the last time; none where it never has.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    fn state(&self) -> BackendState {
        match self.life {
            Life::Stopping => BackendState::Stopping,
            Life::Down { .. } | Life::Ordered => BackendState::Restarting,
            Life::New | Life::Running { .. } if self.handshake.pending.is_some() => {
                BackendState::Initializing
            }
            Life::New | Life::Running { .. } if self.handshake.answer.is_some() => {
                BackendState::Ready
            }
            Life::New | Life::Running { .. } => BackendState::Started,
        }
    }

    fn call<K>(&self, call: &Open<K>, now: Millis) -> CallInfo {
        let former = !self.is_current(call.asker);
        CallInfo {
            method: call.method.to_string(),
            age_ms: now.saturating_sub(call.made),
            former,
        }
    }

    fn ask(&self, ask: &Open<super::Ask>, now: Millis) -> CallInfo {
        let former = ask
            .kind
            .handed
            .is_some_and(|connection| !self.is_current(connection));
        CallInfo {
            method: ask.method.to_string(),
            age_ms: now.saturating_sub(ask.made),
            former,
        }
    }
}

fn parked(answer: &Answered, now: Millis) -> ParkedInfo {
    ParkedInfo {
        method: answer.method.to_string(),
        age_ms: now.saturating_sub(answer.came),
        took_ms: answer.took,
        bytes: answer.bytes,
        failed: answer.failed,
    }
}
