//! The state of a session: JSON values by key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::names::{RequestId, StateKey};
use crate::sessions::SessionRef;

/// Keys that one call may name: what DynamoDB writes in one batch, twice over.
pub const STATE_KEYS_MAX: usize = 50;

/// The version of a value: grows within a session with every write, and no two writes share one. 0:
/// there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateVersion(#[serde(with = "crate::text")] pub u64);

/// Values to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadStateRequest {
    /// The session.
    pub of: SessionRef,
    /// 1 to [`STATE_KEYS_MAX`] keys.
    #[serde(deserialize_with = "crate::bounded::list::<_, _, STATE_KEYS_MAX>")]
    pub keys: Vec<StateKey>,
}

/// One key as it was read or written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEntry {
    /// The key.
    pub key: StateKey,
    /// The version; 0 where there is no value.
    pub version: StateVersion,
    /// The value; absent where there is none, and in the answer to a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
}

/// Values to be written, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteStateRequest {
    /// The session.
    pub of: SessionRef,
    /// 1 to [`STATE_KEYS_MAX`] writes, of different keys.
    #[serde(deserialize_with = "crate::bounded::list::<_, _, STATE_KEYS_MAX>")]
    pub writes: Vec<StateWrite>,
    /// An idempotency key: a repeated request with the same one gets the first answer, and writes
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

/// One value to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateWrite {
    /// The key.
    pub key: StateKey,
    /// The value. Absent: the key goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// Only if the key has this version; 0: only if it has no value. Absent: whatever it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<StateVersion>,
    /// The value expires after so many ms, at least 1: from then on the key has none. Absent: it
    /// stays. Only with a value.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_ms: Option<u64>,
}

impl StateWrite {
    /// Writes this value, whatever the key has.
    #[must_use]
    pub fn new(key: StateKey, value: Json) -> Self {
        Self {
            key,
            value: Some(value),
            expected: None,
            expires_ms: None,
        }
    }

    /// Removes the value of a key.
    #[must_use]
    pub fn remove(key: StateKey) -> Self {
        Self {
            key,
            value: None,
            expected: None,
            expires_ms: None,
        }
    }

    /// Only if the key has this version; 0: only if it has no value.
    #[must_use]
    pub fn expected(self, version: StateVersion) -> Self {
        Self {
            expected: Some(version),
            ..self
        }
    }

    /// The value expires after this time: from then on the key has none. A daemon of before this
    /// was known keeps the value.
    #[must_use]
    pub fn expires(self, after: Duration) -> Self {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
        Self {
            expires_ms: Some(after_ms),
            ..self
        }
    }
}

/// Keys to be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListStateRequest {
    /// The session.
    pub of: SessionRef,
    /// Only what comes after this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<StateKey>,
}

/// One key in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKeyInfo {
    /// The key.
    pub key: StateKey,
    /// The version of its value.
    pub version: StateVersion,
    /// The bytes of its value.
    pub bytes: u32,
    /// When the value expires, in ms since the Unix epoch; absent: it stays.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_ms: Option<u64>,
}
