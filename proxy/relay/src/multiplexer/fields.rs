//! The members of messages that only the multiplexer reads: capabilities, results, errors,
//! pages.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::entry::Edits;
use crate::message::Message;
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
        let mut capabilities = member(message.params, "capabilities").map_or(Value::Null, parsed);
        remove_unshared(&mut capabilities);
        Self {
            version: InitializeParams::of(message.params).version,
            capabilities,
            refuses: member(message.params, "_meta")
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

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

/// The text of a member of an object.
fn member<'a>(object: Option<&'a str>, name: &str) -> Option<&'a str> {
    struct Member<'a, 'b>(&'b str, Option<&'a RawValue>);
    impl<'de> serde::de::Visitor<'de> for Member<'de, '_> {
        type Value = Option<&'de RawValue>;
        fn expecting(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            to.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(
            mut self,
            mut map: A,
        ) -> Result<Self::Value, A::Error> {
            while let Some(key) = map.next_key::<alloc::borrow::Cow<'de, str>>()? {
                if key == self.0 {
                    self.1 = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(self.1)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(object?);
    let found = serde::Deserializer::deserialize_map(&mut reader, Member(name, None)).ok()?;
    found.map(RawValue::get)
}

/// The message with the capabilities that are not shared taken out of what holds them: `params` or
/// `result`.
pub(super) fn strip_unshared(message: &Message<'_>, within: Option<&str>, edits: &mut Edits) {
    let Some(capabilities) = member(within, "capabilities") else {
        return;
    };
    let mut value = parsed(capabilities);
    let whole = value.clone();
    remove_unshared(&mut value);
    if value != whole {
        edits.replace(message, capabilities, value.to_string());
    }
}

/// The text of the result of an answer.
pub(super) fn result<'a>(message: &Message<'a>) -> Option<&'a str> {
    member(Some(message.text), "result")
}

/// The text of the error of an answer.
pub(super) fn error<'a>(message: &Message<'a>) -> Option<&'a str> {
    member(Some(message.text), "error")
}

/// Whether an error says that nobody knows what became of the call: the keeper's word for one that
/// was under way when the server ended.
pub(super) fn is_outcome_unknown(message: &Message<'_>) -> bool {
    let data = member(error(message), "data");
    member(data, "outcome")
        .and_then(text)
        .is_some_and(|outcome| outcome == "unknown")
}

/// Whether a request wants to be a task.
pub(super) fn wants_task(message: &Message<'_>) -> bool {
    member(message.params, "task").is_some()
}

/// The page that an ask, or a notification about it, names.
pub(super) fn page(message: &Message<'_>) -> Option<String> {
    text(member(message.params, "elicitationId")?)
}

/// The pages that an error wants its host to show first (MCP 2025-11-25,
/// `URLElicitationRequiredError`).
pub(super) fn pages_required(message: &Message<'_>) -> impl Iterator<Item = String> {
    let listed = member(member(error(message), "data"), "elicitations").map_or(Value::Null, parsed);
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

fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}
