//! Which requests begin a session.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use mcp_sessiond_proto::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Refusal;

/// When a request that names no session begins one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Begin {
    /// Never: the server begins sessions itself.
    Never,
    /// When it is MCP's `initialize`. What the client has said with it becomes the session's
    /// metadata.
    #[default]
    OnInitialize,
    /// Always.
    Always,
}

/// Bytes that the body of a request without a session may have, where it has to be read.
const BODY_MAX: usize = 4 * 1024 * 1024;
/// Bytes that the metadata of a session may have.
const METADATA_MAX: usize = 64 * 1024;

/// What a request without a session asks for.
pub(super) struct FirstRequest {
    pub(super) what: Purpose,
    /// The id of the request of JSON-RPC, as JSON, where it was read.
    pub(super) id: Option<String>,
}

pub(super) enum Purpose {
    /// A session, with this metadata.
    Session(Option<Json>),
    /// By `server/discover`, whether the server speaks MCP 2026-07-28, which has no sessions.
    Discovery,
    Other,
}

/// What a request without a session asks for. The request is the same as before.
pub(super) async fn asked<B>(
    when: Begin,
    request: Request<B>,
) -> Result<(FirstRequest, Request<B>), Refusal>
where
    B: Body + From<Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let unread = |what| FirstRequest { what, id: None };
    match when {
        Begin::OnInitialize if request.method() == Method::POST => {}
        Begin::Always => return Ok((unread(Purpose::Session(None)), request)),
        Begin::OnInitialize | Begin::Never => return Ok((unread(Purpose::Other), request)),
    }
    let (parts, body) = request.into_parts();
    let body = read(body).await?;
    let asked = message(&body).unwrap_or_else(|| unread(Purpose::Other));
    Ok((asked, Request::from_parts(parts, body.into())))
}

async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message =
                format!("the body of a request without a session has at most {BODY_MAX} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Err(_) => Err(Refusal::invalid("the body ended early")),
    }
}

/// What a message asks for. None: it is no message, or several.
fn message(body: &[u8]) -> Option<FirstRequest> {
    #[derive(Deserialize)]
    struct Message<'a> {
        method: String,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let message: Message<'_> = serde_json::from_slice(body).ok()?;
    let what = match message.method.as_str() {
        "initialize" => {
            let params = message
                .params
                .map(RawValue::get)
                .filter(|params| params.len() <= METADATA_MAX);
            Purpose::Session(params.and_then(|params| Json::new(params).ok()))
        }
        "server/discover" => Purpose::Discovery,
        _ => Purpose::Other,
    };
    Some(FirstRequest {
        what,
        id: message.id.map(|id| id.get().to_owned()),
    })
}
