//! The rules of claims once more, as plainly as they can be said: one list of sessions, searched
//! each time.

mod answers;
mod named;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet};

use mcp_sessiond_identity::{Key, ProcessId, SelfDescription};
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{BackendName, Epoch, Loss, Resume, SessionId, Siblings};

use super::keepers::backend_of;
use crate::records::ProgramDir;
use crate::{
    Claim, Departure, Millis, OwnClaim, Policy, Records, Rule, RuleSource, SessionRecord, Ticket,
    Wants,
};

/// A session. Its id is not known before the registry has answered.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Option<SessionId>,
    owner: ProcessId,
    key: Option<Key>,
    description: SelfDescription,
    program_dir: Option<ProgramDir>,
    asked: Option<Siblings>,
    rule: Rule,
    pub(super) epoch: u64,
    pub(super) holder: Option<ProcessId>,
    freed: u64,
    /// When its front has said that it leaves.
    closed: Option<Millis>,
    /// By the name of the backend: the keeper, and whether it was stopped.
    keepers: BTreeMap<Option<BackendName>, (ProcessId, bool)>,
    left: BTreeMap<ProcessId, Departure>,
    touched: bool,
}

/// A host.
#[derive(Debug, Default)]
struct Host {
    host_rule: Option<Siblings>,
    multiplexed_keys: BTreeSet<Key>,
    conversations_at_once: bool,
    ambiguous: BTreeSet<ProgramDir>,
    losses: BTreeMap<Key, Loss>,
    lost_members: BTreeMap<(Key, BackendName), Loss>,
    /// The rule that is to be told; None: it was.
    rules: BTreeMap<Key, Option<Loss>>,
    /// The names of sessions that its instances have held.
    names: BTreeSet<Key>,
}

/// What a claim must be answered: the number of an entry, how the claim came to it, and what it is
/// told, also of the members of a list; or the code of a refusal.
pub(super) type Expected = Result<(u64, Outcome, Told), &'static str>;
pub(super) type Told = (Option<Loss>, BTreeSet<(BackendName, Loss)>);

#[derive(Debug)]
pub(super) struct Book {
    policy: Policy,
    /// In the order in which they were opened.
    pub(super) entries: BTreeMap<u64, Entry>,
    hosts: BTreeMap<ProcessId, Host>,
    order: u64,
    now: Millis,
    waiting: Vec<Claim>,
    /// Why claims that are not answered have ended servers.
    ended: BTreeMap<Ticket, Loss>,
    words: BTreeMap<ProcessId, Option<Loss>>,
    /// Keepers of sessions that ended by a rule, which have not said whether they were used.
    unsaid: BTreeMap<ProcessId, (ProcessId, Key, Loss)>,
    /// The sessions that have a token, as the registry has it.
    pub(super) tokens: BTreeSet<SessionId>,
    pub(super) expected: BTreeMap<Ticket, Expected>,
    /// The sessions that were taken from their holders just now.
    pub(super) taken: Vec<SessionId>,
    /// Entries that a claim has ended which begins afresh, until the claims that came before are
    /// answered with them.
    pub(super) gone: BTreeMap<u64, Entry>,
    /// The processes that have asked for a name and got servers of their hosts' own.
    own_fronts: BTreeSet<ProcessId>,
}

impl Book {
    /// Begins with what is on record.
    pub(super) fn new(policy: Policy, now: Millis, records: &Records) -> Self {
        let keepers = |session: &SessionRecord| {
            let kept = records
                .keepers
                .values()
                .filter(|(of, _)| *of == Some((&session.id).into()));
            kept.map(|(_, keeper)| (keeper.of.clone(), (keeper.process, keeper.ending)))
                .collect::<BTreeMap<_, _>>()
        };
        let entry = |session: &SessionRecord| Entry {
            id: Some(session.id.clone()),
            owner: session.owner,
            key: session.key,
            description: session.description.clone(),
            program_dir: session.program_dir,
            asked: session.asked,
            rule: session.rule,
            epoch: session.epoch.0,
            holder: session.holder,
            freed: session.freed,
            closed: session.closed_ms,
            keepers: keepers(session),
            left: BTreeMap::new(),
            touched: keepers(session).is_empty(),
        };
        let entries: BTreeMap<u64, Entry> = records
            .sessions
            .values()
            .map(|session| (session.opened, entry(session)))
            .collect();
        let with_token = records
            .sessions
            .values()
            .filter(|session| session.digest.is_some());
        let with_token = with_token.map(|session| session.id.clone());
        let order = records
            .sessions
            .values()
            .map(|session| session.opened.max(session.freed))
            .max();
        let host = |record: &crate::OwnerRecord| Host {
            host_rule: record.host_rule,
            multiplexed_keys: record.multiplexed_keys.clone(),
            conversations_at_once: record.conversations_at_once,
            ambiguous: record.ambiguous.clone(),
            losses: record
                .losses
                .iter()
                .filter(|(_, loss)| loss.of.is_none())
                .map(|(key, loss)| (*key, loss.because))
                .collect(),
            lost_members: record
                .losses
                .iter()
                .filter_map(|(key, loss)| Some(((*key, loss.of.clone()?), loss.because)))
                .collect(),
            rules: record.rules.clone(),
            names: record.names.clone(),
        };
        let mut book = Self {
            policy,
            entries,
            hosts: records
                .owners
                .values()
                .map(|record| (record.host, host(record)))
                .collect(),
            order: order.unwrap_or(0),
            now,
            waiting: Vec::new(),
            ended: BTreeMap::new(),
            words: BTreeMap::new(),
            unsaid: BTreeMap::new(),
            tokens: with_token.collect(),
            expected: BTreeMap::new(),
            taken: Vec::new(),
            gone: BTreeMap::new(),
            own_fronts: records
                .claimants
                .iter()
                // Where the records end in the middle of its first claim, it has got nothing.
                .filter(|(_, claimant)| {
                    claimant.host != ProcessId::USER && records.owners.contains_key(&claimant.host)
                })
                .map(|(process, _)| *process)
                .collect(),
        };
        let keys: BTreeSet<(ProcessId, Key)> = book
            .entries
            .values()
            .filter_map(|entry| Some((entry.owner, entry.key?)))
            .collect();
        for (owner, key) in keys {
            book.end_unreachable(owner, key);
        }
        book.drop_idle_user();
        book
    }

    pub(super) fn at(&mut self, now: Millis) {
        self.now = now;
        self.refuse(|claim| claim.expires <= now, "unavailable");
    }

    pub(super) fn waiting(&self) -> BTreeSet<Ticket> {
        self.waiting.iter().map(|claim| claim.ticket).collect()
    }

    pub(super) fn claim(&mut self, claim: &Claim) {
        self.hosts.entry(claim.host).or_insert_with(|| Host {
            host_rule: claim.host_rule,
            ..Host::default()
        });
        if claim.expires <= self.now {
            self.expected.insert(claim.ticket, Err("unavailable"));
            return;
        }
        let Some(key) = claim.key else {
            let same = |entry: &Entry| {
                entry.owner == claim.host
                    && entry.holder == Some(claim.process)
                    && entry.key.is_none()
                    && entry.description == claim.description
            };
            let held = self
                .entries
                .iter()
                .find(|(_, entry)| same(entry))
                .map(|(number, _)| *number);
            let held = held.filter(|number| {
                let ends = claim.wants != Wants::Keyed;
                if ends {
                    let ended = self.entries.remove(number).expect("it was found just now");
                    self.taken.extend(ended.id);
                }
                !ends
            });
            let outcome = if held.is_some() {
                Outcome::Held
            } else {
                Outcome::FreshDoubtful
            };
            self.answer(claim, held, outcome, None);
            return;
        };
        let edited = self.end_superseded(claim, key);
        if let Wants::AfterClose { used } = claim.wants {
            let mut held = self
                .numbers(|entry| Self::is_led(claim, entry) && entry.holder == Some(claim.process));
            held.sort_by_key(|number| self.entries[number].key != claim.key);
            if let Some(number) = held.first() {
                let ended = self.entries.remove(number).expect("it was found just now");
                self.taken.extend(ended.id.clone());
                if used {
                    self.note_rule_of(&ended, key);
                }
                let recorded = self.take_recorded(claim, key);
                let told = edited.or(recorded);
                let because = told.or_else(|| self.take_rule(claim));
                self.answer(claim, None, Outcome::FreshFirst, because);
                return self.reconsider(claim.host, key);
            }
        }
        self.end_forbidden_to(claim);
        match self.decide(claim) {
            Some((entry, outcome)) => {
                self.apply(claim, entry, outcome, edited);
                self.reconsider(claim.host, key);
            }
            None if self.now < claim.deadline => {
                self.waiting.push(claim.clone());
                self.ended.extend(edited.map(|loss| (claim.ticket, loss)));
            }
            None => {
                self.ended.extend(edited.map(|loss| (claim.ticket, loss)));
                self.give_up(claim);
            }
        }
    }

    /// The host has gone on to another conversation, or has another program under the same entry.
    fn end_superseded(&mut self, claim: &Claim, key: Key) -> Option<Loss> {
        let mut told = None;
        let superseded = self.numbers(|entry| {
            entry.owner == claim.host
                && entry.holder.is_none()
                && self
                    .superseded_by(&key, &claim.description, entry)
                    .is_some()
        });
        for number in superseded {
            let entry = self.entries.remove(&number).expect("it was found just now");
            let loss = self.superseded_by(&key, &claim.description, &entry);
            if self.has_shown_use(&entry) == Some(false) && !self.has_lost(&entry) {
                continue;
            }
            if loss == Some(Loss::Conversation) {
                self.note(claim.host, entry.key, loss);
            }
            if told != Some(Loss::Edited) {
                told = loss;
            }
        }
        told
    }

    pub(super) fn passed(&mut self) {
        while let Some(at) = self
            .waiting
            .iter()
            .position(|claim| claim.deadline <= self.now)
        {
            let claim = self.waiting.remove(at);
            self.give_up(&claim);
        }
        self.drop_idle_user();
    }

    pub(super) fn exited(&mut self, dead: &[ProcessId]) {
        let mut changed: Vec<(u64, Option<Loss>, Option<BackendName>)> = Vec::new();
        for keeper in dead {
            for (number, entry) in &mut self.entries {
                let kept = entry.keepers.iter().find(|(_, (kept, _))| kept == keeper);
                let Some((of, stopped)) = kept.map(|(name, (_, stopped))| (name.clone(), *stopped))
                else {
                    continue;
                };
                entry.keepers.retain(|_, (kept, _)| kept != keeper);
                let words = self.words.get(keeper).copied();
                changed.push((
                    *number,
                    match words {
                        Some(None) => None,
                        _ if stopped => Some(Loss::Stopped),
                        words => words.unwrap_or(Some(Loss::Killed)),
                    },
                    of,
                ));
            }
        }
        self.words.retain(|keeper, _| !dead.contains(keeper));
        self.refuse(|claim| dead.contains(&claim.process), "lease_ended");
        let has_lost_host = |claim: &Claim| {
            let own = claim.own.as_ref().map(|own| own.claim.host);
            [Some(claim.host), own]
                .into_iter()
                .flatten()
                .any(|host| dead.contains(&host))
        };
        self.refuse(has_lost_host, "no_verified_host");
        self.entries.retain(|_, entry| !dead.contains(&entry.owner));
        self.hosts.retain(|host, _| !dead.contains(host));
        let mut free = Vec::new();
        for process in dead {
            let mut held = self.numbers(|entry| entry.holder == Some(*process));
            held.sort_by_key(|number| self.entries[number].id.clone());
            free.extend(held);
        }
        for number in &free {
            self.free(*number);
        }
        self.entries
            .retain(|_, entry| entry.key.is_some() || entry.holder.is_some());
        for (number, loss, of) in &changed {
            let Some(entry) = self.entries.get_mut(number) else {
                continue;
            };
            let (owner, key) = (entry.owner, entry.key);
            match (of, loss) {
                (_, None) => {}
                // Nobody has come to reconnect.
                (_, Some(Loss::Abandoned))
                    if entry.holder.is_none()
                        && entry.rule.resume == Resume::Conversation
                        && entry.closed.is_some() =>
                {
                    let entry = self.entries.remove(number).expect("it was found just now");
                    let left = || {
                        entry
                            .left
                            .values()
                            .filter(|left| left.epoch.0 == entry.epoch)
                    };
                    let has_token = entry.id.as_ref().is_some_and(|id| self.tokens.contains(id));
                    let unused = left().count() > 0 && left().all(|left| !left.used);
                    if let Some(key) = key
                        && (has_token || entry.touched || !unused)
                    {
                        self.note_rule_of(&entry, key);
                    }
                    for (keeper, _) in entry.keepers.values() {
                        self.words.remove(keeper);
                    }
                }
                (Some(_), Some(loss))
                    if entry.holder.is_some() && loss.is_wanted() && *loss != Loss::Abandoned => {}
                (Some(of), Some(loss)) => self.note_member(owner, key, of, *loss),
                (None, Some(loss)) => self.note(owner, key, Some(*loss)),
            }
        }
        for keeper in dead {
            self.word_of(*keeper, true);
        }
        self.look_after_all(
            free.into_iter()
                .chain(changed.into_iter().map(|(number, ..)| number)),
        );
        self.drop_idle_user();
    }

    pub(super) fn release(&mut self, id: &SessionId) {
        let released = self.numbers(|entry| entry.id.as_ref() == Some(id));
        for number in &released {
            self.free(*number);
        }
        self.entries
            .retain(|_, entry| entry.key.is_some() || entry.holder.is_some());
        self.look_after_all(released.into_iter());
    }

    fn free(&mut self, number: u64) {
        self.order += 1;
        let entry = self
            .entries
            .get_mut(&number)
            .expect("it was found just now");
        (entry.holder, entry.freed) = (None, self.order);
    }

    fn look_after_all(&mut self, numbers: impl Iterator<Item = u64>) {
        let of = |number: u64| {
            let entry = self.entries.get(&number)?;
            Some((entry.owner, entry.key?))
        };
        let keys: BTreeSet<(ProcessId, Key)> = numbers.filter_map(of).collect();
        for (owner, key) in keys {
            self.reconsider(owner, key);
        }
    }

    /// A keeper was registered.
    pub(super) fn registered(&mut self, id: &SessionId, keeper: ProcessId) {
        for entry in self
            .entries
            .values_mut()
            .filter(|entry| entry.id.as_ref() == Some(id))
        {
            let kept = entry
                .keepers
                .entry(backend_of(&keeper))
                .or_insert((keeper, false));
            if kept.0 != keeper {
                *kept = (keeper, false);
            }
        }
    }

    pub(super) fn stopped(&mut self, id: &SessionId, backend: Option<&BackendName>) {
        for entry in self
            .entries
            .values_mut()
            .filter(|entry| entry.id.as_ref() == Some(id))
        {
            let meant = |name: &Option<BackendName>| backend.is_none() || name.as_ref() == backend;
            for (_, (_, stopped)) in entry.keepers.iter_mut().filter(|(name, _)| meant(name)) {
                *stopped = true;
            }
        }
    }

    /// A keeper tells how its front has left.
    pub(super) fn left(&mut self, id: &SessionId, keeper: ProcessId, left: Departure) {
        let numbers = self.numbers(|entry| entry.id.as_ref() == Some(id));
        for number in &numbers {
            let entry = self.entries.get_mut(number).expect("it was found just now");
            if entry.left.values().all(|known| known.epoch <= left.epoch) {
                entry.left.retain(|_, former| former.epoch == left.epoch);
                entry.left.insert(keeper, left);
                if left.orderly && left.epoch.0 == entry.epoch {
                    let at = left.at_ms.unwrap_or(0);
                    entry.closed = Some(entry.closed.unwrap_or(at).min(at));
                }
            }
        }
        for number in numbers {
            let entry = &self.entries[&number];
            if let Some(key) = entry.key {
                self.end_unreachable(entry.owner, key);
            }
        }
    }

    /// The same of a keeper whose session has ended by a rule.
    pub(super) fn left_late(&mut self, keeper: ProcessId, left: Departure) {
        self.word_of(keeper, left.used);
    }

    fn word_of(&mut self, keeper: ProcessId, used: bool) {
        let Some((host, key, rule)) = self.unsaid.remove(&keeper) else {
            return;
        };
        if used {
            self.note_rule(host, key, rule);
        }
        self.reconsider(host, key);
    }

    /// A keeper tells why it is about to end.
    pub(super) fn last_word(&mut self, keeper: ProcessId, why: Option<Loss>) {
        self.words.insert(keeper, why);
    }

    pub(super) fn touched(&mut self, id: &SessionId) {
        let of = |entry: &&mut Entry| entry.id.as_ref() == Some(id);
        let mut keys = Vec::new();
        for entry in self.entries.values_mut().filter(of) {
            if !entry.touched {
                keys.extend(entry.key.map(|key| (entry.owner, key)));
            }
            entry.touched = true;
        }
        for (owner, key) in keys {
            self.end_unreachable(owner, key);
        }
    }

    /// The token of this session turned out to be lost.
    pub(super) fn token_lost(&mut self, id: &SessionId) {
        self.tokens.remove(id);
        for number in self.numbers(|entry| entry.id.as_ref() == Some(id)) {
            let entry = &self.entries[&number];
            if let Some(key) = entry.key {
                self.end_unreachable(entry.owner, key);
            }
        }
    }

    /// The answer to a mutation: the code of its refusal, if it is one.
    pub(super) fn refusal(&self, id: &SessionId, epoch: Epoch) -> Option<&'static str> {
        let Some(entry) = self
            .entries
            .values()
            .find(|entry| entry.id.as_ref() == Some(id))
        else {
            return Some("unknown_session");
        };
        match entry.holder {
            _ if entry.epoch != epoch.0 => Some("stale_epoch"),
            None => Some("lease_ended"),
            Some(_) => None,
        }
    }

    /// Free sessions that nobody can resume: there must be none.
    pub(super) fn unreachable(&self) -> Vec<u64> {
        let keys: BTreeSet<(ProcessId, Key)> = self
            .entries
            .values()
            .filter_map(|entry| Some((entry.owner, entry.key?)))
            .collect();
        keys.into_iter()
            .flat_map(|(owner, key)| self.doomed(owner, key))
            .map(|(number, _)| number)
            .collect()
    }

    fn numbers(&self, which: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.entries
            .iter()
            .filter(|(_, entry)| which(entry))
            .map(|(number, _)| *number)
            .collect()
    }

    fn refuse(&mut self, which: impl Fn(&Claim) -> bool, code: &'static str) {
        for claim in self.waiting.extract_if(.., |claim| which(claim)) {
            self.expected.insert(claim.ticket, Err(code));
        }
    }

    fn note(&mut self, host: ProcessId, key: Option<Key>, loss: Option<Loss>) {
        if let (Some(host), Some(key), Some(loss)) = (self.hosts.get_mut(&host), key, loss) {
            host.losses.insert(key, loss);
            assert!(host.losses.len() < 64, "more than are remembered");
        }
    }

    fn note_member(&mut self, host: ProcessId, key: Option<Key>, of: &BackendName, loss: Loss) {
        if let (Some(host), Some(key)) = (self.hosts.get_mut(&host), key) {
            host.lost_members.insert((key, of.clone()), loss);
            assert!(host.lost_members.len() < 64, "more than are remembered");
        }
    }

    /// What is on record for a claim with this key, which nobody is told again.
    fn take_recorded(&mut self, claim: &Claim, key: Key) -> Option<Loss> {
        let losses = &mut self.hosts.get_mut(&claim.host).expect("a host").losses;
        let recorded = losses.remove(&key);
        let unnamed = claim.unnamed.and_then(|unnamed| losses.remove(&unnamed));
        recorded.or(unnamed)
    }

    /// What a claim is told of the members of its session, which nobody is told again.
    fn take_members(&mut self, claim: &Claim) -> BTreeSet<(BackendName, Loss)> {
        let Some(host) = self.hosts.get_mut(&claim.host) else {
            return BTreeSet::new();
        };
        let led = |key: &Key| claim.key == Some(*key) || claim.unnamed == Some(*key);
        let taken = host.lost_members.extract_if(.., |(key, _), _| led(key));
        taken.map(|((_, of), loss)| (of, loss)).collect()
    }

    fn siblings_of(&self, entry: &Entry) -> Siblings {
        self.siblings(entry.owner, entry.key, entry.asked, entry.rule)
    }

    fn siblings_for(&self, claim: &Claim) -> Siblings {
        self.siblings(claim.host, claim.key, claim.siblings, claim.rule)
    }

    fn siblings(
        &self,
        host: ProcessId,
        key: Option<Key>,
        asked: Option<Siblings>,
        rule: Rule,
    ) -> Siblings {
        if host == ProcessId::USER {
            return Siblings::Oldest;
        }
        let host = &self.hosts[&host];
        let is_asked = rule.source == RuleSource::Asked;
        let of_host = host.host_rule.unwrap_or(self.policy.siblings);
        let wanted = match (asked, of_host) {
            _ if rule.resume == Resume::Never => Siblings::Never,
            (Some(asked), _) => asked,
            // Whoever wants to be resumed is, in the way that is general then.
            (None, Siblings::Never) if is_asked => match self.policy.siblings {
                Siblings::Never => Siblings::Fresh,
                general => general,
            },
            (None, of_host) => of_host,
        };
        let is_guess = [Siblings::Fresh, Siblings::Successor].contains(&wanted);
        let is_multiplexed = key.is_some_and(|key| host.multiplexed_keys.contains(&key));
        if is_multiplexed && is_guess && asked.is_none() && !is_asked {
            Siblings::Never
        } else {
            wanted
        }
    }

    /// Whether a claim with this key is led to this entry.
    fn is_led(claim: &Claim, entry: &Entry) -> bool {
        entry.owner == claim.host
            && entry.key.is_some()
            && [claim.key, claim.unnamed].contains(&entry.key)
    }

    fn reconsider(&mut self, owner: ProcessId, key: Key) {
        self.end_forbidden(owner, key, None);
        let same =
            |claim: &Claim| claim.host == owner && [claim.key, claim.unnamed].contains(&Some(key));
        let waiting: Vec<Claim> = self
            .waiting
            .iter()
            .filter(|claim| same(claim))
            .cloned()
            .collect();
        for claim in waiting {
            self.end_forbidden_to(&claim);
        }
        let wanted: BTreeSet<Option<Key>> = self
            .waiting
            .iter()
            .filter(|claim| same(claim))
            .map(|claim| claim.key)
            .collect();
        for key in wanted {
            // Several want the place of one that is gone: none of them gets it.
            let contends = |book: &Self, claim: &Claim| {
                claim.host == owner
                    && claim.key == key
                    && book.siblings_for(claim) == Siblings::Fresh
            };
            let contest: Vec<Claim> = self
                .waiting
                .iter()
                .filter(|claim| contends(self, claim))
                .cloned()
                .collect();
            let processes: BTreeSet<ProcessId> =
                contest.iter().map(|claim| claim.process).collect();
            let is_held = self.entries.values().any(|entry| {
                entry.holder.is_some() && contest.iter().any(|claim| Self::is_led(claim, entry))
            });
            if processes.len() > 1 && !is_held {
                let tickets: Vec<Ticket> = contest.iter().map(|claim| claim.ticket).collect();
                self.waiting
                    .retain(|claim| !tickets.contains(&claim.ticket));
                for claim in contest {
                    let mine = self.entries.iter().find(|(_, entry)| {
                        Self::is_led(&claim, entry) && entry.holder == Some(claim.process)
                    });
                    match mine.map(|(number, _)| *number) {
                        Some(mine) => self.apply(&claim, Some(mine), Outcome::Held, None),
                        None => self.apply(&claim, None, Outcome::FreshPlural, None),
                    }
                }
            }
        }
        let ripe = |book: &Self| {
            book.waiting
                .iter()
                .position(|claim| same(claim) && book.decide(claim).is_some())
        };
        while let Some(at) = ripe(self) {
            let claim = self.waiting.remove(at);
            let (entry, outcome) = self.decide(&claim).expect("it was decided just now");
            self.apply(&claim, entry, outcome, None);
        }
        self.end_unreachable(owner, key);
    }

    fn give_up(&mut self, claim: &Claim) {
        let Some(key) = claim.key else { return };
        if claim.host == ProcessId::USER {
            return self.own_or_refuse(claim);
        }
        let decided = self.decide_now(claim);
        let (entry, outcome) = decided.unwrap_or((None, Outcome::FreshHeld));
        self.apply(claim, entry, outcome, None);
        self.reconsider(claim.host, key);
    }
}
