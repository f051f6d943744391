//! Names that callers choose: services, streams, state keys, requests. Each can hold only what is
//! allowed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes that the name of a service may have at most.
pub const SERVICE_NAME_MAX: usize = 128;
/// Bytes that the id of a stream may have at most: those of the SDKs are UUIDs, or `_GET_stream`.
pub const STREAM_ID_MAX: usize = 128;
/// Bytes that a state key may have at most.
pub const STATE_KEY_MAX: usize = 240;
/// Bytes that the name of a backend may have at most: hosts' files give their servers names that
/// people type.
pub const BACKEND_NAME_MAX: usize = 128;
/// Bytes that the id of a request may have at most: a UUID has 36.
pub const REQUEST_ID_MAX: usize = 64;

/// Bytes that the id of a task may have at most: the daemon's have 44.
pub const TASK_ID_MAX: usize = 64;
/// Bytes that the key of a request of a task's may have at most.
pub const INPUT_KEY_MAX: usize = 128;

/// A text that is none of these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} is 1 to {most} bytes of {kind}")]
pub struct NameError {
    what: &'static str,
    most: usize,
    kind: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $most:ident, $kind:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                let allowed: fn(char) -> bool = $allowed;
                if (1..=$most).contains(&text.len()) && text.chars().all(allowed) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError { what: $what, most: $most, kind: $kind })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.into()
            }
        }
    };
}

name! {
    /// The name of a service: an owner of sessions that no host started, such as an HTTP server.
    /// Every process of this user that says the name is the service.
    ServiceName, "the name of a service", SERVICE_NAME_MAX, "visible ASCII (0x21 to 0x7E)",
    |letter| letter.is_ascii_graphic()
}
name! {
    /// The id of a stream within its session.
    StreamId, "the id of a stream", STREAM_ID_MAX, "visible ASCII (0x21 to 0x7E)",
    |letter| letter.is_ascii_graphic()
}
name! {
    /// The key of a state value.
    StateKey, "a state key", STATE_KEY_MAX, "text without control characters", |letter| !letter.is_control()
}
name! {
    /// The caller's id of a request that may be repeated after its answer was lost: drawn at
    /// random, used once.
    RequestId, "the id of a request", REQUEST_ID_MAX, "visible ASCII (0x21 to 0x7E)",
    |letter| letter.is_ascii_graphic()
}

name! {
    /// What tells a backend from the others of its session.
    BackendName, "the name of a backend", BACKEND_NAME_MAX, "text without control characters",
    |letter| !letter.is_control()
}
name! {
    /// The id of a task. The daemon draws it.
    TaskId, "the id of a task", TASK_ID_MAX, "visible ASCII (0x21 to 0x7E)", |letter| letter.is_ascii_graphic()
}
name! {
    /// The key of a request that a task has for its client.
    InputKey, "the key of a task's request", INPUT_KEY_MAX, "text without control characters",
    |letter| !letter.is_control()
}

impl BackendName {
    /// What people call the backend: a member of a list by its name there, without the digits behind
    /// a `#` that tell it from one that had the name before.
    #[must_use]
    pub fn in_list(&self) -> &str {
        let whole = self.as_str();
        whole.rsplit_once('#').map_or(whole, |(name, _)| name)
    }
}

impl StreamId {
    /// The stream that a client has opened by GET, and that takes what belongs to no request: every
    /// session has it. The SDKs call it so.
    pub const STANDALONE: &'static str = "_GET_stream";

    /// [`StreamId::STANDALONE`].
    #[must_use]
    pub fn standalone() -> Self {
        Self(Self::STANDALONE.into())
    }
}

impl RequestId {
    /// A new id that nobody has.
    #[must_use]
    pub fn mint() -> Self {
        Self(uuid::Uuid::now_v7().simple().to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_what_is_allowed() {
        assert!(
            "!~".parse::<ServiceName>().is_ok() && StreamId::STANDALONE.parse::<StreamId>().is_ok()
        );
        assert!("größe des Fensters".parse::<StateKey>().is_ok());
        assert!("a b".parse::<StreamId>().is_err() && "a\n".parse::<StateKey>().is_err());
        let error = "x"
            .repeat(129)
            .parse::<ServiceName>()
            .expect_err("too long")
            .to_string();
        assert_eq!(
            error,
            "the name of a service is 1 to 128 bytes of visible ASCII (0x21 to 0x7E)"
        );
    }
}
