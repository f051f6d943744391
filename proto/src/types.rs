//! The nouns that requests and answers are made of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::token::Token;

/// Bytes that a session id may have at most.
pub const SESSION_ID_MAX: usize = 128;

/// Bytes that a label may have at most: it is typed by people, into a configuration file.
pub const LABEL_MAX: usize = 128;

/// The id of a session: visible ASCII (0x21 to 0x7E, as MCP 2025-11-25 has it for `Mcp-Session-Id`), 1 to 128
/// bytes. Those that the daemon makes are UUIDs of version 7.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Box<str>);

impl SessionId {
    /// A new id that nobody has.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::now_v7().to_string().into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that is no [`SessionId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session id is 1 to {SESSION_ID_MAX} visible ASCII characters (0x21 to 0x7E)")]
pub struct SessionIdError;

impl FromStr for SessionId {
    type Err = SessionIdError;
    fn from_str(text: &str) -> Result<Self, SessionIdError> {
        let visible = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        if visible && (1..=SESSION_ID_MAX).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(SessionIdError)
        }
    }
}

impl TryFrom<String> for SessionId {
    type Error = SessionIdError;
    fn try_from(text: String) -> Result<Self, SessionIdError> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0.into()
    }
}

/// The number of a lease. It only grows within a session, and every mutation carries it. In JSON: decimal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(#[serde(with = "crate::text")] pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A name that the configuration gives an instance, in place of its directory and environment: printable, 1 to
/// 128 bytes, without blanks at its ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(Box<str>);

impl Label {
    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no [`Label`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a label is 1 to {LABEL_MAX} bytes of printable text, without blanks at its ends")]
pub struct LabelError;

impl FromStr for Label {
    type Err = LabelError;
    fn from_str(text: &str) -> Result<Self, LabelError> {
        let printable = !text.chars().any(char::is_control) && text.trim() == text;
        if printable && (1..=LABEL_MAX).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(LabelError)
        }
    }
}

impl TryFrom<String> for Label {
    type Error = LabelError;
    fn try_from(text: String) -> Result<Self, LabelError> {
        text.parse()
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0.into()
    }
}

/// What a claim gets where several sessions of a host have the same key and can't be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Siblings {
    /// A session of its own, always.
    #[default]
    Fresh,
    /// The session opened first that nobody holds: for hosts whose sessions are interchangeable.
    Oldest,
}

/// The claim of a session, for the process that sends it or for one of its ancestors.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimRequest {
    /// The pid of the instance, where that is an ancestor of the sender (a command that speaks for its caller).
    /// Absent: the sender itself. The daemon verifies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// Takes the place of directory and environment in the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Overrides the configured `siblings` for this claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub siblings: Option<Siblings>,
    /// How long to wait, in ms, for another holder to be gone. It can only shorten the configured `claim_wait_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
    /// Ends the session that would be resumed or kept, and opens a new one in its place (stdio's `initialize` begins
    /// anew). False where absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

/// A granted claim: the lease, and the token that the session holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claimed {
    /// The session.
    pub session: SessionId,
    /// The number that every mutation under this lease must carry.
    pub epoch: Epoch,
    /// How it came to this session.
    pub outcome: Outcome,
    /// What became of the token.
    pub token_status: TokenStatus,
    /// The token, where `token_status` is `present`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// How a claim came to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The process held it already: the same lease, the same epoch.
    Held,
    /// A former instance's session, which nobody held.
    Resumed,
    /// A new session: the owner has none with this key, or the claim asked for a fresh one.
    FreshFirst,
    /// A new session: the one with this key stayed held by another live process.
    FreshHeld,
    /// A new session: several sessions of this owner have this key and can't be told apart.
    FreshPlural,
    /// A new session, which nobody will resume: what the key is made of could not be read.
    FreshDoubtful,
}

impl Outcome {
    /// Whether the session is a new one.
    #[must_use]
    pub fn is_fresh(self) -> bool {
        !matches!(self, Self::Held | Self::Resumed)
    }
}

/// What the daemon found where the token should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenStatus {
    /// There is none: first run or clean slate.
    Absent,
    /// There is one, and it is the one that was stored last.
    Present,
    /// There was one that could not be trusted. It was deleted.
    Corrupted,
}

/// A new token for a leased session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRequest {
    /// The session.
    pub session: SessionId,
    /// The epoch of the lease that it is stored under.
    pub epoch: Epoch,
    /// The token, which takes the place of the former one.
    pub token: Token,
}

/// A stored token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Whether this is the first store after a load under this lease, without a reject in between: the broker
    /// accepted the token that it was offered.
    pub resumed: bool,
}

/// Names a lease: what `reject_token` and `release` are about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRef {
    /// The session.
    pub session: SessionId,
    /// The epoch of the lease.
    pub epoch: Epoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_visible_ascii() {
        assert!("!~".parse::<SessionId>().is_ok());
        for bad in ["", "a b", "a\u{7f}", "é", &"x".repeat(SESSION_ID_MAX + 1)] {
            assert_eq!(bad.parse::<SessionId>(), Err(SessionIdError), "{bad:?}");
        }
        assert!(SessionId::mint() < SessionId::mint(), "version 7 is in order of time");
    }

    #[test]
    fn an_epoch_is_text_in_json_and_a_number_in_messagepack() {
        let epoch = Epoch(u64::MAX);
        assert_eq!(serde_json::to_string(&epoch).expect("json"), "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<Epoch>("\"18446744073709551615\"").expect("text"), epoch);
        assert_eq!(serde_json::from_str::<Epoch>("7").expect("number"), Epoch(7));
        assert_eq!(rmp_serde::to_vec_named(&epoch).expect("msgpack").len(), 9);
    }
}
