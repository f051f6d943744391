//! The members of messages that only the multiplexer reads: capabilities, results, errors,
//! pages.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::message::Message;
use mcp_sessiond_jsonrpc::readable::Readable;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::version::{InitializeParams, Version};

/// Capabilities that are not shared: roots belong to one host, and tasks would be visible to
/// all.
const NOT_SHARED: [&str; 2] = ["roots", "tasks"];

/// What a host says of itself in `initialize`.
#[derive(Clone)]
pub(super) struct HostInfo {
    pub(super) version: Version,
    capabilities: Value,
    /// It answers whatever the server asks with a refusal, so that it need not be able to do it.
    refuses: bool,
}

/// The member of `initialize`'s `_meta` by which a client says that it refuses what the server asks.
const REFUSES: &str = "mcp-sessiond/refuses";

impl HostInfo {
    pub(super) fn of(message: &Message<'_>) -> Self {
        let mut capabilities = member(message.params(), "capabilities").map_or(Value::Null, parsed);
        remove_unshared(&mut capabilities);
        Self {
            version: InitializeParams::of(message.params()).version,
            capabilities,
            refuses: member(message.params(), "_meta")
                .is_some_and(|meta| parsed(meta)[REFUSES] == true),
        }
    }

    /// Whether this host has all capabilities that the `other` has, or refuses to use any.
    pub(super) fn can_all_of(&self, other: &Self) -> bool {
        self.refuses || has_all(&self.capabilities, &other.capabilities)
    }
}

/// Whether `one` has everything that `other` has. What is false, null or absent is the same.
fn has_all(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (_, Value::Null | Value::Bool(false)) => true,
        (Value::Object(one), Value::Object(other)) => other
            .iter()
            .all(|(key, value)| has_all(one.get(key).unwrap_or(&Value::Null), value)),
        (one, other) => one == other,
    }
}

fn remove_unshared(capabilities: &mut Value) {
    if let Value::Object(capabilities) = capabilities {
        for name in NOT_SHARED {
            capabilities.remove(name);
        }
    }
}

fn parsed(value: Readable<'_>) -> Value {
    value.read().unwrap_or_default()
}

/// A member of an object.
fn member<'a>(object: Option<Readable<'a>>, name: &str) -> Option<Readable<'a>> {
    object?.member(name)
}

/// The message with the capabilities that are not shared taken out of what holds them: `params` or
/// `result`.
pub(super) fn strip_unshared(
    message: &Message<'_>,
    within: Option<Readable<'_>>,
    edits: &mut Edits,
) {
    let Some(capabilities) = member(within, "capabilities") else {
        return;
    };
    let mut value = parsed(capabilities);
    let whole = value.clone();
    remove_unshared(&mut value);
    if value != whole {
        edits.overwrite(message, capabilities, value.to_string());
    }
}

/// Whether an error says that nobody knows what became of the call: the keeper's word for one that
/// was under way when the server ended.
pub(super) fn is_outcome_unknown(message: &Message<'_>) -> bool {
    let data = member(message.error(), "data");
    member(data, "outcome")
        .and_then(Readable::read::<String>)
        .is_some_and(|outcome| outcome == "unknown")
}

/// Whether a request wants to be a task.
pub(super) fn wants_task(message: &Message<'_>) -> bool {
    member(message.params(), "task").is_some()
}

/// The page that an ask, or a notification about it, names.
pub(super) fn page(message: &Message<'_>) -> Option<String> {
    member(message.params(), "elicitationId")?.read()
}

/// The pages that an error wants its host to show first (MCP 2025-11-25,
/// `URLElicitationRequiredError`).
pub(super) fn pages_required(message: &Message<'_>) -> impl Iterator<Item = String> {
    let listed =
        member(member(message.error(), "data"), "elicitations").map_or(Value::Null, parsed);
    let listed = if let Value::Array(listed) = listed {
        listed
    } else {
        Vec::new()
    };
    let id = |value: Value| {
        Map::deserialize(value)
            .ok()?
            .get("elicitationId")?
            .as_str()
            .map(ToString::to_string)
    };
    listed.into_iter().filter_map(id)
}
