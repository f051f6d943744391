//! What users may have to set, as what has happened shows: said once in the log, and by `doctor`.

use std::collections::{HashMap, HashSet, VecDeque};

use mcp_sessiond_process::ProcessId;
use mcp_sessiond_proto::Epoch;
use mcp_sessiond_proto::debug::Ailment;
use mcp_sessiond_registry::{Millis, Registry};

/// Hints that are remembered. Who looks wants the latest.
const HINTS_MAX: usize = 8;

/// Pairs of a host and a server that are remembered.
const BRIEF_MAX: usize = 64;

/// A host that ends so soon after its only server, or before it, may be a program that only starts
/// servers, in ms.
const BRIEF_MS: Millis = 1_000;

/// The latest hints, and what they are drawn from.
#[derive(Debug, Default)]
pub(super) struct Hints {
    latest: VecDeque<Ailment>,
    /// When the last instance of each host has exited.
    left: HashMap<ProcessId, Millis>,
    /// Hosts that have ended with their only server, by their name and its. One alone is a host
    /// that somebody has closed.
    brief: HashSet<(String, String)>,
}

impl Hints {
    /// The latest.
    pub(super) fn list(&self) -> Vec<Ailment> {
        self.latest.iter().cloned().collect()
    }

    /// Says it, unless it was said before.
    pub(super) fn say(&mut self, finding: String, advice: &str) {
        let hint = Ailment {
            what: "key".into(),
            finding,
            advice: advice.into(),
        };
        if self.latest.contains(&hint) {
            return;
        }
        tracing::warn!(advice = %hint.advice, "{}", hint.finding);
        if self.latest.len() == HINTS_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(hint);
    }

    /// Processes have exited, of which the registry is about to be told.
    pub(super) fn exited(&mut self, registry: &Registry, exited: &[ProcessId], now: Millis) {
        for process in exited {
            if let Some(claimant) = registry.claimant(process) {
                self.left.insert(claimant.host, now);
            }
        }
        for host in exited {
            let left = self
                .left
                .remove(host)
                .is_some_and(|left| now - left < BRIEF_MS);
            let Some((_, name, sessions)) = registry.owners().find(|(owner, ..)| owner == host)
            else {
                continue;
            };
            let mut sessions = sessions.iter().filter_map(|id| registry.session(id));
            let (Some(only), None) = (sessions.next(), sessions.next()) else {
                continue;
            };
            let was_first = registry.is_resumable(&only.id) && only.epoch == Epoch(1);
            if was_first && (left || only.holder.is_some()) {
                let program = &only.program;
                if self.brief.len() < BRIEF_MAX
                    && self.brief.insert((name.to_owned(), program.clone()))
                {
                    continue;
                }
                let finding = format!(
                    "`{name}` ends again and again together with `{program}`, the only server that it had, so nothing is ever resumed"
                );
                let advice = "if it does nothing but start servers for another program, name it in `launchers` (docs/settings.md); if it is \
                              a host that you close, all is well";
                self.say(finding, advice);
            }
        }
    }
}
