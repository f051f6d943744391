//! Handles: how a session is found again where there are no sessions on the wire (MCP 2026-07-28).
//! Only their hashes are kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use mcp_sessiond_proto::sessions::{HANDLE_LEN, Handle, MintRequest, Minted};
use mcp_sessiond_proto::text::hex;
use mcp_sessiond_proto::{Error, SessionId};
use sha2::{Digest as _, Sha256};

use super::head::{self, HandleHead, Head};
use super::{Access, Admit, Contents, draw, draw_version};
use crate::storage::{Change, Head as StoredHead, RECORD_COST, RecordId};

/// The names of handles' records begin with a blank, which no session id has.
const PREFIX: char = ' ';

/// Comes after the names of all handles and before those of all sessions.
pub(super) const AFTER_ALL: &str = " ~";

/// Whether this is the record of a handle.
pub(super) fn is_handle(place: &RecordId) -> bool {
    place.name.starts_with(PREFIX)
}

fn place(owner: &str, handle: &Handle) -> RecordId {
    let hash = Sha256::digest(&handle.0);
    let hex = hex(&hash);
    RecordId {
        owner: owner.into(),
        name: format!("{PREFIX}{hex}"),
    }
}

impl Contents {
    /// Makes a handle.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] when the session has as many as it may.
    pub async fn mint_handle(
        &self,
        access: &Access,
        request: &MintRequest,
    ) -> Result<Minted, Error> {
        let longest = self.bounds().sessions.handle_life_ms;
        let life_ms = request.life_ms.unwrap_or(longest);
        if life_ms == 0 || life_ms > longest {
            let sentence = format!("`life_ms` is 1 to {longest}");
            return Err(Error::InvalidArgument { sentence });
        }
        let bounds = self.bounds();
        self.room_for_one_more(&access.place, &bounds).await?;
        let handle = Handle(BASE64.encode(draw::<32>()));
        // The place for it is taken first: a crash in between leaves one less for a while, and no
        // handle unaccounted.
        let (born, expires_ms) = self
            .change(access, Admit::Living, |draft| {
                let (now_ms, most) = (draft.now_ms, draft.bounds.limits.handles);
                draft.head.handles.retain(|expires_ms| *expires_ms > now_ms);
                if draft.head.handles.len() >= most {
                    let what = "the number of handles of this session that are good".into();
                    return Err(Error::QuotaExceeded {
                        what,
                        limit: most as u64,
                    }
                    .into());
                }
                draft.head.handles.push(now_ms.saturating_add(life_ms));
                draft.touch();
                Ok((draft.head.born, now_ms.saturating_add(life_ms)))
            })
            .await?;
        // For as long again it is known that it was one.
        let forgotten_ms = expires_ms.saturating_add(life_ms);
        let head = HandleHead {
            session: access.place.name.clone(),
            born,
            expires_ms,
            forgotten_ms,
        };
        let head = StoredHead {
            bytes: head::encode(&head),
            due_ms: forgotten_ms,
        };
        let place = place(&access.place.owner, &handle);
        self.afford(&place, RECORD_COST + head.bytes.len(), &bounds)?;
        let change = Change {
            head: Some(head),
            ..Change::default()
        };
        let committed = self
            .store
            .commit(&place, None, draw_version(), change)
            .await;
        let durable = committed.map_err(|error| self.failed(&error))?;
        durable.kept().await.map_err(|error| self.failed(&error))?;
        Ok(Minted { handle, expires_ms })
    }

    /// The session that a handle of this owner's belongs to.
    ///
    /// # Errors
    /// [`Error::UnknownHandle`], [`Error::HandleExpired`]; [`Error::UnknownSession`] where the
    /// session has ended.
    pub async fn session_of(&self, owner: &str, handle: &Handle) -> Result<SessionId, Error> {
        if handle.0.len() != HANDLE_LEN {
            return Err(Error::UnknownHandle);
        }
        let place = place(owner, handle);
        let record = self
            .store
            .read(&place, &[])
            .await
            .map_err(|error| self.failed(&error))?;
        self.settled(&place).await?;
        let record = record.ok_or(Error::UnknownHandle)?;
        let head: HandleHead = head::decode(&record.head).map_err(|error| self.failed(&error))?;
        let now_ms = self.clock.now_ms();
        if now_ms >= head.forgotten_ms {
            return Err(Error::UnknownHandle);
        }
        if now_ms >= head.expires_ms {
            return Err(Error::HandleExpired);
        }
        let session = RecordId {
            owner: owner.into(),
            name: head.session,
        };
        let record = self
            .store
            .read(&session, &[])
            .await
            .map_err(|error| self.failed(&error))?;
        self.settled(&session).await?;
        let found: Head = head::decode(&record.ok_or(Error::UnknownSession)?.head)
            .map_err(|error| self.failed(&error))?;
        // Another one may have been made under the id since.
        if found.born != head.born {
            return Err(Error::UnknownHandle);
        }
        session.name.parse().map_err(|_| Error::UnknownHandle)
    }
}
