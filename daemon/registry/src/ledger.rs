//! What effects leave on record: a ledger in memory. It says what the effects mean; the ledger on
//! disk, and the registry that continues after a crash, are tested against it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{LossId, LossRecord, ServiceName, SessionId};

use super::{
    Claimant, Effect, KeeperRecord, Keepers, LostRecords, OwnerRecord, ServerRecord, ServiceRecord,
    ServiceSession, SessionRecord, Snapshot,
};

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
    /// The services.
    pub services: BTreeMap<ServiceName, ServiceRecord>,
    /// What their sessions have lost.
    pub service_losses: BTreeMap<LossId, (ServiceSession, LossRecord)>,
    /// What is known of servers.
    pub servers: BTreeMap<ServerDigest, ServerRecord>,
    /// Whether earlier records were lost.
    pub lost: Option<LostRecords>,
}

impl Records {
    /// Records what this effect has to be recorded of, if anything.
    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::SaveOwner(owner) => drop(self.owners.insert(owner.host, owner)),
            Effect::DropOwner(host) => drop(self.owners.remove(&host)),
            Effect::SaveClaimant(process, claimant) => {
                drop(self.claimants.insert(process, claimant));
            }
            Effect::DropClaimant(process) => drop(self.claimants.remove(&process)),
            Effect::SaveSession(session) => {
                self.sessions.insert(
                    session.id.clone(),
                    SessionRecord {
                        keepers: Keepers::default(),
                        ..session
                    },
                );
            }
            Effect::DropSession(id) => drop(self.sessions.remove(&id)),
            Effect::SaveService(service) => {
                drop(self.services.insert(service.name.clone(), service));
            }
            Effect::SaveServer(server) => {
                drop(self.servers.insert(server.server.clone(), server));
            }
            Effect::DropServer(server) => drop(self.servers.remove(&server)),
            Effect::DropService(name) => drop(self.services.remove(&name)),
            Effect::SaveServiceLoss(of, loss) => {
                drop(self.service_losses.insert(loss.id, (of, loss)));
            }
            Effect::DropServiceLoss(id) => drop(self.service_losses.remove(&id)),
            Effect::SaveKeeper(session, keeper) => {
                self.keepers.insert(keeper.process, (session, keeper));
            }
            Effect::DropKeeper(process) => drop(self.keepers.remove(&process)),
            Effect::SaveLostRecords(since) => {
                let told = BTreeSet::new();
                self.lost = Some(LostRecords { since, told });
            }
            Effect::SaveLostTold(host, key) => {
                if let Some(lost) = &mut self.lost {
                    lost.told.insert((host, key));
                }
            }
            Effect::DeleteToken(_)
            | Effect::Unreachable { .. }
            | Effect::EndContents(..)
            | Effect::EndKeeper(_)
            | Effect::SweepBackend(_)
            | Effect::Answer(..) => {}
        }
    }

    /// Everything on record, for [`Registry::restore`](super::Registry::restore).
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            owners: self.owners.values().cloned().collect(),
            claimants: self.claimants.clone().into_iter().collect(),
            sessions: self
                .sessions
                .values()
                .map(|session| self.with_keepers(session))
                .collect(),
            ending: self
                .keepers
                .values()
                .filter(|kept| self.is_of_none(kept))
                .cloned()
                .map(|kept| kept.1)
                .collect(),
            services: self.services.values().cloned().collect(),
            service_losses: self.service_losses.values().cloned().collect(),
            servers: self.servers.values().cloned().collect(),
            lost: self.lost.clone(),
            serving: self
                .keepers
                .values()
                .filter_map(|(session, keeper)| {
                    keeper.service.as_ref()?;
                    Some((session.clone()?, keeper.clone()))
                })
                .collect(),
        }
    }

    fn with_keepers(&self, session: &SessionRecord) -> SessionRecord {
        let of_hosts = self
            .keepers
            .values()
            .filter(|(_, keeper)| keeper.service.is_none());
        let kept = of_hosts.filter(|(id, _)| id.as_ref() == Some(&session.id));
        SessionRecord {
            keepers: kept.map(|(_, keeper)| keeper.clone()).collect(),
            ..session.clone()
        }
    }

    /// Whether the record says so, or names a session that is not there.
    fn is_of_none(&self, (session, keeper): &(Option<SessionId>, KeeperRecord)) -> bool {
        let is_known = |session| keeper.service.is_some() || self.sessions.contains_key(session);
        !session.as_ref().is_some_and(is_known)
    }
}

impl From<Snapshot> for Records {
    fn from(snapshot: Snapshot) -> Self {
        let all = snapshot
            .sessions
            .iter()
            .flat_map(|of| of.keepers.iter().map(move |keeper| (of, keeper)));
        let of_sessions: Vec<_> = all
            .map(|(of, keeper)| (Some(of.id.clone()), keeper.clone()))
            .collect();
        let ending = snapshot.ending.into_iter().map(|keeper| (None, keeper));
        let serving = snapshot
            .serving
            .into_iter()
            .map(|(session, keeper)| (Some(session), keeper));
        let keepers = of_sessions.into_iter().chain(ending).chain(serving);
        Self {
            keepers: keepers.map(|kept| (kept.1.process, kept)).collect(),
            lost: snapshot.lost,
            servers: snapshot
                .servers
                .into_iter()
                .map(|server| (server.server.clone(), server))
                .collect(),
            service_losses: snapshot
                .service_losses
                .into_iter()
                .map(|(of, loss)| (loss.id, (of, loss)))
                .collect(),
            services: snapshot
                .services
                .into_iter()
                .map(|service| (service.name.clone(), service))
                .collect(),
            owners: snapshot
                .owners
                .into_iter()
                .map(|owner| (owner.host, owner))
                .collect(),
            claimants: snapshot.claimants.into_iter().collect(),
            sessions: snapshot
                .sessions
                .into_iter()
                .map(|session| {
                    (
                        session.id.clone(),
                        SessionRecord {
                            keepers: Keepers::default(),
                            ..session
                        },
                    )
                })
                .collect(),
        }
    }
}
