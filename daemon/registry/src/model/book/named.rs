//! Claims of sessions that the user has named.

use super::*;

impl Book {
    /// Claims a session by its name. At most one session has it.
    pub(in crate::model) fn claim_named(&mut self, claim: &Claim, take: bool, fresh: bool) {
        self.hosts.entry(claim.host).or_default();
        if let Some(own) = &claim.own {
            self.hosts.entry(own.claim.host).or_insert_with(|| Host {
                host_rule: own.claim.host_rule,
                ..Host::default()
            });
        }
        let found = self.numbers(|entry| Self::is_led(claim, entry)).pop();
        let holds = found.is_some_and(|number| self.entries[&number].holder == Some(claim.process));
        if let Some(own) = claim.own.as_deref().filter(|own| {
            // Its host and key have had one, or the front itself.
            let stays = |entry: &Entry| {
                Self::is_led(&own.claim, entry) && self.siblings_of(entry) != Siblings::Never
            };
            let has_had = self.own_fronts.contains(&claim.process);
            !take && !holds && (has_had || self.entries.values().any(stays))
        }) {
            self.claim_own(own, claim);
            return self.drop_idle_user();
        }
        let Some(number) = found else {
            return self.answer_named(claim, None, Outcome::FreshFirst);
        };
        let entry = &self.entries[&number];
        let is_same = entry.program_dir == claim.program_dir;
        let is_others = entry.holder.is_some_and(|holder| holder != claim.process);
        if fresh || !is_same {
            if take || (is_same && !is_others) {
                self.taken
                    .extend(entry.id.clone().filter(|_| entry.holder.is_some()));
                self.entries.remove(&number);
                if let (Some(host), Some(key)) = (self.hosts.get_mut(&claim.host), claim.key) {
                    host.losses.remove(&key);
                    host.lost_members.retain(|(of, _), _| *of != key);
                }
                self.answer_named(claim, None, Outcome::FreshFirst);
            } else {
                self.own_or_refuse(claim);
                if holds {
                    self.note_name(claim);
                }
            }
        } else if take && is_others {
            self.taken.extend(entry.id.clone());
            self.entries
                .get_mut(&number)
                .expect("it was found just now")
                .holder = None;
            self.answer_named(claim, Some(number), Outcome::Resumed);
        } else if let Some((entry, outcome)) = self.decide_named(claim) {
            self.answer_named(claim, entry, outcome);
        } else if self.now < claim.deadline {
            self.waiting.push(claim.clone());
        } else {
            self.own_or_refuse(claim);
        }
        self.drop_idle_user();
    }

    /// A server of the host's own, if another process has the name under the same command.
    pub(super) fn own_or_refuse(&mut self, claim: &Claim) {
        let mut of_name = self
            .entries
            .values()
            .filter(|entry| Self::is_led(claim, entry));
        let is_same = of_name.any(|entry| entry.program_dir == claim.program_dir);
        match claim.own.as_deref().filter(|_| is_same) {
            Some(own) => self.claim_own(own, claim),
            None => drop(self.expected.insert(claim.ticket, Err("name_taken"))),
        }
    }

    fn claim_own(&mut self, own: &OwnClaim, named: &Claim) {
        let mut claim = own.claim.clone();
        let name = named.key.expect("a name");
        if self.hosts[&claim.host].names.contains(&name) {
            claim.rule.resume = Resume::Never;
        }
        self.own_fronts.insert(claim.process);
        self.claim(&claim);
    }

    pub(super) fn decide_named(&self, claim: &Claim) -> Option<(Option<u64>, Outcome)> {
        let found = self
            .entries
            .iter()
            .find(|(_, entry)| Self::is_led(claim, entry));
        match found {
            None => Some((None, Outcome::FreshFirst)),
            Some((_, entry)) if entry.program_dir != claim.program_dir => None,
            Some((number, entry)) if entry.holder.is_none() => {
                Some((Some(*number), Outcome::Resumed))
            }
            Some((number, entry)) => {
                (entry.holder == Some(claim.process)).then_some((Some(*number), Outcome::Held))
            }
        }
    }

    pub(super) fn answer_named(&mut self, claim: &Claim, entry: Option<u64>, outcome: Outcome) {
        let has_room = entry.is_some() || self.has_room(claim.host);
        let losses = &mut self.hosts.entry(claim.host).or_default().losses;
        let loss = if outcome == Outcome::Held || !has_room {
            None
        } else {
            claim.key.and_then(|key| losses.remove(&key))
        };
        let because = loss.filter(|_| {
            entry.is_none_or(|number| !self.entries[&number].keepers.contains_key(&None))
        });
        self.answer(claim, entry, outcome, because);
        if has_room {
            self.note_name(claim);
        }
    }

    /// The claimer's host holds the name, whatever this claim is answered.
    fn note_name(&mut self, claim: &Claim) {
        if let Some(own) = &claim.own
            && let Some(host) = self.hosts.get_mut(&own.claim.host)
        {
            host.names.extend(claim.key);
        }
    }

    /// Ends the sessions that the user has named.
    pub(in crate::model) fn end_named(&mut self) {
        self.entries
            .retain(|_, entry| entry.owner != ProcessId::USER);
        self.drop_idle_user();
    }

    /// The user is no host and never exits: its record goes with its last session.
    pub(super) fn drop_idle_user(&mut self) {
        let owns = |entry: &Entry| entry.owner == ProcessId::USER;
        let waits = self
            .waiting
            .iter()
            .any(|claim| claim.host == ProcessId::USER);
        if !waits && !self.entries.values().any(owns) {
            self.hosts.remove(&ProcessId::USER);
        }
    }
}
