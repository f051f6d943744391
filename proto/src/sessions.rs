//! Sessions as their owners see them: life, status, binding, handles.

mod fields;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::json::Json;
use crate::names::{RequestId, ServiceName};
use crate::types::{Epoch, Label, SessionId};

use fields::{CallerFields, StatusFields};

/// Names a session, and says on whose behalf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRef {
    /// The session.
    pub session: SessionId,
    /// The service that owns it. Absent: the caller's host does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The epoch of the lease, which every change of a host's session must carry. A service's
    /// sessions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Who is asking, where the session is bound to somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

/// A session to be emptied. On the wire it is a [`SessionRef`] with one field more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    /// As in [`SessionRef`].
    pub session: SessionId,
    /// As in [`SessionRef`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// As in [`SessionRef`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// As in [`SessionRef`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// An idempotency key: a repeated request with the same one empties nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

impl ResetRequest {
    /// Of this session.
    #[must_use]
    pub fn new(of: SessionRef, request: Option<RequestId>) -> Self {
        let SessionRef {
            session,
            service,
            epoch,
            caller,
        } = of;
        Self {
            session,
            service,
            epoch,
            caller,
            request,
        }
    }

    /// The session.
    #[must_use]
    pub fn of(self) -> SessionRef {
        let Self {
            session,
            service,
            epoch,
            caller,
            ..
        } = self;
        SessionRef {
            session,
            service,
            epoch,
            caller,
        }
    }
}

/// The caller of a server, as the server has verified it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", try_from = "CallerFields")]
pub enum Caller {
    /// By a token's claims (RFC 9068, section 2.2): these stay the same when the token is
    /// refreshed.
    Identity {
        /// Who issued it.
        iss: String,
        /// Whom it is about.
        sub: String,
    },
    /// By a credential that says nothing of itself: its hash.
    Credential {
        /// SHA-256 of the credential.
        hash: CredentialHash,
    },
}

/// Bytes that `iss` and `sub` may have at most, each.
pub const IDENTITY_MAX: usize = 2_048;

/// SHA-256 of a credential. `bin` in MessagePack, 64 hexadecimal digits in JSON; never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CredentialHash(pub [u8; 32]);

impl fmt::Debug for CredentialHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CredentialHash")
    }
}

impl Serialize for CredentialHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&crate::text::hex(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for CredentialHash {
    /// Takes either form.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = CredentialHash;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter
                    .write_str("the hash of a credential: 32 bytes, in JSON 64 hexadecimal digits")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<CredentialHash, E> {
                bytes
                    .try_into()
                    .map(CredentialHash)
                    .map_err(|_| E::invalid_length(bytes.len(), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<CredentialHash, E> {
                let wrong = || E::invalid_length(text.len(), &self);
                let digits = text.as_bytes();
                let byte =
                    |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(wrong());
                }
                let bytes: Vec<u8> = digits.chunks(2).filter_map(byte).collect();
                self.visit_bytes(&bytes)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// To whom a session is bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Who every later request must come from.
    pub caller: Caller,
    /// What a request of somebody else does beside being refused.
    #[serde(default)]
    pub on_mismatch: OnMismatch,
}

/// What a request of somebody else does to a session that is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMismatch {
    /// Nothing: it is refused.
    #[default]
    Refuse,
    /// It is refused, and the session is terminated.
    Terminate,
}

/// The most bytes that a status may have as JSON: enough for dozens of failed parts, each with a
/// sentence.
pub const STATUS_MAX: usize = 16 * 1024;

/// The most bytes that the metadata of a session may have: capabilities and names, many times over.
pub const METADATA_MAX: usize = 64 * 1024;

/// How far a session has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", try_from = "StatusFields")]
pub enum Status {
    /// It was made, and is not ready yet.
    #[default]
    Initializing,
    /// It can be worked with, though perhaps not with all of it.
    Ready {
        /// Its parts, where it has several.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        parts: Vec<Part>,
    },
    /// It can't be worked with.
    Failed {
        /// Its parts, where it has several: which of them failed.
        parts: Vec<Part>,
    },
    /// It has ended. Nothing brings it back.
    Terminated,
}

impl Status {
    /// It can be worked with, all of it.
    #[must_use]
    pub fn ready() -> Self {
        Self::Ready { parts: Vec::new() }
    }

    /// Its parts, where it has several.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        match self {
            Self::Ready { parts } | Self::Failed { parts } => parts,
            Self::Initializing | Self::Terminated => &[],
        }
    }
}

/// A part of a session, such as one of several backends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Which.
    pub part: String,
    /// How far it has come.
    pub is: PartState,
    /// Since when, in ms since the Unix epoch. Of one that is ready: when it was initialised.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub since_ms: Option<u64>,
    /// What kind of failure it is, in a word or a number of the part's own protocol. It is logged,
    /// and a label of a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far a part of a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    /// It is being started.
    Initializing,
    /// It can be used.
    Ready,
    /// It can't be used.
    Failed,
    /// Its turn has not come yet: not the same as failed.
    NotTried,
}

impl PartState {
    /// Its name, as on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::NotTried => "not_tried",
        }
    }
}

/// How long a session lives, in ms. What is absent is as configured; 0: without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lifetimes {
    /// After the last activity.
    #[serde(
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub idle_ms: Option<u64>,
    /// After it was made, whatever happens.
    #[serde(
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub absolute_ms: Option<u64>,
    /// After its last client has gone (`detach_session`, or the end of the connection that attached
    /// it).
    #[serde(
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub grace_ms: Option<u64>,
}

/// A new session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateRequest {
    /// Its id. Absent: the daemon makes one, and then a call whose answer was lost can't be
    /// repeated: have an id of your own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The service that owns it. Absent: the caller's host does, and the caller gets the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// An idempotency key: a repeated request with the same one gets the first answer, not
    /// `already_exists`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// To whom it is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// How long it lives.
    pub lifetimes: Lifetimes,
    /// How far it has come.
    pub status: Status,
    /// What the handshake said: client info, capabilities, protocol version. Up to 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// What is to be different about a session. What is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest {
    /// The session.
    pub of: SessionRef,
    /// How far it has come. `terminated` is refused: that is a call of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What the handshake said, in place of what it said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// How long it lives.
    #[serde(default)]
    pub lifetimes: Lifetimes,
}

/// A session as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub session: SessionId,
    /// The service that owns it; absent where a host does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// What people know the server by that it was made for; absent where a service owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The label, or the name, that it was claimed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The epoch of the caller's lease, where a call has just given it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// How far it has come.
    pub status: Status,
    /// What the handshake said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// Whether it is bound to a caller.
    pub bound: bool,
    /// When it was made, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub created_ms: u64,
    /// When there was activity last, as far as it is on record, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub active_ms: u64,
    /// When it ends if nothing happens, in ms since the Unix epoch; absent: it does not by itself.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_ms: Option<u64>,
    /// Clients that are attached through this daemon.
    pub attached: u32,
    /// The number of its last event; 0: there was none.
    #[serde(with = "crate::text")]
    pub last_number: u64,
    /// State values.
    pub state_keys: u32,
    /// Bytes of their keys and values.
    #[serde(with = "crate::text")]
    pub state_bytes: u64,
    /// Streams.
    pub streams: u32,
    /// Events that can be replayed, priming events among them.
    pub events: u32,
    /// Bytes of their messages.
    #[serde(with = "crate::text")]
    pub event_bytes: u64,
}

/// Which of the caller's own sessions a list begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnSessions {
    /// The service that owns them. Absent: the caller's host does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Only what comes after this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<SessionId>,
}

/// A new credential in place of the current one, which goes on being good for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// The session; `caller` is the credential that it is bound to now.
    pub of: SessionRef,
    /// The new one.
    pub hash: CredentialHash,
    /// How long the former one is still good, in ms. Absent: 60,000.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub grace_ms: Option<u64>,
}

/// A handle to be made for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MintRequest {
    /// The session.
    pub of: SessionRef,
    /// How long the handle is good, in ms. Absent: as configured, which is also the longest.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub life_ms: Option<u64>,
}

/// Bytes that the text of a handle has.
pub const HANDLE_LEN: usize = 43;

/// What a server gives to a client of the sessionless era (MCP 2026-07-28) to come back with: 256
/// random bits as base64url (RFC 4648, section 5), which only a hash is kept of. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Handle(pub String);

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Handle")
    }
}

/// A new handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minted {
    /// The handle. It is told this once.
    pub handle: Handle,
    /// Until when it is good, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub expires_ms: u64,
}

/// Which session a handle belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenHandleRequest {
    /// The handle.
    pub handle: Handle,
    /// The service that owns the session. Absent: the caller's host does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Who is asking, where the session is bound to somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_credential_is_binary_in_messagepack_and_hexadecimal_in_json() {
        let caller = Caller::Credential {
            hash: CredentialHash([0xab; 32]),
        };
        let bytes = rmp_serde::to_vec_named(&caller).expect("msgpack");
        assert!(bytes.len() < 64, "32 bytes, not 64 digits");
        assert_eq!(
            rmp_serde::from_slice::<Caller>(&bytes).expect("back"),
            caller
        );
        let json = serde_json::to_value(&caller).expect("json");
        assert_eq!(json["hash"], "ab".repeat(32));
        assert_eq!(
            serde_json::from_value::<Caller>(json).expect("back"),
            caller
        );
        for wrong in ["ab".repeat(31), "xy".repeat(32), String::new()] {
            let wrong = serde_json::json!({"kind": "credential", "hash": wrong});
            let error = serde_json::from_value::<Caller>(wrong)
                .expect_err("no hash")
                .to_string();
            assert!(
                !error.contains("abab") && !error.contains("xyxy"),
                "{error}"
            );
        }
        let rotate = RotateRequest {
            of: SessionRef {
                session: SessionId::mint(),
                service: None,
                epoch: None,
                caller: Some(caller),
            },
            hash: CredentialHash([1; 32]),
            grace_ms: None,
        };
        let bytes = rmp_serde::to_vec_named(&rotate).expect("msgpack");
        assert_eq!(
            rmp_serde::from_slice::<RotateRequest>(&bytes).expect("back"),
            rotate
        );
    }
}
