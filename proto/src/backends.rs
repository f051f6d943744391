//! Backends and their keepers: what a keeper tells the daemon, and the protocol on a keeper's
//! socket.
//!
//! A keeper's socket begins with the [hello](crate::hello) each way, with the codec 3. Then there are
//! [frames](frame). The client's first frame is a [`KeeperRequest`], and the keeper's a
//! [`KeeperReply`], in JSON. After `attached` both sides send messages and what else [`frame::Kind`]
//! has; after anything else the keeper hangs up.
//!
//! A front may *continue* another one. Then the keeper keeps each message until a front has
//! confirmed it, and the front sends its next one only after the keeper has taken the one before.

pub mod frame;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::facts::{Discover, ServerDigest};
use crate::json::Json;
use crate::losses::Loss;
use crate::names::{BackendName, ServiceName};
use crate::types::{Epoch, Resume, SessionId};

pub use status::{BackendState, BackendStatus, CallInfo, ParkedInfo, SharedUse, Traffic, Written};

/// The version of the protocol that this build speaks on keepers' sockets. It grows as the
/// [daemon's](crate::PROTOCOL_VERSION) does, and apart from that.
pub const KEEPER_VERSION: u16 = 3;

/// The oldest version that this build still serves there. Version 2 had lines instead of frames.
pub const OLDEST_KEEPER_VERSION: u16 = 3;

/// The most bytes of one relayed MCP message, without the newline, where `wrap.message_max_mib` says
/// nothing else: as many as the largest transports of the SDKs take.
pub const RELAYED_MAX: usize = 16 * 1024 * 1024;

/// That of this process, which relays for one user.
static OF_PROCESS: AtomicUsize = AtomicUsize::new(RELAYED_MAX);

/// The most bytes of one message that this process relays. Another process of the same user may have
/// another limit: of what is larger it keeps both ends, by which whoever waits gets an error.
#[must_use]
pub fn relayed_max() -> usize {
    OF_PROCESS.load(Ordering::Relaxed)
}

/// Sets it, before anything is relayed.
pub fn set_relayed_max(bytes: usize) {
    OF_PROCESS.store(bytes, Ordering::Relaxed);
}

/// The most ends of backends that a keeper remembers until a front has told them.
pub const ENDED_MAX: usize = 8;

/// What people are told where a backend has ended, and why.
#[must_use]
pub fn ended_sentence(why: &str) -> String {
    format!(
        "the server has ended ({why}); the next request starts a fresh one, and what this one had in memory is lost"
    )
}

/// The name of a keeper, which is that of its socket in `keepers/`: 8 hex digits, so that the path
/// fits everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeeperName(pub u32);

impl fmt::Display for KeeperName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}", self.0)
    }
}

/// The text is no [`KeeperName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a keeper is 8 lowercase hex digits")]
pub struct KeeperNameError;

impl FromStr for KeeperName {
    type Err = KeeperNameError;
    fn from_str(text: &str) -> Result<Self, KeeperNameError> {
        let name = u32::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| KeeperNameError)?;
        if name.to_string() == text {
            Ok(name)
        } else {
            Err(KeeperNameError)
        }
    }
}

impl TryFrom<String> for KeeperName {
    type Error = KeeperNameError;
    fn try_from(text: String) -> Result<Self, KeeperNameError> {
        text.parse()
    }
}

impl From<KeeperName> for String {
    fn from(name: KeeperName) -> Self {
        name.to_string()
    }
}

/// Identifies a process among all that have run since the system started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Its pid.
    pub pid: u32,
    /// When it started: clock ticks since boot on Linux, microseconds since the Unix epoch on
    /// macOS.
    #[serde(with = "crate::text")]
    pub start: u64,
    /// The inode of its pidfd, or macOS's unique id; absent on kernels before Linux 6.9.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub inode: Option<u64>,
}

/// Who may attach to a keeper's backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontLease {
    /// The process that holds the lease.
    pub process: ProcessRef,
    /// Whether it may have the backend as a former front left it.
    pub resume: Resume,
    /// When its host started it, or the outermost launcher before it: the latest ms that it can have
    /// been, of the clock that start times are read from. 0: that is not known.
    #[serde(with = "crate::text")]
    pub started_ms: u64,
    /// How soon after a close that has to be, in ms, where the host names the conversation.
    #[serde(with = "crate::text")]
    pub closed_again_ms: u64,
}

/// A keeper registers. Sent by the keeper itself, while it or an ancestor of it holds the lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepRequest {
    /// The session that the backend belongs to.
    pub session: SessionId,
    /// The epoch of the lease on the session, or on its service.
    pub epoch: Epoch,
    /// The keeper's name.
    pub keeper: KeeperName,
    /// What people know the backend by: its program and the package or script that it runs. At most
    /// 255 bytes.
    pub program: String,
    /// The service that the session belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The name of the backend, where the session has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// What the backend is started with, so that the keeper gets to know what is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerDigest>,
}

/// A registered keeper: what it has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The session's host. When it exits, the backend ends. None: the session is the user's own, or
    /// a service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ProcessRef>,
    /// How long the backend stays when no front is attached, in ms.
    #[serde(with = "crate::text")]
    pub linger_ms: u64,
    /// How long it stays after its front has said that it leaves, in ms.
    #[serde(with = "crate::text")]
    pub closed_linger_ms: u64,
    /// How long the backend may take to answer a ping before the keeper answers it in its place, in
    /// ms.
    #[serde(with = "crate::text")]
    pub ping_wait_ms: u64,
    /// How many orderly closes within `closes_ms` give the host a fresh backend: a user tries to
    /// repair it by reconnecting.
    pub closes: u32,
    /// The time within which they are counted, in ms.
    #[serde(with = "crate::text")]
    pub closes_ms: u64,
    /// How long a request of the backend waits for a front that can answer it, in ms.
    #[serde(with = "crate::text")]
    pub ask_wait_ms: u64,
    /// How long the backend has to exit after its standard input was closed, and again after
    /// SIGTERM, in ms.
    #[serde(with = "crate::text")]
    pub stop_wait_ms: u64,
    /// Messages that are kept for the next front. When there are more, the backend is not read
    /// from.
    pub queue_messages: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Bytes of the backend's standard error that are kept.
    pub stderr_bytes: usize,
    /// A copy of the session's record. The keeper gives it back to a daemon that has lost its
    /// records, and does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// How its backend takes `server/discover`, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discover: Option<Discover>,
}

/// How a front has left. Sent by the keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftRequest {
    /// The session.
    pub session: SessionId,
    /// The keeper's name.
    pub keeper: KeeperName,
    /// The epoch of the front's lease.
    pub epoch: Epoch,
    /// Whether the front had said that it was about to leave. Else it was cut off.
    pub orderly: bool,
    /// When it has said so, in ms of the clock that start times of processes are read from
    /// (`CLOCK_BOOTTIME` on Linux). 0: that is not known.
    #[serde(with = "crate::text")]
    pub at_ms: u64,
    /// Whether any front has had the backend do more than greet and list.
    pub used: bool,
}

/// Why a keeper is about to end, and its backend with it. Sent by the keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndingRequest {
    /// The session.
    pub session: SessionId,
    /// The keeper's name.
    pub keeper: KeeperName,
    /// Why. Absent: it never had a backend, so nothing is lost with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Loss>,
}

/// A keeper's totals. The keeper sends all of them each time, so a repeated message is not counted
/// twice.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedRequest {
    /// The session.
    pub session: SessionId,
    /// The keeper's name.
    pub keeper: KeeperName,
    /// The totals since it began.
    pub counted: Counts,
    /// The totals that a daemon has acknowledged.
    pub told: Counts,
}

/// Counts of messages that no front has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Messages that were on their way to a front when it ended.
    #[serde(with = "crate::text")]
    pub lost: u64,
    /// Answers to calls of former fronts, which nobody gets.
    #[serde(with = "crate::text")]
    pub parked: u64,
}

/// A keeper has started its backend, or started it again. Sent by the keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartedRequest {
    /// The session.
    pub session: SessionId,
    /// The keeper's name.
    pub keeper: KeeperName,
    /// The pid of the backend, which is the keeper's child.
    pub pid: u32,
    /// After a restart: why the former backend ended, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A keeper asks who may attach. Sent by the keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontRequest {
    /// The session.
    pub session: SessionId,
    /// The keeper's name.
    pub keeper: KeeperName,
    /// The epoch that a front has shown.
    pub epoch: Epoch,
}

/// Names a session whose backend is to be ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// The session, by the id that `debug` shows.
    pub session: SessionId,
    /// The service that it belongs to. Absent: the daemon looks among all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The backend to end. Absent: all of the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// Why. Absent: somebody wants it stopped.
    #[serde(default, skip_serializing_if = "StopReason::is_asked")]
    pub why: StopReason,
}

/// Why a backend is ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Somebody wants it stopped.
    #[default]
    Asked,
    /// This keeper hangs: it could answer, and has not for several seconds. It is killed, and only
    /// if it still is the backend's keeper.
    KeeperHung(KeeperName),
    /// This keeper lives, and its socket is gone, or it refuses every front. It is asked to end, and
    /// only if it still is the backend's keeper.
    KeeperUnreachable(KeeperName),
    /// The front that has started this keeper has given up, and none has attached. Its backend does
    /// not count as lost.
    KeeperUnattached(KeeperName),
}

impl StopReason {
    /// The keeper that is meant, if it is only one.
    #[must_use]
    pub fn keeper(self) -> Option<KeeperName> {
        match self {
            Self::Asked => None,
            Self::KeeperHung(keeper)
            | Self::KeeperUnreachable(keeper)
            | Self::KeeperUnattached(keeper) => Some(keeper),
        }
    }

    fn is_asked(&self) -> bool {
        *self == Self::Asked
    }
}

/// A registered backend, as the daemon knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Backend {
    /// The session, by the id that its owner knows.
    pub session: SessionId,
    /// The name of its keeper, which is that of a socket in `keepers/`.
    pub keeper: KeeperName,
    /// The keeper's pid.
    pub keeper_pid: u32,
    /// The host's pid. 0: the session is the user's own, or a service's.
    pub host: u32,
    /// The service that the session belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The name of the backend, where its keeper has registered with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// What people know the backend by, as its keeper has registered with.
    pub program: String,
    /// The pid of the backend; absent until it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What a client of a keeper's socket wants: its first frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeeperRequest {
    /// A front takes the backend. Another one that has it is cut off.
    Attach(Attach),
    /// A front takes a place beside others at a backend that hosts share. Its host's first message
    /// follows, in a frame.
    Join(Join),
    /// How the backend is.
    Status {},
    /// What the backend wrote to its standard error.
    Errors {
        /// Without the first so many bytes since the keeper started: `next` of the former answer.
        #[serde(with = "crate::text")]
        after: u64,
    },
    /// The backend is to be replaced by a fresh one.
    Restart {},
    /// A front that waits for something asks whether the keeper still does its work.
    Ping {},
    /// A daemon that has lost its records asks whose backend this is.
    Remember {},
    /// Which variables of the backend's environment differ from these.
    Compare {
        /// Digests of their values, by name.
        variables: BTreeMap<String, String>,
    },
    /// These texts, for others than the user: without what looks like a secret of the backend's.
    Hide {
        /// What is said of it.
        texts: Vec<String>,
    },
}

/// A front shows its lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The session.
    pub session: SessionId,
    /// The epoch of the front's lease.
    pub epoch: Epoch,
    /// The `initialize` that the host has sent to this front before, where a former keeper answered
    /// it: the backend is initialised with it, and the host does not notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialize: Option<Json>,
    /// The service that the session belongs to. Then `epoch` is that of the service's lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The front continues the former one: the keeper numbers each line that it hands out, and
    /// keeps it until a front confirms it. True for a service's session, and for no other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The first `tools/call` after the loss of a used backend is refused with the reason, so that a
    /// model reads it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuses_after_loss: bool,
    /// What was lost before this keeper was there, in a sentence. It is told as what the
    /// keeper has lost itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// A call of the host's that was open has failed with that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_is_told: bool,
}

/// A front's host wants to share a backend. Every process of the user may.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// What tells the shared backend from every other one.
    pub key: String,
    /// The pid of the process that has started the front.
    pub host: u32,
    /// The host has had its answer to its first message, from a keeper that is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// A keeper's answer: its first frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeeperReply {
    /// The front has the backend.
    Attached(Attached),
    /// How the backend is.
    Status(Box<BackendStatus>),
    /// What it wrote to its standard error.
    Errors(Written),
    /// The backend is taken down, and then a fresh one is started.
    Restarting {},
    /// The keeper does its work.
    Pong {},
    /// Whose backend it is.
    Remembered(Remembered),
    /// What was compared.
    Compared {
        /// The names of the variables that differ, in order.
        differing: Vec<String>,
    },
    /// What may be read by others.
    Hidden {
        /// As many texts as there were.
        texts: Vec<String>,
    },
    /// The host's rule forbids a resume: the former connection was closed in an orderly way, or
    /// every connection gets a server of its own. The front claims again, with `closed`.
    Closed {
        /// Whether the backend had been used.
        used: bool,
    },
    /// The front's host may have a place. Another answer follows the host's first message: `attached`,
    /// `own` or `later`, once the backend is initialised.
    Joining {
        /// The session.
        session: SessionId,
    },
    /// The host gets a backend of its own, and why.
    Own {
        /// For people.
        why: String,
    },
    /// The host is to come again after a while, and why.
    Later {
        /// For people.
        why: String,
    },
    /// The request was refused.
    Refused(Error),
}

/// What a keeper knows of its session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remembered {
    /// The copy of the record that the daemon gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// An epoch above all that the keeper has seen. Those are stale from now on.
    pub epoch: Epoch,
    /// The front that is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<ProcessRef>,
    /// The pid of the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<u32>,
    /// Whether it is about to end.
    pub ending: bool,
}

/// How a front finds the backend.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// Whether another front had it before: it is in the state in which that one left it.
    pub resumed: bool,
    /// Messages that are kept for this front.
    pub waiting: usize,
    /// Messages that were on their way to a former front when it ended, since the last time that
    /// this was told. They may have arrived or not, and are not sent again.
    #[serde(with = "crate::text")]
    pub lost: u64,
    /// Why backends have ended, for people, as far as no front has confirmed that it has told its
    /// host: at most [`ENDED_MAX`], the latest last.
    pub ended: Vec<String>,
    /// Why this is another backend than the last front had, where somebody has wanted that and nothing
    /// was lost: in words that follow "this is a fresh server: ".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh: Option<String>,
    /// How long the backend has been running, in ms.
    #[serde(with = "crate::text")]
    pub age_ms: u64,
    /// If the front continues: the number of the last message that the keeper has taken from this
    /// process under this lease; 0: none.
    #[serde(with = "crate::text", skip_serializing_if = "is_zero")]
    pub taken: u64,
    /// If the front continues: whether the backend has answered `initialize`. If not, the front has
    /// to send it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub initialized: bool,
    /// If the front continues: tells this keeper from former ones of the same name.
    #[serde(with = "crate::text", skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// Whether the backend ends with this front where the front leaves in an orderly way. None: the
    /// keeper does not say, and knows neither [`Closed`](frame::Kind::Closed) nor
    /// [`Signal`](frame::Kind::Signal).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_with_front: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_has_one_name() {
        assert_eq!("00c0ffee".parse(), Ok(KeeperName(0x00c0_ffee)));
        for bad in [
            "",
            "c0ffee",
            "00C0FFEE",
            "+0c0ffee",
            "00c0ffee0",
            "../../aa",
        ] {
            assert_eq!(bad.parse::<KeeperName>(), Err(KeeperNameError), "{bad:?}");
        }
    }

    #[test]
    fn a_request_is_json() {
        let attach = Attach {
            session: "s1".parse().expect("id"),
            epoch: Epoch(7),
            initialize: None,
            service: None,
            continues: false,
            refuses_after_loss: false,
            lost_is_told: false,
            lost: None,
        };
        let line = serde_json::to_string(&KeeperRequest::Attach(attach)).expect("json");
        assert_eq!(line, r#"{"attach":{"session":"s1","epoch":"7"}}"#);
        let status: KeeperRequest = serde_json::from_str(r#"{"status":{}}"#).expect("request");
        assert!(matches!(status, KeeperRequest::Status {}));
        let errors = serde_json::to_string(&KeeperRequest::Errors { after: 7 }).expect("json");
        assert_eq!(errors, r#"{"errors":{"after":"7"}}"#);
    }
}
