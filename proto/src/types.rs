//! The nouns that requests and answers are made of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::losses::{Loss, LossId, LossRecord};
use crate::names::ServiceName;
use crate::text::is_harmful;
use crate::token::Token;

/// Bytes that a session id may have at most.
pub const SESSION_ID_MAX: usize = 128;

/// Bytes that a label may have at most: it is typed by people, into a configuration file.
pub const LABEL_MAX: usize = 128;

/// The id of a session: visible ASCII (0x21 to 0x7E, as MCP 2025-11-25 has it for
/// `Mcp-Session-Id`), 1 to 128 bytes. Those that the daemon makes are UUIDs of version 7.
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

/// The number of a lease. It only grows within a session, and every mutation carries it. In JSON:
/// decimal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(#[serde(with = "crate::text")] pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A name that the configuration gives an instance, in place of its directory and environment:
/// printable, 1 to 128 bytes, without blanks at its ends.
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
        let printable = !text.chars().any(is_harmful) && text.trim() == text;
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

/// Bytes that the name of a client may have at most: it is a program's own name for itself.
pub const CLIENT_NAME_MAX: usize = 256;

/// What a host calls itself: `clientInfo.name` of its first message (MCP, `initialize`; from
/// 2026-07-28 on in `_meta`). Any text of up to 256 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientName(Box<str>);

impl ClientName {
    /// The name, cut where it is longer than [`CLIENT_NAME_MAX`].
    #[must_use]
    pub fn cut(name: &str) -> Self {
        let mut end = name.len().min(CLIENT_NAME_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        Self(name[..end].into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no [`ClientName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a client has at most {CLIENT_NAME_MAX} bytes")]
pub struct ClientNameError;

impl FromStr for ClientName {
    type Err = ClientNameError;
    fn from_str(text: &str) -> Result<Self, ClientNameError> {
        if text.len() <= CLIENT_NAME_MAX {
            Ok(Self(text.into()))
        } else {
            Err(ClientNameError)
        }
    }
}

impl TryFrom<String> for ClientName {
    type Error = ClientNameError;
    fn try_from(text: String) -> Result<Self, ClientNameError> {
        text.parse()
    }
}

impl From<ClientName> for String {
    fn from(name: ClientName) -> Self {
        name.0.into()
    }
}

/// What a claim gets where the host has, or had, several servers with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Siblings {
    /// The only session that nobody holds, if no other server of the key lives; else a session of
    /// its own.
    #[default]
    Fresh,
    /// The only session that nobody holds, also while others live: for hosts that close a server
    /// before they start the next.
    Successor,
    /// The session opened first that nobody holds: for hosts whose sessions are interchangeable.
    Oldest,
    /// A session of its own, always. It ends with its server: for programs that serve several
    /// clients from one process.
    Never,
}

impl Siblings {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fresh, Self::Successor, Self::Oldest, Self::Never];

    /// The word for it, in configuration, requests and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Successor => "successor",
            Self::Oldest => "oldest",
            Self::Never => "never",
        }
    }
}

/// A text that is no [`Siblings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`siblings` is `fresh`, `successor`, `oldest` or `never`")]
pub struct SiblingsError;

impl FromStr for Siblings {
    type Err = SiblingsError;
    fn from_str(text: &str) -> Result<Self, SiblingsError> {
        Self::ALL
            .into_iter()
            .find(|siblings| siblings.as_str() == text)
            .ok_or(SiblingsError)
    }
}

/// Whether a kept server goes on serving its host's next connection. The stricter comes first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// No: it ends with its connection. For hosts that run many conversations in one process, and
    /// don't say which of them starts a server.
    Never,
    /// Nothing is known of the host. It may end a conversation by closing its server or by killing it,
    /// so a used server ends with its connection. One that nobody has used goes on after a cut.
    Unknown,
    /// Only where the former connection was cut off: an orderly close ends the server, as it would
    /// end a direct child.
    Cut,
    /// The host names the conversation to its servers, and may close a server also where that goes on:
    /// after an orderly close only if the host starts the next front at once.
    Conversation,
    /// Yes, also after an orderly close.
    #[default]
    Always,
}

impl Resume {
    /// What is told of a used server that has ended by this rule. None: it ends none.
    #[must_use]
    pub fn loss(self) -> Option<Loss> {
        match self {
            Self::Never => Some(Loss::Conversations),
            Self::Unknown => Some(Loss::UnknownHost),
            Self::Cut => Some(Loss::Closed),
            Self::Conversation => Some(Loss::ClosedEarlier),
            Self::Always => None,
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Always,
        Self::Conversation,
        Self::Cut,
        Self::Unknown,
        Self::Never,
    ];

    /// Those that a user may choose.
    pub const CHOICES: [Self; 3] = [Self::Always, Self::Cut, Self::Never];

    /// The word for it, in configuration, requests and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Conversation => "conversation",
            Self::Cut => "cut",
            Self::Unknown => "unknown",
            Self::Never => "never",
        }
    }
}

/// A text that is no [`Resume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`resume` is `always`, `cut` or `never`")]
pub struct ResumeError;

impl FromStr for Resume {
    type Err = ResumeError;
    fn from_str(text: &str) -> Result<Self, ResumeError> {
        Self::ALL
            .into_iter()
            .find(|resume| resume.as_str() == text)
            .ok_or(ResumeError)
    }
}

/// A session that belongs to the user and not to a host, by a name that the user has chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The name.
    pub name: Label,
    /// A digest of the command and its arguments, as hexadecimal text of 1 to 128 digits. Another
    /// one under the same name is refused.
    pub command: String,
    /// Takes the session from whoever holds it; where it is another command's, ends that and begins
    /// afresh.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take: bool,
    /// Where another process has the session under the same command, a session of the claimer's own
    /// host is claimed in its place. Else the claim is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

impl Named {
    /// What a server is called that a host has beside the one of this name. None: that is too long.
    #[must_use]
    pub fn own_name(&self) -> Option<Label> {
        format!("{} (own)", self.name.as_str()).parse().ok()
    }
}

/// The claim of a session, for the process that sends it or for one of its ancestors.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimRequest {
    /// The pid of the instance, where that is an ancestor of the sender (a command that speaks for
    /// its caller). Absent: the sender itself. The daemon verifies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// Takes the place of directory and environment in the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Overrides the configured `siblings` for this claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub siblings: Option<Siblings>,
    /// The name of the instance's entry in its host's file. A session that was claimed with the
    /// same one, for another program or other arguments, is what the entry was before it was
    /// edited: it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Label>,
    /// What the host calls itself. It narrows the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientName>,
    /// Claims a session of the user's, by its name: no host has to be verified, and none of the key
    /// counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<Named>,
    /// What people know the server by, where that is not the name of its executable
    /// (`npx @playwright/mcp`): printable, 1 to 255 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// When nobody waits for the answer any more: in ms of the machine's `CLOCK_MONOTONIC`. Nothing
    /// is granted after it. In JSON: decimal text.
    #[serde(
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub until_ms: Option<u64>,
    /// How long to wait, in ms, for another holder to be gone. It can only shorten the configured
    /// `claim_wait_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
    /// Ends the session that would be resumed or kept, and opens a new one in its place (stdio's
    /// `initialize` begins anew). False where absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// The caller tells its user what was lost, and then says so by `loss_told`. Until then every
    /// claim of this key carries the record. False where absent: the answer counts as telling it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub confirms_loss: bool,
    /// The claim of a front: its host's row decides whether the session is resumed, and an unknown
    /// host gets it back after a cut only. False where absent: the author of the server has opted
    /// in, so only rows that say `never` count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wrapped: bool,
    /// Overrides the table of hosts for this claim: whether its session is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// The keeper has refused this process, which holds the session: the former connection was
    /// closed, and the host's rule forbids a resume. The session ends, and a new one is opened in
    /// its place. The value says whether the backend had been used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<bool>,
}

/// A user was told of losses that a claim has carried, or the client of a service's session of what that
/// has lost. Sent by the process that has claimed, or that has leased the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossToldRequest {
    /// The session.
    pub session: SessionId,
    /// The epoch of the lease on the session, or on `service` if that is set.
    pub epoch: Epoch,
    /// The service that the session belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The losses. Those that are not on record any more are passed over.
    pub losses: Vec<LossId>,
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
    /// What was lost before this claim, where something was: a session that it would have got, or
    /// the backend of the one that it got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Loss>,
    /// What is on record of that, and of the members of a list whose session this is. To a claim
    /// with `confirms_loss` it is told until it was confirmed, to any other one once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LossRecord>,
    /// The session is one of the claimer's own host, since the name that was claimed is in use, or was:
    /// a sentence that says by whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
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
    /// A new session: another live process with this key stayed.
    FreshHeld,
    /// A new session: several with this key were free, and can't be told apart; or two instances
    /// waited for one.
    FreshPlural,
    /// A new session, which ends with its holder: nothing is resumed by key for this host.
    FreshNever,
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
    /// Whether this is the first store after a load under this lease, without a reject in between:
    /// the broker accepted the token that it was offered.
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
mod tests;
