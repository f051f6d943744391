//! What is wrong with the records and the settings, for `doctor`; and which keepers the records do
//! not have.

use std::path::PathBuf;

use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::debug::Ailment;

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
    /// The sockets of keepers that are not on record.
    #[must_use]
    pub fn unrecorded_keepers(&self) -> Vec<PathBuf> {
        let known: Vec<KeeperName> =
            self.look(|registry| registry.keepers().map(|keeper| keeper.name).collect());
        keepers::unknown(self.directory.path(), &known)
            .into_iter()
            .map(|(_, socket)| socket)
            .collect()
    }

    /// So many keepers that were not on record have been ended, and nobody has claimed anything
    /// yet. Says what was lost.
    pub fn strays_ended(&self, ended: usize) {
        let mut loss = self.loss.locked();
        loss.ended = ended;
        match &loss.why {
            Some(why) => tracing::warn!(
                %why,
                servers_found_again = loss.adopted,
                servers_ended = ended,
                "the records of a former daemon were discarded, and with them the sessions of which no keeper knew"
            ),
            None if ended + loss.adopted > 0 => tracing::warn!(
                servers_found_again = loss.adopted,
                servers_ended = ended,
                "there are servers that a former daemon has kept and that are not on record (sessions.db)"
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

    /// What users may have to set, and what was lost, which nobody can mend.
    #[must_use]
    pub fn hints(&self) -> Vec<Ailment> {
        self.lost_records()
            .into_iter()
            .chain(self.lock().hints.list())
            .collect()
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
                format!(
                    "{}; what can't be read of it has its default",
                    fault.sentence
                ),
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
        [settings, failure].into_iter().flatten().collect()
    }

    /// What was lost at the start of this daemon.
    fn lost_records(&self) -> Option<Ailment> {
        let loss = self.loss.locked();
        if (&loss.why, loss.adopted, loss.ended) == (&None, 0, 0) {
            return None;
        }
        let LostRecords {
            why,
            adopted,
            ended,
        } = &*loss;
        let tokens = if why.is_some() {
            "its tokens are lost; "
        } else {
            ""
        };
        let why = why
            .as_deref()
            .unwrap_or("servers that it has kept were not on record");
        Some(Ailment {
            what: "records".into(),
            finding: format!(
                "sessions.db was not what a former daemon had left ({why}): {tokens}{adopted} kept servers were found again, and {ended} \
                 were ended"
            ),
            advice: "nothing: lost servers start fresh, and the next daemon no longer says this"
                .into(),
        })
    }
}
