//! What is known of servers: how each takes `server/discover`, for all keepers and fronts of its
//! command, and how many connections in a row have only probed it.

use alloc::collections::BTreeMap;

use mcp_sessiond_proto::facts::{FACTS_MS, Facts, Learned, ServerDigest, VERSION_MAX};

use super::{Effect, Record, RecordKey, Registry, ServerRecord};

/// Servers of which something is remembered. A user has dozens; those that were asked for longest
/// ago go first.
const SERVERS_MAX: usize = 1024;

/// How old the record of the last use may be, in ms: it is not written at each connection.
const USED_MS: u64 = 24 * 60 * 60 * 1000;

/// The servers.
#[derive(Debug, Default)]
pub(super) struct Servers {
    records: BTreeMap<ServerDigest, ServerRecord>,
    /// How many connections in a row have only probed. Not on record: after a restart of the daemon
    /// they are counted anew.
    probed: BTreeMap<ServerDigest, u32>,
}

impl Servers {
    /// What is on record.
    pub(super) fn restore(records: BTreeMap<ServerDigest, ServerRecord>) -> Self {
        Self {
            records,
            probed: BTreeMap::new(),
        }
    }
}

impl Registry {
    /// What is known of a server at this time, in ms since the Unix epoch.
    pub fn facts(&mut self, server: &ServerDigest, now_ms: u64) -> Facts {
        let mut discover = None;
        if let Some(record) = self.servers.records.get_mut(server) {
            let age = now_ms.saturating_sub(record.used_ms);
            if age < FACTS_MS {
                discover = Some(record.discover.clone());
                if age >= USED_MS {
                    record.used_ms = now_ms;
                    self.effects
                        .push(Effect::Save(Record::Server(record.clone())));
                }
            } else {
                self.forget_server(server);
            }
        }
        let probed = self.servers.probed.get(server).copied();
        Facts {
            discover,
            probed: probed.unwrap_or_default(),
        }
    }

    /// Something was seen of a server at this time, in ms since the Unix epoch.
    pub fn learn(&mut self, server: &ServerDigest, learned: Learned, now_ms: u64) {
        match learned {
            Learned::Discover(discover) => {
                let record = ServerRecord {
                    server: server.clone(),
                    discover,
                    version: None,
                    used_ms: now_ms,
                };
                let records = &mut self.servers.records;
                if records.len() >= SERVERS_MAX && !records.contains_key(server) {
                    let oldest = records.values().min_by_key(|record| record.used_ms);
                    if let Some(oldest) = oldest.map(|record| record.server.clone()) {
                        self.forget_server(&oldest);
                    }
                }
                self.servers.records.insert(server.clone(), record.clone());
                self.effects.push(Effect::Save(Record::Server(record)));
            }
            Learned::Probed {} => {
                let probed = &mut self.servers.probed;
                if probed.len() >= SERVERS_MAX && !probed.contains_key(server) {
                    probed.clear();
                }
                let count = probed.entry(server.clone()).or_default();
                *count = count.saturating_add(1);
            }
            Learned::Initialized {} => {
                self.servers.probed.remove(server);
            }
            Learned::Version(version) if version.len() <= VERSION_MAX => {
                let Some(record) = self.servers.records.get_mut(server) else {
                    return;
                };
                match &record.version {
                    None => {
                        record.version = Some(version);
                        self.effects
                            .push(Effect::Save(Record::Server(record.clone())));
                    }
                    Some(known) if *known == version => {}
                    Some(_) => self.forget_server(server),
                }
            }
            Learned::Version(_) => {}
            Learned::Forgotten {} => {
                self.servers.probed.remove(server);
                self.forget_server(server);
            }
        }
    }

    fn forget_server(&mut self, server: &ServerDigest) {
        if self.servers.records.remove(server).is_some() {
            self.effects
                .push(Effect::Drop(RecordKey::Server(server.clone())));
        }
    }
}
