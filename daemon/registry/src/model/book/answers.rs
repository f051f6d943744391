//! Which session a claim gets, and what happens to the other sessions.

use super::*;

impl Book {
    /// The entry that the claim gets, or None for a new one. None as a whole: the claim has to
    /// wait.
    pub(super) fn decide(&self, claim: &Claim) -> Option<(Option<u64>, Outcome)> {
        let rules = self.hosts.get(&claim.host).map(|host| &host.rules);
        let is_awaited = self.unsaid.values().any(|(host, key, _)| {
            *host == claim.host
                && [claim.key, claim.unnamed].contains(&Some(*key))
                && rules.is_some_and(|rules| !rules.contains_key(key))
        });
        self.decide_now(claim)
            .filter(|(entry, _)| entry.is_some() || !is_awaited)
    }

    /// The same, whatever a keeper may be about to say.
    pub(super) fn decide_now(&self, claim: &Claim) -> Option<(Option<u64>, Outcome)> {
        if claim.host == ProcessId::USER {
            return self.decide_named(claim);
        }
        let same = self.numbers(|entry| Self::is_led(claim, entry));
        let holder = |number: &u64| self.entries[number].holder;
        // By key, then by age: sessions of an entry without a name come last.
        let mut same = same;
        same.sort_by_key(|number| (self.entries[number].key != claim.key, *number));
        if let Some(mine) = same
            .iter()
            .find(|number| holder(number) == Some(claim.process))
        {
            return Some((Some(*mine), Outcome::Held));
        }
        let free: Vec<u64> = same
            .iter()
            .copied()
            .filter(|number| holder(number).is_none())
            .collect();
        let others = same.len() > free.len();
        match self.siblings_for(claim) {
            Siblings::Never => Some((None, Outcome::FreshNever)),
            _ if same.is_empty() => Some((None, Outcome::FreshFirst)),
            Siblings::Oldest => free.first().map(|free| (Some(*free), Outcome::Resumed)),
            Siblings::Fresh if others => None,
            Siblings::Fresh | Siblings::Successor => Some(match free[..] {
                [] => (None, Outcome::FreshHeld),
                [only] => (Some(only), Outcome::Resumed),
                [..] => (None, Outcome::FreshPlural),
            }),
        }
    }

    pub(super) fn apply(
        &mut self,
        claim: &Claim,
        entry: Option<u64>,
        outcome: Outcome,
        edited: Option<Loss>,
    ) {
        let Some(key) = claim.key else { return };
        if claim.host == ProcessId::USER {
            return self.answer_named(claim, entry, outcome);
        }
        if let Some(number) = entry.filter(|_| claim.wants == Wants::Fresh) {
            let ended = self.entries.remove(&number).expect("it was found just now");
            let is_held = ended.holder.is_some();
            self.taken.extend(ended.id.clone().filter(|_| is_held));
            self.gone.insert(number, ended);
            return self.answer(claim, None, Outcome::FreshFirst, None);
        }
        if outcome == Outcome::Held {
            return self.answer(claim, entry, outcome, None);
        }
        let edited = edited.or_else(|| self.ended.remove(&claim.ticket));
        let edited = match entry {
            None => {
                let meanwhile = self.end_superseded(claim, key);
                edited.or(meanwhile)
            }
            Some(_) => edited,
        };
        let mut because = None;
        let free: Vec<u64> =
            self.numbers(|entry| Self::is_led(claim, entry) && entry.holder.is_none());
        let ends_free = match (outcome, self.siblings_for(claim)) {
            (Outcome::FreshHeld, Siblings::Fresh) => {
                because = Some(Loss::Sibling);
                true
            }
            (Outcome::FreshPlural, _) => {
                because = (!free.is_empty()).then_some(Loss::Several);
                true
            }
            _ => false,
        };
        if ends_free {
            self.entries.retain(|number, _| !free.contains(number));
        }
        let host = &self.hosts[&claim.host];
        let is_rule = claim.rule.resume == Resume::Never;
        if outcome == Outcome::FreshNever && claim.siblings.is_none() && !is_rule {
            let by_choice =
                host.host_rule == Some(Siblings::Never) || self.policy.siblings == Siblings::Never;
            because = (host.multiplexed_keys.contains(&key) && !by_choice).then_some(Loss::Crowd);
        }
        if outcome == Outcome::FreshFirst
            && claim.description.entry.is_none()
            && let Some(program_dir) = claim.program_dir
            && !host.ambiguous.contains(&program_dir)
        {
            let of_spot = self.numbers(|entry| {
                entry.owner == claim.host
                    && entry.program_dir == Some(program_dir)
                    && entry.description.entry.is_none()
            });
            if let [only] = of_spot[..] {
                let old = &self.entries[&only];
                let left = || old.left.values().filter(|left| left.epoch.0 == old.epoch);
                let said = |keeper: &ProcessId| {
                    old.left
                        .get(keeper)
                        .is_some_and(|left| left.epoch.0 == old.epoch)
                };
                let all_said = old.keepers.values().all(|(keeper, _)| said(keeper));
                let orderly = all_said && left().count() > 0 && left().all(|left| left.orderly);
                if old.holder.is_none()
                    && orderly
                    && old.key.is_some_and(|old| key.is_another_program_for(&old))
                {
                    self.entries.remove(&only);
                    because = Some(Loss::Edited);
                }
            }
        }
        if entry.is_none() && !self.has_room(claim.host) {
            return self.answer(claim, entry, outcome, None);
        }
        let recorded = self.take_recorded(claim, key);
        let because = match entry {
            Some(number) => recorded.filter(|_| !self.entries[&number].keepers.contains_key(&None)),
            None => {
                let told = because.or(edited).or(recorded);
                told.or_else(|| self.take_rule(claim))
            }
        };
        self.answer(claim, entry, outcome, because);
        if entry.is_some() {
            self.end_superseded(claim, key);
        }
    }

    pub(super) fn answer(
        &mut self,
        claim: &Claim,
        entry: Option<u64>,
        outcome: Outcome,
        because: Option<Loss>,
    ) {
        let number = match entry {
            Some(number) => {
                let entry = self
                    .entries
                    .get_mut(&number)
                    .expect("it was found just now");
                if outcome == Outcome::Resumed {
                    entry.epoch += 1;
                    entry.closed = None;
                    (entry.key, entry.description) = (claim.key, claim.description.clone());
                    (entry.asked, entry.rule) = (claim.siblings, claim.rule);
                }
                entry.holder = Some(claim.process);
                Ok(number)
            }
            None => self.open(claim).ok_or("quota_exceeded"),
        };
        let members = match number {
            Ok(_) if outcome != Outcome::Held && claim.key.is_some() => self.take_members(claim),
            _ => BTreeSet::new(),
        };
        self.expected.insert(
            claim.ticket,
            number.map(|number| (number, outcome, (because, members))),
        );
        if let Ok(number) = number
            && outcome != Outcome::Held
        {
            self.note_siblings(number);
        }
    }

    /// Three leases of one key, two conversations, or two keys of one program and directory, at
    /// once.
    pub(super) fn note_siblings(&mut self, number: u64) {
        let entry = &self.entries[&number];
        let host = entry.owner;
        if host == ProcessId::USER {
            return;
        }
        let held = || {
            self.entries
                .values()
                .filter(|other| other.owner == host && other.holder.is_some())
        };
        let of_key = held()
            .filter(|other| other.key.is_some() && other.key == entry.key)
            .count();
        let has_label = entry.description.label.is_some();
        let crowd = entry
            .key
            .filter(|_| entry.asked.is_none() && !has_label && of_key >= 3);
        // A front that has said that it leaves counts no more.
        let at_once = held().any(|other| {
            let keys = entry.key.zip(other.key);
            other.closed.is_none()
                && keys.is_some_and(|(key, other)| key.is_another_conversation_of(&other))
        });
        let is_doubtful = entry.key.is_none();
        let mut others = held().filter(|other| other.key.is_some() && other.key != entry.key);
        let has_sibling = others.any(|other| other.program_dir == entry.program_dir);
        let double = entry.program_dir.filter(|_| is_doubtful || has_sibling);
        let facts = self.hosts.get_mut(&host).expect("a host");
        facts.ambiguous.extend(double);
        facts.conversations_at_once |= at_once;
        if let Some(key) = crowd
            && facts.multiplexed_keys.insert(key)
        {
            self.end_unreachable(host, key);
        }
    }

    fn is_full(&self, host: ProcessId) -> bool {
        self.numbers(|entry| entry.owner == host).len() >= self.policy.sessions_per_owner
    }

    /// The session that is ended where there are as many as may be.
    fn spare(&self, host: ProcessId) -> Option<u64> {
        let spare = self.numbers(|entry| {
            let is_free = entry.holder.is_none() && entry.keepers.is_empty();
            entry.owner == host && is_free && entry.key.is_some()
        });
        spare
            .into_iter()
            .min_by_key(|number| self.entries[number].freed)
    }

    /// A claim that gets no session is told of nothing that was lost.
    pub(super) fn has_room(&self, host: ProcessId) -> bool {
        !self.is_full(host) || self.spare(host).is_some()
    }

    pub(super) fn open(&mut self, claim: &Claim) -> Option<u64> {
        if self.is_full(claim.host) {
            let longest = self.spare(claim.host)?;
            let key = self.entries.remove(&longest).and_then(|entry| entry.key);
            self.note(claim.host, key, Some(Loss::Quota));
        }
        self.order += 1;
        let entry = Entry {
            id: None,
            owner: claim.host,
            key: claim.key,
            description: claim.description.clone(),
            program_dir: claim.program_dir,
            asked: claim.siblings,
            rule: claim.rule,
            epoch: 1,
            holder: Some(claim.process),
            freed: 0,
            closed: None,
            keepers: BTreeMap::new(),
            left: BTreeMap::new(),
            touched: false,
        };
        self.entries.insert(self.order, entry);
        Some(self.order)
    }
}
