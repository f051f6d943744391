//! MCP's two eras: `initialize`, and `server/discover` of 2026-07-28. Hosts of 2026 open a stdio
//! server with `server/discover`, the *probe*, and take everything but a result or -32022 for the
//! era before. Some servers exit on it, some say nothing, some stay with the era that they got
//! first. What a fresh server does with it is learned, and from then on no server of that command
//! is shown one; one that was initialised is shown none unless it speaks both eras.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message};
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_jsonrpc::{answers, code};
use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::facts::{DISCOVER_ERROR_MAX, Discover, Learned, PLAIN_REFUSAL, PROBES_MAX};

use super::life::{FirstRequest, Life};
use super::{Effect, Purpose, Relay};
use crate::Millis;

/// The probe.
pub(super) const PROBE: &str = "server/discover";

/// Codes of MCP 2026-07-28 that say nothing about the server's era: an argument is missing.
const NO_TEACHERS: [i64; 2] = [-32020, -32021];

/// What was seen of both eras.
#[derive(Default)]
pub(super) struct Era {
    /// What a fresh backend of this command does with the probe.
    known: Option<Discover>,
    /// The `serverInfo.version` of the backend that was initialised last.
    version: Option<String>,
    /// The probes that the running backend was handed before any `initialize`, and has not
    /// answered.
    unanswered: BTreeSet<u64>,
    /// What the running backend was handed, and whether it has written anything.
    handed: Handed,
    /// A backend has ended on a probe: so it does with all, if a fresh one can be initialised.
    ended_on_probe: bool,
    /// The connection for which the running backend has first answered something without having
    /// been initialised.
    answered_without: Option<u64>,
    /// A fresh backend has refused `initialize`.
    never_initializes: bool,
    /// The next start is that of the one in its place, which is no restart for people.
    is_probe_start: bool,
    /// How many connections in a row have only probed.
    probed: u32,
}

/// What a backend was handed, and whether it has written anything.
#[derive(Default)]
struct Handed {
    probe: bool,
    initialize: bool,
    /// Anything but probes and pings.
    more: bool,
    is_heard: bool,
}

/// A host's `server/discover` that is the only message of its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    id: Box<str>,
}

impl Probe {
    /// The probe, if the line is one.
    pub fn of(line: &Bytes) -> Option<Self> {
        let copy = OnceCell::new();
        match Line::of(line, &copy).message()?.kind {
            Kind::Request { id, method } if method == PROBE => Some(Self { id: id.into() }),
            _ => None,
        }
    }

    /// What a line of the server's says about it, if it answers this probe. None: it does not; some
    /// of nothing: it answers, and says nothing.
    pub fn answered_by(&self, line: &Bytes) -> Option<Option<Discover>> {
        let copy = OnceCell::new();
        let message = Line::of(line, &copy).message()?;
        match message.kind {
            Kind::Answer { id, failed } if *id == *self.id => Some(taught(&message, failed)),
            _ => None,
        }
    }

    /// The answer in the server's place: the server's own error where it is known, else -32601. A
    /// host goes on with `initialize` after either.
    pub fn refusal(&self, known: Option<&Discover>) -> Bytes {
        refusal(&self.id, known)
    }
}

/// Whether an answer is one of the new era: a result, or that it does not speak that version of it.
fn is_modern(message: &Message<'_>, failed: bool) -> bool {
    !failed
        || message
            .error_code()
            .is_some_and(|code| code == code::OTHER_VERSION)
}

/// What the answer to a probe says about the server. None: nothing.
fn taught(message: &Message<'_>, failed: bool) -> Option<Discover> {
    if is_modern(message, failed) {
        return Some(Discover::Answers {});
    }
    let plain = || Json::trusted(PLAIN_REFUSAL.to_owned());
    let error = message.error().and_then(Readable::sent);
    match (message.error_code(), error) {
        (Some(code), _) if NO_TEACHERS.contains(&code) => None,
        (Some(_), Some(text)) if text.len() <= DISCOVER_ERROR_MAX => Some(Discover::Refuses {
            error: Json::new(text).unwrap_or_else(|_| plain()),
        }),
        _ => Some(Discover::Refuses { error: plain() }),
    }
}

/// Whether a line is an `initialize`.
pub fn is_initialize(line: &[u8]) -> bool {
    let copy = OnceCell::new();
    let message = Line::of(line, &copy).message();
    message.is_some_and(|message| message.asks_for("initialize"))
}

fn refusal(id: &str, known: Option<&Discover>) -> Bytes {
    let error = known.and_then(Discover::error);
    answers::failure(id, error.map_or(PLAIN_REFUSAL, Json::as_str)).into()
}

impl Relay {
    /// What is known of this command from before.
    #[must_use]
    pub fn knowing(mut self, discover: Option<Discover>) -> Self {
        self.era.known = discover;
        self
    }

    /// Whether the backend was initialised, or is about to be.
    fn is_initialize_sent(&self) -> bool {
        self.handshake.answer.is_some() || self.handshake.pending.is_some() || self.handshake.revive
    }

    /// Whether the running backend was handed anything but probes and pings, or was initialised
    /// before it was started again: a host that comes back finds what it knows.
    pub(super) fn is_begun(&self) -> bool {
        self.era.handed.more || self.handshake.answer.is_some() || self.handshake.revive
    }

    /// A backend was started. True if that is because the former one has ended on a probe.
    pub(super) fn begin_era(&mut self) -> bool {
        self.era.handed = Handed::default();
        self.era.unanswered.clear();
        self.era.answered_without = None;
        core::mem::take(&mut self.era.is_probe_start)
    }

    /// The running backend is handed a call of the host's.
    pub(super) fn era_hands(&mut self, number: u64) {
        let call = self.calls.open.get(&number);
        match call.map_or("", |call| &*call.method) {
            PROBE if !self.era.handed.initialize => {
                self.era.handed.probe = true;
                self.era.unanswered.insert(number);
            }
            PROBE | "ping" => {}
            "initialize" => self.era_hands_more(true),
            _ => self.era_hands_more(false),
        }
    }

    /// The running backend is handed something that is neither a probe nor a ping.
    pub(super) fn era_hands_more(&mut self, initialize: bool) {
        self.era.handed.more = true;
        self.era.handed.initialize |= initialize;
    }

    /// The running backend has written something.
    pub(super) fn era_hears(&mut self) {
        self.era.handed.is_heard = true;
    }

    /// The host probes. True: the backend is asked. Otherwise the host has its answer.
    pub(super) fn host_probes(&mut self, message: &Message<'_>, id: &str, now: Millis) -> bool {
        if let Some(front) = &mut self.front {
            front.has_probed = true;
        }
        let known = self.era.known.as_ref();
        let answers = matches!(known, None | Some(Discover::Answers {}));
        if self.is_initialize_sent() {
            let is_former = self
                .handshake
                .host
                .as_ref()
                .is_some_and(|host| host.connection != self.connections);
            // A host that speaks 2026-07-28 alone never gets further than this.
            if answers
                && is_former
                && self.era.probed >= PROBES_MAX
                && matches!(self.life, Life::Running { .. })
            {
                self.era.probed = 0;
                let why = "the running server was initialised by an earlier host, and this one has only sent `server/discover` for the \
                           third time in a row";
                let line = Bytes::copy_from_slice(message.raw);
                self.replace_wanted(why.to_owned(), FirstRequest::Discover(line), now);
                return false;
            }
            if known == Some(&Discover::Answers {}) {
                return true;
            }
        } else if self.era.answered_without.is_some() || answers && !self.era.ended_on_probe {
            // Nobody answers in its place: it may just be slow to start.
            return true;
        }
        let line = refusal(id, self.era.known.as_ref());
        self.tell_front(line);
        false
    }

    /// The host sends `initialize`: so it did not only probe.
    pub(super) fn era_initializes(&mut self) {
        self.era.probed = 0;
        let has_probed = self.front.as_ref().is_some_and(|front| front.has_probed);
        if has_probed || self.era.known.is_some() {
            self.effects.push(Effect::Learned(Learned::Initialized {}));
        }
    }

    /// A front leaves.
    pub(super) fn era_left(&mut self, has_probed: bool, tried: bool) {
        if tried {
            self.era.probed = 0;
        } else if has_probed {
            self.era.probed = self.era.probed.saturating_add(1);
        }
    }

    /// The backend has answered a call of the host's that is neither `initialize` nor `ping`.
    pub(super) fn era_answers(
        &mut self,
        number: u64,
        method: &str,
        message: &Message<'_>,
        failed: bool,
        asker: u64,
    ) {
        if is_modern(message, failed) && !self.is_initialize_sent() {
            self.era.answered_without.get_or_insert(asker);
        }
        if method != PROBE || !self.era.unanswered.remove(&number) {
            return;
        }
        if let Some(discover) = taught(message, failed) {
            self.learn(discover);
        }
    }

    /// The backend has answered `initialize`.
    pub(super) fn era_is_initialized(&mut self) {
        self.era.handed.initialize = true;
        if core::mem::take(&mut self.era.ended_on_probe) {
            self.learn(Discover::Exits {});
        } else if !self.era.unanswered.is_empty() {
            // An answer that comes late corrects that.
            self.learn(Discover::Mute {});
        }
    }

    /// A fresh backend has said of which version it is.
    pub(super) fn era_has_version(&mut self) {
        let version = &self.handshake.told.own_version;
        let former = core::mem::replace(&mut self.era.version, version.clone());
        if former.is_some() && version.is_some() && former != *version {
            self.unlearn();
        } else if let Some(version) = version.clone().filter(|_| self.era.known.is_some()) {
            self.effects
                .push(Effect::Learned(Learned::Version(version)));
        }
    }

    fn learn(&mut self, discover: Discover) {
        if self.era.known.as_ref() != Some(&discover) {
            self.era.known = Some(discover.clone());
            self.effects
                .push(Effect::Learned(Learned::Discover(discover)));
        }
    }

    /// What was learned may be wrong.
    pub(super) fn unlearn(&mut self) {
        self.era.ended_on_probe = false;
        if self.era.known.take().is_some() {
            self.effects.push(Effect::Learned(Learned::Forgotten {}));
        }
    }

    /// The backend has refused `initialize`. True if a fresh one is asked instead.
    pub(super) fn is_former_era(&mut self, now: Millis) -> bool {
        let Some(by) = self.era.answered_without else {
            self.era.never_initializes = true;
            self.unlearn();
            return false;
        };
        let comes_back = self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| self.is_current(host.connection) && host.connection != by);
        if !comes_back || self.era.never_initializes || !matches!(self.life, Life::Running { .. }) {
            return false;
        }
        let why = "the running server speaks MCP 2026-07-28 with an earlier host, and refuses `initialize`";
        self.replace_wanted(why.to_owned(), FirstRequest::Initialize, now);
        true
    }

    /// Whether the running backend, which has exited, has ended on a probe: it was handed nothing
    /// else, or it has not said a word and owes the answer to one. That is no failure of its
    /// command, and nothing is lost with it. Once for each connection.
    pub(super) fn ends_on_probe(&self) -> bool {
        let Handed {
            probe,
            more,
            is_heard,
            ..
        } = self.era.handed;
        let again = self.front.as_ref().is_some_and(|front| front.is_second_try);
        let owes = !self.era.unanswered.is_empty() && !is_heard;
        let answers = self.era.answered_without.is_some();
        probe && (!more || owes) && !answers && !again
    }

    /// The running backend has ended on a probe: whoever waits for the answer gets it, and a fresh
    /// backend gets whatever comes next. True if it gets the host's `initialize` again.
    pub(super) fn era_ended_on_probe(&mut self) -> bool {
        self.era.ended_on_probe = true;
        self.era.is_probe_start = true;
        self.era.handed = Handed::default();
        let probes: Vec<u64> = self.era.unanswered.iter().copied().collect();
        self.era.unanswered.clear();
        for number in probes {
            if let Some(call) = self.calls.open.remove(&number)
                && self.is_current(call.asker)
                && call.cancelled.is_none()
            {
                let line = refusal(&call.id, self.era.known.as_ref());
                self.tell_front(line);
            }
        }
        if let Some(front) = &mut self.front {
            front.is_second_try = true;
        }
        let pending = self.handshake.pending.and_then(|number| {
            let call = self.calls.open.get(&number)?;
            let is_hosts = call.kind.purpose == Purpose::Initialize && call.kind.sent;
            (is_hosts && self.is_current(call.asker) && call.cancelled.is_none()).then_some(number)
        });
        if let Some(number) = pending {
            self.handshake.pending = None;
            self.calls.open.remove(&number);
        }
        pending.is_some()
    }
}
