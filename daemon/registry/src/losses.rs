//! What was lost of a host's servers, and has to be told to whoever claims next: it stays on record
//! until that one has said that it was told.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId, StartTime};
use mcp_sessiond_proto::{BackendName, Epoch, Error, Loss, LossId, LossRecord, SessionId};

use super::told::{Told, own};
use super::{Claim, Effect, LostRecords, Record, Registry, Wants};

/// Losses that are remembered of one host until they are told: a daemon that was killed with all
/// keepers of a full list has to tell of each, and of some servers beside them.
const LOSSES_MAX: usize = super::records::BACKENDS_PER_SESSION + 64;

/// Rules that are remembered of one host.
const RULES_MAX: usize = 64;

impl Registry {
    /// The time of day, in ms since the Unix epoch, for what is recorded from now on.
    pub fn time_of_day(&mut self, now_ms: u64) {
        self.time_of_day_ms = now_ms;
    }

    /// Something is lost that a claim with this key may ask for: the session's only backend, the
    /// session, or the member of this name. It takes the place of what was lost of it before.
    pub(super) fn note_loss(
        &mut self,
        host: ProcessId,
        key: Key,
        of: Option<BackendName>,
        because: Loss,
    ) -> Option<LossRecord> {
        let loss = self.next_loss(of, because);
        let owner = self.owners.get_mut(&host)?;
        owner
            .losses
            .retain(|(other, former)| *other != key || former.of != loss.of);
        if owner.losses.len() >= LOSSES_MAX {
            owner.losses.remove(0);
        }
        owner.losses.push((key, loss.clone()));
        self.save_owner(host);
        Some(loss)
    }

    /// A loss that becomes known now. No number is given twice by one daemon, also where the clock goes
    /// back, nor by the next one, unless the clock goes back while none runs.
    pub(super) fn next_loss(&mut self, of: Option<BackendName>, because: Loss) -> LossRecord {
        self.newest_loss = (self.newest_loss + 1).max(self.time_of_day_ms);
        LossRecord {
            id: LossId(self.newest_loss),
            at_ms: self.time_of_day_ms,
            of,
            because,
        }
    }

    /// What a claim is told that gets a fresh session under this key. `because`: the reason that was
    /// found just now.
    pub(super) fn tell_claim(&mut self, claim: &Claim, key: Key, because: Option<Loss>) -> Told {
        let has_record = self.owners.get(&claim.host).is_some_and(|owner| {
            let mut losses = owner.losses.iter();
            losses.any(|(of, loss)| is_led(claim, key, of) && loss.of.is_none())
        });
        // The rule is for the next claim where another reason is told now.
        let new = match because {
            None if !has_record => self.take_rule(claim.host, key, claim.unnamed),
            because => because,
        };
        if let Some(new) = new.filter(|_| claim.confirms_loss) {
            self.note_loss(claim.host, key, None, new);
        }
        let lost = self.carried(claim, key, |_| true);
        let because = new.or_else(|| own(&lost));
        Told::new(because, lost)
    }

    /// The same, where nothing else is told of it: the records may be lost.
    pub(super) fn tell_lost_records(&mut self, claim: &Claim, told: Told) -> Told {
        let asks_for_none = matches!(
            claim.wants,
            Wants::Fresh | Wants::AfterClose { .. } | Wants::Users { fresh: true, .. }
        );
        if asks_for_none || told.because().is_some() {
            return told;
        }
        let Some(because) = self.lost_with_records(claim) else {
            return told;
        };
        let is_led = !matches!(claim.wants, Wants::New(..)) && claim.confirms_loss;
        let key = claim.key.filter(|_| is_led);
        let noted = key.and_then(|key| self.note_loss(claim.host, key, None, because));
        let lost = told.lost().into_iter().chain(noted).collect();
        Told::new(Some(because), lost)
    }

    /// The same for a claim that asks for nothing that was before.
    pub(super) fn told_of_members(&mut self, claim: &Claim) -> Told {
        let lost = claim.key.map_or_else(Vec::new, |key| {
            self.carried(claim, key, |loss| loss.of.is_some())
        });
        Told::new(None, lost)
    }

    /// What is on record of these losses for a claim with this key, one of each member. It stays
    /// there, under the key by which the session is found from now on, where the claim says that it
    /// will say when it was told.
    pub(super) fn carried(
        &mut self,
        claim: &Claim,
        key: Key,
        which: impl Fn(&LossRecord) -> bool,
    ) -> Vec<LossRecord> {
        let Some(owner) = self.owners.get_mut(&claim.host) else {
            return Vec::new();
        };
        let before = owner.losses.clone();
        let is_meant = |(of, loss): &mut (Key, LossRecord)| is_led(claim, key, of) && which(loss);
        // The newest is the last one.
        let carried: BTreeMap<Option<BackendName>, LossRecord> = owner
            .losses
            .extract_if(.., is_meant)
            .map(|(_, loss)| (loss.of.clone(), loss))
            .collect();
        if claim.confirms_loss {
            let kept = carried.values().map(|loss| (key, loss.clone()));
            owner.losses.extend(kept);
            owner.losses.sort_by_key(|(_, loss)| loss.id);
        }
        if owner.losses != before {
            self.save_owner(claim.host);
        }
        carried.into_values().collect()
    }

    /// A keeper is gone, and these processes with it, and so is its server: the only one that the
    /// session can have, or the one of this name. A front that is attached sees that itself, and says
    /// when it has told it; but it may be killed before.
    pub(super) fn note_lost_keeper(
        &mut self,
        session: &SessionId,
        of: Option<&BackendName>,
        why: Loss,
        exits: &[ProcessId],
    ) {
        let Some(session) = self.sessions.get(session) else {
            return;
        };
        let Some(key) = session.leading_key() else {
            return;
        };
        let owner = session.owner;
        let is_attended = session
            .holder
            .is_some_and(|holder| !exits.contains(&holder));
        match of {
            // What belongs to a host ends with it.
            _ if exits.contains(&owner) => {}
            // The front that is there could not reach one that has waited in vain.
            Some(_) if is_attended && why.is_wanted() && why != Loss::Abandoned => {}
            of => {
                self.note_loss(owner, key, of.cloned(), why);
            }
        }
    }

    /// What a list's server was before its entry was edited is gone: the front that has asked for the
    /// server of this name is told.
    pub(super) fn note_edited(&mut self, session: &SessionId, now: BackendName) {
        let session = self.sessions.get(session);
        if let Some((owner, key)) =
            session.and_then(|session| Some((session.owner, session.leading_key()?)))
        {
            self.note_loss(owner, key, Some(now), Loss::Edited);
        }
    }

    /// Whoever begins afresh asks for nothing of what was before.
    pub(super) fn forget_losses(&mut self, host: ProcessId, key: Key) {
        let Some(owner) = self.owners.get_mut(&host) else {
            return;
        };
        let before = owner.losses.len();
        owner.losses.retain(|(of, _)| *of != key);
        if owner.losses.len() < before {
            self.save_owner(host);
        }
    }

    /// The records of an earlier daemon were lost, as this one has found, which was started then.
    pub fn records_lost(&mut self, since: StartTime) {
        let told = BTreeSet::new();
        let lost = LostRecords { since, told };
        self.effects
            .push(Effect::Save(Record::LostRecords(lost.clone())));
        self.lost = Some(lost);
    }

    /// A server has a session for the first time, as far as is known. Whether it may have had one of
    /// which the records are lost: once for each server of a host that is older than these are.
    pub(super) fn lost_with_records(&mut self, claim: &Claim) -> Option<Loss> {
        let (key, host) = (claim.key?, claim.host);
        let lost = self.lost.as_mut()?;
        if host.start >= lost.since || !lost.told.insert((host, key)) {
            return None;
        }
        let lost = lost.clone();
        self.effects.push(Effect::Save(Record::LostRecords(lost)));
        Some(Loss::Records)
    }

    /// The user of this session's claimer was told of these losses.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn loss_told(
        &mut self,
        id: &SessionId,
        epoch: Epoch,
        losses: &[LossId],
    ) -> Result<(), Error> {
        self.check(id, epoch)?;
        let host = self.sessions.get(id).map(|session| session.owner);
        let owner = host.and_then(|host| Some((host, self.owners.get_mut(&host)?)));
        let Some((host, owner)) = owner else {
            return Ok(());
        };
        let before = owner.losses.len();
        owner.losses.retain(|(_, loss)| !losses.contains(&loss.id));
        if owner.losses.len() < before {
            self.save_owner(host);
        }
        Ok(())
    }

    /// A used server has ended because of its host's rule: the next claim with this key is told so,
    /// unless one was.
    pub(super) fn note_rule(&mut self, host: ProcessId, key: Key, rule: Loss) {
        let Some(owner) = self.owners.get_mut(&host) else {
            return;
        };
        if owner.rules.contains_key(&key) {
            return;
        }
        if owner.rules.len() >= RULES_MAX {
            owner.rules.pop_first();
        }
        owner.rules.insert(key, Some(rule));
        self.save_owner(host);
    }

    /// The rule that a claim with this key has to be told, once.
    pub(super) fn take_rule(
        &mut self,
        host: ProcessId,
        key: Key,
        unnamed: Option<Key>,
    ) -> Option<Loss> {
        let rules = &mut self.owners.get_mut(&host)?.rules;
        let mut take = |key: &Key| rules.get_mut(key).and_then(Option::take);
        let own = take(&key);
        let unnamed = unnamed.as_ref().and_then(take);
        if own.or(unnamed).is_some() {
            self.save_owner(host);
        }
        own.or(unnamed)
    }
}

/// Whether what is on record under a key is what this claim would ask for.
pub(super) fn is_led(claim: &Claim, key: Key, of: &Key) -> bool {
    *of == key || Some(*of) == claim.unnamed
}
