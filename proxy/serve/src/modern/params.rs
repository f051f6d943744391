//! Parameters of tools that clients repeat in headers `Mcp-Param-NAME` (MCP 2026-07-28, Streamable
//! HTTP, "Custom Headers from Tool Parameters"): which they are, and whether a call's headers agree
//! with its arguments.

use std::cell::OnceCell;
use std::collections::HashMap;

use axum::http::HeaderMap;
use mcp_sessiond_client::Json;
use mcp_sessiond_jsonrpc::message::Line;
use mcp_sessiond_upstream::request_headers::{ListedTool, RepeatedParam, decoded};
use serde::Deserialize;
use serde_json::Value;

use super::envelope::{mismatch, value};
use crate::refusal::Refusal;

/// The parameters of each tool that are repeated in headers.
#[derive(Debug, Default)]
pub(super) struct Tools(HashMap<String, Vec<RepeatedParam>>);

/// What a server answers to `tools/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    tools: Vec<ListedTool>,
    #[serde(default)]
    next_cursor: Option<String>,
}

impl List {
    /// The result of this answer. None: it is an error, or something else.
    fn of(answer: &Json) -> Option<Self> {
        let copy = OnceCell::new();
        let message = Line::of(answer.as_str().as_bytes(), &copy).message()?;
        message.result()?.object()
    }
}

impl Tools {
    /// Whether a tool was in a list.
    pub(super) fn knows(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// Learns from the server's answer to `tools/list`. What another page has said before stays.
    pub(super) fn learn(&mut self, answer: &Json, is_first_page: bool) {
        let Some(list) = List::of(answer) else {
            return;
        };
        if is_first_page && list.next_cursor.is_none() {
            self.0.clear();
        }
        for ListedTool { name, input_schema } in list.tools {
            self.0.insert(name, RepeatedParam::of(&input_schema));
        }
    }

    /// Where the next page of a list begins, if there is one.
    pub(super) fn next_page(answer: &Json) -> Option<String> {
        List::of(answer)?.next_cursor
    }

    /// Checks that the headers of a call repeat its arguments.
    ///
    /// # Errors
    /// When one is missing, or says something else.
    pub(super) fn check(
        &self,
        tool: &str,
        arguments: &Value,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        self.0
            .get(tool)
            .into_iter()
            .flatten()
            .try_for_each(|param| check(param, arguments, headers))
    }
}

/// Checks that a header repeats an argument.
fn check(param: &RepeatedParam, arguments: &Value, headers: &HeaderMap) -> Result<(), Refusal> {
    // The tool itself refuses an argument of another type.
    let Some(text) = param.text(arguments) else {
        return Ok(());
    };
    let refused = |what: &str| {
        Err(mismatch(&format!(
            "the header {} {what} the argument {}",
            param.header,
            param.path.join(".")
        )))
    };
    let Some(said) = value(headers, &param.header) else {
        return refused("is missing, which repeats");
    };
    let Ok(said) = decoded(said) else {
        return refused("is not UTF-8 in Base64, and repeats");
    };
    let is_equal = |number: f64| is_decimal(&said) && said.parse() == Ok(number);
    let number = text.parse().ok().filter(|_| param.is_number);
    if said == text || number.is_some_and(is_equal) {
        Ok(())
    } else {
        refused("contradicts")
    }
}

fn is_decimal(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    text.split_once('.').map_or_else(
        || digits(text),
        |(whole, rest)| digits(whole) && digits(rest),
    )
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;
    use serde_json::json;

    use super::*;

    fn tools() -> Tools {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "limit": {"type": "integer", "x-mcp-header": "Limit"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
            "list": {"type": "array", "items": {"type": "string", "x-mcp-header": "Item"}},
        }});
        let page = |tool: &str, next: Value| {
            let tools = json!([{"name": tool, "inputSchema": schema}]);
            Json::from(
                &json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools, "nextCursor": next}}),
            )
        };
        let mut tools = Tools::default();
        let pages = [page("one", "more".into()), page("two", Value::Null)];
        assert_eq!(
            pages.each_ref().map(Tools::next_page),
            [Some("more".into()), None]
        );
        tools.learn(&pages[0], true);
        tools.learn(&pages[1], false);
        assert!(tools.knows("one") && tools.knows("two") && !tools.knows("three"));
        tools
    }

    fn check(arguments: &Value, headers: &[(&'static str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                value.parse().expect("a value"),
            )
        });
        tools().check("one", arguments, &headers.collect()).is_ok()
    }

    #[test]
    fn each_declared_argument_is_repeated_in_its_header() {
        let arguments =
            json!({"region": "us-west1", "limit": 42, "dry": false, "where": {"zone": "Zürich"}});
        let all = [
            ("mcp-param-region", "us-west1"),
            ("mcp-param-limit", "42.0"),
            ("mcp-param-dry", "false"),
            ("mcp-param-zone", "=?base64?WsO8cmljaA==?="),
        ];
        assert!(check(&arguments, &all));
        for without in 0..all.len() {
            let mut fewer = all.to_vec();
            fewer.remove(without);
            assert!(!check(&arguments, &fewer), "{without}");
        }
        for (at, wrong) in [
            (0, "us-west2"),
            (1, "43"),
            (1, "0x2A"),
            (1, "4.2e1"),
            (2, "False"),
            (3, "=?base64?WsO?="),
        ] {
            let mut headers = all;
            headers[at].1 = wrong;
            assert!(!check(&arguments, &headers), "{wrong}");
        }
    }

    #[test]
    fn an_argument_that_is_not_there_needs_no_header() {
        assert!(check(&json!({"region": null, "list": ["a"]}), &[]));
        assert!(check(&Value::Null, &[("mcp-param-region", "ignored")]));
        assert!(
            tools()
                .check("three", &json!({"region": "x"}), &HeaderMap::new())
                .is_ok()
        );
    }

    #[test]
    fn a_list_of_one_page_replaces_the_former_list() {
        let mut tools = tools();
        tools.learn(
            &Json::from(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}})),
            true,
        );
        assert!(tools.knows("one"), "an error is no list");
        tools.learn(
            &Json::from(&json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}})),
            true,
        );
        assert!(!tools.knows("one"));
    }
}
