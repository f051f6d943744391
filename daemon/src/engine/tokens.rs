//! Storing and rejecting tokens, and releasing leases.

use std::sync::Arc;

use mcp_sessiond_process::fault;
use mcp_sessiond_proto::types::{LeaseRef, StoreRequest, Stored};
use mcp_sessiond_proto::{Claimed, Epoch, Error, LossId, SessionId, Token};
use mcp_sessiond_registry::{Digest, NO_TOKEN, SessionRecord, TokenFile};

use super::{Engine, State};
use crate::counters::count;
use crate::tokens::{self, Found};

/// When to come back to a daemon whose directory was replaced, in ms: another one takes its place.
const REPLACED_RETRY_MS: u32 = 500;

impl Engine {
    /// Puts a new token in place of the former one.
    ///
    /// # Errors
    /// When the lease is not the newest, or the token could not be written.
    pub async fn store_token(&self, request: StoreRequest) -> Result<Stored, Error> {
        let StoreRequest {
            session,
            epoch,
            token,
        } = request;
        let stored = self
            .store(&session, epoch, token)
            .await
            .map_err(|error| self.or_full(error));
        match &stored {
            Ok(_) => count(&self.meters.counters.tokens_stored_total),
            Err(Error::WriteFailed { sentence }) => {
                tracing::error!(%session, "Failed to write token file: {sentence}");
            }
            Err(_) => {}
        }
        stored.map(|resumed| Stored { resumed })
    }

    /// What a store is refused with: where it is a full disk that keeps its digest from being put
    /// on record, it is told as it would be if the file itself had found no room.
    fn or_full(&self, error: Error) -> Error {
        let is_full = || {
            self.lock()
                .ledger
                .failure()
                .is_some_and(|failure| failure.is_full)
        };
        if matches!(error, Error::Unavailable { .. }) && is_full() {
            let sentence = std::io::Error::from(nix::errno::Errno::ENOSPC).to_string();
            return Error::WriteFailed { sentence };
        }
        error
    }

    async fn store(&self, session: &SessionId, epoch: Epoch, token: Token) -> Result<bool, Error> {
        // What goes into a directory that was replaced is lost with it. The daemon is about to
        // notice, and to exit.
        if !self.directory.is_in_place() {
            let sentence = "the daemon's directory has been replaced".into();
            return Err(Error::Unavailable {
                sentence,
                retry_after_ms: REPLACED_RETRY_MS,
            });
        }
        // Stores that can't be kept would only pile up.
        self.lock().ledger.check()?;
        let file = self.file_of(session)?;
        let lock = self.file(file);
        let _writing = lock.lock().await;
        self.settle_left_over(session);
        let digest = tokens::digest(&token);
        let (file, accepted) = self.begin_store(session, epoch, digest).await?;
        fault::point("digest-recorded");
        match self.write(file, token).await {
            Ok(()) => {
                self.tell(|registry| registry.end_store(session, Some(digest)));
                fault::point("token-settled");
                if accepted {
                    tracing::debug!(%session, "Session resumed successfully");
                }
                Ok(accepted)
            }
            Err(error) => {
                self.settle_file(session, file);
                Err(Error::WriteFailed {
                    sentence: error.to_string(),
                })
            }
        }
    }

    /// Puts the digest on record. Where that can't be kept at the moment, the former token stays
    /// the one that counts. The caller has the file's lock.
    async fn begin_store(
        &self,
        session: &SessionId,
        epoch: Epoch,
        digest: Digest,
    ) -> Result<(TokenFile, bool), Error> {
        let begun = self
            .tell_and_keep(|registry| registry.begin_store(session, epoch, digest))
            .await;
        if let Err(Error::Unavailable { .. }) = begun
            && let Ok(file) = self.file_of(session)
        {
            self.settle_file(session, file);
        }
        begun
    }

    /// Writes a token: where that waits for a disk, on another thread than the one that serves. The
    /// caller has the file's lock.
    async fn write(&self, file: TokenFile, token: Token) -> std::io::Result<()> {
        if self.tokens.are_in_memory() {
            return self.tokens.write(file, &token);
        }
        let tokens = Arc::clone(&self.tokens);
        let writing = tokio::task::spawn_blocking(move || tokens.write(file, &token));
        writing
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    /// Settles what an earlier failure could not: then the file could not even be read. The caller
    /// has its lock.
    pub(super) fn settle_left_over(&self, session: &SessionId) {
        let left_over = |record: &&SessionRecord| record.former.is_some();
        let file = self.peek(|registry| {
            registry
                .session(session)
                .filter(left_over)
                .map(|record| record.file)
        });
        if let Some(file) = file {
            self.settle_file(session, file);
        }
    }

    /// Makes the record agree with whatever the file holds after a failure. The caller has the
    /// file's lock.
    pub(super) fn settle_file(&self, session: &SessionId, file: TokenFile) {
        let record = self.peek(|registry| registry.session(session).cloned());
        let Some(record) = record else { return };
        // What is neither of the two tokens, or can't be read, is left for the next claim to find
        // and to tell.
        let holds = match self.tokens.read(file) {
            Ok(Found::Token(token)) => Some(tokens::digest(&token)),
            Ok(Found::Absent) if record.former == Some(NO_TOKEN) => None,
            _ => return,
        };
        if holds.is_none() || [record.digest, record.former].contains(&holds) {
            self.tell(|registry| registry.end_store(session, holds));
        }
    }

    /// Deletes the token: the broker refused it.
    ///
    /// # Errors
    /// When the lease is not the newest, or the records can't be written.
    pub async fn reject_token(&self, request: LeaseRef) -> Result<(), Error> {
        let LeaseRef { session, epoch } = request;
        let rejected = self.reject(&session, epoch).await;
        if rejected.is_ok() {
            count(&self.meters.counters.tokens_rejected_total);
            tracing::debug!(%session, "Broker rejected resume token, starting fresh session");
        }
        rejected
    }

    async fn reject(&self, session: &SessionId, epoch: Epoch) -> Result<(), Error> {
        let lock = self.file(self.file_of(session)?);
        let _deleting = lock.lock().await;
        let file = self
            .tell_and_keep(|registry| registry.reject(session, epoch))
            .await?;
        self.tokens
            .delete(file)
            .map_err(|error| Error::WriteFailed {
                sentence: error.to_string(),
            })
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// When it is not the newest, or the records can't be written.
    pub async fn release(&self, request: LeaseRef) -> Result<(), Error> {
        let LeaseRef { session, epoch } = request;
        let (released, kept) = {
            let mut state = self.lock();
            state.take_in_exits(self.now());
            let State {
                closes, registry, ..
            } = &mut *state;
            let holder = registry
                .session(&session)
                .filter(|session| session.epoch == epoch)
                .and_then(|session| session.holder);
            closes.tell(registry, holder.as_slice(), false);
            let released = registry.release(&session, epoch);
            self.apply(&mut state);
            (released, state.ledger.waiter())
        };
        released?;
        kept.kept().await
    }

    /// The user of a session's claimer was told of losses.
    ///
    /// # Errors
    /// When the lease is not the newest, or the records can't be written.
    pub async fn loss_told(
        &self,
        session: &SessionId,
        epoch: Epoch,
        losses: &[LossId],
    ) -> Result<(), Error> {
        self.tell_and_keep(|registry| registry.loss_told(session, epoch, losses))
            .await
    }

    /// Takes over the token that version 1 left for this host, where the configuration names its
    /// directory. Only the host's first session gets it. The caller has the file's lock.
    pub(super) async fn adopt_version_1(
        &self,
        claimed: &Claimed,
        file: TokenFile,
    ) -> Option<Token> {
        if file.number != 1 {
            return None;
        }
        let directory = self.settings().loaded.config.adopt_version_1.clone()?;
        let place = directory.clone();
        let reading = tokio::task::spawn_blocking(move || tokens::read_version_1(&place, file));
        let found = match reading
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        {
            Ok(found) => found?,
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %file, %error, "did not adopt the token of version 1");
                return None;
            }
        };
        let digest = tokens::digest(&found);
        if self
            .begin_store(&claimed.session, claimed.epoch, digest)
            .await
            .is_err()
        {
            return None;
        }
        if let Err(error) = self.write(file, found.clone()).await {
            tracing::warn!(%file, %error, "did not adopt the token of version 1");
            self.settle_file(&claimed.session, file);
            return None;
        }
        self.tell(|registry| {
            registry.end_store(&claimed.session, Some(digest));
            registry.offer(&claimed.session);
        });
        tokens::delete_version_1(&directory, file);
        tracing::info!(%file, session = %claimed.session, "adopted the token of version 1");
        Some(found)
    }

    fn file_of(&self, session: &SessionId) -> Result<TokenFile, Error> {
        self.peek(|registry| registry.session(session).map(|record| record.file))
            .ok_or(Error::UnknownSession)
    }
}
