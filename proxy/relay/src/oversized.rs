//! Messages that are too large to be relayed: the peer that waits for one gets an error.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::own_messages;

/// What can be seen of a message whose middle is gone.
#[derive(Default)]
pub(super) struct PartialMessage {
    /// The raw text of its id.
    pub id: Option<String>,
    /// Whether it has what a request has.
    pub request: bool,
    /// Whether it has what an answer has.
    pub answer: bool,
}

impl PartialMessage {
    /// Looks at the first and the last bytes of a message.
    pub(super) fn of(head: &[u8], tail: &[u8]) -> Self {
        let mut partial = Self::default();
        let head = match core::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        };
        // This fails where the head ends, and has seen everything before.
        let _ = serde_json::Deserializer::from_str(head).deserialize_map(&mut partial);
        if !head.trim_ascii_start().starts_with('{') {
            return partial;
        }
        let cut = tail.iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
        let tail = core::str::from_utf8(&tail[cut..]).unwrap_or_default();
        // What is a whole object from a key on is the end of the outermost one.
        for (at, _) in tail.rmatch_indices(r#""id""#) {
            let starts = tail[..at].trim_ascii_end().ends_with([',', '{']);
            if starts && partial.id.is_none() {
                let mut end = Self::default();
                let text = format!("{{{}", &tail[at..]);
                let mut reader = serde_json::Deserializer::from_str(&text);
                if reader.deserialize_map(&mut end).is_ok() && reader.end().is_ok() {
                    partial.id = end.id;
                    partial.request |= end.request;
                    partial.answer |= end.answer;
                }
            }
        }
        partial
    }
}

impl<'de> Visitor<'de> for &mut PartialMessage {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            self.request |= matches!(&*key, "method" | "params");
            self.answer |= matches!(&*key, "result" | "error");
            let value = map.next_value::<&RawValue>()?;
            if key == "id" && (self.id.is_none() || value.get() != "null") {
                self.id = Some(value.get().to_owned());
            }
        }
        Ok(())
    }
}

/// What becomes of a message of more than 16 MiB, which was discarded.
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
        let PartialMessage {
            id,
            request,
            answer,
        } = PartialMessage::of(head, tail);
        match id {
            Some(id) if answer && !request => {
                Self::Failed(own_messages::failed(&id, OVERSIZED_ANSWER))
            }
            None if answer && !request => Self::Dropped,
            id => Self::Refused(own_messages::too_large(id.as_deref().unwrap_or("null"))),
        }
    }

    /// Of a server's message. A server has no use for an error without an id.
    pub fn of_server(head: &[u8], tail: &[u8]) -> Self {
        let PartialMessage { id, request, .. } = PartialMessage::of(head, tail);
        match id {
            Some(id) if request => Self::Refused(own_messages::too_large(&id)),
            Some(id) => Self::Failed(own_messages::failed(&id, OVERSIZED_SERVER_ANSWER)),
            None => Self::Dropped,
        }
    }
}

/// Why an answer of the host has not come, and one of the server.
pub(super) const OVERSIZED_ANSWER: &str =
    "the host's answer has more than 16 MiB and can't be relayed";
pub(super) const OVERSIZED_SERVER_ANSWER: &str =
    "the server's answer has more than 16 MiB and can't be relayed";

/// The answer to a request that is too large to be relayed, of which these are the first and the
/// last bytes.
pub fn too_large(head: &[u8], tail: &[u8]) -> Bytes {
    own_messages::too_large(
        PartialMessage::of(head, tail)
            .id
            .as_deref()
            .unwrap_or("null"),
    )
}
