//! What a request of MCP 2026-07-28 says of itself in headers, as it does in its body: its version, its
//! method, what it is about, and those arguments of a tool that the tool's schema names (MCP 2026-07-28,
//! Streamable HTTP, "Request headers" and "Custom Headers from Tool Parameters").

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use crate::messages::Id;

/// Which version of MCP a request speaks. Before 2026-07-28: that of its session.
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Its method.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What it is about: see [`NAMED`].
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The member of `params._meta` that says which version of MCP a request speaks.
pub const VERSION_MEMBER: &str = "io.modelcontextprotocol/protocolVersion";

/// The methods whose header [`NAME`] repeats a parameter, and which parameter. Those of tasks: the
/// extension `tasks`.
pub const NAMED: [(&str, &str); 6] = [
    ("tools/call", "name"),
    ("prompts/get", "name"),
    ("resources/read", "uri"),
    ("tasks/get", "taskId"),
    ("tasks/update", "taskId"),
    ("tasks/cancel", "taskId"),
];

/// The key of a schema that names a header.
const PARAM: &str = "x-mcp-header";
/// How deep a schema is searched: no deeper than serde_json reads one.
const DEPTH_MAX: usize = 128;

/// What a value stands between that is no visible ASCII ("Value Encoding").
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// An argument of a tool that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedParam {
    /// The keys that lead to it from the arguments.
    pub path: Vec<String>,
    /// `mcp-param-…`.
    pub header: HeaderName,
    /// Whether 42 and 42.0 are equal.
    pub is_number: bool,
}

impl RepeatedParam {
    /// The arguments that a tool's schema declares. They are reached by `properties` alone: any other
    /// makes the tool invalid, and clients do not call it.
    pub fn of(schema: &Value) -> Vec<Self> {
        let mut found = Vec::new();
        declared(schema, &mut Vec::new(), &mut found);
        found
    }

    /// The argument as text. None: there is none, or it is of a type that no header repeats.
    pub fn text(&self, arguments: &Value) -> Option<String> {
        let argument = self
            .path
            .iter()
            .try_fold(arguments, |value, key| value.get(key))?;
        match argument {
            Value::String(text) => Some(text.clone()),
            Value::Bool(bool) => Some(bool.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

fn declared(schema: &Value, path: &mut Vec<String>, found: &mut Vec<RepeatedParam>) {
    let name = schema
        .get(PARAM)
        .and_then(Value::as_str)
        .filter(|_| !path.is_empty());
    if let Some(Ok(header)) =
        name.map(|name| format!("mcp-param-{name}").to_ascii_lowercase().parse())
    {
        let kind = schema.get("type").and_then(Value::as_str);
        let is_number = matches!(kind, Some("integer" | "number"));
        found.push(RepeatedParam {
            path: path.clone(),
            header,
            is_number,
        });
    }
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .filter(|_| path.len() < DEPTH_MAX);
    for (key, property) in properties.into_iter().flatten() {
        path.push(key.clone());
        declared(property, path, found);
        path.pop();
    }
}

/// The text of a header, which may be encoded.
///
/// # Errors
/// When that is no Base64, or not UTF-8.
pub fn decoded(value: &str) -> Result<String, NotDecoded> {
    let Some(encoded) = value
        .strip_prefix(ENCODED.0)
        .and_then(|rest| rest.strip_suffix(ENCODED.1))
    else {
        return Ok(value.to_owned());
    };
    let bytes = STANDARD.decode(encoded).map_err(|_| NotDecoded)?;
    String::from_utf8(bytes).map_err(|_| NotDecoded)
}

/// The text of a header is not UTF-8 in Base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not UTF-8 in Base64")]
pub struct NotDecoded;

/// A text as a header has it.
fn encoded(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim_ascii() == text
        && !text.starts_with(ENCODED.0);
    match is_plain {
        true => HeaderValue::from_str(text).ok(),
        false => {
            let text = STANDARD.encode(text);
            HeaderValue::from_str(&format!("{}{text}{}", ENCODED.0, ENCODED.1)).ok()
        }
    }
}

/// What is known of a server that has to be repeated in headers, by whoever calls it.
#[derive(Debug, Default)]
pub(super) struct RequestHeaders(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Whether the host has made a request of this era, and has not begun a session since.
    is_modern: bool,
    /// Requests for `tools/list` that are not answered, and whether each is for the first page.
    listing: BTreeMap<Id, bool>,
    /// By tool.
    repeated: HashMap<String, Vec<RepeatedParam>>,
}

/// A tool in the answer to `tools/list`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedTool {
    /// Its name.
    pub name: String,
    /// The schema of its arguments.
    #[serde(default)]
    pub input_schema: Value,
}

impl RequestHeaders {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host's calls belong to no session.
    pub(super) fn is_modern(&self) -> bool {
        self.known().is_modern
    }

    /// The host begins a session.
    pub(super) fn begin_session(&self) {
        self.known().is_modern = false;
    }

    /// The headers of this message. None: it is none of this era.
    pub(super) fn of(&self, line: &[u8]) -> Option<HeaderMap> {
        // Nearly all lines are something else, and some are long.
        let member = VERSION_MEMBER.as_bytes();
        if !line.windows(member.len()).any(|part| part == member) {
            return None;
        }
        let copy = OnceCell::new();
        let message = Line::of(line, &copy).message()?;
        let Kind::Request { id, method } = &message.kind else {
            return None;
        };
        let params = message.params();
        let version: String = params?.member("_meta")?.member(VERSION_MEMBER)?.read()?;
        let mut known = self.known();
        known.is_modern = true;
        let mut headers = HeaderMap::new();
        headers.insert(VERSION, encoded(&version)?);
        headers.insert(METHOD, encoded(method)?);
        let named = NAMED.iter().find(|(named, _)| named == method);
        let name: Option<String> = named.and_then(|(_, name)| params?.member(name)?.read());
        if let Some(name) = &name
            && let Some(value) = encoded(name)
        {
            headers.insert(NAME, value);
        }
        match &**method {
            "tools/list" => {
                let is_first = params?.member("cursor").is_none();
                known.listing.insert(normal(id), is_first);
            }
            "tools/call" => {
                let repeated = name.and_then(|name| known.repeated.get(&name));
                let arguments = params.and_then(|params| params.member("arguments")?.read());
                let arguments = arguments.unwrap_or(Value::Null);
                for param in repeated.into_iter().flatten() {
                    if let Some(value) = param.text(&arguments).and_then(|text| encoded(&text)) {
                        headers.insert(param.header.clone(), value);
                    }
                }
            }
            _ => {}
        }
        Some(headers)
    }

    /// Learns from an answer of the server's.
    pub(super) fn learn(&self, line: &Bytes) {
        let mut known = self.known();
        if known.listing.is_empty() {
            return;
        }
        let copy = OnceCell::new();
        let Some(message) = Line::of(line, &copy).message() else {
            return;
        };
        let Kind::Answer { id, .. } = message.kind else {
            return;
        };
        let Some(is_first) = known.listing.remove(&normal(id)) else {
            return;
        };
        if is_first {
            known.repeated.clear();
        }
        let tools = message.result().and_then(|result| result.member("tools"));
        let tools: Vec<ListedTool> = tools.and_then(|tools| tools.read()).unwrap_or_default();
        for ListedTool { name, input_schema } in tools {
            let repeated = RepeatedParam::of(&input_schema);
            if !repeated.is_empty() {
                known.repeated.insert(name, repeated);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(id: u64, method: &str, mut params: Value) -> Bytes {
        params["_meta"][VERSION_MEMBER] = json!("2026-07-28");
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            .to_string()
            .into()
    }

    fn shown(headers: Option<HeaderMap>) -> Vec<(String, String)> {
        let headers = headers.into_iter().flatten();
        let mut shown: Vec<_> = headers
            .filter_map(|(name, value)| Some((name?.to_string(), value.to_str().ok()?.to_owned())))
            .collect();
        shown.sort();
        shown
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn a_request_of_an_era_with_sessions_says_nothing_of_itself() {
        let known = RequestHeaders::default();
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "no JSON",
        ] {
            assert!(known.of(line.as_bytes()).is_none(), "{line}");
            assert!(!known.is_modern());
        }
    }

    #[test]
    fn its_version_its_method_and_what_it_is_about() {
        let known = RequestHeaders::default();
        let headers = known.of(&request(1, "server/discover", json!({})));
        let version = ("mcp-protocol-version", "2026-07-28");
        assert_eq!(
            shown(headers),
            pairs(&[("mcp-method", "server/discover"), version])
        );
        assert!(known.is_modern());
        known.begin_session();
        assert!(!known.is_modern());
        for (name, value) in [
            ("add", "add"),
            ("Zürich", "=?base64?WsO8cmljaA==?="),
            (" x", "=?base64?IHg=?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            let headers = known.of(&request(1, "tools/call", json!({"name": name})));
            let expected = [("mcp-method", "tools/call"), ("mcp-name", value), version];
            assert_eq!(shown(headers), pairs(&expected));
            assert_eq!(decoded(value).as_deref(), Ok(name));
        }
    }

    #[test]
    fn the_arguments_that_a_list_has_declared() {
        let known = RequestHeaders::default();
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        let schema = json!({"type": "object", "properties": {"region": region, "query": {"type": "string"}}});
        let tools = json!([{"name": "find", "inputSchema": schema}]);
        let listed = json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": tools}});
        let listed = Bytes::from(listed.to_string());
        let arguments = json!({"region": "us-west1", "query": "x"});
        let call = request(
            8,
            "tools/call",
            json!({"name": "find", "arguments": arguments}),
        );
        let has_region = || {
            let headers = known.of(&call).expect("of this era");
            headers.get("mcp-param-region").cloned()
        };
        // Nobody has asked for a list.
        known.learn(&listed);
        assert_eq!(has_region(), None);
        known.of(&request(7, "tools/list", json!({})));
        known.learn(&listed);
        assert_eq!(has_region(), Some(HeaderValue::from_static("us-west1")));
    }
}
