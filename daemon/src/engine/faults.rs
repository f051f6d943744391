//! What is wrong with the records and the settings, and what users may have to set, for `doctor`;
//! and which keepers the records do not have.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use mcp_sessiond_process::ProcessId;
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::debug::Finding;
use mcp_sessiond_proto::{Epoch, Lock as _};
use mcp_sessiond_registry::{Millis, Registry};

use super::Engine;
use crate::keepers;

/// What was lost at the start.
#[derive(Debug, Default)]
pub(super) struct LostRecords {
    /// Why the records of the former daemon could not be used, where that was not to be expected.
    pub(super) why: Option<String>,
    /// How many servers, which were on record nowhere, were found again by what their keepers gave
    /// back.
    pub(super) adopted: usize,
    /// How many of them were ended.
    pub(super) ended: usize,
}

impl Engine {
    /// The runtime directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The keepers that have a socket and are not on record.
    pub fn unrecorded_keepers(&self) -> Vec<KeeperName> {
        let mut listening = keepers::listening(self.directory.path());
        let known: HashSet<KeeperName> =
            self.look(|registry| registry.keepers().map(|keeper| keeper.name).collect());
        listening.retain(|name| !known.contains(name));
        listening
    }

    /// So many keepers that were not on record have been ended, and nobody has claimed anything
    /// yet. Says what was lost.
    pub fn orphans_ended(&self, ended: usize) {
        let mut loss = self.loss.locked();
        loss.ended = ended;
        match &loss.why {
            Some(why) => tracing::warn!(
                %why,
                servers_found_again = loss.adopted,
                servers_ended = ended,
                "the records of an earlier daemon were discarded, and with them the sessions of which no keeper knew"
            ),
            None if ended + loss.adopted > 0 => tracing::warn!(
                servers_found_again = loss.adopted,
                servers_ended = ended,
                "there are servers that an earlier daemon has kept and that are not on record (sessions.db)"
            ),
            None => {}
        }
        drop(loss);
        if ended > 0 {
            self.settle_sockets();
        }
    }

    /// Whether nothing can be put on record at the moment.
    pub fn is_failing(&self) -> bool {
        self.lock().ledger.failure().is_some()
    }

    /// What users may have to set, and what was lost, which nobody can fix.
    pub fn advice(&self) -> Vec<Finding> {
        self.lost_records()
            .into_iter()
            .chain(self.lock().advice.list())
            .collect()
    }

    /// What is wrong with the settings and the records.
    pub fn faults(&self) -> Vec<Finding> {
        let ailment = |what: &str, finding: String, advice: &str| Finding {
            what: what.into(),
            finding,
            advice: advice.into(),
        };
        let settings = self.settings().loaded.fault.clone().map(|fault| {
            let pid = std::process::id();
            ailment(
                "settings",
                format!(
                    "{}; settings that can't be read have their defaults",
                    fault.sentence
                ),
                &format!("correct it, then `kill -HUP {pid}`"),
            )
        });
        let failure = self.lock().ledger.failure().map(|failure| {
            ailment(
                "records",
                format!("sessions.db can't be written: {failure}"),
                "nothing can be claimed or stored until that is fixed; the daemon tries again by itself",
            )
        });
        [settings, failure].into_iter().flatten().collect()
    }

    /// What was lost at the start of this daemon.
    fn lost_records(&self) -> Option<Finding> {
        let loss = self.loss.locked();
        if (&loss.why, loss.adopted, loss.ended) == (&None, 0, 0) {
            return None;
        }
        let LostRecords {
            why,
            adopted,
            ended,
            ..
        } = &*loss;
        let tokens = if why.is_some() {
            "its tokens are lost; "
        } else {
            ""
        };
        let why = why
            .as_deref()
            .unwrap_or("servers that it has kept were not on record");
        Some(Finding {
            what: "records".into(),
            finding: format!(
                "sessions.db was not what an earlier daemon had left ({why}): {tokens}{adopted} kept servers were found again, and {ended} \
                 were ended"
            ),
            advice: "nothing: lost servers start fresh, and the next daemon no longer says this"
                .into(),
        })
    }
}

/// How many pieces of advice are remembered: the latest.
const ADVICE_MAX: usize = 8;

/// Pairs of a host and a server that are remembered.
const BRIEF_MAX: usize = 64;

/// A host that ends so soon after its only server, or before it, may be a program that only starts
/// servers, in ms.
const BRIEF_MS: Millis = 1_000;

/// The latest advice, and what it is drawn from.
#[derive(Debug, Default)]
pub(super) struct Advice {
    latest: VecDeque<Finding>,
    /// When the last instance of each host has exited.
    left: HashMap<ProcessId, Millis>,
    /// Hosts that have ended with their only server, by their name and its. One alone is a host
    /// that somebody has closed.
    brief: HashSet<(String, String)>,
}

impl Advice {
    /// The latest.
    pub(super) fn list(&self) -> Vec<Finding> {
        self.latest.iter().cloned().collect()
    }

    /// Says it, unless it was said before.
    pub(super) fn say(&mut self, finding: String, advice: &str) {
        let hint = Finding {
            what: "key".into(),
            finding,
            advice: advice.into(),
        };
        if self.latest.contains(&hint) {
            return;
        }
        tracing::warn!(advice = %hint.advice, "{}", hint.finding);
        if self.latest.len() == ADVICE_MAX {
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
