//! A server is told from the one that came before it: the host gets the ids of its requests, and
//! their progress tokens, as `"PREFIX/ID"`. What the host says of a request of another server goes
//! nowhere.

use std::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, TrackedLine, WAITING};
use mcp_sessiond_client::RequestId;
use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::answers::unreadable_answer;
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message, Part};
use tokio::sync::mpsc;

/// An id or a progress token, as its JSON.
pub type Id = Box<str>;

/// What tells one connection to a server from all others.
#[derive(Debug, Clone)]
pub struct IdPrefix(String);

impl IdPrefix {
    /// For a connection of which nothing is taken up again.
    pub fn mint() -> Self {
        Self(RequestId::mint().to_string())
    }

    /// A line of the server, as the host gets it.
    pub fn to_host(&self, line: &Bytes) -> Bytes {
        tagged(line, &self.0)
    }

    /// A line of the host, as the server gets it. None: it is about a request of another server.
    pub fn to_server(&self, line: &Bytes) -> Option<Bytes> {
        from_asked(line, &self.0)
    }
}

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
    let spliced = |message: &Message<'_>| {
        let mut edits = Edits::default();
        tag(message, prefix, &mut edits);
        edits.spliced(message)
    };
    let copy = OnceCell::new();
    match Line::of(line, &copy) {
        Line::One(Part::Message(message)) => spliced(&message).into(),
        Line::Batch(parts) => {
            let (mut tagged, mut from) = (Vec::with_capacity(line.len()), 0);
            for (span, part) in parts {
                let Part::Message(message) = part else {
                    continue;
                };
                tagged.extend_from_slice(&line[from..span.start]);
                tagged.extend_from_slice(&spliced(&message));
                from = span.end;
            }
            tagged.extend_from_slice(&line[from..]);
            tagged.into()
        }
        Line::One(_) | Line::Blank => line.clone(),
    }
}

/// An answer of a client to a request of the server, or progress of it, with the server's own id.
pub fn answering(line: &Bytes, own: &str) -> Bytes {
    let copy = OnceCell::new();
    let Some(message) = Line::of(line, &copy).message() else {
        return line.clone();
    };
    let id = match &message.kind {
        Kind::Answer { id, .. } => Some(*id),
        Kind::Request { .. } | Kind::Notification { .. } => message.progress(),
    };
    let mut edits = Edits::default();
    if let Some(id) = id {
        edits.replace(&message, id, own);
    }
    edits.spliced(&message).into()
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

/// The same pipe, whose server is told apart.
pub fn with_id_prefix(pipe: Pipe) -> Pipe {
    let Pipe {
        to: input,
        from: mut output,
        end,
    } = pipe;
    let id_prefix = IdPrefix::mint();
    let (to, mut wanted) = mpsc::channel::<Bytes>(WAITING);
    let (said, from) = mpsc::channel(WAITING);
    tokio::spawn({
        let id_prefix = id_prefix.clone();
        async move {
            loop {
                let line = tokio::select! {
                    line = wanted.recv() => line,
                    // Whoever sends more is to know it.
                    () = input.closed() => None,
                };
                let Some(line) = line else { return };
                if let Some(line) = id_prefix.to_server(&line)
                    && input.send(line).await.is_err()
                {
                    return;
                }
            }
        }
    });
    tokio::spawn(async move {
        while let Some(TrackedLine { line, receipt }) = output.recv().await {
            if said
                .send(TrackedLine {
                    line: id_prefix.to_host(&line),
                    receipt,
                })
                .await
                .is_err()
            {
                return;
            }
        }
    });
    Pipe { to, from, end }
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

    #[tokio::test]
    async fn an_answer_to_one_connection_is_for_no_other() {
        let connected = || {
            let (to, given) = mpsc::channel(1);
            let (said, from) = mpsc::channel(1);
            let pipe = with_id_prefix(Pipe {
                to,
                from,
                end: mcp_sessiond_bundle::End::by_drop(),
            });
            (pipe, given, said)
        };
        let ((mut first, _, says), (second, mut given, _)) = (connected(), connected());
        let line =
            |id: &str, rest: &str| Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#));
        says.send(TrackedLine::once(line("0", r#""method":"ping""#)))
            .await
            .expect("it listens");
        let asked = first.from.recv().await.expect("a request").line;
        let asked: serde_json::Value = serde_json::from_slice(&asked).expect("JSON");
        second
            .to
            .send(line(&asked["id"].to_string(), r#""result":{}"#))
            .await
            .expect("it listens");
        second
            .to
            .send(line("7", r#""method":"ping""#))
            .await
            .expect("it listens");
        assert_eq!(given.recv().await, Some(line("7", r#""method":"ping""#)));
        drop(given);
        second.to.closed().await;
    }
}
