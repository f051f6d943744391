//! Claims: which session an instance gets, and who waits for whom.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::collections::btree_map::Entry;
use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId, SelfDescription};
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error, Loss, RequestId, Resume, SessionId, Siblings};

use super::indexes::OfKey;
use super::records::{CLAIMED_KEYS_MAX, OwnerRecord, ProgramDir};
use super::told::{Told, own};
use super::{
    Claimant, Effect, Lease, Millis, Owner, Record, Registry, Rule, SessionRecord, Ticket,
    TokenFile,
};

/// When to try again where a claim came too late, in ms: at once.
const LATE_RETRY_MS: u32 = 0;

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
    /// What the table of hosts says of the host. It counts at the first claim of any of its
    /// instances.
    pub host_rule: Option<Siblings>,
    /// Its key; None where that is doubtful.
    pub key: Option<Key>,
    /// The key of the same server without the name of its entry, by which its session may be on
    /// record from before the entry had one.
    pub unnamed: Option<Key>,
    /// What it says of itself.
    pub description: SelfDescription,
    /// Program and directory, where that is known.
    pub program_dir: Option<ProgramDir>,
    /// What people know the server by.
    pub program: String,
    /// What it wants where there are, or were, several servers of its key; None: what the host's
    /// rule says, or the policy.
    pub siblings: Option<Siblings>,
    /// Whether its session is resumed.
    pub rule: Rule,
    /// See [`Claimant::started_ms`].
    pub started_ms: Option<Millis>,
    /// When it stops waiting for another holder to be gone.
    pub deadline: Millis,
    /// When nobody waits for the answer any more. Nothing is granted after it.
    pub expires: Millis,
    /// The time of day, in ms since the Unix epoch, for the record of a new session.
    pub opened_ms: u64,
    /// Whether the claimer says by [`Registry::loss_told`] that it has told what was lost.
    pub confirms_loss: bool,
    /// Which session it wants.
    pub wants: Wants,
    /// Where it asks for a session by its name: what it asks for instead, where that name is in use.
    pub own: Option<Box<OwnClaim>>,
}

/// What a claim by a name comes to where the name is in use: the claim of a server of its own host's.
#[derive(Debug, Clone)]
pub struct OwnClaim {
    /// What was read of the process.
    pub claimant: Claimant,
    /// The claim, under the same ticket.
    pub claim: Claim,
}

/// Which session a claim wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wants {
    /// The one that its key leads to.
    #[default]
    Keyed,
    /// A new one in the place of that.
    Fresh,
    /// The same: the process holds that, and its keeper has refused it, since the former front has
    /// closed.
    AfterClose {
        /// Whether the backend had been used.
        used: bool,
    },
    /// A new one that is found by its id alone, which may be chosen. The same process with the same
    /// request gets the same.
    New(Option<SessionId>, Option<RequestId>),
    /// The one of this id.
    Named(SessionId),
    /// The one that the user has given a name: that of the claim's key. It has this command,
    /// whoever has read it.
    Users {
        /// Takes it from whoever has it.
        take: bool,
        /// Begins afresh in its place.
        fresh: bool,
    },
}

/// A claim that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    claim: Claim,
    key: Key,
    /// Why it has ended a server, when it came.
    ended: Option<Loss>,
}

/// What can be done about a claim with a key.
pub(super) enum Choice {
    Keep(SessionId),
    Resume(SessionId),
    Open(Outcome),
    Wait,
}

impl Registry {
    /// Records what was read of a process at its first claim.
    pub fn introduce(&mut self, process: ProcessId, claimant: Claimant) {
        self.effects
            .push(Effect::Save(Record::Claimant(process, claimant.clone())));
        self.claimants.insert(process, claimant);
    }

    /// A process claims. The answer is an [`Effect::Answer`] with its ticket: at once, or after
    /// [`Registry::exited`], [`Registry::release`] or [`Registry::passed`].
    ///
    /// Every exit that is known must have been told before.
    pub fn claim(&mut self, claim: Claim, now: Millis) {
        self.at(now);
        self.take_in_host(&claim);
        if let Some(own) = &claim.own {
            // It may exit while the claim waits, and has held the name once it gets it.
            self.take_in_host(&own.claim);
        }
        if claim.expires <= self.now {
            self.effects
                .push(Effect::Answer(claim.ticket, Err(too_late())));
            return self.drop_idle_user();
        }
        if let Some(key) = claim.key {
            self.note_key(claim.process, key);
        }
        match &claim.wants {
            Wants::New(chosen, request) => {
                let is_taken = chosen
                    .as_ref()
                    .is_some_and(|id| self.find(claim.host, id).is_some());
                return match self.made_before(&claim, request.as_ref()) {
                    Some(made) => self.keep(&claim, &made),
                    None if is_taken => {
                        self.effects
                            .push(Effect::Answer(claim.ticket, Err(Error::AlreadyExists)));
                    }
                    None => self.open_unasked(&claim, Outcome::FreshFirst),
                };
            }
            Wants::Named(id) => return self.claim_named(&claim, &id.clone()),
            Wants::Users { .. } => return self.claim_of_users(&claim),
            Wants::Keyed | Wants::Fresh | Wants::AfterClose { .. } => {}
        }
        let Some(key) = claim.key else {
            match self.held_without_key(&claim) {
                Some(held) if claim.wants != Wants::Keyed => {
                    self.end_session(&held);
                    self.open_unasked(&claim, Outcome::FreshDoubtful);
                }
                Some(held) => self.keep(&claim, &held),
                None => self.open_unasked(&claim, Outcome::FreshDoubtful),
            }
            return;
        };
        let ended = self.end_superseded(&claim, key);
        if let Wants::AfterClose { used } = claim.wants
            && let Some(own) = self.held_with_key(&claim, key)
        {
            if used {
                self.note_rule_of(&own, key);
            }
            self.end_session(&own);
            self.open(&claim, Outcome::FreshFirst, |registry, claim| {
                registry.tell_claim(claim, key, ended)
            });
            return self.reconsider(claim.host, key);
        }
        self.end_forbidden(&claim, key);
        match self.choose(&claim, key) {
            Choice::Wait if now < claim.deadline => {
                self.waiting.push(Waiting { claim, key, ended });
            }
            Choice::Wait => self.give_up(&claim, key, ended),
            choice => {
                self.apply(&claim, key, choice, ended);
                // Another claim of the same process may be waiting; it has a lease now.
                self.reconsider(claim.host, key);
            }
        }
    }

    fn take_in_host(&mut self, claim: &Claim) {
        if let Entry::Vacant(place) = self.owners.entry(claim.host) {
            let record = OwnerRecord::new(claim.host, claim.host_name.clone(), claim.host_rule);
            place.insert(Owner::restore(record).1);
            self.save_owner(claim.host);
        }
    }

    /// Time has passed: claims that waited long enough get a fresh session. Every exit that is
    /// known must have been told before.
    pub fn passed(&mut self, now: Millis) {
        self.at(now);
        while let Some(at) = self
            .waiting
            .iter()
            .position(|waiting| waiting.claim.deadline <= self.now)
        {
            let Waiting { claim, key, ended } = self.waiting.remove(at);
            self.give_up(&claim, key, ended);
        }
        self.drop_idle_user();
    }

    /// The time at which [`Registry::passed`] next has something to do.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.waiting
            .iter()
            .map(|waiting| waiting.claim.deadline)
            .min()
    }

    /// Ends the claims of a process that has exited.
    pub(super) fn abandon(&mut self, process: ProcessId) {
        self.refuse_waiting(|claim| claim.process == process, &Error::LeaseEnded);
    }

    /// Refuses the claims that wait for a session of a host that has exited.
    pub(super) fn refuse_waiting_of(&mut self, host: ProcessId) {
        let refusal = Error::NoVerifiedHost {
            sentence: "The host has exited".into(),
        };
        let is_its = |claim: &Claim| {
            claim.host == host || claim.own.as_ref().is_some_and(|own| own.claim.host == host)
        };
        self.refuse_waiting(is_its, &refusal);
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

    /// Nobody waits for the answers of these: a lease would be held by a process that does not know
    /// of it.
    pub(super) fn refuse_late(&mut self) {
        let now = self.now;
        self.refuse_waiting(|claim| claim.expires <= now, &too_late());
    }

    /// Something has changed about the sessions of this key: answers whoever can be answered now,
    /// and ends what nobody can resume.
    pub(super) fn reconsider(&mut self, owner: ProcessId, key: Key) {
        // Before anybody gets one of them.
        self.end_closed(owner, key);
        self.end_forbidden_to_waiting(owner, key);
        self.settle(owner, key);
        self.end_unreachable(owner, key);
    }

    /// The same of what none of those that wait may have by their own rules.
    fn end_forbidden_to_waiting(&mut self, owner: ProcessId, key: Key) {
        let leads = |waiting: &&Waiting| {
            waiting.claim.host == owner
                && (waiting.key == key || waiting.claim.unnamed == Some(key))
        };
        let led: Vec<(Claim, Key)> = self
            .waiting
            .iter()
            .filter(leads)
            .map(|waiting| (waiting.claim.clone(), waiting.key))
            .collect();
        for (claim, key) in led {
            self.end_forbidden(&claim, key);
        }
    }

    fn settle(&mut self, owner: ProcessId, key: Key) {
        let leads = |waiting: &Waiting| {
            waiting.claim.host == owner
                && (waiting.key == key || waiting.claim.unnamed == Some(key))
        };
        let wanted: BTreeSet<Key> = self
            .waiting
            .iter()
            .filter(|waiting| leads(waiting))
            .map(|waiting| waiting.key)
            .collect();
        for key in wanted {
            self.settle_contest(owner, key);
        }
        let mut at = 0;
        while at < self.waiting.len() {
            if !leads(&self.waiting[at]) {
                at += 1;
                continue;
            }
            match self.choose(&self.waiting[at].claim, self.waiting[at].key) {
                Choice::Wait => at += 1,
                choice => {
                    let Waiting { claim, key, ended } = self.waiting.remove(at);
                    self.apply(&claim, key, choice, ended);
                    self.note_name(&claim, key);
                    // It may be what an earlier claim of the same process was waiting for.
                    at = 0;
                }
            }
        }
    }

    /// Two live processes want the place of one that is gone: which of them follows it can't be
    /// told, so neither does.
    fn settle_contest(&mut self, owner: ProcessId, key: Key) {
        let contends = |waiting: &&Waiting| {
            waiting.claim.host == owner
                && waiting.key == key
                && self.siblings_for(&waiting.claim) == Siblings::Fresh
        };
        let contenders: Vec<&Claim> = self
            .waiting
            .iter()
            .filter(contends)
            .map(|waiting| &waiting.claim)
            .collect();
        let processes: BTreeSet<ProcessId> = contenders.iter().map(|claim| claim.process).collect();
        let unnamed = contenders.iter().find_map(|claim| claim.unnamed);
        let is_held = self
            .led_to(owner, key, unnamed)
            .any(|sessions| sessions.held().len() > 0);
        if processes.len() < 2 || is_held {
            return;
        }
        let tickets: Vec<Ticket> = contenders.iter().map(|claim| claim.ticket).collect();
        let contest = self
            .waiting
            .extract_if(.., |waiting| tickets.contains(&waiting.claim.ticket));
        for Waiting { claim, key, ended } in contest.collect::<Vec<_>>() {
            let own = self.held_with_key(&claim, key);
            let choice = own.map_or(Choice::Open(Outcome::FreshPlural), Choice::Keep);
            self.apply(&claim, key, choice, ended);
        }
    }

    fn held_with_key(&self, claim: &Claim, key: Key) -> Option<SessionId> {
        let held = self
            .held_by
            .get(&claim.process)?
            .iter()
            .filter_map(|id| self.sessions.get(id));
        let with = |key| {
            held.clone()
                .find(|session| session.leading_key() == Some(key))
        };
        with(key)
            .or_else(|| with(claim.unnamed?))
            .map(|session| session.id.clone())
    }

    /// A fresh session's claim is told what a keeper is about to say.
    fn choose(&self, claim: &Claim, key: Key) -> Choice {
        match self.choose_now(claim, key) {
            Choice::Open(_) if self.awaits_word(claim, key) => Choice::Wait,
            choice => choice,
        }
    }

    fn choose_now(&self, claim: &Claim, key: Key) -> Choice {
        if let Some(own) = self.held_with_key(claim, key) {
            return Choice::Keep(own);
        }
        if let Wants::Users { .. } = claim.wants {
            return self.choose_users(claim, key);
        }
        let siblings = self.siblings_for(claim);
        let led_to = || self.led_to(claim.host, key, claim.unnamed);
        // Of those that are free, more than two are as good as two.
        let free: Vec<&SessionId> = led_to().flat_map(OfKey::free).take(2).collect();
        let is_held = led_to().any(|sessions| sessions.held().len() > 0);
        match (siblings, &free[..]) {
            (Siblings::Never, _) => Choice::Open(Outcome::FreshNever),
            (_, []) if !is_held => Choice::Open(Outcome::FreshFirst),
            (Siblings::Oldest, [oldest, ..]) => Choice::Resume((*oldest).clone()),
            (Siblings::Oldest, []) => Choice::Wait,
            // It may be the predecessor that is about to go; then the next one is to find it gone.
            (Siblings::Fresh, _) if is_held => Choice::Wait,
            (Siblings::Fresh | Siblings::Successor, [only]) => Choice::Resume((*only).clone()),
            (Siblings::Fresh | Siblings::Successor, [_, _, ..]) => {
                Choice::Open(Outcome::FreshPlural)
            }
            // Such a host has closed the predecessor before: whoever lives is a sibling, and stays
            // one.
            (Siblings::Fresh | Siblings::Successor, []) => Choice::Open(Outcome::FreshHeld),
        }
    }

    /// What counts for this claim.
    fn siblings_for(&self, claim: &Claim) -> Siblings {
        self.siblings(claim.host, claim.key, claim.siblings, claim.rule)
    }

    /// The holder did not go in time, so it is no predecessor but a sibling; or a keeper has not said
    /// what it was to say.
    fn give_up(&mut self, claim: &Claim, key: Key, ended: Option<Loss>) {
        if let Wants::Users { .. } = claim.wants {
            return self.own_or_refuse(claim, key);
        }
        let choice = match self.choose_now(claim, key) {
            Choice::Wait => Choice::Open(Outcome::FreshHeld),
            choice => choice,
        };
        self.apply(claim, key, choice, ended);
        self.reconsider(claim.host, key);
    }

    /// A claim waits until something changes, or its time is over.
    pub(super) fn wait(&mut self, claim: Claim, key: Key) {
        let ended = None;
        self.waiting.push(Waiting { claim, key, ended });
    }

    /// Whether claims of this owner's sessions wait.
    pub(super) fn waiting_for(&self, owner: ProcessId) -> bool {
        self.waiting
            .iter()
            .any(|waiting| waiting.claim.host == owner)
    }

    /// The session that this process has made by this request.
    fn made_before(&self, claim: &Claim, request: Option<&RequestId>) -> Option<SessionId> {
        self.made.get(&(claim.process, request?.clone())).cloned()
    }

    /// A session is taken up by its id. What is another owner's, or another key's, is as if it were
    /// not there.
    fn claim_named(&mut self, claim: &Claim, told: &SessionId) {
        let claimant = self.claimants.get(&claim.process);
        let session = claimant.and_then(|claimant| self.find_for(claim.process, claimant, told));
        let session = session.map(|session| (session.id.clone(), session.holder, session.key));
        match session {
            None => self
                .effects
                .push(Effect::Answer(claim.ticket, Err(Error::UnknownSession))),
            Some((id, Some(holder), _)) if holder == claim.process => self.keep(claim, &id),
            Some((id, None, Some(key))) => self.resume(claim, &id, key),
            Some(_) => self
                .effects
                .push(Effect::Answer(claim.ticket, Err(Error::SessionHeld))),
        }
    }

    fn held_without_key(&self, claim: &Claim) -> Option<SessionId> {
        let held = self.held_by.get(&claim.process)?;
        let same = |id: &&SessionId| {
            self.sessions.get(*id).is_some_and(|session| {
                // A front that has asked for a name may hold one of the user's.
                session.owner == claim.host
                    && session.key.is_none()
                    && session.name.is_none()
                    && session.description == claim.description
            })
        };
        held.iter().find(same).cloned()
    }
}

fn too_late() -> Error {
    let sentence = "the claim came too late: the caller had stopped waiting for it".into();
    Error::Unavailable {
        sentence,
        retry_after_ms: LATE_RETRY_MS,
    }
}

impl Registry {
    /// `ended`: why the claim has ended a server, if it has.
    pub(crate) fn apply(&mut self, claim: &Claim, key: Key, choice: Choice, ended: Option<Loss>) {
        match choice {
            Choice::Keep(id) | Choice::Resume(id) if claim.wants == Wants::Fresh => {
                self.end_session(&id);
                self.open_unasked(claim, Outcome::FreshFirst);
            }
            Choice::Keep(id) => self.keep(claim, &id),
            Choice::Resume(id) => {
                self.resume(claim, &id, key);
                self.end_superseded_meanwhile(claim, key);
            }
            Choice::Open(outcome) => {
                let meanwhile = self.end_superseded_meanwhile(claim, key);
                let ended = ended.or(meanwhile);
                let because = self.end_ambiguous(claim, key, outcome).or(ended);
                self.open(claim, outcome, |registry, claim| {
                    registry.tell_claim(claim, key, because)
                });
            }
            // The callers handle a claim that has to wait.
            Choice::Wait => {}
        }
    }

    /// Ends what a claim supersedes and what has come free while it waited. Returns the same as
    /// [`Self::end_superseded`].
    fn end_superseded_meanwhile(&mut self, claim: &Claim, key: Key) -> Option<Loss> {
        let is_users = claim.host == ProcessId::USER;
        (!is_users)
            .then(|| self.end_superseded(claim, key))
            .flatten()
    }

    /// Before a fresh session is opened, ends the free sessions that can't be told from it. Returns
    /// the loss that the answer to the claim names.
    fn end_ambiguous(&mut self, claim: &Claim, key: Key, outcome: Outcome) -> Option<Loss> {
        let siblings = self.siblings_for(claim);
        let because = match (outcome, siblings) {
            (Outcome::FreshHeld, Siblings::Fresh) => Loss::Sibling,
            (Outcome::FreshPlural, _) => Loss::Several,
            (Outcome::FreshNever, _) => return self.is_multiplexed(claim).then_some(Loss::Crowd),
            (Outcome::FreshFirst, _) => {
                let edited = self.edited_without_entry(claim, key)?;
                self.end_session(&edited);
                return Some(Loss::Edited);
            }
            _ => return None,
        };
        let free: Vec<SessionId> = self
            .led_to(claim.host, key, claim.unnamed)
            .flat_map(OfKey::free)
            .cloned()
            .collect();
        let none = free.is_empty();
        for id in free {
            self.end_session(&id);
        }
        // No free session was ended, so nothing is lost.
        Some(because).filter(|because| *because == Loss::Sibling || !none)
    }

    /// Whether this claim resumes nothing only because its host once had too many servers of its key
    /// at a time.
    fn is_multiplexed(&self, claim: &Claim) -> bool {
        claim.siblings.is_none()
            && claim.rule.resume != Resume::Never
            && self
                .owners
                .get(&claim.host)
                .zip(claim.key)
                .is_some_and(|(owner, key)| {
                    owner.multiplexed_keys.contains(&key)
                        && owner.host_rule != Some(Siblings::Never)
                })
            && self.policy.siblings != Siblings::Never
    }

    /// Remembers that a process claims with this key, as one of the key's instances.
    pub(super) fn note_key(&mut self, process: ProcessId, key: Key) {
        let Some(claimant) = self.claimants.get_mut(&process) else {
            return;
        };
        if claimant.has(&key) {
            return;
        }
        if claimant.keys.len() == CLAIMED_KEYS_MAX {
            claimant.keys.remove(0);
        }
        claimant.keys.push(key);
        self.effects
            .push(Effect::Save(Record::Claimant(process, claimant.clone())));
    }

    pub(super) fn keep(&mut self, claim: &Claim, id: &SessionId) {
        // It has lost its keeper, and wants another one.
        let wants_own = self
            .sessions
            .get(id)
            .is_some_and(|session| session.leading_key().is_some())
            && self.is_bare(id);
        // Where it confirms nothing, it was told at its first claim.
        let key = claim.key.filter(|_| claim.confirms_loss);
        let lost = key.map_or_else(Vec::new, |key| {
            self.carried(claim, key, |loss| {
                loss.of.is_some() || wants_own && !loss.because.is_rule()
            })
        });
        // By which its former keeper has ended, while no daemon ran.
        let rule = key.filter(|_| wants_own && own(&lost).is_none());
        let rule = rule.and_then(|key| self.take_rule(claim.host, key, claim.unnamed));
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let lease = Lease {
            session: id.clone(),
            epoch: session.epoch,
            outcome: Outcome::Held,
            because: own(&lost).or(rule),
            lost,
            file: session.file,
        };
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
    }

    pub(crate) fn resume(&mut self, claim: &Claim, id: &SessionId, key: Key) {
        self.rekey(id, key);
        self.give(id, Some(claim.process));
        let lost = self.carried(claim, key, |_| true);
        let keepers = self.keepers_of(&id.into());
        let has_only_backend = keepers.of(None).is_some();
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.epoch = Epoch(session.epoch.0 + 1);
        session.closed_ms = None;
        session.offered = session.digest.is_some();
        if session.name.is_none() {
            (session.description, session.asked) = (claim.description.clone(), claim.siblings);
            session.rule = claim.rule;
        }
        let lease = Lease {
            session: id.clone(),
            epoch: session.epoch,
            outcome: Outcome::Resumed,
            // A session that still has its only backend has lost nothing, unless a former front has
            // started that and was killed before it had said so.
            because: own(&lost).filter(|_| claim.confirms_loss || !has_only_backend),
            lost,
            file: session.file,
        };
        self.effects.push(Effect::Save(session.clone().into()));
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
        self.note_siblings(id);
    }

    /// Opens a session for a claim that asks for nothing that was before.
    pub(super) fn open_unasked(&mut self, claim: &Claim, outcome: Outcome) {
        self.open(claim, outcome, Self::told_of_members);
    }

    pub(crate) fn open(
        &mut self,
        claim: &Claim,
        outcome: Outcome,
        told: impl FnOnce(&mut Self, &Claim) -> Told,
    ) {
        if !self.has_room(claim.host) {
            let limit = self.policy.sessions_per_owner as u64;
            let refusal = Error::QuotaExceeded {
                what: "the number of sessions of this host".into(),
                limit,
            };
            self.effects
                .push(Effect::Answer(claim.ticket, Err(refusal)));
            return;
        }
        // A claim that is refused is told of nothing.
        let told = told(self, claim);
        let told = match outcome {
            Outcome::FreshFirst => self.tell_lost_records(claim, told),
            _ => told,
        };
        self.make_room(claim.host);
        let id = claim.id.clone();
        let name = match &claim.wants {
            Wants::New(chosen, _) => Some(chosen.clone().unwrap_or_else(|| id.clone())),
            _ => None,
        };
        let number = self
            .owners
            .get(&claim.host)
            .map_or(1, |owner| owner.files + 1);
        self.order += 1;
        // The owner may have chosen the id of a former session. A higher epoch keeps the holder of
        // that one from being taken for the holder of this one.
        let is_chosen = name.as_ref().is_some_and(|name| *name != id);
        let epoch = Epoch(if is_chosen { claim.opened_ms.max(1) } else { 1 });
        let session = SessionRecord {
            id: id.clone(),
            owner: claim.host,
            key: claim.key,
            name,
            made_by: match &claim.wants {
                Wants::New(_, request) => request.clone(),
                _ => None,
            },
            program: claim.program.clone(),
            description: claim.description.clone(),
            program_dir: claim.program_dir,
            asked: claim.siblings,
            rule: claim.rule,
            opened: self.order,
            freed: 0,
            opened_ms: claim.opened_ms,
            epoch,
            closed_ms: None,
            holder: Some(claim.process),
            file: TokenFile {
                host: claim.host,
                number,
            },
            digest: None,
            former: None,
            offered: false,
        };
        let lease = Lease {
            session: session.id.clone(),
            epoch: session.epoch,
            outcome,
            because: told.because(),
            lost: told.lost(),
            file: session.file,
        };
        self.effects.push(Effect::Save(session.clone().into()));
        self.insert(session);
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
        self.note_siblings(&id);
    }
}
