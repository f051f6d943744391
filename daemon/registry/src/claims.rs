//! Claims: which session an instance gets, and who waits for whom.

use alloc::collections::BTreeSet;
use alloc::collections::btree_map::Entry;
use alloc::string::String;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error, Label, RequestId, SessionId, Siblings};

use super::{
    Claimant, Effect, Lease, Millis, Owner, OwnerRecord, Registry, SessionRecord, Ticket, TokenFile,
};

/// A claim, by a process whose host was verified.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The name under which it is answered.
    pub ticket: Ticket,
    /// The id of the session that is made for it, if one is: nobody else's.
    pub id: SessionId,
    /// The instance.
    pub process: ProcessId,
    /// Its host.
    pub host: ProcessId,
    /// The name of the host's executable.
    pub host_name: String,
    /// Its key; None where that is doubtful.
    pub key: Option<Key>,
    /// The label that it gave.
    pub label: Option<Label>,
    /// The name of the instance's executable.
    pub program: String,
    /// What it wants under a plural key; None: what the policy says.
    pub siblings: Option<Siblings>,
    /// When it stops waiting for another holder to be gone.
    pub deadline: Millis,
    /// The time of day, in ms since the Unix epoch, for the record of a new session.
    pub opened_ms: u64,
    /// Which session it wants.
    pub wants: Wants,
}

/// Which session a claim wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wants {
    /// The one that its key leads to.
    #[default]
    Keyed,
    /// A new one in the place of that.
    Fresh,
    /// A new one that is found by its id alone, which may be chosen. The same process with the same request gets the same.
    New(Option<SessionId>, Option<RequestId>),
    /// The one of this id.
    Named(SessionId),
}

/// A claim that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    claim: Claim,
    key: Key,
}

/// What can be done about a claim with a key.
enum Choice {
    Keep(SessionId),
    Resume(SessionId),
    Open(Outcome),
    Wait,
}

impl Registry {
    /// Records what was read of a process at its first claim.
    pub fn introduce(&mut self, process: ProcessId, claimant: Claimant) {
        self.effects.push(Effect::SaveClaimant(process, claimant.clone()));
        self.claimants.insert(process, claimant);
    }

    /// A process claims. The answer is an [`Effect::Answer`] with its ticket: at once, or after
    /// [`Registry::exited`], [`Registry::release`] or [`Registry::passed`].
    ///
    /// Every exit that is known must have been told before.
    pub fn claim(&mut self, claim: Claim, now: Millis) {
        if let Entry::Vacant(place) = self.owners.entry(claim.host) {
            place.insert(Owner {
                name: claim.host_name.clone(),
                sessions: BTreeSet::new(),
                plural: BTreeSet::new(),
                files: 0,
            });
            self.save_owner(claim.host);
        }
        match &claim.wants {
            Wants::New(chosen, request) => {
                let is_taken = chosen.as_ref().is_some_and(|id| self.find(claim.host, id).is_some());
                return match self.made_before(&claim, request.as_ref()) {
                    Some(made) => self.keep(&claim, &made),
                    None if is_taken => {
                        self.effects.push(Effect::Answer(claim.ticket, Err(Error::AlreadyExists)));
                    }
                    None => self.open(&claim, Outcome::FreshFirst),
                };
            }
            Wants::Named(id) => return self.claim_named(&claim, &id.clone()),
            Wants::Keyed | Wants::Fresh => {}
        }
        let Some(key) = claim.key else {
            match self.held_without_key(&claim) {
                Some(held) if claim.wants == Wants::Fresh => {
                    self.end(&held);
                    self.open(&claim, Outcome::FreshDoubtful);
                }
                Some(held) => self.keep(&claim, &held),
                None => self.open(&claim, Outcome::FreshDoubtful),
            }
            return;
        };
        match self.choose(&claim, key) {
            Choice::Wait if now < claim.deadline => self.waiting.push(Waiting { claim, key }),
            Choice::Wait => self.give_up(&claim, key),
            choice @ Choice::Open(_) => {
                self.carry_out(&claim, choice);
                // Another claim of the same process may be waiting; it has a lease now.
                self.settle(claim.host, key);
            }
            choice => self.carry_out(&claim, choice),
        }
    }

    /// Time has passed: claims that waited long enough get a fresh session.
    pub fn passed(&mut self, now: Millis) {
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.claim.deadline <= now) {
            let Waiting { claim, key } = self.waiting.remove(at);
            self.give_up(&claim, key);
        }
    }

    /// The time at which [`Registry::passed`] next has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.waiting.iter().map(|waiting| waiting.claim.deadline).min()
    }

    /// Ends the claims of a process that has exited.
    pub(super) fn abandon(&mut self, process: ProcessId) {
        self.refuse_waiting(|claim| claim.process == process, &Error::LeaseEnded);
    }

    /// Refuses the claims that wait for a session of a host that has exited.
    pub(super) fn refuse_waiting_of(&mut self, host: ProcessId) {
        let refusal = Error::NoVerifiedHost { sentence: "The host has exited".into() };
        self.refuse_waiting(|claim| claim.host == host, &refusal);
    }

    fn refuse_waiting(&mut self, which: impl Fn(&Claim) -> bool, refusal: &Error) {
        let effects = &mut self.effects;
        self.waiting.retain(|waiting| {
            let refused = which(&waiting.claim);
            if refused {
                effects.push(Effect::Answer(waiting.claim.ticket, Err(refusal.clone())));
            }
            !refused
        });
    }

    /// A session with this key came free, or was opened: answers whoever can be answered now.
    pub(super) fn settle(&mut self, owner: ProcessId, key: Key) {
        let same = |waiting: &Waiting| waiting.claim.host == owner && waiting.key == key;
        let contenders: BTreeSet<ProcessId> = self
            .waiting
            .iter()
            .filter(|waiting| same(waiting))
            .map(|waiting| waiting.claim.process)
            .collect();
        // Two live processes want the place of one: which of them follows it can't be told.
        if contenders.len() > 1 {
            self.make_plural(owner, key);
        }
        let mut at = 0;
        while at < self.waiting.len() {
            if !same(&self.waiting[at]) {
                at += 1;
                continue;
            }
            match self.choose(&self.waiting[at].claim, key) {
                Choice::Wait => at += 1,
                choice => {
                    let Waiting { claim, .. } = self.waiting.remove(at);
                    self.carry_out(&claim, choice);
                    // It may be what an earlier claim of the same process was waiting for.
                    at = 0;
                }
            }
        }
    }

    fn choose(&self, claim: &Claim, key: Key) -> Choice {
        let Some(ids) = self.by_key.get(&(claim.host, key)) else { return Choice::Open(Outcome::FreshFirst) };
        let held_by = |id: &&SessionId| self.sessions.get(*id).and_then(|session| session.holder);
        if let Some(own) = ids.iter().find(|id| held_by(id) == Some(claim.process)) {
            return Choice::Keep(own.clone());
        }
        let plural = self.owners.get(&claim.host).is_some_and(|owner| owner.plural.contains(&key));
        if plural && claim.siblings.unwrap_or(self.policy.siblings) == Siblings::Fresh {
            return Choice::Open(Outcome::FreshPlural);
        }
        match ids.iter().find(|id| held_by(id).is_none()) {
            Some(free) => Choice::Resume(free.clone()),
            None => Choice::Wait,
        }
    }

    fn carry_out(&mut self, claim: &Claim, choice: Choice) {
        match choice {
            Choice::Keep(id) | Choice::Resume(id) if claim.wants == Wants::Fresh => {
                self.end(&id);
                self.open(claim, Outcome::FreshFirst);
            }
            Choice::Keep(id) => self.keep(claim, &id),
            Choice::Resume(id) => self.resume(claim, &id),
            Choice::Open(outcome) => self.open(claim, outcome),
            // Only callers that have checked the deadline come here with the others.
            Choice::Wait => {}
        }
    }

    /// The holder did not go in time, so it is no predecessor but a sibling.
    fn give_up(&mut self, claim: &Claim, key: Key) {
        self.make_plural(claim.host, key);
        self.open(claim, Outcome::FreshHeld);
        self.settle(claim.host, key);
    }

    fn make_plural(&mut self, host: ProcessId, key: Key) {
        if self.owners.get_mut(&host).is_some_and(|owner| owner.plural.insert(key)) {
            self.save_owner(host);
        }
    }

    /// The session that this process has made by this request.
    fn made_before(&self, claim: &Claim, request: Option<&RequestId>) -> Option<SessionId> {
        let made = |id: &&SessionId| {
            self.sessions.get(*id).is_some_and(|session| session.made_by.as_ref() == request)
        };
        self.held_by.get(&claim.process)?.iter().filter(|_| request.is_some()).find(made).cloned()
    }

    /// A session is taken up by its id. What is another owner's, or another key's, is as if it were not there.
    fn claim_named(&mut self, claim: &Claim, told: &SessionId) {
        let claimant = self.claimants.get(&claim.process);
        let session = claimant.and_then(|claimant| self.find_for(claim.process, claimant, told));
        let session = session.map(|session| (session.id.clone(), session.holder));
        match session {
            None => self.effects.push(Effect::Answer(claim.ticket, Err(Error::UnknownSession))),
            Some((id, None)) => self.resume(claim, &id),
            Some((id, Some(holder))) if holder == claim.process => self.keep(claim, &id),
            Some(_) => self.effects.push(Effect::Answer(claim.ticket, Err(Error::SessionHeld))),
        }
    }

    fn held_without_key(&self, claim: &Claim) -> Option<SessionId> {
        let held = self.held_by.get(&claim.process)?;
        let same = |id: &&SessionId| {
            self.sessions.get(*id).is_some_and(|session| {
                session.key.is_none() && session.name.is_none() && session.label == claim.label
            })
        };
        held.iter().find(same).cloned()
    }

    fn keep(&mut self, claim: &Claim, id: &SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let lease =
            Lease { session: id.clone(), epoch: session.epoch, outcome: Outcome::Held, file: session.file };
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
    }

    fn resume(&mut self, claim: &Claim, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.epoch = Epoch(session.epoch.0 + 1);
        session.holder = Some(claim.process);
        session.offered = session.digest.is_some();
        let lease = Lease {
            session: id.clone(),
            epoch: session.epoch,
            outcome: Outcome::Resumed,
            file: session.file,
        };
        self.effects.push(Effect::SaveSession(session.clone()));
        self.held_by.entry(claim.process).or_default().insert(id.clone());
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
    }

    fn open(&mut self, claim: &Claim, outcome: Outcome) {
        if !self.make_room(claim.host) {
            let limit = self.policy.sessions_per_owner as u64;
            let refusal = Error::QuotaExceeded { what: "the number of sessions of this host".into(), limit };
            self.effects.push(Effect::Answer(claim.ticket, Err(refusal)));
            return;
        }
        let id = claim.id.clone();
        let name = match &claim.wants {
            Wants::New(chosen, _) => Some(chosen.clone().unwrap_or_else(|| id.clone())),
            _ => None,
        };
        let number = self.owners.get(&claim.host).map_or(1, |owner| owner.files + 1);
        self.opened += 1;
        // An id that its owner chose may have been another session's: whoever held that one must not be taken for the
        // holder of this one.
        let is_chosen = name.as_ref().is_some_and(|name| *name != id);
        let epoch = Epoch(if is_chosen { claim.opened_ms.max(1) } else { 1 });
        let session = SessionRecord {
            id,
            owner: claim.host,
            key: claim.key.filter(|_| name.is_none()),
            name,
            made_by: match &claim.wants {
                Wants::New(_, request) => request.clone(),
                _ => None,
            },
            program: claim.program.clone(),
            label: claim.label.clone(),
            opened: self.opened,
            opened_ms: claim.opened_ms,
            epoch,
            holder: Some(claim.process),
            file: TokenFile { host: claim.host, number },
            digest: None,
            former: None,
            offered: false,
            keeper: None,
        };
        let lease = Lease { session: session.id.clone(), epoch: session.epoch, outcome, file: session.file };
        self.effects.push(Effect::SaveSession(session.clone()));
        self.insert(session);
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
    }

    /// Ends the session that is least missed, where the owner has as many as it may: the oldest that nobody holds
    /// and that, its key being plural, nobody resumes by default. Tells whether there is room now.
    fn make_room(&mut self, host: ProcessId) -> bool {
        let Some(owner) = self.owners.get(&host) else { return false };
        if owner.sessions.len() < self.policy.sessions_per_owner {
            return true;
        }
        let of_owner = owner.sessions.iter().filter_map(|id| self.sessions.get(id));
        let spare = of_owner.filter(|session| {
            session.holder.is_none() && session.key.is_some_and(|key| owner.plural.contains(&key))
        });
        let Some(oldest) = spare.min_by_key(|session| session.opened).map(|session| session.id.clone())
        else {
            return false;
        };
        self.end(&oldest);
        true
    }

    fn save_owner(&mut self, host: ProcessId) {
        let Some(owner) = self.owners.get(&host) else { return };
        let record = OwnerRecord { host, name: owner.name.clone(), plural: owner.plural.clone() };
        self.effects.push(Effect::SaveOwner(record));
    }
}
