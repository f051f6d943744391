//! What effects leave on record. It says what the effects mean, and is what a registry continues from;
//! the ledger on disk is tested against it.

use alloc::collections::BTreeMap;

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{LossId, LossRecord, ServiceName, SessionId};

use super::{
    BackendOf, Claimant, Effect, KeeperRecord, LostRecords, OwnerRecord, Record, RecordKey,
    ServerRecord, ServiceRecord, ServiceSession, SessionRecord,
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
    /// What this effect leaves on record.
    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Save(record) => self.save(record),
            Effect::Drop(key) => self.drop(&key),
            Effect::DeleteToken(_)
            | Effect::Unreachable { .. }
            | Effect::EndContents(..)
            | Effect::EndKeeper(_)
            | Effect::SweepBackend(_)
            | Effect::Answer(..) => {}
        }
    }

    /// Puts a record in the place of the one of its key.
    pub fn save(&mut self, record: Record) {
        match record {
            Record::Owner(owner) => drop(self.owners.insert(owner.host, owner)),
            Record::Claimant(process, claimant) => {
                drop(self.claimants.insert(process, claimant));
            }
            Record::Session(session) => {
                drop(self.sessions.insert(session.id.clone(), *session));
            }
            Record::Keeper(of, keeper) => {
                drop(self.keepers.insert(keeper.process, (of, keeper)));
            }
            Record::Service(service) => {
                drop(self.services.insert(service.name.clone(), service));
            }
            Record::ServiceLoss(of, loss) => {
                drop(self.service_losses.insert(loss.id, (of, loss)));
            }
            Record::Server(server) => drop(self.servers.insert(server.server.clone(), server)),
            Record::LostRecords(lost) => self.lost = Some(lost),
        }
    }

    fn drop(&mut self, key: &RecordKey) {
        match key {
            RecordKey::Owner(host) => drop(self.owners.remove(host)),
            RecordKey::Claimant(process) => drop(self.claimants.remove(process)),
            RecordKey::Session(id) => drop(self.sessions.remove(id)),
            RecordKey::Keeper(process) => drop(self.keepers.remove(process)),
            RecordKey::Service(name) => drop(self.services.remove(name)),
            RecordKey::ServiceLoss(id) => drop(self.service_losses.remove(id)),
            RecordKey::Server(server) => drop(self.servers.remove(server)),
            RecordKey::LostRecords => self.lost = None,
        }
    }
}

impl FromIterator<Record> for Records {
    fn from_iter<T: IntoIterator<Item = Record>>(records: T) -> Self {
        let mut all = Self::default();
        records.into_iter().for_each(|record| all.save(record));
        all
    }
}
