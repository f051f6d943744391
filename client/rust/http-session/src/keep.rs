//! What becomes of a message on its way into the storage, and from there to its reader.
//!
//! A message is stored, and then sent. An answer that is too large is sent to the reader that waits
//! all the same, under the id of the short error that is stored in its place: a reader that got it
//! resumes behind it, and one that did not gets the error. So is a question, in whose place its
//! cancellation is stored; if nobody got it, the server gets an error.

use alloc::string::String;

use mcp_sessiond_proto::{Error, Json, StreamId};

use crate::messages::{Id, answered_id};
use crate::substitute::{answer_not_stored, in_place_of_request};

/// A message that is to be stored on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Which message of its line it is, from 1. 0: it is ours.
    pub nth: u32,
    /// The stream.
    pub stream: StreamId,
    /// What it is to the stream.
    pub what: Use,
    /// The message, as its client gets it.
    pub message: Json,
}

/// What a message is to its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// Any other.
    Plain,
    /// An answer.
    Answer {
        /// Whether it is the last message of the stream, which is closed with it.
        ends: bool,
    },
    /// A request of the server's, which has this id there.
    Question(Id),
}

/// Why a message was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It never fits, however much room there is.
    TooLarge,
    /// There is no room. `can_prune`: there would be, if events were deleted.
    Full {
        /// Whether there may be older events to delete.
        can_prune: bool,
    },
    /// Nothing can be stored for the moment.
    Away,
    /// Anything else, such as that the session has ended.
    Other,
}

impl Failure {
    /// There is no room, and no older event to delete.
    pub const FULL: Self = Self::Full { can_prune: false };

    /// A message of so many bytes was not stored. `refused`: what the daemon has said, if it has.
    /// `passes`: whether the same may succeed later.
    pub fn of(refused: Option<&Error>, passes: bool, bytes: usize) -> Self {
        match refused {
            Some(Error::InvalidArgument { .. }) => Self::TooLarge,
            Some(Error::QuotaExceeded { limit, .. }) if *limit < bytes as u64 => Self::TooLarge,
            Some(error @ Error::QuotaExceeded { .. }) => Self::Full {
                can_prune: error.is_of_memory(),
            },
            Some(Error::WriteFailed { .. }) => Self::Away,
            _ if passes => Self::Away,
            _ => Self::Other,
        }
    }
}

/// What is to be done with a message that was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Store what it is by now.
    Store,
    /// Delete older events, and then store it; tell [`Failure::FULL`] if there are none.
    Prune,
    /// Store it after a pause.
    Pause,
    /// It is lost.
    Lost,
}

/// A message that is being stored.
#[derive(Debug)]
pub struct Keep {
    what: Use,
    /// What its reader gets.
    whole: Json,
    /// What is stored in its place. None: the message itself.
    in_place: Option<Json>,
    /// Whether what can't be stored is sent to the reader that waits all the same.
    sends_unstored: bool,
    /// Whether its reader was sent it without an event id.
    was_sent: bool,
}

/// What a reader gets once a message is stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// The message, under the id of what is stored. None: its reader was sent it before.
    pub message: Option<Json>,
    /// The id of a question in whose place something else is stored.
    pub unkept: Option<Id>,
}

impl Keep {
    /// A message. `sends_unstored`: whether the reader that waits gets what can't be stored, without
    /// an event id.
    pub fn new(message: Json, what: Use, sends_unstored: bool) -> Self {
        Self {
            what,
            whole: message,
            in_place: None,
            sends_unstored,
            was_sent: false,
        }
    }

    /// What is to be stored.
    pub fn message(&self) -> &Json {
        self.in_place.as_ref().unwrap_or(&self.whole)
    }

    /// Whether the stream is closed with it.
    pub fn ends(&self) -> bool {
        self.what == Use::Answer { ends: true }
    }

    /// It was not stored. `why`: in words. `is_read`: whether a reader waits for it.
    pub fn failed(&mut self, failure: Failure, why: &str, is_read: bool) -> Next {
        match failure {
            Failure::TooLarge => match self.shorten(why, is_read) {
                true => Next::Store,
                false => Next::Lost,
            },
            Failure::Full { can_prune: true } => Next::Prune,
            Failure::Full { .. } if self.shorten(why, false) => Next::Store,
            Failure::Full { .. } | Failure::Away if self.can_wait(failure) => Next::Pause,
            _ => Next::Lost,
        }
    }

    /// Whether it is worth to try again: an answer is never dropped.
    fn can_wait(&self, failure: Failure) -> bool {
        let is_answer = matches!(self.what, Use::Answer { .. });
        is_answer || (failure == Failure::Away && !self.sends_unstored)
    }

    /// The message, to be sent to the reader that waits though it is not stored. None: it is not to
    /// be sent so, or was.
    pub fn unstored(&mut self, next: Next) -> Option<Json> {
        let is_to_be = self.sends_unstored && matches!(next, Next::Pause | Next::Lost);
        (is_to_be && !core::mem::replace(&mut self.was_sent, true)).then(|| self.whole.clone())
    }

    /// It is stored.
    pub fn stored(self) -> Kept {
        let unkept = match self.what {
            Use::Question(id) if self.in_place.is_some() => Some(id),
            _ => None,
        };
        Kept {
            message: (!self.was_sent).then_some(self.whole),
            unkept,
        }
    }

    /// Puts something shorter in the place of what is stored. False: there is nothing.
    fn shorten(&mut self, why: &str, is_read: bool) -> bool {
        if self.in_place.is_some() {
            return false;
        }
        let whole = &self.whole;
        let shorter = match &self.what {
            Use::Answer { .. } => {
                answered_id(whole).map(|id| answer_not_stored(&id, whole.len(), why))
            }
            Use::Question(_) if is_read => in_place_of_request(whole),
            _ => None,
        };
        self.in_place = shorter.filter(|shorter| shorter.len() < whole.len());
        self.in_place.is_some()
    }
}

/// Why the server gets an error for a request of its own that could not be stored.
pub fn too_large(bytes: usize) -> String {
    alloc::format!(
        "the request has {bytes} bytes, more than can be stored for the client (limits.message_bytes)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(message: &str) -> Json {
        Json::trusted(message.replace("LONG", &"x".repeat(1_000)))
    }

    fn answer() -> Json {
        long(r#"{"jsonrpc":"2.0","id":7,"result":"LONG"}"#)
    }

    const LAST: Use = Use::Answer { ends: true };

    #[test]
    fn an_answer_is_never_dropped() {
        let mut keep = Keep::new(answer(), LAST, false);
        for (failure, next) in [
            (Failure::Away, Next::Pause),
            (Failure::Full { can_prune: true }, Next::Prune),
            (Failure::TooLarge, Next::Store),
            // What is in its place has no room, either.
            (Failure::FULL, Next::Pause),
            (Failure::Away, Next::Pause),
        ] {
            assert_eq!(keep.failed(failure, "why", false), next, "{failure:?}");
            assert_eq!(keep.unstored(next), None);
        }
        let in_place: serde_json::Value =
            serde_json::from_str(keep.message().as_str()).expect("JSON");
        assert_eq!(
            (&in_place["id"], &in_place["error"]["data"]["outcome"]),
            (&7.into(), &"not_kept".into())
        );
        assert!(keep.ends());
        let kept = keep.stored();
        assert_eq!((kept.message, kept.unkept), (Some(answer()), None));
    }

    #[test]
    fn a_question_that_is_too_large_is_cancelled_for_who_did_not_get_it() {
        let question = long(r#"{"jsonrpc":"2.0","id":"s/1","method":"m","params":"LONG"}"#);
        let of = || Keep::new(question.clone(), Use::Question("1".into()), false);
        assert_eq!(of().failed(Failure::TooLarge, "why", false), Next::Lost);
        let mut keep = of();
        assert_eq!(keep.failed(Failure::TooLarge, "why", true), Next::Store);
        assert!(keep.message().as_str().contains("notifications/cancelled"));
        let kept = keep.stored();
        assert_eq!(
            (kept.message, kept.unkept),
            (Some(question.clone()), Some("1".into()))
        );
        assert_eq!(of().failed(Failure::FULL, "why", true), Next::Lost);
    }

    #[test]
    fn where_the_server_goes_on_without_the_storage_a_message_is_sent_once() {
        let mut keep = Keep::new(answer(), LAST, true);
        let next = keep.failed(Failure::Away, "why", true);
        assert_eq!((next, keep.unstored(next)), (Next::Pause, Some(answer())));
        let next = keep.failed(Failure::Away, "why", true);
        assert_eq!((next, keep.unstored(next)), (Next::Pause, None));
        assert_eq!(keep.stored().message, None, "its reader has it");
        let log = long(r#"{"jsonrpc":"2.0","method":"notifications/message","params":"LONG"}"#);
        for failure in [Failure::Away, Failure::TooLarge, Failure::Other] {
            let mut keep = Keep::new(log.clone(), Use::Plain, true);
            let next = keep.failed(failure, "why", true);
            assert_eq!((next, keep.unstored(next)), (Next::Lost, Some(log.clone())));
        }
        let mut keep = Keep::new(log, Use::Plain, false);
        assert_eq!(keep.failed(Failure::Away, "why", true), Next::Pause);
    }
}
