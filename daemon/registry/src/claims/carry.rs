//! Carries out a decided claim on the sessions.

use super::*;

impl Registry {
    /// `edited`: the claim has ended the session of its entry as it was before an edit.
    pub(crate) fn carry_out(
        &mut self,
        claim: &Claim,
        key: Key,
        choice: Choice,
        edited: Option<Loss>,
    ) {
        match choice {
            Choice::Keep(id) | Choice::Resume(id) if claim.wants == Wants::Fresh => {
                self.end_session(&id);
                self.open(claim, Outcome::FreshFirst, None);
            }
            Choice::Keep(id) => self.keep(claim, &id),
            Choice::Resume(id) => self.resume(claim, &id, key),
            Choice::Open(outcome) => {
                let because = self.make_way(claim, key, outcome).or(edited);
                let recorded = self.take_loss(claim.host, key, claim.former);
                self.open(claim, outcome, because.or(recorded));
            }
            // The callers handle a claim that has to wait.
            Choice::Wait => {}
        }
    }

    /// Before a fresh session is opened, ends the free sessions that can't be told from it. Returns
    /// the loss that the answer to the claim names.
    fn make_way(&mut self, claim: &Claim, key: Key, outcome: Outcome) -> Option<Loss> {
        let siblings = self.siblings(claim.host, claim.siblings);
        let because = match (outcome, siblings) {
            (Outcome::FreshHeld, Siblings::Fresh) => Loss::Sibling,
            (Outcome::FreshPlural, _) => Loss::Several,
            (Outcome::FreshNever, _) => return self.is_crowded(claim).then_some(Loss::Crowd),
            (Outcome::FreshFirst, _) => {
                let edited = self.edited_without_entry(claim, key)?;
                self.end_session(&edited);
                return Some(Loss::Edited);
            }
            _ => return None,
        };
        let free: Vec<SessionId> = self
            .led_to(claim.host, key, claim.former)
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

    /// Whether this claim resumes nothing only because its host once had too many servers of one
    /// key at a time.
    fn is_crowded(&self, claim: &Claim) -> bool {
        claim.siblings.is_none()
            && self
                .owners
                .get(&claim.host)
                .is_some_and(|owner| owner.crowded && owner.row != Some(Siblings::Never))
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
            .push(Effect::SaveClaimant(process, claimant.clone()));
    }

    pub(super) fn keep(&mut self, claim: &Claim, id: &SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let lease = Lease {
            session: id.clone(),
            epoch: session.epoch,
            outcome: Outcome::Held,
            because: None,
            file: session.file,
        };
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
    }

    pub(crate) fn resume(&mut self, claim: &Claim, id: &SessionId, key: Key) {
        self.rekey(id, key);
        self.give(id, Some(claim.process));
        let recorded = self.take_loss(claim.host, key, claim.former);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.epoch = Epoch(session.epoch.0 + 1);
        session.offered = session.digest.is_some();
        if session.name.is_none() {
            (session.said, session.asked) = (claim.said.clone(), claim.siblings);
        }
        let lease = Lease {
            session: id.clone(),
            epoch: session.epoch,
            outcome: Outcome::Resumed,
            // A session that still has its only backend has lost nothing.
            because: recorded.filter(|_| session.keepers.of(None).is_none()),
            file: session.file,
        };
        self.effects.push(Effect::SaveSession(session.clone()));
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
        self.note_company(id);
    }

    pub(crate) fn open(&mut self, claim: &Claim, outcome: Outcome, because: Option<Loss>) {
        if !self.make_room(claim.host) {
            let limit = self.policy.sessions_per_owner as u64;
            let refusal = Error::QuotaExceeded {
                what: "the number of sessions of this host".into(),
                limit,
            };
            self.effects
                .push(Effect::Answer(claim.ticket, Err(refusal)));
            return;
        }
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
            said: claim.said.clone(),
            spot: claim.spot,
            asked: claim.siblings,
            opened: self.order,
            freed: 0,
            opened_ms: claim.opened_ms,
            epoch,
            holder: Some(claim.process),
            file: TokenFile {
                host: claim.host,
                number,
            },
            digest: None,
            former: None,
            offered: false,
            keepers: crate::Keepers::default(),
        };
        let lease = Lease {
            session: session.id.clone(),
            epoch: session.epoch,
            outcome,
            because,
            file: session.file,
        };
        self.effects.push(Effect::SaveSession(session.clone()));
        self.insert(session);
        self.effects.push(Effect::Answer(claim.ticket, Ok(lease)));
        self.note_company(&id);
    }
}
