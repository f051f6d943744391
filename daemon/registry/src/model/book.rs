//! The rules of claims once more, as plainly as they can be said: one list of sessions, searched each time.

use std::collections::{BTreeMap, BTreeSet};

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Label, SessionId, Siblings};

use crate::Records;
use crate::{Claim, Millis, Policy, Ticket};

/// A session. Its id is not known before the registry has answered.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Option<SessionId>,
    owner: ProcessId,
    key: Option<Key>,
    label: Option<Label>,
    pub(super) epoch: u64,
    pub(super) holder: Option<ProcessId>,
}

/// What a claim must be answered: the number of an entry, and how the claim came to it; or the code of a refusal.
pub(super) type Expected = Result<(u64, Outcome), &'static str>;

#[derive(Debug)]
pub(super) struct Book {
    policy: Policy,
    /// In the order in which they were opened.
    pub(super) entries: BTreeMap<u64, Entry>,
    opened: u64,
    plural: BTreeSet<(ProcessId, Key)>,
    waiting: Vec<Claim>,
    pub(super) expected: BTreeMap<Ticket, Expected>,
}

impl Book {
    /// Begins with what is on record.
    pub(super) fn new(policy: Policy, records: &Records) -> Self {
        let entry = |session: &crate::SessionRecord| Entry {
            id: Some(session.id.clone()),
            owner: session.owner,
            key: session.key,
            label: session.label.clone(),
            epoch: session.epoch.0,
            holder: session.holder,
        };
        let entries: BTreeMap<u64, Entry> =
            records.sessions.values().map(|session| (session.opened, entry(session))).collect();
        let owners = records.owners.values();
        Self {
            policy,
            opened: entries.last_key_value().map_or(0, |(opened, _)| *opened),
            entries,
            plural: owners.flat_map(|owner| owner.plural.iter().map(|key| (owner.host, *key))).collect(),
            waiting: Vec::new(),
            expected: BTreeMap::new(),
        }
    }

    pub(super) fn waiting(&self) -> BTreeSet<Ticket> {
        self.waiting.iter().map(|claim| claim.ticket).collect()
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Millis) {
        match self.decide(claim) {
            Some(decision) => self.answer(claim, decision),
            None if now < claim.deadline => self.waiting.push(claim.clone()),
            None => self.give_up(claim),
        }
    }

    pub(super) fn passed(&mut self, now: Millis) {
        while let Some(at) = self.waiting.iter().position(|claim| claim.deadline <= now) {
            let claim = self.waiting.remove(at);
            self.give_up(&claim);
        }
    }

    pub(super) fn exited(&mut self, dead: &[ProcessId]) {
        self.refuse(|claim| dead.contains(&claim.process), "lease_ended");
        self.refuse(|claim| dead.contains(&claim.host), "no_verified_host");
        self.entries.retain(|_, entry| !dead.contains(&entry.owner));
        self.plural.retain(|(owner, _)| !dead.contains(owner));
        self.free(|entry| entry.holder.is_some_and(|holder| dead.contains(&holder)));
    }

    pub(super) fn release(&mut self, id: &SessionId) {
        self.free(|entry| entry.id.as_ref() == Some(id));
    }

    /// The answer to a mutation: the code of its refusal, if it is one.
    pub(super) fn refusal(&self, id: &SessionId, epoch: Epoch) -> Option<&'static str> {
        let Some(entry) = self.entries.values().find(|entry| entry.id.as_ref() == Some(id)) else {
            return Some("unknown_session");
        };
        match entry.holder {
            _ if entry.epoch != epoch.0 => Some("stale_epoch"),
            None => Some("lease_ended"),
            Some(_) => None,
        }
    }

    fn refuse(&mut self, which: impl Fn(&Claim) -> bool, code: &'static str) {
        for claim in self.waiting.extract_if(.., |claim| which(claim)) {
            self.expected.insert(claim.ticket, Err(code));
        }
    }

    fn free(&mut self, which: impl Fn(&Entry) -> bool) {
        let mut keys = BTreeSet::new();
        for entry in self.entries.values_mut().filter(|entry| which(entry)) {
            entry.holder = None;
            keys.extend(entry.key.map(|key| (entry.owner, key)));
        }
        self.entries.retain(|_, entry| entry.key.is_some() || entry.holder.is_some());
        for (owner, key) in keys {
            self.settle(owner, key);
        }
    }

    fn settle(&mut self, owner: ProcessId, key: Key) {
        let same = |claim: &Claim| claim.host == owner && claim.key == Some(key);
        let contenders = self.waiting.iter().filter(|claim| same(claim)).map(|claim| claim.process);
        if contenders.collect::<BTreeSet<_>>().len() > 1 {
            self.plural.insert((owner, key));
        }
        let ripe =
            |book: &Self| book.waiting.iter().position(|claim| same(claim) && book.decide(claim).is_some());
        while let Some(at) = ripe(self) {
            let claim = self.waiting.remove(at);
            let decision = self.decide(&claim).expect("it was decided just now");
            self.answer(&claim, decision);
        }
    }

    fn give_up(&mut self, claim: &Claim) {
        let Some(key) = claim.key else { return };
        self.plural.insert((claim.host, key));
        self.answer(claim, (None, Outcome::FreshHeld));
        self.settle(claim.host, key);
    }

    /// Which entry, or None for a new one; None in all: it has to wait.
    fn decide(&self, claim: &Claim) -> Option<(Option<u64>, Outcome)> {
        let same = |entry: &Entry| entry.owner == claim.host && entry.key == claim.key;
        let mine = |entry: &Entry| entry.holder == Some(claim.process);
        let find = |which: &dyn Fn(&Entry) -> bool| {
            self.entries.iter().find(|(_, entry)| same(entry) && which(entry)).map(|(number, _)| *number)
        };
        let Some(key) = claim.key else {
            let held = find(&|entry| mine(entry) && entry.label == claim.label);
            return Some(held.map_or((None, Outcome::FreshDoubtful), |held| (Some(held), Outcome::Held)));
        };
        let fresh = claim.siblings.unwrap_or(self.policy.siblings) == Siblings::Fresh;
        if let Some(held) = find(&mine) {
            Some((Some(held), Outcome::Held))
        } else if find(&|_| true).is_none() {
            Some((None, Outcome::FreshFirst))
        } else if fresh && self.plural.contains(&(claim.host, key)) {
            Some((None, Outcome::FreshPlural))
        } else {
            find(&|entry| entry.holder.is_none()).map(|free| (Some(free), Outcome::Resumed))
        }
    }

    fn answer(&mut self, claim: &Claim, (entry, outcome): (Option<u64>, Outcome)) {
        let number = match entry {
            Some(number) => {
                let entry = self.entries.get_mut(&number).expect("it was found just now");
                entry.epoch += u64::from(entry.holder.is_none());
                entry.holder = Some(claim.process);
                Ok(number)
            }
            None => self.open(claim).ok_or("quota_exceeded"),
        };
        self.expected.insert(claim.ticket, number.map(|number| (number, outcome)));
        if let Ok(number) = number {
            // Whoever has a lease waits for none.
            let same = |other: &mut Claim| {
                other.process == claim.process && other.host == claim.host && other.key == claim.key
            };
            for other in self.waiting.extract_if(.., same) {
                self.expected.insert(other.ticket, Ok((number, Outcome::Held)));
            }
        }
    }

    fn open(&mut self, claim: &Claim) -> Option<u64> {
        let of_owner = || self.entries.iter().filter(|(_, entry)| entry.owner == claim.host);
        if of_owner().count() >= self.policy.sessions_per_owner {
            let is_plural =
                |entry: &Entry| entry.key.is_some_and(|key| self.plural.contains(&(claim.host, key)));
            let spare = of_owner().find(|(_, entry)| entry.holder.is_none() && is_plural(entry));
            let spare = *spare?.0;
            self.entries.remove(&spare);
        }
        self.opened += 1;
        let entry = Entry {
            id: None,
            owner: claim.host,
            key: claim.key,
            label: claim.label.clone(),
            epoch: 1,
            holder: Some(claim.process),
        };
        self.entries.insert(self.opened, entry);
        Some(self.opened)
    }
}
