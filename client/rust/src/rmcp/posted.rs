//! What a POST says, as far as it has to be known before rmcp reads it: rmcp answers what is not
//! JSON by a text without an id, and does not say who sends `initialize`.

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use mcp_sessiond_http_session::posted::{PostedKind, read_post};
use mcp_sessiond_http_session::substitute::not_json_params;
use mcp_sessiond_proto::Json;

use super::body::RequestBody;

/// Bytes of a body that are looked at. What is longer is passed on as it is.
const READ_MAX: usize = 4 * 1024 * 1024;

/// What a POST says.
#[derive(Debug, Clone)]
pub(super) enum PostedMessage {
    /// `initialize`, with these parameters.
    Initialize(Json),
    /// A request that can't be carried out, as it has a number that JSON does not have, or two
    /// progress tokens: the answer to it.
    NotJson(String),
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

    /// None: there is nothing to be known; what can't be read rmcp refuses.
    fn of(body: &Bytes) -> Option<Self> {
        let (mut messages, is_batch) = read_post(body).ok()?;
        match messages.pop()?.kind {
            _ if is_batch => None,
            PostedKind::NotJson(id, why) => Some(Self::NotJson(not_json_params(&id, &why))),
            PostedKind::Initialize(_, params) => Json::new(params.get()).ok().map(Self::Initialize),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn not_json(body: &str) -> Option<String> {
        match PostedMessage::of(&body.to_owned().into())? {
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
}
