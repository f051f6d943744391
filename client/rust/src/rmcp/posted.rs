//! What a POST says, as far as it has to be known before rmcp reads it: rmcp answers what is not
//! JSON by a text without an id, and does not say who sends `initialize`.

use std::cell::OnceCell;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use mcp_sessiond_jsonrpc::answers::{self, Outcome};
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_proto::Json;
use serde::Deserialize;

use super::body::RequestBody;

/// Bytes of a body that are looked at. What is longer is passed on as it is.
const READ_MAX: usize = 4 * 1024 * 1024;

/// What a POST says.
#[derive(Debug, Clone)]
pub(super) enum PostedMessage {
    /// `initialize`, with these parameters.
    Initialize(Option<Json>),
    /// A request with a number in it that JSON does not have: the answer to it.
    NotJson(String),
}

/// Who sends `initialize`, and for which version of MCP.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Client {
    protocol_version: Option<String>,
    client_info: Option<Info>,
}

#[derive(Deserialize, PartialEq, Eq)]
struct Info {
    name: Option<String>,
}

impl PostedMessage {
    /// Reads a body. Returns what it says, if that has to be known, and the same body.
    pub(super) async fn read(body: RequestBody) -> (Option<Self>, RequestBody) {
        let mut frames = BodyStream::new(body);
        let mut read = BytesMut::new();
        while read.len() <= READ_MAX {
            let data =
                match frames.next().await {
                    None => {
                        let read = read.freeze();
                        return (Self::of(&read), read.into());
                    }
                    Some(Ok(frame)) => frame.into_data(),
                    // rmcp finds the same.
                    Some(Err(error)) => {
                        frames = BodyStream::new(RequestBody::of(StreamBody::new(stream::iter([
                            Err::<Frame<Bytes>, _>(error),
                        ]))));
                        break;
                    }
                };
            // What else there may be are trailers.
            read.extend(data.into_iter().flatten());
        }
        let first = stream::iter([Ok(Frame::data(read.freeze()))]);
        let whole = RequestBody::of(StreamBody::new(first.chain(frames)));
        (None, whole)
    }

    fn of(body: &[u8]) -> Option<Self> {
        // rmcp refuses what is not UTF-8.
        std::str::from_utf8(body).ok()?;
        let copy = OnceCell::new();
        let message = Line::of(body, &copy).message()?;
        let Kind::Request { id, method } = &message.kind else {
            return None;
        };
        if let Some(value) = message.not_json() {
            let why = value.to_string();
            let answer = answers::error(id, code::INVALID_PARAMS, &why, Some(Outcome::NotSent));
            return Some(Self::NotJson(answer));
        }
        if method != "initialize" || message.whole().sent().is_none() {
            return None;
        }
        let params = message.params().and_then(Readable::sent);
        Some(Self::Initialize(
            params.and_then(|params| Json::new(params).ok()),
        ))
    }
}

/// Whether an `initialize` with these parameters is by the same client as the recorded one, and
/// asks for the same version.
pub(super) fn is_of(recorded: &serde_json::Value, params: &Json) -> bool {
    let recorded = Client::deserialize(recorded).ok();
    recorded == serde_json::from_str::<Client>(params.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    fn not_json(body: &str) -> Option<String> {
        match PostedMessage::of(body.as_bytes())? {
            PostedMessage::NotJson(answer) => Some(answer),
            PostedMessage::Initialize(_) => None,
        }
    }

    #[test]
    fn a_request_with_a_number_that_json_does_not_have_is_answered_by_its_id() {
        let answered = |params: &str| {
            not_json(&format!(
                r#"{{"jsonrpc":"2.0","id":"a\"b","method":"m","params":{params}}}"#
            ))
            .map(|answer| serde_json::from_str::<serde_json::Value>(&answer).expect("JSON"))
        };
        let answer = answered(r#"{"NaN":"NaN \" Infinity","list":[1,{"x":-Infinity},NaN]}"#)
            .expect("an answer");
        assert_eq!(answer["id"], "a\"b");
        assert_eq!(answer["error"]["code"], -32602);
        let message = answer["error"]["message"].as_str().expect("a text");
        assert!(
            message.contains("`-Infinity` at `params.list[1].x`"),
            "{message}"
        );
        assert_eq!(answered(r#"{"list":["NaN"]}"#), None, "it is JSON");
        assert_eq!(answered(r#"{"list":[NaN,]}"#), None, "nor is it otherwise");
        assert_eq!(not_json(r#"{"id":NaN,"method":"m"}"#), None);
        assert_eq!(
            not_json(r#"{"id":1,"id":2,"method":"m","params":[NaN]}"#),
            None
        );
        assert_eq!(not_json(r#"{"id":1,"result":NaN}"#), None, "no request");
        assert_eq!(not_json("\"NaN"), None);
    }

    #[tokio::test]
    async fn a_body_stays_as_it_is() {
        for length in [10, READ_MAX + 10] {
            let sent = Bytes::from(vec![b'x'; length]);
            let (posted, body) = PostedMessage::read(sent.clone().into()).await;
            assert!(posted.is_none());
            let read = body.collect().await.expect("a body").to_bytes();
            assert!(read == sent, "{length} bytes, not {}", read.len());
        }
    }

    #[test]
    fn another_client_or_version_is_another_session() {
        let recorded = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let is_of = |params: serde_json::Value| is_of(&recorded, &Json::from(&params));
        assert!(is_of(
            json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "a", "version": "2"}})
        ));
        assert!(!is_of(
            json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "a"}})
        ));
        assert!(!is_of(
            json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "b"}})
        ));
    }
}
