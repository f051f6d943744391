//! Which requests begin a session.

use bytes::Bytes;
use http::request::Parts;
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
    /// When it is MCP's `initialize`. What the client has said with it becomes the session's metadata.
    #[default]
    OnInitialize,
    /// Always.
    Always,
}

/// Bytes that the body of a request without a session may have, where it has to be read.
const BODY_MAX: usize = 4 * 1024 * 1024;
/// Bytes that the metadata of a session may have.
const METADATA_MAX: usize = 64 * 1024;

/// Whether a request begins a session, and with which metadata. The request is the same as before.
pub(super) async fn begins<B>(
    when: Begin,
    request: Request<B>,
) -> Result<(Option<Option<Json>>, Request<B>), Refusal>
where
    B: Body + From<Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let may = match when {
        Begin::Never => false,
        Begin::Always => return Ok((Some(None), request)),
        Begin::OnInitialize => request.method() == Method::POST,
    };
    if !may {
        return Ok((None, request));
    }
    let (parts, body) = request.into_parts();
    let body = read(body).await?;
    let metadata = initialize(&body);
    Ok((metadata, with_body(parts, body)))
}

fn with_body<B: From<Bytes>>(parts: Parts, body: Bytes) -> Request<B> {
    Request::from_parts(parts, body.into())
}

async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("the body of a request without a session has at most {BODY_MAX} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Err(_) => Err(Refusal::invalid("the body broke off")),
    }
}

/// What an `initialize` says. None: the body is something else.
fn initialize(body: &[u8]) -> Option<Option<Json>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let message: Message<'_> = serde_json::from_slice(body).ok()?;
    (message.method == "initialize").then(|| {
        let params = message.params.map(RawValue::get).filter(|params| params.len() <= METADATA_MAX);
        params.and_then(|params| Json::new(params).ok())
    })
}
