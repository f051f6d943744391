//! Sessions, leases and claims: a state machine that does no I/O.
//!
//! It is told facts (this process claimed, that one exited, time passed) and answers with
//! [`Effect`]s, which the engine carries out in order. So every interleaving can be tested without
//! a process in sight.
//!
//! - [`claims`]: which session a claim gets, and who waits for whom. [`names`]: sessions that the user has
//!   named.
//! - [`owners`]: what was seen of each host, and what counts for its claims because of that.
//! - [`leases`]: what may be done under a lease: the epoch is checked in the step of the change.
//! - [`keepers`]: which keeper holds a session's backend, and which has to end. [`services`]: the
//!   same for services, whose sessions live in the storage.
//! - [`losses`]: what has to be told, until somebody has. [`told`]: what the answer to a claim says of it.
//! - [`unreachable`]: what nobody can resume ends at once.
//! - [`facts`]: what is known of servers, whoever's they are.
//! - [`effects`]: what the engine must do, in order. [`records`]: what is put on record.
//!   [`ledger`]: what effects leave on record, and a registry continues from. [`indexes`]: how a
//!   session is found.
//!
//! `model.rs` holds all of it against a second implementation of the rules, by random steps.
//!
//! **Architecture Invariant:** nothing in here reads a clock, a file, a socket or a process, and
//! the same facts have the same effects, in the same order. The crate has no `std`, so that the
//! compiler keeps it; what could of `proto` (an id that is drawn) is kept out by
//! `tests/integration/layout.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

extern crate alloc;

mod claims;
mod effects;
mod facts;
mod indexes;
mod keepers;
mod leases;
mod ledger;
mod losses;
#[cfg(test)]
mod model;
mod names;
mod owners;
mod records;
mod services;
#[cfg(test)]
mod tests;
mod told;
mod unreachable;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

pub use claims::{Claim, OwnClaim, Wants};
pub use effects::{Effect, Lease, Ticket};
pub use ledger::Records;
pub use names::in_use;
pub use records::{
    BackendOf, CLAIMED_KEYS_MAX, Claimant, Digest, HostRule, KeeperRecord, Keepers, LostRecords,
    NO_TOKEN, OwnerRecord, ProgramDir, Record, RecordKey, Rule, RuleSource, ServerRecord,
    ServiceRecord, ServiceSession, SessionRecord, TokenFile,
};
pub use unreachable::Departure;

use claims::Waiting;
use facts::Servers;
use indexes::OfKey;
use keepers::Served;
use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::{
    BackendName, Loss, LossId, LossRecord, RequestId, ServiceName, SessionId, Siblings,
};
use owners::Owner;

/// Milliseconds on a clock that never goes back. Where it began does not matter.
pub type Millis = u64;

/// What the configuration decides about claims.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// What a claim gets where there are, or were, several servers of its key, unless it says
    /// otherwise, or the table of hosts.
    pub siblings: Siblings,
    /// Sessions that one owner may have.
    pub sessions_per_owner: usize,
    /// How soon after a front has begun to leave a host that names the conversation starts the next
    /// one, if it reconnects.
    pub closed_again_ms: Millis,
}

/// Everything that is known about owners, sessions and leases.
#[derive(Debug)]
pub struct Registry {
    policy: Policy,
    owners: BTreeMap<ProcessId, Owner>,
    sessions: BTreeMap<SessionId, SessionRecord>,
    /// The processes that have claimed, and what was read of them then.
    claimants: BTreeMap<ProcessId, Claimant>,
    by_key: BTreeMap<(ProcessId, Key), OfKey>,
    /// The ids of sessions whose owners chose others for them.
    names: BTreeMap<(ProcessId, SessionId), SessionId>,
    held_by: BTreeMap<ProcessId, BTreeSet<SessionId>>,
    /// What their holders have made by these requests.
    made: BTreeMap<(ProcessId, RequestId), SessionId>,
    /// The keepers, by what they hold the backends of.
    kept: BTreeMap<BackendOf, Keepers>,
    /// Whose backends these keepers hold.
    kept_by: BTreeMap<ProcessId, BackendOf>,
    /// Keepers that belong to no session any more, until they exit.
    ending: BTreeMap<ProcessId, KeeperRecord>,
    /// Keepers that have exited, until what is left of their backends is gone.
    exited_keepers: BTreeMap<ProcessId, KeeperRecord>,
    /// Claims that wait for a holder to be gone, in the order in which they came.
    waiting: Vec<Waiting>,
    /// How the latest fronts of sessions have left. Not on record: after a restart of the daemon
    /// everything counts as used.
    left: BTreeMap<SessionId, BTreeMap<ProcessId, Departure>>,
    /// Sessions in which something was kept beside their backends. Not on record, either.
    touched: BTreeSet<SessionId>,
    /// Keepers of sessions that have ended because of their host's rule before it was known whether
    /// they were used: the host, the key, and what is told if they were.
    ended_by_rule: BTreeMap<ProcessId, (ProcessId, Key, Loss)>,
    /// Why keepers are about to end.
    last_words: BTreeMap<ProcessId, Option<Loss>>,
    /// Keepers that are to end, since they do not answer or can't be reached; whether they are to be
    /// killed.
    faulty: BTreeMap<ProcessId, bool>,
    /// Keepers of lists' servers whose entries were edited, and the names that were asked for. None: nobody
    /// has used the former server.
    edited: BTreeMap<ProcessId, Option<BackendName>>,
    /// What the keepers have served that are ending or have exited.
    served: BTreeMap<ProcessId, Served>,
    services: BTreeMap<ServiceName, ServiceRecord>,
    /// What services' sessions have lost, and their clients were not told of.
    service_losses: BTreeMap<LossId, (ServiceSession, LossRecord)>,
    servers: Servers,
    /// The number of the latest session that was opened, or came free.
    order: u64,
    /// The latest time that was told.
    now: Millis,
    /// See [`Registry::time_of_day`].
    time_of_day_ms: u64,
    /// The number of the newest loss.
    newest_loss: u64,
    /// Whether the records of an earlier daemon were lost.
    lost: Option<LostRecords>,
    effects: Vec<Effect>,
}

impl Registry {
    /// A registry that continues where a former daemon's records end. What they say about processes
    /// that are gone has yet to be told, by [`Registry::exited`].
    pub fn restore(policy: Policy, records: Records) -> Self {
        let newest_of_services = records.service_losses.keys().next_back().copied();
        let of_hosts = records.owners.values().flat_map(|owner| &owner.losses);
        let newest_loss = of_hosts
            .map(|(_, loss)| loss.id)
            .chain(newest_of_services)
            .map(|id| id.0)
            .max();
        let mut registry = Self {
            policy,
            owners: BTreeMap::new(),
            sessions: BTreeMap::new(),
            claimants: BTreeMap::new(),
            by_key: BTreeMap::new(),
            names: BTreeMap::new(),
            held_by: BTreeMap::new(),
            made: BTreeMap::new(),
            kept: BTreeMap::new(),
            kept_by: BTreeMap::new(),
            ending: BTreeMap::new(),
            exited_keepers: BTreeMap::new(),
            waiting: Vec::new(),
            left: BTreeMap::new(),
            touched: BTreeSet::new(),
            ended_by_rule: BTreeMap::new(),
            last_words: BTreeMap::new(),
            faulty: BTreeMap::new(),
            edited: BTreeMap::new(),
            served: BTreeMap::new(),
            services: records.services,
            service_losses: records.service_losses,
            servers: Servers::restore(records.servers),
            order: 0,
            now: 0,
            time_of_day_ms: 0,
            newest_loss: newest_loss.unwrap_or_default(),
            lost: records.lost,
            effects: Vec::new(),
        };
        let owners = records.owners.into_values();
        registry.owners = owners.map(Owner::restore).collect();
        for (process, claimant) in records.claimants {
            if registry.owners.contains_key(&claimant.host) {
                registry.claimants.insert(process, claimant);
            } else {
                // The records end in the middle of its first claim, which was not answered. Nothing
                // else would tell that its host has exited.
                registry
                    .effects
                    .push(Effect::Drop(RecordKey::Claimant(process)));
            }
        }
        let mut sessions: Vec<SessionRecord> = records.sessions.into_values().collect();
        sessions.sort_by_key(|session| session.opened);
        for session in sessions {
            registry.order = registry.order.max(session.opened).max(session.freed);
            registry.insert(session);
        }
        registry.restore_keepers(records.keepers.into_values());
        let bare = registry.sessions.keys().filter(|id| registry.is_bare(id));
        registry.touched = bare.cloned().collect();
        // A former daemon may have had no time for it.
        for host in registry.owners.keys().copied().collect::<Vec<_>>() {
            registry.end_unreachable_of(host);
        }
        registry.drop_idle_user();
        registry.drop_idle_services();
        registry
    }

    /// Puts a new policy in force, for claims from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        for host in self.owners.keys().copied().collect::<Vec<_>>() {
            self.end_unreachable_of(host);
        }
    }

    /// What has to be done since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// The sessions, in order of their ids.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionRecord> {
        self.sessions.values()
    }

    /// The sessions whose ids come after `after`, in order.
    pub fn sessions_after(
        &self,
        after: Option<&SessionId>,
    ) -> impl Iterator<Item = &SessionRecord> {
        use core::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.sessions
            .range::<SessionId, _>((from, Unbounded))
            .map(|(_, session)| session)
    }

    /// A session by its id.
    pub fn session(&self, id: &SessionId) -> Option<&SessionRecord> {
        self.sessions.get(id)
    }

    /// An owner's session, by the id that the owner knows.
    pub fn find(&self, owner: ProcessId, told: &SessionId) -> Option<&SessionRecord> {
        let id = self.names.get(&(owner, told.clone())).unwrap_or(told);
        self.sessions
            .get(id)
            .filter(|session| session.owner == owner && session.public_id() == told)
    }

    /// The same, for an instance of that owner's: what is not for it is as if it were not there.
    pub fn find_for(
        &self,
        process: ProcessId,
        claimant: &Claimant,
        told: &SessionId,
    ) -> Option<&SessionRecord> {
        self.find(claimant.host, told)
            .filter(|session| session.is_for(process, claimant))
    }

    /// The instances that have claimed, and that a session is for.
    pub fn instances_of(&self, id: &SessionId) -> impl Iterator<Item = ProcessId> {
        let session = self.sessions.get(id);
        let claimants = self.claimants.iter();
        let of = claimants.filter(move |(process, claimant)| {
            session.is_some_and(|session| session.is_for(**process, claimant))
        });
        of.map(|(process, _)| *process)
    }

    /// The hosts, with their names and the ids of their sessions.
    pub fn owners(&self) -> impl Iterator<Item = (ProcessId, &str, &BTreeSet<SessionId>)> {
        self.owners
            .iter()
            .map(|(host, owner)| (*host, owner.name.as_str(), &owner.sessions))
    }

    /// The keys of a host under which several instances hold sessions now.
    pub fn plural_keys(&self, host: ProcessId) -> usize {
        self.keys_of(host)
            .filter(|(_, sessions)| sessions.held().len() > 1)
            .count()
    }

    /// What was lost last of a host's servers, and was told to none of them yet.
    pub fn losses(&self, host: ProcessId) -> impl Iterator<Item = &LossRecord> {
        let losses = self.owners.get(&host).map(|owner| &owner.losses);
        losses.into_iter().flatten().map(|(_, loss)| loss)
    }

    /// The time, before anything else that happens at it is told: refuses the claims that nobody
    /// waits for any more.
    pub fn at(&mut self, now: Millis) {
        self.now = self.now.max(now);
        self.refuse_late();
    }

    /// Whether a process is a host that has sessions.
    pub fn is_owner(&self, process: &ProcessId) -> bool {
        self.owners
            .get(process)
            .is_some_and(|owner| !owner.sessions.is_empty())
    }

    /// What was read of a process at its first claim.
    pub fn claimant(&self, process: &ProcessId) -> Option<&Claimant> {
        self.claimants.get(process)
    }

    /// Every process whose exit the registry must be told: hosts, claimants, keepers, and the
    /// holders of leases.
    pub fn processes(&self) -> BTreeSet<ProcessId> {
        let hosts = self.owners.keys().filter(|host| **host != ProcessId::USER);
        let keepers = self.kept_by.keys().chain(self.ending.keys());
        let keepers = keepers.chain(
            self.services
                .values()
                .filter_map(|service| service.holder.as_ref()),
        );
        hosts
            .chain(self.held_by.keys())
            .chain(self.claimants.keys())
            .chain(keepers)
            .copied()
            .collect()
    }

    /// Whether the exit of this process has to be told.
    pub fn depends_on(&self, process: &ProcessId) -> bool {
        self.owners.contains_key(process)
            || self.held_by.contains_key(process)
            || self.claimants.contains_key(process)
            || self.is_keeper(process)
            || self
                .services
                .values()
                .any(|service| service.holder.as_ref() == Some(process))
    }

    /// Whether nothing depends on the daemon: no host, no lease, no service, no claim, no keeper.
    pub fn is_idle(&self) -> bool {
        // What the user has named is on record, and waits for whoever comes next.
        let no_host = self.owners.keys().all(|host| *host == ProcessId::USER);
        let serves = self
            .services
            .values()
            .any(|service| service.holder.is_some());
        no_host
            && !serves
            && self.held_by.is_empty()
            && self.waiting.is_empty()
            && self.has_no_keeper()
    }

    /// Claims that are waiting for a holder to be gone.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Processes have exited: their leases end, their claims are dropped, and what they own ends
    /// with them.
    ///
    /// All that are known to have exited are told at once, so that no claim is answered as if one
    /// of them lived.
    pub fn exited(&mut self, processes: &[ProcessId]) {
        // Before any session ends: there is nobody to be told so.
        let changed: Vec<(SessionId, bool)> = processes
            .iter()
            .filter_map(|process| self.keeper_exited(process, processes))
            .collect();
        for process in processes {
            if self.claimants.remove(process).is_some() {
                self.effects
                    .push(Effect::Drop(RecordKey::Claimant(*process)));
            }
            self.abandon(*process);
        }
        for process in processes {
            self.end_owner(*process);
        }
        self.vacate_services(processes, None);
        let held = processes
            .iter()
            .filter_map(|process| self.held_by.remove(process));
        let held: Vec<SessionId> = held.flatten().collect();
        self.free(&held);
        for process in processes {
            // It can't say any more whether it was used.
            self.note_word(*process, true);
        }
        let by_rule = changed.iter().filter(|(_, by_rule)| *by_rule);
        for (session, _) in by_rule {
            self.end_if_free(session);
        }
        let changed = changed.into_iter().map(|(session, _)| session);
        self.grant_waiting(&held.into_iter().chain(changed).collect::<Vec<_>>());
        self.drop_idle_user();
    }

    /// Ends a session. Its key, where it has one, leads to others from now on.
    pub fn end(&mut self, id: &SessionId) {
        self.end_session(id);
        self.drop_idle_user();
    }

    fn end_session(&mut self, id: &SessionId) {
        let owner = self.sessions.get(id).map(|session| session.owner);
        if let Some(owner) = owner.and_then(|owner| self.owners.get_mut(&owner)) {
            owner.sessions.remove(id);
        }
        self.remove(id);
    }

    /// What belongs to a host ends with it.
    fn end_owner(&mut self, host: ProcessId) {
        let Some(owner) = self.owners.remove(&host) else {
            return;
        };
        for id in &owner.sessions {
            self.remove(id);
        }
        self.refuse_waiting_of(host);
        let of_host = self
            .claimants
            .iter()
            .filter(|(_, claimant)| claimant.host == host);
        let gone: Vec<ProcessId> = of_host.map(|(process, _)| *process).collect();
        for process in gone {
            self.claimants.remove(&process);
            self.effects
                .push(Effect::Drop(RecordKey::Claimant(process)));
        }
        self.effects.push(Effect::Drop(RecordKey::Owner(host)));
    }

    /// Ends the leases of sessions, and then sees who can have them.
    fn vacate(&mut self, ids: &[SessionId]) {
        self.free(ids);
        self.grant_waiting(ids);
    }

    fn free(&mut self, ids: &[SessionId]) {
        for id in ids {
            self.give(id, None);
            let Some(session) = self.sessions.get_mut(id) else {
                continue;
            };
            self.order += 1;
            session.freed = self.order;
            let session = session.clone();
            if session.key.is_some() {
                self.effects.push(Effect::Save(session.into()));
            } else {
                // Nobody could ever resume it.
                self.end_session(id);
            }
        }
    }

    fn grant_waiting(&mut self, ids: &[SessionId]) {
        let of = |id: &SessionId| {
            let session = self.sessions.get(id)?;
            Some((session.owner, session.leading_key()?))
        };
        let free: BTreeSet<(ProcessId, Key)> = ids.iter().filter_map(of).collect();
        for (owner, key) in free {
            self.reconsider(owner, key);
        }
    }
}
