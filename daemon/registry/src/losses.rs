//! What was lost of a host's servers, and has to be told to whoever claims next: it stays on record
//! until that one has said that it was told.

use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::types::LostMember;
use mcp_sessiond_proto::{BackendName, Epoch, Error, Loss, SessionId};

use super::{Claim, Registry};

/// Losses that are remembered of one host until they are told.
const LOSSES_MAX: usize = 64;

/// The same of members of lists: a daemon that was killed with all keepers of a full list has to
/// tell of each.
const LOST_MEMBERS_MAX: usize = super::records::BACKENDS_PER_SESSION;

impl Registry {
    /// Something is lost that a claim with this key may ask for.
    pub(super) fn note_loss(&mut self, host: ProcessId, key: Key, loss: Loss) {
        let Some(owner) = self.owners.get_mut(&host) else {
            return;
        };
        if owner.losses.len() >= LOSSES_MAX && !owner.losses.contains_key(&key) {
            owner.losses.pop_first();
        }
        if owner.losses.insert(key, loss) != Some(loss) {
            self.save_owner(host);
        }
    }

    /// What a claim with this key has to be told, once.
    pub(super) fn take_loss(
        &mut self,
        host: ProcessId,
        key: Key,
        former: Option<Key>,
    ) -> Option<Loss> {
        let owner = self.owners.get_mut(&host)?;
        let loss = owner.losses.remove(&key);
        let former = former.and_then(|former| owner.losses.remove(&former));
        if loss.or(former).is_some() {
            self.save_owner(host);
        }
        loss.or(former)
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
            None => self.note_loss(owner, key, why),
            Some(_) if is_attended && why.is_wanted() => {}
            Some(of) => self.note_lost_member(owner, key, of.clone(), why),
        }
    }

    fn note_lost_member(&mut self, host: ProcessId, key: Key, of: BackendName, loss: Loss) {
        let Some(owner) = self.owners.get_mut(&host) else {
            return;
        };
        let of = (key, of);
        if owner.lost_members.len() >= LOST_MEMBERS_MAX && !owner.lost_members.contains_key(&of) {
            owner.lost_members.pop_first();
        }
        if owner.lost_members.insert(of, loss) != Some(loss) {
            self.save_owner(host);
        }
    }

    /// What a claim with this key has to be told of the members of its session. It stays on record,
    /// under the key by which the session is found from now on, where the claim says that it will say
    /// when it was told.
    pub(super) fn lost_members(&mut self, claim: &Claim, key: Key) -> Vec<LostMember> {
        let Some(owner) = self.owners.get_mut(&claim.host) else {
            return Vec::new();
        };
        let led = |(of, _): &(Key, BackendName)| *of == key || Some(*of) == claim.former;
        let before = owner.lost_members.clone();
        let mut told = Vec::new();
        for ((_, of), because) in owner.lost_members.extract_if(.., |of, _| led(of)) {
            told.push(LostMember { of, because });
        }
        if claim.confirms_loss {
            let kept = told
                .iter()
                .map(|lost| ((key, lost.of.clone()), lost.because));
            owner.lost_members.extend(kept);
        }
        if owner.lost_members != before {
            self.save_owner(claim.host);
        }
        told
    }

    /// Whoever begins afresh asks for nothing of what was before.
    pub(super) fn forget_losses(&mut self, host: ProcessId, key: Key) {
        self.take_loss(host, key, None);
        let Some(owner) = self.owners.get_mut(&host) else {
            return;
        };
        let before = owner.lost_members.len();
        owner.lost_members.retain(|(of, _), _| *of != key);
        if owner.lost_members.len() < before {
            self.save_owner(host);
        }
    }

    /// A claim carries a loss, which stays on record until its user was told.
    pub(super) fn await_told(&mut self, claim: &Claim, key: Key, because: Option<Loss>) {
        if let Some(because) = because.filter(|_| claim.confirms_loss) {
            self.note_loss(claim.host, key, because);
        }
    }

    /// What was lost of this session's key is known from elsewhere, and its claimer will say that it
    /// has told it.
    pub fn carry_loss(&mut self, id: &SessionId, loss: Loss) {
        let session = self.sessions.get(id);
        if let Some((host, key)) =
            session.and_then(|session| Some((session.owner, session.leading_key()?)))
        {
            self.note_loss(host, key, loss);
        }
    }

    /// The user of this session's claimer was told of a loss: of the session's own, or of that of
    /// one of its members.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn loss_told(
        &mut self,
        id: &SessionId,
        epoch: Epoch,
        of: Option<&BackendName>,
        because: Loss,
    ) -> Result<(), Error> {
        self.check(id, epoch)?;
        let session = self.sessions.get(id);
        let Some((host, key)) =
            session.and_then(|session| Some((session.owner, session.leading_key()?)))
        else {
            return Ok(());
        };
        let Some(owner) = self.owners.get_mut(&host) else {
            return Ok(());
        };
        let is_known = match of {
            None => owner.losses.get(&key) == Some(&because),
            Some(of) => owner.lost_members.get(&(key, of.clone())) == Some(&because),
        };
        if is_known {
            match of {
                None => owner.losses.remove(&key),
                Some(of) => owner.lost_members.remove(&(key, of.clone())),
            };
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
        if owner.rules.len() >= LOSSES_MAX {
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
        former: Option<Key>,
    ) -> Option<Loss> {
        let rules = &mut self.owners.get_mut(&host)?.rules;
        let mut take = |key: &Key| rules.get_mut(key).and_then(Option::take);
        let own = take(&key);
        let former = former.as_ref().and_then(take);
        if own.or(former).is_some() {
            self.save_owner(host);
        }
        own.or(former)
    }
}
