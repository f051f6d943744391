//! What a POST says, as far as it has to be known before rmcp reads it: rmcp answers what is not
//! JSON by a text without an id, and does not say who sends `initialize`.

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use mcp_sessiond_proto::Json;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::body::RequestBody;

/// Bytes of a body that are looked at. What is longer is passed on as it is.
const READ_MAX: usize = 4 * 1024 * 1024;
/// The numbers that JSON does not have, though Python writes them.
const NUMBERS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

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
        #[derive(Deserialize)]
        struct Message<'a> {
            method: Option<&'a str>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        match serde_json::from_slice::<Message<'_>>(body) {
            Ok(Message {
                method: Some("initialize"),
                params,
            }) => {
                let params = params.and_then(|params| Json::new(params.get()).ok());
                Some(Self::Initialize(params))
            }
            Ok(_) => None,
            Err(_) => not_json(std::str::from_utf8(body).ok()?).map(Self::NotJson),
        }
    }
}

/// Whether an `initialize` with these parameters is by the same client as the recorded one, and
/// asks for the same version.
pub(super) fn is_of(recorded: &serde_json::Value, params: &Json) -> bool {
    let recorded = Client::deserialize(recorded).ok();
    recorded == serde_json::from_str::<Client>(params.as_str()).ok()
}

/// The answer to a request that would be JSON but for such a number. None: it is something else, or
/// its id is not clear.
fn not_json(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(rename = "method")]
        _method: &'a str,
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let Repaired { text, name, place } = Repaired::of(text)?;
    let request: Request<'_> = serde_json::from_str(&text).ok()?;
    let id = request.id.get();
    if !id.starts_with(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        return None;
    }
    let message =
        format!("`{name}` at `{place}` is not JSON: leave it out, or send null or a string");
    let error = json!({"code": -32602, "message": message, "data": {"outcome": "not_sent"}});
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

/// A text with null in place of each number that JSON does not have.
struct Repaired {
    text: String,
    /// The first such number, and where it stands, such as `params.arguments.value[1]`.
    name: &'static str,
    place: String,
}

/// A container that is open at some place of a text.
enum Open {
    /// An object, and the member that is being read.
    Object(Option<String>),
    /// An array, and how many elements are complete.
    Array(usize),
}

impl Repaired {
    /// None: there is no such number.
    fn of(text: &str) -> Option<Self> {
        let (mut repaired, mut first) = (String::with_capacity(text.len()), None);
        let mut open: Vec<Open> = Vec::new();
        let mut rest = text;
        while let Some(sign) = rest.chars().next() {
            let mut length = sign.len_utf8();
            let number = NUMBERS.iter().find(|name| rest.starts_with(**name));
            if let Some(name) = number {
                first.get_or_insert_with(|| (*name, place(&open)));
                repaired.push_str("null");
                rest = &rest[name.len()..];
                continue;
            }
            match sign {
                '{' => open.push(Open::Object(None)),
                '[' => open.push(Open::Array(0)),
                '}' | ']' => drop(open.pop()),
                ',' => match open.last_mut() {
                    Some(Open::Array(count)) => *count += 1,
                    Some(Open::Object(key)) => *key = None,
                    None => {}
                },
                '"' => {
                    length = quoted(rest)?;
                    // The first string of a member is its key.
                    if let Some(Open::Object(key @ None)) = open.last_mut() {
                        *key = Some(rest[1..length - 1].to_owned());
                    }
                }
                _ => {}
            }
            repaired.push_str(&rest[..length]);
            rest = &rest[length..];
        }
        let (name, place) = first?;
        Some(Self {
            text: repaired,
            name,
            place,
        })
    }
}

/// Bytes of the string with which a text begins, with its quotes. None: it does not end.
fn quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map(|end| end + 2)
}

fn place(open: &[Open]) -> String {
    let mut place = String::new();
    for one in open {
        match one {
            Open::Object(key) => {
                if !place.is_empty() {
                    place.push('.');
                }
                place.push_str(key.as_deref().unwrap_or_default());
            }
            Open::Array(index) => place.push_str(&format!("[{index}]")),
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

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
