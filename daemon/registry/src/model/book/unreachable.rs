//! Sessions that nobody can resume any more, and why.

use super::*;

impl Book {
    pub(super) fn end_unreachable(&mut self, owner: ProcessId, key: Key) {
        self.end_forbidden(owner, key, None);
        for (number, loss) in self.doomed(owner, key) {
            self.entries.remove(&number);
            self.note(owner, Some(key), loss);
        }
    }

    /// The free sessions of a key that no claim can resume, and what is lost with each.
    pub(super) fn doomed(&self, owner: ProcessId, key: Key) -> Vec<(u64, Option<Loss>)> {
        let of_key = |entry: &Entry| entry.owner == owner && entry.key == Some(key);
        let is_held = self
            .entries
            .values()
            .any(|entry| of_key(entry) && entry.holder.is_some());
        let mut doomed = Vec::new();
        let mut rest = Vec::new();
        for number in self.numbers(|entry| of_key(entry) && entry.holder.is_none()) {
            let entry = &self.entries[&number];
            let siblings = self.siblings_of(entry);
            let newer = self
                .entries
                .range(number + 1..)
                .map(|(_, other)| other)
                .filter(|other| other.owner == owner);
            let superseded = newer
                .filter_map(|other| self.superseded_by(&other.key?, &other.description, entry))
                .min_by_key(|loss| *loss != Loss::Conversation);
            if siblings == Siblings::Never || self.forbids(entry.rule, None, entry) {
                doomed.push((number, None));
            } else if superseded.is_some() {
                doomed.push((number, superseded));
            } else if is_held && self.was_used(entry) == Some(false) {
                doomed.push((number, None));
            } else if siblings != Siblings::Oldest {
                rest.push(number);
            }
        }
        let used: Vec<Option<bool>> = rest
            .iter()
            .map(|number| self.was_used(&self.entries[number]))
            .collect();
        if rest.len() > 1 && !used.contains(&None) {
            let is_only = used.iter().filter(|used| **used == Some(true)).count() == 1;
            for (number, used) in rest.into_iter().zip(used) {
                match used {
                    Some(true) if is_only => {}
                    Some(true) => doomed.push((number, Some(Loss::Several))),
                    _ => doomed.push((number, None)),
                }
            }
        }
        doomed
    }

    /// Whether this rule lets nobody have the entry as its last front has left it.
    fn forbids(&self, rule: Rule, claim: Option<&Claim>, entry: &Entry) -> bool {
        let is_closed = entry.closed.is_some();
        match rule.resume {
            _ if entry.owner == ProcessId::USER => false,
            Resume::Always => false,
            Resume::Conversation => match (claim, entry.closed) {
                (Some(claim), Some(at)) => {
                    let again = self.policy.closed_again_ms;
                    !claim
                        .started_ms
                        .is_some_and(|started| at <= started && started - at <= again)
                }
                _ => false,
            },
            Resume::Cut => is_closed,
            Resume::Unknown => is_closed || self.was_used(entry) == Some(true),
            Resume::Never => true,
        }
    }

    /// Why a server with this key and these names has taken the place of that session, if it has.
    pub(super) fn superseded_by(
        &self,
        newer: &Key,
        description: &SelfDescription,
        entry: &Entry,
    ) -> Option<Loss> {
        match supersedes(newer, description, entry) {
            // A host that works on several conversations at once leaves none for another one.
            Some(Loss::Conversation) if self.hosts[&entry.owner].conversations_at_once => None,
            loss => loss,
        }
    }

    /// Ends the free entries that this claim may not have.
    pub(super) fn end_forbidden_to(&mut self, claim: &Claim) {
        for key in [claim.key, claim.unnamed].into_iter().flatten() {
            self.end_forbidden(claim.host, key, Some(claim));
        }
    }

    /// Ends the free entries of a key that a rule forbids to resume: their own, or that of a claim.
    pub(super) fn end_forbidden(&mut self, owner: ProcessId, key: Key, claim: Option<&Claim>) {
        let rule = claim.map(|claim| claim.rule);
        let rule = rule.filter(|rule| rule.source != RuleSource::Library);
        let forbidden = self.numbers(|entry| {
            entry.owner == owner
                && entry.key == Some(key)
                && entry.holder.is_none()
                && self.forbids(rule.unwrap_or(entry.rule), claim, entry)
        });
        for number in forbidden {
            let entry = self.entries.remove(&number).expect("it was found just now");
            match self.has_shown_use(&entry) {
                Some(true) => self.note_rule_of(&entry, key),
                Some(false) => {}
                None if entry.rule.source != RuleSource::Table => {}
                None => {
                    for (keeper, _) in entry.keepers.values() {
                        let said = entry.left.get(keeper);
                        if said.is_some_and(|left| left.epoch.0 == entry.epoch) {
                            continue;
                        }
                        self.unsaid
                            .insert(*keeper, (owner, key, loss_of(entry.rule)));
                    }
                }
            }
        }
    }

    /// Whether an entry was used, as far as people are told of it.
    pub(super) fn has_shown_use(&self, entry: &Entry) -> Option<bool> {
        let has_token = entry.id.as_ref().is_some_and(|id| self.tokens.contains(id));
        let is_bare = entry.keepers.is_empty() && !has_token;
        match entry.rule.source {
            RuleSource::Table | RuleSource::Asked if is_bare => {
                let mut left = entry.left.values();
                let is_used = left.any(|left| left.epoch.0 == entry.epoch && left.used);
                Some(is_used || entry.touched)
            }
            _ => self.was_used(entry),
        }
    }

    /// Whether its next front is to be told that its only keeper is gone.
    pub(super) fn has_lost(&self, entry: &Entry) -> bool {
        let losses = self.hosts.get(&entry.owner).map(|host| &host.losses);
        losses
            .zip(entry.key)
            .is_some_and(|(losses, key)| losses.contains_key(&key))
    }

    pub(super) fn note_rule_of(&mut self, entry: &Entry, key: Key) {
        if entry.rule.source == RuleSource::Table {
            self.note_rule(entry.owner, key, loss_of(entry.rule));
        }
    }

    pub(super) fn note_rule(&mut self, host: ProcessId, key: Key, rule: Loss) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.rules.entry(key).or_insert(Some(rule));
        }
    }

    /// What this claim is told, which nobody is told again.
    pub(super) fn take_rule(&mut self, claim: &Claim) -> Option<Loss> {
        let rules = &mut self.hosts.get_mut(&claim.host)?.rules;
        let keys = [claim.key, claim.unnamed].into_iter().flatten();
        let told: Vec<Loss> = keys.filter_map(|key| rules.get_mut(&key)?.take()).collect();
        told.first().copied()
    }

    /// None: not known until its keeper says so.
    fn was_used(&self, entry: &Entry) -> Option<bool> {
        let has_token = entry.id.as_ref().is_some_and(|id| self.tokens.contains(id));
        if entry.keepers.is_empty() || has_token || entry.touched {
            return Some(true);
        }
        let said = |keeper: &ProcessId| {
            entry
                .left
                .get(keeper)
                .filter(|left| left.epoch.0 == entry.epoch)
        };
        let said: Vec<Option<&Departure>> = entry
            .keepers
            .values()
            .map(|(keeper, _)| said(keeper))
            .collect();
        let all: Option<Vec<&Departure>> = said.into_iter().collect();
        all.map(|all| all.iter().any(|left| left.used))
    }
}

/// The reason that a claim carries where this rule forbids a resume.
fn loss_of(rule: Rule) -> Loss {
    match rule.resume {
        Resume::Never => Loss::Conversations,
        Resume::Unknown => Loss::UnknownHost,
        Resume::Conversation => Loss::ClosedEarlier,
        _ => Loss::Closed,
    }
}

/// The same as [`Book::superseded_by`], in a host that leaves conversations.
fn supersedes(newer: &Key, description: &SelfDescription, entry: &Entry) -> Option<Loss> {
    let key = entry.key?;
    if newer.is_another_conversation_of(&key) {
        Some(Loss::Conversation)
    } else if description.entry.is_some()
        && description.entry == entry.description.entry
        && newer.is_another_program_for(&key)
    {
        Some(Loss::Edited)
    } else {
        None
    }
}
