//! What may be done under a lease. The epoch is checked in the step that applies the change.

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::{Epoch, Error, SessionId};

use super::{Digest, Effect, NO_TOKEN, Registry, SessionRecord, TokenFile};

impl Registry {
    /// A token is about to be written: puts its digest on record, beside the former one. Returns
    /// the file that it goes to, and whether the broker has accepted the token that was offered to
    /// it, once this one is written.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn begin_store(
        &mut self,
        id: &SessionId,
        epoch: Epoch,
        digest: Digest,
    ) -> Result<(TokenFile, bool), Error> {
        let session = self.leased(id, epoch)?;
        let before = session.digest.replace(digest).unwrap_or(NO_TOKEN);
        // One that is not settled yet is what the file may really hold.
        session.former.get_or_insert(before);
        let (file, offered, record) = (session.file, session.offered, session.clone());
        self.effects.push(Effect::Save(record.into()));
        Ok((file, offered))
    }

    /// The file is known to hold the token of `digest`, or none: what the record says besides is
    /// settled.
    ///
    /// The epoch plays no part: the store was accepted when it began.
    pub fn end_store(&mut self, id: &SessionId, digest: Option<Digest>) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        // A former digest that stayed on record would have the next start take a file that is gone
        // for one that never was, and the former token for the one that counts.
        let was_open = session.former.take().is_some();
        let written = digest.is_some() && session.digest == digest;
        let offered = session.offered && digest.is_some() && !written;
        if was_open || (session.digest, session.offered) != (digest, offered) {
            (session.digest, session.offered) = (digest, offered);
            let (record, owner, key) = (session.clone(), session.owner, session.leading_key());
            self.effects.push(Effect::Save(record.into()));
            if let (None, Some(key)) = (digest, key) {
                self.end_unreachable(owner, key);
            }
        }
    }

    /// The session's token, which came from elsewhere, is about to be offered to the broker.
    pub fn offer(&mut self, id: &SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.offered = session.digest.is_some();
            let record = session.clone();
            self.effects.push(Effect::Save(record.into()));
        }
    }

    /// The broker refused the token: it is forgotten. Returns the file to delete.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn reject(&mut self, id: &SessionId, epoch: Epoch) -> Result<TokenFile, Error> {
        let session = self.leased(id, epoch)?;
        (session.digest, session.former, session.offered) = (None, None, false);
        let (file, record) = (session.file, session.clone());
        self.effects.push(Effect::Save(record.into()));
        Ok(file)
    }

    /// The holder gives the session back.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn release(&mut self, id: &SessionId, epoch: Epoch) -> Result<(), Error> {
        self.leased(id, epoch)?;
        self.vacate(core::slice::from_ref(id));
        Ok(())
    }

    /// Whether changes may be made under this lease.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    pub fn check(&mut self, id: &SessionId, epoch: Epoch) -> Result<(), Error> {
        self.leased(id, epoch).map(drop)
    }

    /// The session, if `epoch` is its newest and somebody holds it.
    pub(super) fn leased(
        &mut self,
        id: &SessionId,
        epoch: Epoch,
    ) -> Result<&mut SessionRecord, Error> {
        let session = self.sessions.get_mut(id).ok_or(Error::UnknownSession)?;
        check_lease(epoch, session.epoch, session.holder)?;
        Ok(session)
    }
}

/// Checks that a lease is the newest of its session or service, and that a process holds it.
///
/// # Errors
/// [`Error::StaleEpoch`] and [`Error::LeaseEnded`].
pub(super) fn check_lease(
    given: Epoch,
    newest: Epoch,
    holder: Option<ProcessId>,
) -> Result<(), Error> {
    if given != newest {
        return Err(Error::StaleEpoch { given, newest });
    }
    holder.map(drop).ok_or(Error::LeaseEnded)
}
