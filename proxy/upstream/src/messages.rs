//! The ids of the server's requests, and the messages that are written here.
//!
//! A server that was started again counts its requests anew. So the host gets `"SESSION/ID"`, and
//! an answer to a request of a former session of the server is dropped.

use std::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers::{self, UNREADABLE_SERVER_ANSWER};
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message, Part};
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_jsonrpc::{Unreadable, one_line, owned};

/// An id, as its JSON.
pub(super) type Id = Box<str>;

/// What a message of the host is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HostMessage {
    /// `initialize`: its id, and its parameters.
    Initialize(Id, String),
    /// `notifications/initialized`.
    Initialized,
    /// A request.
    Call(Id),
    /// The request of this id is cancelled.
    Cancelled(Id),
    /// The answer to a request of the server, or progress of it.
    Answer(Id),
    /// Another notification.
    Other,
}

/// A stream of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamHint {
    /// The one that belongs to no call.
    Standalone,
    /// That of the call with this id, as its JSON.
    Call(Box<str>),
}

/// The messages of a line of the host, each without a line's end: of a batch those that can be
/// read.
pub(super) fn messages(line: &Bytes) -> Vec<Bytes> {
    parts(line, |_| None)
}

/// The messages of a line of the server. In the place of an answer that can't be read there is an
/// error.
pub(super) fn server_messages(line: &Bytes) -> Vec<Bytes> {
    parts(line, |unreadable| {
        let id = unreadable.asked().filter(|_| unreadable.is_answer())?;
        Some(answers::not_kept(id, UNREADABLE_SERVER_ANSWER))
    })
}

/// An answer to each part of a line of the host that is not JSON-RPC: the server gets only what can be
/// read.
pub(super) fn refusals(line: &Bytes) -> Vec<Bytes> {
    let copy = OnceCell::new();
    let read = Line::of(line, &copy);
    let odd = read.parts().filter_map(|(span, part)| match part {
        Part::Message(_) => None,
        Part::Unreadable(_) | Part::Other => Some(span.map_or(&line[..], |span| &line[span])),
    });
    odd.filter_map(|sent| owned::Unreadable::of(sent).refusal())
        .collect()
}

fn parts(line: &Bytes, instead: impl Fn(&Unreadable) -> Option<Bytes>) -> Vec<Bytes> {
    let copy = OnceCell::new();
    let one = |message: &Message<'_>| Bytes::from(one_line(&String::from_utf8_lossy(message.raw)));
    match Line::of(line, &copy) {
        Line::One(Part::Message(_)) => vec![line.clone()],
        read => {
            let parts = read.parts().filter_map(|(_, part)| match part {
                Part::Message(message) => Some(one(message)),
                Part::Unreadable(unreadable) => instead(unreadable),
                Part::Other => None,
            });
            parts.collect()
        }
    }
}

/// What a message of the host is. None: it can't be read.
pub(super) fn host(line: &Bytes) -> Option<HostMessage> {
    let copy = OnceCell::new();
    let message = Line::of(line, &copy).message()?;
    Some(match &message.kind {
        Kind::Request { id, method } if method == "initialize" => {
            // What had to be made readable is passed on and not remembered.
            let params = message.params().map_or(Some("{}"), Readable::sent);
            HostMessage::Initialize((*id).into(), one_line(params.unwrap_or_default()))
        }
        Kind::Request { id, .. } => HostMessage::Call(normal(id)),
        Kind::Answer { id, .. } => HostMessage::Answer((*id).into()),
        Kind::Notification { method } => match &**method {
            "notifications/initialized" => HostMessage::Initialized,
            "notifications/cancelled" => message
                .cancelled()
                .map_or(HostMessage::Other, |id| HostMessage::Cancelled(normal(id))),
            "notifications/progress" => message.progress().map_or(HostMessage::Other, |token| {
                HostMessage::Answer(token.into())
            }),
            _ => HostMessage::Other,
        },
    })
}

/// The id that a message answers.
pub(super) fn answered(line: &Bytes) -> Option<Id> {
    let copy = OnceCell::new();
    match Line::of(line, &copy).message()?.kind {
        Kind::Answer { id, .. } => Some(normal(id)),
        Kind::Request { .. } | Kind::Notification { .. } => None,
    }
}

/// Why a call has no answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// It may have been carried out.
    Unknown(String),
    /// The server has never got it.
    NotSent(String),
}

impl CallFailure {
    /// The same of a call that may have begun.
    pub(super) fn unknown(self) -> Self {
        match self {
            Self::Unknown(why) | Self::NotSent(why) => Self::Unknown(why),
        }
    }

    /// The answer, or an event before it, is larger than what is read.
    pub(super) fn too_large(name: &str) -> Self {
        Self::Unknown(format!(
            "a message of the server {name:?} is larger than `wrap.message_max_mib` allows: the outcome of this call is unknown"
        ))
    }

    /// The answer can't be read.
    pub(super) fn coded(name: &str, coding: &str) -> Self {
        Self::Unknown(format!(
            "the server {name:?} has answered with the content coding {coding:?}, which mcp-sessiond can't read (it asks for `identity`, \
             and reads gzip and deflate): the outcome of this call is unknown"
        ))
    }

    /// The connection broke.
    pub(super) fn lost(name: &str) -> Self {
        Self::Unknown(format!(
            "the connection to the server {name:?} was lost before it had answered: the outcome of this call is unknown"
        ))
    }

    /// The answer to this call.
    pub(super) fn answer(&self, id: &str) -> Bytes {
        match self {
            Self::Unknown(message) => answers::unknown(id, message),
            Self::NotSent(message) => answers::not_sent(id, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_jsonrpc::id_prefix::{answering, asked_by, tagged};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn messages_of_the_host_are_told_apart() {
        let read = |text: &'static str| host(&Bytes::from(text));
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a":1}}"#;
        assert_eq!(
            read(initialize),
            Some(HostMessage::Initialize("1".into(), r#"{"a":1}"#.into()))
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#),
            Some(HostMessage::Call(r#""x""#.into()))
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":"s/1","result":{}}"#),
            Some(HostMessage::Answer(r#""s/1""#.into()))
        );
        let cancelled =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        assert_eq!(read(cancelled), Some(HostMessage::Cancelled("7".into())));
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            Some(HostMessage::Initialized)
        );
        assert_eq!(read("nonsense"), None);
    }

    #[test]
    fn a_batch_is_its_messages() {
        let split = |text: &'static str| messages(&Bytes::from(text));
        let one = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert_eq!(split(one), [one]);
        let batch = "[{\"jsonrpc\":\"2.0\",\"id\":1,\n\"result\":{}}, 7,\n {\"jsonrpc\":\"2.0\",\"method\":\"x\"}]";
        let parts = [
            "{\"jsonrpc\":\"2.0\",\"id\":1, \"result\":{}}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"x\"}",
        ];
        assert_eq!(split(batch), parts);
        let broken = Bytes::from(r#"[{"jsonrpc":"2.0","id":1,"result":1,"result":2}, 7]"#);
        assert_eq!(messages(&broken), Vec::<Bytes>::new());
        let error = &server_messages(&broken)[0];
        assert_eq!(answered(error).as_deref(), Some("1"));
        assert!(
            error.ends_with(br#""data":{"outcome":"not_kept"}}}"#),
            "{error:?}"
        );
        assert!(split("nonsense").is_empty() && split(" ").is_empty() && split("[]").is_empty());
    }

    #[test]
    fn a_request_of_the_server_tells_its_session_and_its_answer_finds_back() {
        let ask =
            Bytes::from(r#"{"jsonrpc":"2.0","id":"a/b","method":"roots/list","extra":[1, 2]}"#);
        let told = tagged(&ask, "s1");
        assert_eq!(
            told,
            r#"{"jsonrpc":"2.0","id":"s1/\"a/b\"","method":"roots/list","extra":[1, 2]}"#
        );
        let answer = Bytes::from(r#"{"jsonrpc":"2.0","id":"s1/\"a/b\"","result":{"roots":[]}}"#);
        let Some(HostMessage::Answer(id)) = host(&answer) else {
            panic!("an answer")
        };
        assert_eq!(asked_by("s2", &id), None, "another session has asked");
        let own = asked_by("s1", &id).expect("its own");
        assert_eq!(
            answering(&answer, &own),
            r#"{"jsonrpc":"2.0","id":"a/b","result":{"roots":[]}}"#
        );
    }

    #[test]
    fn what_can_not_be_read_is_answered_to_whoever_waits_for_it() {
        let answers = |text: &'static str| -> Vec<(Value, Value)> {
            let answers = refusals(&Bytes::from(text)).into_iter();
            let answers =
                answers.map(|answer| serde_json::from_slice::<Value>(&answer).expect("JSON"));
            answers
                .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
                .collect()
        };
        for fine in [
            "",
            " ",
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
            r#"[{"jsonrpc":"2.0","method":"x"}]"#,
        ] {
            assert_eq!(answers(fine), [], "{fine}");
        }
        assert_eq!(answers("nonsense"), [(Value::Null, json!(-32700))]);
        assert_eq!(
            answers(r#"{"id":7,"methode":"x"}"#),
            [(json!(7), json!(-32600))]
        );
        assert_eq!(answers(r#"{"id":7,"result":1,"id":8}"#), []);
        assert_eq!(
            answers(r#"[{"jsonrpc":"2.0","id":1,"method":"x"}, {"id":"a"}]"#),
            [(json!("a"), json!(-32600))]
        );
    }
}
