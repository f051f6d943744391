//! What a POST says of itself, in its body and again in its headers (MCP 2026-07-28, Streamable
//! HTTP, "Request Metadata").

use std::cell::OnceCell;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use bytes::Bytes;
use mcp_sessiond_http_session::messages::Id;
use mcp_sessiond_jsonrpc::code::{INVALID_PARAMS as PARAMS, NO_METHOD, OTHER_VERSION};
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message, Part};
use mcp_sessiond_jsonrpc::one_line;
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_upstream::request_headers;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// The version of MCP that is spoken here.
pub(super) const VERSION: &str = "2026-07-28";

/// MCP's code for a request that needs a capability of the client that the client has not named.
const CAPABILITY: i64 = -32021;
/// MCP's code for headers that contradict the body.
const HEADER_MISMATCH: i64 = -32020;

/// A message of a client, of the era of 2026-07-28.
#[derive(Debug)]
pub(super) enum Posted {
    /// A request.
    Request(Request),
    /// A notification, as one line. None: it is not passed on.
    Notification(Option<Bytes>),
}

/// A request that says which version it speaks, and whose headers agree with it.
#[derive(Debug)]
pub(super) struct Request {
    /// Its id, as JSON.
    pub(super) id: Id,
    /// Its method.
    pub(super) method: String,
    /// The version that it speaks.
    pub(super) version: String,
    /// Its `_meta`, as JSON.
    pub(super) meta: Box<str>,
    /// The tool, where it calls one.
    pub(super) tool: Option<String>,
    /// The arguments of the tool; null where there are none.
    pub(super) arguments: Value,
    /// Whether it asks for log messages.
    pub(super) wants_log: bool,
    /// Whether it asks for the first page of a list.
    pub(super) is_first_page: bool,
    /// The whole, as one line.
    pub(super) line: Bytes,
}

/// Why a message is not carried out, and under which id that is answered.
#[derive(Debug)]
pub(super) struct Refused {
    /// Why.
    pub(super) refusal: Refusal,
    /// The id; none where there is no request.
    pub(super) id: Option<Id>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, id: None }
    }
}

#[derive(Default, Deserialize)]
struct Params {
    #[serde(default)]
    name: Option<Value>,
    #[serde(default)]
    uri: Option<Value>,
    #[serde(default, rename = "taskId")]
    task: Option<Value>,
    #[serde(default)]
    cursor: Option<Value>,
    #[serde(default)]
    arguments: Value,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Value>,
    #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<Value>,
    #[serde(default, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<Value>,
}

/// Whether a version is of the era that began with 2026-07-28. Versions are dates.
pub(super) fn is_modern(version: &str) -> bool {
    version.len() == VERSION.len() && version.starts_with("20") && version >= VERSION
}

/// Whether the headers name a version of this era.
pub(super) fn names_modern(headers: &HeaderMap) -> bool {
    value(headers, &request_headers::VERSION).is_some_and(is_modern)
}

/// Reads a POST. None: it is of the era before, or no JSON-RPC at all.
///
/// # Errors
/// When it is of this era, and breaks a rule of it.
pub(super) fn read(headers: &HeaderMap, body: &Bytes) -> Result<Option<Posted>, Refused> {
    let claims = names_modern(headers);
    if std::str::from_utf8(body).is_err() {
        return Ok(None);
    }
    let copy = OnceCell::new();
    let line = Line::of(body, &copy);
    let message = match &line {
        Line::One(Part::Message(message)) => message,
        Line::Batch(parts) => {
            let is_modern = |part: &Part<'_>| matches!(part, Part::Message(message) if claim(message).is_some());
            return if claims || parts.iter().any(|(_, part)| is_modern(part)) {
                Err(Refusal::invalid(format!("MCP {VERSION} has no batches")).into())
            } else {
                Ok(None)
            };
        }
        Line::Blank | Line::One(_) => return Ok(None),
    };
    // What had to be made readable is refused as in the era before.
    let Some(whole) = message.whole().sent() else {
        return Ok(None);
    };
    match &message.kind {
        Kind::Answer { .. } if claims => {
            Err(Refusal::invalid(format!("a client of MCP {VERSION} sends no responses")).into())
        }
        Kind::Answer { .. } => Ok(None),
        Kind::Notification { method } if claims || claim(message).is_some() => {
            // Of the era before: sent on, it would decide for all clients which version the server
            // speaks.
            let is_older = method == "notifications/initialized";
            Ok(Some(Posted::Notification(
                (!is_older).then(|| one_line(whole).into()),
            )))
        }
        Kind::Notification { .. } => Ok(None),
        Kind::Request { id, method } => {
            let refused = |refusal| Refused {
                refusal,
                id: Some((*id).into()),
            };
            request(headers, message, whole, id, method)
                .map_err(refused)
                .map(|read| read.map(Posted::Request))
        }
    }
}

fn request(
    headers: &HeaderMap,
    message: &Message<'_>,
    whole: &str,
    id: &str,
    method: &str,
) -> Result<Option<Request>, Refusal> {
    let named = value(headers, &request_headers::VERSION);
    let Some((text, meta, claimed)) = claim(message) else {
        return match named.filter(|named| is_modern(named)) {
            None => Ok(None),
            Some(named) if method == "initialize" => Err(mismatch(&format!(
                "MCP {named}, which the header MCP-Protocol-Version names, has no method `initialize`"
            ))),
            Some(_) => Err(invalid_params(
                "`_meta` lacks io.modelcontextprotocol/protocolVersion",
            )),
        };
    };
    let params: Params = message
        .params()
        .and_then(Readable::object)
        .unwrap_or_default();
    let Value::String(version) = claimed else {
        return Err(invalid_params(
            "io.modelcontextprotocol/protocolVersion in `_meta` must be a string",
        ));
    };
    if method == "initialize" {
        // Sent on, it would decide for all clients which version the server speaks.
        return if is_modern(&version) {
            Err(no_method("initialize"))
        } else {
            Ok(None)
        };
    }
    if !meta
        .capabilities
        .is_some_and(|capabilities| capabilities.is_object())
    {
        return Err(invalid_params(
            "io.modelcontextprotocol/clientCapabilities in `_meta` must be an object",
        ));
    }
    let source = request_headers::NAMED
        .iter()
        .find(|(named, _)| *named == method)
        .map(|(_, parameter)| *parameter);
    let name = match source {
        Some("name") => params.name,
        Some("uri") => params.uri,
        Some(_) => params.task,
        None => None,
    };
    let name = if let Some(Value::String(name)) = name {
        Some(name)
    } else {
        None
    };
    agree("MCP-Protocol-Version", named, &version)?;
    agree(
        "Mcp-Method",
        value(headers, &request_headers::METHOD),
        method,
    )?;
    if let Some(name) = &name {
        let said = value(headers, &request_headers::NAME)
            .map(request_headers::decoded)
            .transpose();
        let said = said.map_err(|_| mismatch("the header Mcp-Name is not UTF-8 in Base64"))?;
        agree("Mcp-Name", said.as_deref(), name)?;
    }
    Ok(Some(Request {
        id: id.into(),
        method: method.to_owned(),
        version,
        meta: text.into(),
        tool: name.filter(|_| method == "tools/call"),
        arguments: params.arguments,
        wants_log: meta.level.is_some(),
        is_first_page: params.cursor.is_none(),
        line: one_line(whole).into(),
    }))
}

/// The `_meta` of a message, as JSON and read, and the version that it names.
fn claim<'a>(message: &Message<'a>) -> Option<(&'a str, Meta, Value)> {
    let text = message.params()?.member("_meta")?;
    let mut meta: Meta = text.object()?;
    let version = meta.version.take()?;
    Some((text.sent()?, meta, version))
}

fn agree(header: &str, said: Option<&str>, body: &str) -> Result<(), Refusal> {
    match said {
        Some(said) if said == body => Ok(()),
        Some(_) => Err(mismatch(&format!(
            "the header {header} contradicts the body"
        ))),
        None => Err(mismatch(&format!("the header {header} is missing"))),
    }
}

/// The value of a header. One that is there twice, or is no ASCII, agrees with nothing.
pub(super) fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values
        .next()?
        .to_str()
        .ok()
        .filter(|_| values.next().is_none());
    Some(value.unwrap_or("\u{fffd}").trim_matches([' ', '\t']))
}

fn invalid_params(message: &str) -> Refusal {
    Refusal {
        code: PARAMS,
        ..Refusal::invalid(format!(
            "{message} (MCP {VERSION}, General fields, `_meta`)"
        ))
    }
}

/// The headers contradict the body.
pub(super) fn mismatch(message: &str) -> Refusal {
    Refusal {
        code: HEADER_MISMATCH,
        ..Refusal::invalid(message)
    }
}

/// The server speaks these versions, and not the one that was asked for.
pub(super) fn unsupported(requested: &str, supported: &[&str]) -> Refusal {
    let message = format!(
        "unsupported protocol version: this server speaks {}",
        supported.join(", ")
    );
    let data = json!({"supported": supported, "requested": requested});
    Refusal {
        code: OTHER_VERSION,
        data: Some(Box::new(data)),
        ..Refusal::invalid(message)
    }
}

/// This version has no such method.
fn no_method(method: &str) -> Refusal {
    let message = format!("MCP {VERSION} has no method `{method}`");
    Refusal {
        code: NO_METHOD,
        ..Refusal::new(StatusCode::NOT_FOUND, message)
    }
}

/// The answer of the era before to `server/discover`. rmcp 3.9 would not fall back to `initialize`
/// after [`unsupported`].
pub(super) fn no_discover() -> Refusal {
    Refusal::no_discover()
}

/// The status of a response that is one message, an error of this code.
pub(super) fn status(code: i64) -> StatusCode {
    match code {
        NO_METHOD => StatusCode::NOT_FOUND,
        CAPABILITY | OTHER_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::INVALID;

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn read_with(
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Option<Posted>, (i64, Option<Id>)> {
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().expect("a name");
            (
                name,
                axum::http::HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            )
        });
        read(&headers.collect(), &Bytes::copy_from_slice(body.as_bytes()))
            .map_err(|refused| (refused.refusal.code, refused.id))
    }

    fn call(method: &str, params: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}"_meta":{META}}}}}"#
        )
    }

    /// The headers of a call of `add`.
    const OF_CALL: [(&str, &str); 3] = [
        ("mcp-protocol-version", VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", "add"),
    ];

    #[test]
    fn a_request_whose_headers_agree_is_read() {
        let headers = OF_CALL;
        let body = call("tools/call", r#""name":"add","arguments":{"a":1},"#);
        let Ok(Some(Posted::Request(read))) = read_with(&headers, &body) else {
            panic!("it is one")
        };
        assert_eq!(
            (
                &*read.id,
                read.tool.as_deref(),
                read.arguments["a"].as_i64()
            ),
            ("7", Some("add"), Some(1))
        );
        assert!(!read.wants_log && read.is_first_page);
        let encoded = [headers[0], headers[1], ("mcp-name", "=?base64?YWRk?=")];
        assert!(read_with(&encoded, &body).is_ok());
        for wrong in ["=?base64?!!?=", "=?base64?/w==?=", "sub", ""] {
            let wrong = [headers[0], headers[1], ("mcp-name", wrong)];
            assert_eq!(
                read_with(&wrong, &body).expect_err("refused"),
                (HEADER_MISMATCH, Some("7".into()))
            );
        }
        for without in 0..3 {
            let mut fewer = headers.to_vec();
            fewer.remove(without);
            assert_eq!(
                read_with(&fewer, &body).expect_err("refused").0,
                HEADER_MISMATCH,
                "{without}"
            );
        }
        let other = [
            ("mcp-protocol-version", "2027-01-01"),
            headers[1],
            headers[2],
        ];
        assert_eq!(
            read_with(&other, &body).expect_err("refused").0,
            HEADER_MISMATCH
        );
    }

    /// Its server would get the copy. It is refused as in the era before, under its id.
    #[test]
    fn a_request_that_had_to_be_made_readable_is_not_passed_on() {
        let body = call("tools/call", r#""name":"add","arguments":{"a":NaN},"#);
        assert!(matches!(read_with(&OF_CALL, &body), Ok(None)));
    }

    #[test]
    fn a_request_of_this_era_says_so_and_what_its_client_can_do() {
        let modern = [
            ("mcp-protocol-version", VERSION),
            ("mcp-method", "tools/list"),
        ];
        for params in [
            "{}",
            r#"{"_meta":{}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1,"io.modelcontextprotocol/clientCapabilities":{}}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}}"#,
        ] {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/list","params":{params}}}"#);
            assert_eq!(
                read_with(&modern, &body).expect_err(params),
                (PARAMS, Some("\"x\"".into())),
                "{params}"
            );
        }
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        assert_eq!(
            read_with(&modern, initialize).expect_err("refused").0,
            HEADER_MISMATCH
        );
    }

    #[test]
    fn messages_of_the_era_before_are_left_alone() {
        let older = [("mcp-protocol-version", "2025-11-25")];
        for headers in [&older[..], &[]] {
            for body in [
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#,
                "no JSON",
                "",
            ] {
                assert!(matches!(read_with(headers, body), Ok(None)), "{body}");
            }
        }
    }

    #[test]
    fn what_this_era_does_not_have_is_refused() {
        let modern = [("mcp-protocol-version", VERSION)];
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"[{"jsonrpc":"2.0","method":"x"}]"#,
        ] {
            assert_eq!(read_with(&modern, body).expect_err(body), (INVALID, None));
        }
        assert_eq!(
            read_with(&[], &format!("[{}]", call("x", "")))
                .expect_err("a batch")
                .0,
            INVALID
        );
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        assert!(matches!(
            read_with(&modern, notification),
            Ok(Some(Posted::Notification(_)))
        ));
    }
}
