//! Ends what a service has not used for as long as somebody says.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::{Error, ServiceName, SessionId};

use super::head::{self, Head, Why};
use super::{Access, Admit, Contents, SweptSession, is_session};
use crate::storage::Place;

/// Records that are asked for at once.
const BATCH: usize = 100;

/// From how many sessions on it is looked for those that need not be remembered.
const MANY: usize = 4_096;

/// How long it is remembered when a session was used last, in ms. After that what is on record of
/// it is good enough.
const MEMORY_MS: u64 = 7 * 24 * 3_600_000;

/// When sessions were used last without a note of that on record: by a digest of where they are,
/// for there may be many. Of two with the same digest both were used when one was.
#[derive(Debug, Default)]
pub(super) struct LastUses {
    hasher: RandomState,
    at_ms: Mutex<HashMap<u64, u64>>,
}

impl LastUses {
    pub(super) fn note(&self, place: &Place, now_ms: u64) {
        let mut at_ms = self.at_ms.locked();
        let is_new = at_ms.insert(self.hasher.hash_one(place), now_ms).is_none();
        // Now and then, so that those that are gone don't pile up.
        if is_new && at_ms.len() >= MANY && at_ms.len().is_power_of_two() {
            at_ms.retain(|_, at_ms| at_ms.saturating_add(MEMORY_MS) > now_ms);
        }
    }

    fn of(&self, place: &Place) -> u64 {
        let at_ms = self.at_ms.locked();
        at_ms
            .get(&self.hasher.hash_one(place))
            .copied()
            .unwrap_or_default()
    }
}

impl Contents {
    /// Ends the sessions of a service that nobody has used for so long, and nobody uses now; and
    /// tells which.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. What was ended until then stays ended.
    pub async fn end_unused(
        &self,
        service: &ServiceName,
        older_than_ms: u64,
    ) -> Result<Vec<SweptSession>, Error> {
        let owner = Access::service(service, &SessionId::mint(), None)
            .place
            .owner;
        let mut ended = Vec::new();
        let mut after = String::new();
        loop {
            let listed = self.storage.list(&owner, &after, BATCH).await;
            let listed = listed.map_err(|error| self.failed(&error))?;
            let Some(last) = listed.last() else {
                return Ok(ended);
            };
            after.clone_from(&last.place.name);
            for listed in listed {
                // What is used meanwhile is looked at again in the change.
                let is_due = is_session(&listed.place)
                    && head::decode::<Head>(&listed.head)
                        .is_ok_and(|head| self.is_unused(&listed.place, &head, older_than_ms));
                if is_due && self.end_if_unused(&listed.place, older_than_ms).await? {
                    self.count_end(&listed.place, Why::Unused);
                    ended.push(SweptSession {
                        place: listed.place,
                        why: Why::Unused,
                    });
                }
            }
        }
    }

    async fn end_if_unused(&self, place: &Place, older_than_ms: u64) -> Result<bool, Error> {
        let access = Access {
            place: place.clone(),
            caller: None,
            writer: super::Writer::Anyone,
            claimed: false,
        };
        let ended = self.change(&access, Admit::Unchecked, |draft| {
            let is_unused = self.is_unused(place, &draft.head, older_than_ms);
            if is_unused {
                draft.end();
            }
            Ok(is_unused)
        });
        match ended.await {
            // Somebody else has ended it.
            Err(Error::UnknownSession) => Ok(false),
            ended => ended,
        }
    }

    fn is_unused(&self, place: &Place, head: &Head, older_than_ms: u64) -> bool {
        let now_ms = self.clock.now_ms();
        if head.is_terminated()
            || self.presence.is_in_use(place)
            || self.is_attached_elsewhere(head, now_ms)
        {
            return false;
        }
        // Reads are not put on record one by one. What this daemon has not seen may have been used
        // after its last note.
        let is_unseen = self.storage.is_shared() || head.active_ms < self.began_ms;
        let last_ms = match self.uses.of(place).max(head.active_ms) {
            last_ms if is_unseen => last_ms.max(head.active_ms.saturating_add(head.note_ms())),
            last_ms => last_ms,
        };
        last_ms.saturating_add(older_than_ms) <= now_ms
    }
}
