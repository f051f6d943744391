//! What is wrong with the records and the settings, for `debug check`; and which keepers the records do not have.

use std::path::PathBuf;
use std::sync::PoisonError;

use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::debug::Ailment;
use mcp_sessiond_proto::paths;

use super::Edge;

/// What was lost at the start.
#[derive(Debug, Default)]
pub(super) struct LostRecords {
    /// Why the records of the former daemon could not be used, where that was not to be expected.
    pub(super) why: Option<String>,
    /// How many servers, which were on record nowhere, were ended.
    pub(super) ended: usize,
}

impl Edge {
    /// The sockets of keepers that are not on record.
    #[must_use]
    pub fn unrecorded_keepers(&self) -> Vec<PathBuf> {
        let known: Vec<KeeperName> =
            self.look(|registry| registry.keepers().map(|keeper| keeper.name).collect());
        let found = std::fs::read_dir(paths::keepers(self.directory.path()));
        let names = found.into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().to_str()?.parse::<KeeperName>().ok());
        let unknown = names.filter(|name| !known.contains(name));
        unknown.map(|name| paths::keeper_socket(self.directory.path(), name)).collect()
    }

    /// So many keepers that were not on record have been ended, and nobody has claimed anything yet. Says what was lost.
    pub fn strays_ended(&self, ended: usize) {
        let mut loss = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        loss.ended = ended;
        match &loss.why {
            Some(why) => tracing::warn!(
                %why,
                servers_ended = ended,
                "the records of a former daemon were discarded, and the sessions with them"
            ),
            None if ended > 0 => tracing::warn!(
                servers_ended = ended,
                "ended servers that a former daemon has kept and that are not on record (sessions.db)"
            ),
            None => {}
        }
        drop(loss);
        if ended > 0 {
            self.settle_sockets();
        }
    }

    /// Whether nothing can be put on record at the moment.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.lock().ledger.failure().is_some()
    }

    /// What users may have to set.
    #[must_use]
    pub fn hints(&self) -> Vec<Ailment> {
        self.lock().hints.list()
    }

    /// What is wrong with the settings and the records.
    #[must_use]
    pub fn ailments(&self) -> Vec<Ailment> {
        let ailment = |what: &str, finding: String, advice: &str| Ailment {
            what: what.into(),
            finding,
            advice: advice.into(),
        };
        let settings = self.settings().loaded.fault.clone().map(|fault| {
            let pid = std::process::id();
            ailment(
                "settings",
                format!("{}; what can't be read of it has its default", fault.sentence),
                &format!("correct it, then `kill -HUP {pid}`"),
            )
        });
        let failure = self.lock().ledger.failure().map(|failure| {
            ailment(
                "records",
                format!("sessions.db can't be written: {failure}"),
                "nothing can be claimed or stored until that is mended; it is tried again by itself",
            )
        });
        let loss = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = match (&loss.why, loss.ended) {
            (None, 0) => None,
            (why, ended) => {
                let why = why.as_deref().unwrap_or("servers that it has kept were not on record");
                Some(ailment(
                    "records",
                    format!(
                        "sessions.db was not what a former daemon had left ({why}): its sessions are lost, and {ended} kept servers were ended"
                    ),
                    "nothing: every server begins afresh at its next start, and the next daemon says this no more",
                ))
            }
        };
        [settings, failure, lost].into_iter().flatten().collect()
    }
}
