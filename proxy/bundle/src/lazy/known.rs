//! What is known of a server: its answer to `initialize`, and its lists.

use std::collections::BTreeMap;

use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::Outcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::List;

/// Bytes of what is remembered of a server. The daemon takes a value of so many at most, unless its
/// settings say otherwise (`limits.state_value_bytes`). A server that tells more is started with
/// its host, as without `--lazy`.
pub const KNOWN_MAX: usize = 1 << 20;

/// What a server has answered hosts with the same [key](initialize_key).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Known {
    /// Its result of `initialize`, as it was written.
    #[serde(default)]
    initialize: Option<Box<RawValue>>,
    /// Its answers to what asks for lists, by method.
    #[serde(default)]
    lists: BTreeMap<String, StoredList>,
}

/// A whole list; or the error of a server that has no such method.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredList {
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<RpcError>,
}

impl Known {
    /// Reads what [`write`](Self::write) has written. None where it is something else, as after a
    /// downgrade.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// As text. None where it has more than [`KNOWN_MAX`] bytes.
    pub fn write(&self) -> Option<String> {
        serde_json::to_string(self)
            .ok()
            .filter(|text| text.len() <= KNOWN_MAX)
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.initialize.is_some()
    }

    /// Whether there is anything that a host could ask the server for.
    pub(super) fn is_callable(&self) -> bool {
        let has_any = |list: List| {
            let listed = self.list(list)?.ok()?;
            Some(!Object::read(&listed)?.array(list.key())?.is_empty())
        };
        self.is_initialized()
            && List::ALL
                .into_iter()
                .any(|list| has_any(list) == Some(true))
    }

    pub(super) fn initialized(&mut self, result: Box<RawValue>) {
        self.initialize = Some(result);
    }

    fn introduction(&self) -> Object {
        self.initialize
            .as_deref()
            .and_then(Object::read)
            .unwrap_or_default()
    }

    /// The version of MCP that the server speaks.
    pub(super) fn version(&self) -> Option<String> {
        self.introduction().text("protocolVersion")
    }

    /// Whether the server has declared this capability.
    pub(super) fn has(&self, capability: &str) -> bool {
        self.introduction()
            .object("capabilities")
            .is_some_and(|all| all.get(capability).is_some())
    }

    /// The result of `initialize` for a host: with `listChanged` wherever there are lists, as what
    /// is told from memory may have to be corrected.
    pub(super) fn for_host(&self) -> Box<RawValue> {
        let mut result = self.introduction();
        let mut capabilities = result.object("capabilities").unwrap_or_default();
        for list in List::ALL {
            if let Some(mut capability) = capabilities.object(list.capability()) {
                capability.set("listChanged", raw(&true));
                capabilities.set(list.capability(), capability.write());
            }
        }
        result.set("capabilities", capabilities.write());
        result.write()
    }

    /// A list.
    pub(super) fn list(&self, list: List) -> Option<Outcome> {
        let listed = self.lists.get(list.method())?;
        listed
            .result
            .clone()
            .map(Ok)
            .or_else(|| listed.error.clone().map(Err))
    }

    /// Notes the answer for this list; none: it could not be got.
    pub(super) fn set_list(&mut self, list: List, told: Option<Outcome>) {
        let listed = told.map(|told| match told {
            Ok(result) => StoredList {
                result: Some(result),
                error: None,
            },
            Err(error) => StoredList {
                result: None,
                error: Some(error),
            },
        });
        match listed {
            Some(listed) => drop(self.lists.insert(list.method().to_owned(), listed)),
            None => drop(self.lists.remove(list.method())),
        }
    }

    /// Whether a list has the same in it. Its order says nothing: some servers have another one at
    /// each start.
    pub(super) fn has_same(&self, list: List, told: Option<&Outcome>) -> bool {
        let items = |outcome: &Outcome| {
            let items = outcome
                .as_ref()
                .ok()
                .and_then(|result| Object::read(result)?.array(list.key()));
            let values = items.unwrap_or_default().into_iter();
            let mut texts: Vec<String> = values
                .map(|item| {
                    serde_json::from_str::<Value>(item.get())
                        .map_or_else(|_| item.get().to_owned(), |value| value.to_string())
                })
                .collect();
            texts.sort_unstable();
            texts
        };
        told.is_some_and(|told| {
            self.list(list)
                .is_some_and(|known| items(&known) == items(told))
        })
    }
}

/// The part of the parameters of `initialize` that a server's answers may depend on: protocol
/// version, capabilities, and the client's name. The version of the host is not among them, so
/// that a host which was updated is still the same one.
pub fn initialize_key(initialize: &RawValue) -> String {
    let params = Object::read(initialize).unwrap_or_default();
    let client = params.object("clientInfo").unwrap_or_default();
    key_of([
        params.get("protocolVersion"),
        params.get("capabilities"),
        client.get("name"),
    ])
}

fn key_of(key: [Option<&RawValue>; 3]) -> String {
    let read = |word: &RawValue| serde_json::from_str(word.get()).unwrap_or(Value::Null);
    Value::from(key.map(|word| word.map_or(Value::Null, read)).to_vec()).to_string()
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_jsonrpc::code;

    use super::*;

    fn raw_of(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    #[test]
    fn only_what_answers_depend_on_tells_hosts_apart() {
        let host = |name: &str, version: &str, protocol: &str, capabilities: &str| {
            initialize_key(&raw_of(&format!(
                r#"{{"protocolVersion":"{protocol}","capabilities":{capabilities},"clientInfo":{{"name":"{name}","version":"{version}"}},"_meta":{{"x":{version}}}}}"#
            )))
        };
        let one = host("a", "1", "2025-06-18", r#"{"roots":{}}"#);
        assert_eq!(one, host("a", "2", "2025-06-18", r#"{ "roots" : {} }"#));
        assert_ne!(one, host("b", "1", "2025-06-18", r#"{"roots":{}}"#));
        assert_ne!(one, host("a", "1", "2025-11-25", r#"{"roots":{}}"#));
        assert_ne!(one, host("a", "1", "2025-06-18", "{}"));
    }

    #[test]
    fn a_list_is_the_same_in_another_order() {
        let whole = raw_of(r#"{"_meta":{"a":1.0},"tools":[{"name":"b","x":1e400},{"name":"a"}]}"#);
        let mut known = Known::default();
        assert!(!known.has_same(List::Tools, Some(&Ok(whole.clone()))));
        known.set_list(List::Tools, Some(Ok(whole)));
        let known = Known::read(&known.write().expect("text")).expect("what was written");
        assert!(known.has_same(
            List::Tools,
            Some(&Ok(raw_of(
                r#"{"tools":[{ "name" : "a" },{"name":"b","x":1e400}]}"#
            )))
        ));
        assert!(!known.has_same(
            List::Tools,
            Some(&Ok(raw_of(r#"{"tools":[{"name":"a"}]}"#)))
        ));
        assert!(!known.has_same(List::Tools, None));
    }

    #[test]
    fn a_host_is_told_that_lists_may_change() {
        let mut known = Known::default();
        known.initialized(raw_of(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{"subscribe":true,"listChanged":false},"logging":{}},"instructions":"x"}"#,
        ));
        assert_eq!(
            known.for_host().get(),
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}},"instructions":"x"}"#
        );
        assert!(known.has("logging") && !known.has("prompts"));
    }

    #[test]
    fn a_server_that_tells_of_nothing_could_never_be_called() {
        let mut known = Known::default();
        known.initialized(raw_of("{}"));
        assert!(!known.is_callable());
        known.set_list(List::Tools, Some(Ok(raw_of(r#"{"tools":[]}"#))));
        known.set_list(
            List::Prompts,
            Some(Err(RpcError::new(code::NO_METHOD, "no"))),
        );
        assert!(!known.is_callable());
        known.set_list(
            List::Templates,
            Some(Ok(raw_of(
                r#"{"resourceTemplates":[{"uriTemplate":"x://{y}"}]}"#,
            ))),
        );
        assert!(known.is_callable());
    }

    #[test]
    fn what_is_too_large_is_not_remembered() {
        let mut known = Known::default();
        known.initialized(raw(&"x".repeat(KNOWN_MAX)));
        assert!(known.write().is_none());
    }
}
