//! Ids that tell whose they are: a server may use an id again that another one has used, so its
//! client gets `"PREFIX/ID"`. What the client says of a request of another server goes nowhere.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;

use crate::answers::unreadable_answer;
use crate::edits::{Edits, edited};
use crate::message::{Kind, Line, Message, Part};

/// An id or a progress token, as its JSON.
type Id = Box<str>;

/// An id or a progress token, with a prefix that tells whose it is.
pub fn prefixed(prefix: &str, id: &str) -> Id {
    serde_json::Value::String(format!("{prefix}/{id}"))
        .to_string()
        .into()
}

/// What [`prefixed`] has made an id of.
pub fn parts(id: &str) -> Option<(String, Id)> {
    let text: String = serde_json::from_str(id).ok()?;
    text.split_once('/')
        .map(|(prefix, own)| (prefix.to_owned(), own.into()))
}

/// The server's own id, or token, of a request that this server has made. None: another server has
/// made it.
pub fn asked_by(prefix: &str, id: &str) -> Option<Id> {
    parts(id).and_then(|(by, own)| (by == prefix).then_some(own))
}

/// Puts a prefix before the ids and progress tokens that the server itself has chosen.
pub fn tag(message: &Message<'_>, prefix: &str, edits: &mut Edits) {
    let chosen = match &message.kind {
        Kind::Request { id, .. } => [Some(*id), message.asked_progress()],
        Kind::Notification { method } if method == "notifications/cancelled" => {
            [message.cancelled(), None]
        }
        Kind::Notification { .. } | Kind::Answer { .. } => [None, None],
    };
    for id in chosen.into_iter().flatten() {
        edits.replace(message, id, prefixed(prefix, id));
    }
}

/// A line of a server whose requests are to be told from those of another one: a message, or a
/// batch.
pub fn tagged(line: &Bytes, prefix: &str) -> Bytes {
    edited(line, |message, edits| tag(message, prefix, edits))
}

/// An answer of a client to a request of the server, or progress of it, with the server's own id.
pub fn answering(line: &Bytes, own: &str) -> Bytes {
    edited(line, |message, edits| {
        let id = match &message.kind {
            Kind::Answer { id, .. } => Some(*id),
            Kind::Request { .. } | Kind::Notification { .. } => message.progress(),
        };
        if let Some(id) = id {
            edits.replace(message, id, own);
        }
    })
}

/// A line for a server whose own ids were [`tagged`] with this prefix: a message, or a batch. What
/// is about requests of another server is left out, and in the place of an answer that can't be
/// read there is an error. None: nothing is left.
pub fn from_asked(line: &Bytes, prefix: &str) -> Option<Bytes> {
    let copy = OnceCell::new();
    match Line::of(line, &copy) {
        Line::Blank => Some(line.clone()),
        Line::One(part) => part_from_asked(line, &part, prefix),
        Line::Batch(parts) => {
            let sent = parts.iter().map(|(span, _)| line.slice(span.clone()));
            let sent: Vec<Bytes> = sent.collect();
            let own = sent
                .iter()
                .zip(&parts)
                .map(|(sent, (_, part))| part_from_asked(sent, part, prefix));
            let own: Vec<Bytes> = own.flatten().collect();
            if own == sent {
                return Some(line.clone());
            }
            (!own.is_empty()).then(|| [&b"["[..], &own.join(&b","[..]), b"]"].concat().into())
        }
    }
}

/// The same of one part of a line, which was `sent` as this.
fn part_from_asked(sent: &Bytes, part: &Part<'_>, prefix: &str) -> Option<Bytes> {
    let asked = match part {
        Part::Message(message) => asked_of(message),
        Part::Unreadable(unreadable) => {
            return match unreadable.asked().and_then(|id| asked_by(prefix, id)) {
                Some(own) => Some(unreadable_answer(&own)),
                None => (!unreadable.is_answer()).then(|| sent.clone()),
            };
        }
        Part::Other => None,
    };
    match asked {
        Some(id) => Some(answering(sent, &asked_by(prefix, id)?)),
        None => Some(sent.clone()),
    }
}

/// The id of the request of the server that a message of a client answers, or the token of the one
/// that it tells progress of.
fn asked_of<'a>(message: &Message<'a>) -> Option<&'a str> {
    match &message.kind {
        Kind::Answer { id, .. } => Some(*id),
        Kind::Notification { method } if method == "notifications/progress" => message.progress(),
        Kind::Notification { .. } | Kind::Request { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_asks_in_a_batch_is_its_own_too() {
        let asks = r#"[ {"jsonrpc":"2.0","id":1,"result":{}}, 7,
            {"jsonrpc":"2.0","id":0,"method":"ping","params":{"_meta":{"progressToken":"t"},"n":1.50}} ]"#;
        let tagged = tagged(&asks.into(), "x");
        let now = r#"[ {"jsonrpc":"2.0","id":1,"result":{}}, 7,
            {"jsonrpc":"2.0","id":"x/0","method":"ping","params":{"_meta":{"progressToken":"x/\"t\""},"n":1.50}} ]"#;
        assert_eq!(tagged, now);
        let answer = Bytes::from(r#"{"jsonrpc":"2.0","id":"x/0","result":{}}"#);
        assert_eq!(
            from_asked(&answer, "x").as_deref(),
            Some(&br#"{"jsonrpc":"2.0","id":0,"result":{}}"#[..])
        );
        assert_eq!(from_asked(&answer, "y"), None);
    }

    #[test]
    fn what_a_host_says_of_another_server_goes_nowhere_in_whatever_form() {
        let own = |line: &'static str| from_asked(&line.into(), "x");
        let (ours, theirs, call) = (
            r#"{"jsonrpc":"2.0","id":"x/7","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":0,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#,
        );
        let given = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        let batch =
            |parts: &[&str]| -> &'static str { format!("[ {} ]", parts.join(" , ")).leak() };
        assert_eq!(own(batch(&[theirs, theirs])), None);
        let both = own(batch(&[theirs, ours, call])).expect("two of them");
        assert_eq!(both, format!("[{given},{call}]"));
        // What is about no request of a server stays as it is.
        for whole in [
            batch(&[call, call]),
            call,
            "",
            "[]",
            "{\"id\":4}",
            "nonsense",
        ] {
            assert_eq!(own(whole).as_deref(), Some(whole.as_bytes()), "{whole}");
        }
        // Nobody can read these: whoever waits is told, and nobody else.
        assert_eq!(
            own(r#"{"jsonrpc":"2.0","id":0,"result":{},"result":{}}"#),
            None
        );
        let told =
            own(r#"{"jsonrpc":"2.0","id":"x/7","result":{},"result":{}}"#).expect("an error");
        let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
        assert_eq!(
            (&told["id"], told["error"]["code"].as_i64()),
            (&7.into(), Some(-32000))
        );
    }
}
