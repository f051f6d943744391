//! What is known of how a server begins. MCP has two eras, and hosts of 2026 find out which one a
//! stdio server speaks by sending it `server/discover` first: the *probe*. Some servers answer it,
//! some refuse it, some exit, some say nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::json::Json;

/// How long a fact counts after it was last asked for, in ms: a week. A server that is used more
/// rarely is asked once more.
pub const FACTS_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// So many connections in a row that have only probed, and the next one that probes may be a
/// host's that speaks MCP 2026-07-28 alone: it is shown a server that was sent nothing else.
pub const PROBES_MAX: u32 = 2;

/// The most bytes of a server's own error that are remembered. Others are answered with -32601.
pub const DISCOVER_ERROR_MAX: usize = 4 * 1024;

/// The error by which a probe is refused in a server's place where its own error is not known, or is
/// too long.
pub const PLAIN_REFUSAL: &str = r#"{"code":-32601,"message":"Method not found: server/discover"}"#;

/// The most bytes of a `serverInfo.version` that are remembered. A longer one counts as none.
pub const VERSION_MAX: usize = 128;

/// Hex digits of a [`ServerDigest`].
const DIGITS: usize = 32;

/// Identifies what a server is started with: its command, directory and environment, and the files
/// of its program as they are; of a remote server, its address and headers. 32 hex digits, the first
/// half of a SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerDigest(Box<str>);

/// The text is not a [`ServerDigest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the digest of a server is {DIGITS} lowercase hex digits")]
pub struct ServerDigestError;

impl ServerDigest {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first half of a SHA-256.
    #[must_use]
    pub fn of(sha256: &[u8]) -> Self {
        let digits: String = crate::text::hex(&sha256[..sha256.len().min(DIGITS / 2)]);
        Self(digits.into())
    }
}

impl fmt::Display for ServerDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ServerDigest {
    type Err = ServerDigestError;
    fn from_str(text: &str) -> Result<Self, ServerDigestError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == DIGITS && text.bytes().all(is_digit) {
            Ok(Self(text.into()))
        } else {
            Err(ServerDigestError)
        }
    }
}

impl TryFrom<String> for ServerDigest {
    type Error = ServerDigestError;
    fn try_from(text: String) -> Result<Self, ServerDigestError> {
        text.parse()
    }
}

impl From<ServerDigest> for String {
    fn from(digest: ServerDigest) -> Self {
        digest.0.into()
    }
}

/// What a server does with `server/discover` as its first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discover {
    /// It answers, or says that it does not speak the version that was asked for (-32022): it
    /// speaks MCP 2026-07-28.
    Answers {},
    /// It refuses.
    Refuses {
        /// The JSON-RPC error object that it answers with.
        error: Json,
    },
    /// It exits. Started again and sent `initialize` first, it serves.
    Exits {},
    /// It says nothing, and serves who goes on with `initialize`.
    Mute {},
}

impl Discover {
    /// Whether a host is answered in the server's place, so that the server never sees the probe.
    #[must_use]
    pub fn is_answered_for(&self) -> bool {
        !matches!(self, Self::Answers {})
    }

    /// The error that the server itself has given.
    #[must_use]
    pub fn error(&self) -> Option<&Json> {
        match self {
            Self::Refuses { error } => Some(error),
            Self::Answers {} | Self::Exits {} | Self::Mute {} => None,
        }
    }
}

/// What the daemon remembers of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// How it takes the probe. None: nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discover: Option<Discover>,
    /// How many connections in a row have only probed, and left.
    pub probed: u32,
}

/// Asks what is known of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactsRequest {
    /// The server.
    pub server: ServerDigest,
}

/// Tells the daemon what was seen of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnRequest {
    /// The server.
    pub server: ServerDigest,
    /// What was seen.
    pub learned: Learned,
}

/// What was seen of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learned {
    /// How a fresh one took the probe.
    Discover(Discover),
    /// A connection has only probed, and leaves.
    Probed {},
    /// A client has sent `initialize`: nobody has only probed for now.
    Initialized {},
    /// A fresh one of which something is known has this `serverInfo.version`. What another version
    /// has shown is forgotten.
    Version(String),
    /// What was known may be wrong: the server was restarted by its user, or refuses `initialize`; or
    /// three connections in a row have only probed it.
    Forgotten {},
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_text() {
        let digest = ServerDigest::of(&[0xab; 32]);
        assert_eq!(digest.as_str().parse(), Ok(digest.clone()));
        for bad in ["", "ab", &"A".repeat(32), &"g".repeat(32), &"a".repeat(33)] {
            assert_eq!(
                bad.parse::<ServerDigest>(),
                Err(ServerDigestError),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn facts_are_json_that_people_can_read() {
        let error = Json::new(r#"{"code":-32601,"message":"no"}"#).expect("JSON");
        let refuses = serde_json::to_value(Discover::Refuses { error }).expect("JSON");
        assert_eq!(
            refuses,
            serde_json::json!({"refuses": {"error": "{\"code\":-32601,\"message\":\"no\"}"}})
        );
        let learned = serde_json::to_string(&Learned::Discover(Discover::Exits {}));
        assert_eq!(learned.expect("JSON"), r#"{"discover":{"exits":{}}}"#);
    }
}
