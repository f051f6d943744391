//! Messages that are too large to be relayed: the peer that waits for one gets an error.

use bytes::Bytes;

use crate::answers::{self, OVERSIZED_ANSWER, OVERSIZED_SERVER_ANSWER};
use crate::unreadable::Unreadable;

/// What becomes of a message that is too large, which was discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Oversized {
    /// Its sender gets this: it was a request, or what nobody else waits for.
    Refused(Bytes),
    /// It was an answer: whoever has asked gets this one.
    Failed(Bytes),
    /// No peer waits for it.
    Dropped,
}

impl Oversized {
    /// Of a host's message, of which these are the first and the last bytes.
    pub fn of_host(head: &[u8], tail: &[u8]) -> Self {
        let Unreadable {
            id,
            request,
            answer,
            ..
        } = Unreadable::of_ends(head, tail);
        match id {
            Some(id) if answer && !request => Self::Failed(answers::failed(&id, OVERSIZED_ANSWER)),
            None if answer && !request => Self::Dropped,
            id => Self::Refused(answers::too_large(id.as_deref().unwrap_or("null"))),
        }
    }

    /// Of a server's message. A server has no use for an error without an id.
    pub fn of_server(head: &[u8], tail: &[u8]) -> Self {
        let Unreadable { id, request, .. } = Unreadable::of_ends(head, tail);
        match id {
            Some(id) if request => Self::Refused(answers::too_large(&id)),
            Some(id) => Self::Failed(answers::not_kept(&id, OVERSIZED_SERVER_ANSWER)),
            None => Self::Dropped,
        }
    }
}

/// The answer to a request that is too large to be relayed, of which these are the first and the
/// last bytes.
pub fn too_large(head: &[u8], tail: &[u8]) -> Bytes {
    answers::too_large(
        Unreadable::of_ends(head, tail)
            .id
            .as_deref()
            .unwrap_or("null"),
    )
}
