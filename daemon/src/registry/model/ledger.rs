//! What the ledger would have on record.

use std::collections::BTreeMap;

use mcp_sessiond_proto::SessionId;

use crate::process::ProcessId;
use crate::registry::{Claimant, Effect, OwnerRecord, SessionRecord, Snapshot};

/// The records that effects have left, in maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Records {
    pub(crate) owners: BTreeMap<ProcessId, OwnerRecord>,
    pub(crate) claimants: BTreeMap<ProcessId, Claimant>,
    pub(crate) sessions: BTreeMap<SessionId, SessionRecord>,
}

impl Records {
    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::SaveOwner(owner) => drop(self.owners.insert(owner.host, owner)),
            Effect::DropOwner(host) => drop(self.owners.remove(&host)),
            Effect::SaveClaimant(process, claimant) => drop(self.claimants.insert(process, claimant)),
            Effect::DropClaimant(process) => drop(self.claimants.remove(&process)),
            Effect::SaveSession(session) => drop(self.sessions.insert(session.id.clone(), session)),
            Effect::DropSession(id) => drop(self.sessions.remove(&id)),
            Effect::DeleteToken(_) | Effect::EndContents(..) | Effect::Answer(..) => {}
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            owners: self.owners.values().cloned().collect(),
            claimants: self.claimants.clone().into_iter().collect(),
            sessions: self.sessions.values().cloned().collect(),
        }
    }
}

impl From<Snapshot> for Records {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            owners: snapshot.owners.into_iter().map(|owner| (owner.host, owner)).collect(),
            claimants: snapshot.claimants.into_iter().collect(),
            sessions: snapshot.sessions.into_iter().map(|session| (session.id.clone(), session)).collect(),
        }
    }
}
