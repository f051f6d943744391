//! What effects leave on record: a ledger in memory. It says what the effects mean; the ledger on
//! disk, and the registry that continues after a crash, are tested against it.

use alloc::collections::{BTreeMap, BTreeSet};

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{LossId, LossRecord, ServiceName, SessionId};

use super::{
    BackendOf, Claimant, Effect, KeeperRecord, LostRecords, OwnerRecord, ServerRecord,
    ServiceRecord, ServiceSession, SessionRecord, Snapshot,
};

/// The records that effects have left, in maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The hosts.
    pub owners: BTreeMap<ProcessId, OwnerRecord>,
    /// The processes that have claimed.
    pub claimants: BTreeMap<ProcessId, Claimant>,
    /// The sessions.
    pub sessions: BTreeMap<SessionId, SessionRecord>,
    /// The keepers, with the sessions that they are on record as having.
    pub keepers: BTreeMap<ProcessId, (Option<BackendOf>, KeeperRecord)>,
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
                self.sessions.insert(session.id.clone(), session);
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
            Effect::SaveKeeper(of, keeper) => {
                self.keepers.insert(keeper.process, (of, keeper));
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
            sessions: self.sessions.values().cloned().collect(),
            kept: self
                .keepers
                .values()
                .filter_map(|(of, keeper)| Some((of.clone()?, keeper.clone())))
                .collect(),
            ending: self
                .keepers
                .values()
                .filter(|(of, _)| of.is_none())
                .map(|(_, keeper)| keeper.clone())
                .collect(),
            services: self.services.values().cloned().collect(),
            service_losses: self.service_losses.values().cloned().collect(),
            servers: self.servers.values().cloned().collect(),
            lost: self.lost.clone(),
        }
    }
}

impl From<Snapshot> for Records {
    fn from(snapshot: Snapshot) -> Self {
        let kept = snapshot.kept.into_iter();
        let kept = kept.map(|(of, keeper)| (Some(of), keeper));
        let ending = snapshot.ending.into_iter().map(|keeper| (None, keeper));
        let keepers = kept.chain(ending);
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
                .map(|session| (session.id.clone(), session))
                .collect(),
        }
    }
}
