//! What effects leave on record: a ledger in memory. It says what the effects mean; the ledger on disk, and the registry that
//! continues after a crash, are tested against it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::SessionId;

use super::{Claimant, Effect, KeeperRecord, OwnerRecord, SessionRecord, Snapshot};

/// The records that effects have left, in maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The hosts.
    pub owners: BTreeMap<ProcessId, OwnerRecord>,
    /// The processes that have claimed.
    pub claimants: BTreeMap<ProcessId, Claimant>,
    /// The sessions, without their keepers.
    pub sessions: BTreeMap<SessionId, SessionRecord>,
    /// The keepers, with the sessions that they are on record as having.
    pub keepers: BTreeMap<ProcessId, (Option<SessionId>, KeeperRecord)>,
}

impl Records {
    /// Records what this effect has to be recorded of, if anything.
    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::SaveOwner(owner) => drop(self.owners.insert(owner.host, owner)),
            Effect::DropOwner(host) => drop(self.owners.remove(&host)),
            Effect::SaveClaimant(process, claimant) => drop(self.claimants.insert(process, claimant)),
            Effect::DropClaimant(process) => drop(self.claimants.remove(&process)),
            Effect::SaveSession(session) => {
                self.sessions.insert(session.id.clone(), SessionRecord { keeper: None, ..session });
            }
            Effect::DropSession(id) => drop(self.sessions.remove(&id)),
            Effect::SaveKeeper(session, keeper) => {
                self.keepers.insert(keeper.process, (session, keeper));
            }
            Effect::DropKeeper(process) => drop(self.keepers.remove(&process)),
            Effect::DeleteToken(_)
            | Effect::Unreachable(..)
            | Effect::EndContents(..)
            | Effect::EndKeeper(_)
            | Effect::SweepBackend(_)
            | Effect::Answer(..) => {}
        }
    }

    /// Everything on record, for [`Registry::restore`](super::Registry::restore).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            owners: self.owners.values().cloned().collect(),
            claimants: self.claimants.clone().into_iter().collect(),
            sessions: self.sessions.values().map(|session| self.with_keeper(session)).collect(),
            ending: self
                .keepers
                .values()
                .filter(|kept| self.is_of_none(kept))
                .cloned()
                .map(|kept| kept.1)
                .collect(),
        }
    }

    fn with_keeper(&self, session: &SessionRecord) -> SessionRecord {
        let kept = self.keepers.values().find(|(id, _)| id.as_ref() == Some(&session.id));
        SessionRecord { keeper: kept.map(|(_, keeper)| Box::new(keeper.clone())), ..session.clone() }
    }

    /// Whether the record says so, or names a session that is not there.
    fn is_of_none(&self, (session, _): &(Option<SessionId>, KeeperRecord)) -> bool {
        session.as_ref().is_none_or(|session| !self.sessions.contains_key(session))
    }
}

impl From<Snapshot> for Records {
    fn from(snapshot: Snapshot) -> Self {
        let keeper = |session: &SessionRecord| {
            Some((Some(session.id.clone()), KeeperRecord::clone(session.keeper.as_ref()?)))
        };
        let of_sessions: Vec<_> = snapshot.sessions.iter().filter_map(keeper).collect();
        let ending = snapshot.ending.into_iter().map(|keeper| (None, keeper));
        let keepers = of_sessions.into_iter().chain(ending);
        Self {
            keepers: keepers.map(|kept| (kept.1.process, kept)).collect(),
            owners: snapshot.owners.into_iter().map(|owner| (owner.host, owner)).collect(),
            claimants: snapshot.claimants.into_iter().collect(),
            sessions: snapshot
                .sessions
                .into_iter()
                .map(|session| (session.id.clone(), SessionRecord { keeper: None, ..session }))
                .collect(),
        }
    }
}
