//! `initialize`: the backend gets it once, and later hosts get the answer that it gave. A backend
//! that was started again is brought into the state that the host believes it to be in.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::capabilities::declare_list_changes;
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message};
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_jsonrpc::{Edits, edited};

use super::life::{FirstRequest, Life};
use super::messages::only_asks;
use super::queue::ToBackend;
use super::{Call, Purpose, Relay};
use crate::Millis;
use crate::entry::{Entry, Verdict};
use crate::numbers::{Open, display_method};
use crate::version::{InitializeParams, Told, Version};

/// Subscriptions that are remembered. Any further ones end with the backend.
const SUBSCRIPTIONS_MAX: usize = 256;
/// Bytes of the parameters of such a request. Larger ones are not remembered.
const PARAMS_MAX: usize = 4 * 1024;

/// The level of MCP's that a server's log messages have where no host has asked for one: most SDKs
/// send all then.
const LEVEL: &str = "debug";

/// How far the backend's initialisation is.
#[derive(Default)]
pub(super) struct Handshake {
    /// The backend's answer, with the id that it was given in.
    pub answer: Option<Bytes>,
    /// What that answer says.
    pub told: Told,
    /// The version that the backend was asked for.
    pub requested: Version,
    /// The call that initialises the backend, until it is answered.
    pub pending: Option<u64>,
    /// Whether the backend was told that its answer has arrived, or is about to be.
    pub initialized: bool,
    /// Whether the backend is to be initialised, or is being initialised, by ourselves. Nothing
    /// else goes to it before.
    pub revive: bool,
    /// The latest host's `initialize`.
    pub host: Option<Host>,
    waiter: Option<Waiter>,
    /// How many backends in a row have ended before they had answered the host.
    pub deaths: u32,
}

/// A host, as its `initialize` has it.
pub(super) struct Host {
    /// The line.
    pub line: Bytes,
    /// The raw text of its id.
    pub id: Box<str>,
    /// The connection that it came on.
    pub connection: u64,
    /// The version that it asks for.
    pub version: Version,
}

/// The attached front waits for the backend's answer to somebody else's `initialize`.
struct Waiter {
    /// The id of its own; none where its host has had an answer of a former backend.
    id: Option<Box<str>>,
}

impl Handshake {
    /// Whether the attached front waits.
    pub(super) fn awaited(&self) -> bool {
        self.waiter.is_some()
    }

    /// The front that may have waited is gone.
    pub(super) fn forget_waiter(&mut self) {
        self.waiter = None;
    }
}

/// What the attached front has asked the backend to do from then on: parameters, as they were sent.
#[derive(Default)]
pub(super) struct Habits {
    level: Option<Box<str>>,
    subscriptions: BTreeMap<String, Box<str>>,
}

impl Habits {
    /// Whether the host waits for notifications, which only a backend that runs can send.
    pub(super) fn subscribes(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.level.is_none() && self.subscriptions.is_empty()
    }

    /// More was asked for, later.
    fn join(&mut self, later: Self) {
        self.level = later.level.or(self.level.take());
        self.subscriptions.extend(later.subscriptions);
    }
}

impl Relay {
    /// The host initialises.
    pub(super) fn host_initialize(&mut self, message: &Message<'_>, id: &str, now: Millis) {
        let former = self.handshake.host.as_ref().map(|host| host.connection);
        let comes_back = former.is_some_and(|connection| connection != self.connections);
        self.note_host(message, id);
        self.era_initializes();
        // Whoever was there before and has not initialised may have been asked, too.
        if former != Some(self.connections) {
            self.check_roots();
        }
        if self.handshake.answer.is_some() {
            if comes_back {
                self.undo_habits(now);
            }
            let until = if comes_back && self.is_answer_usable() {
                self.liveness_deadline(now)
            } else {
                None
            };
            match until {
                Some(until) => {
                    self.handshake.waiter = Some(Waiter {
                        id: Some(id.into()),
                    });
                    self.wait_for_liveness(until);
                }
                None => self.answer_from_memory(Some(id), now),
            }
        } else if self.handshake.revive
            || self
                .handshake
                .pending
                .is_some_and(|call| self.is_former(call))
        {
            // A front that continues has sent it again: the backend is asked once.
            match self.refusal(now) {
                Some(why) => self.tell_front(answers::not_sent(id, &why)),
                None => {
                    self.handshake.waiter = Some(Waiter {
                        id: Some(id.into()),
                    });
                }
            }
        } else if let Some(why) = self.died_silent.take() {
            // The next attempt starts another one.
            self.tell_front(answers::failed(id, &answers::ended_uninitialized(&why)));
        } else if let Some(why) = self.refusal(now) {
            self.tell_front(answers::not_sent(id, &why));
        } else {
            self.send_initialize(false, now);
        }
    }

    /// A front has attached whose host was answered by a former keeper: this backend is initialised
    /// for it.
    pub(super) fn initialize_for(&mut self, initialize: &Bytes, now: Millis) {
        let copy = OnceCell::new();
        let Some(message) = Line::of(initialize, &copy).message() else {
            return;
        };
        let Kind::Request { id, method } = &message.kind else {
            return;
        };
        if method != "initialize" {
            return;
        }
        let host = self.handshake.host.as_ref();
        let is_same = host.is_some_and(|host| host.line == *initialize);
        self.note_host(&message, id);
        if self.handshake.answer.is_some() {
            // It may be the same host, which has lost its connection and believes that it has
            // subscribed.
            if is_same {
                self.habits = core::mem::take(&mut self.former_habits);
            }
            self.undo_habits(now);
            self.answer_from_memory(None, now);
            self.check_roots();
            self.ask_for_roots(now);
        } else if self.handshake.revive || self.handshake.pending.is_some() {
            self.check_roots();
            self.handshake.waiter = Some(Waiter { id: None });
            self.wake(now);
        } else {
            self.handshake.revive = true;
            self.revive(now);
            self.wake(now);
        }
    }

    fn note_host(&mut self, message: &Message<'_>, id: &str) {
        let InitializeParams {
            version,
            capabilities,
        } = InitializeParams::of(message.params());
        if let Some(front) = &mut self.front {
            front.capabilities = capabilities;
        }
        let line = Bytes::copy_from_slice(message.raw);
        self.handshake.host = Some(Host {
            line,
            id: id.into(),
            connection: self.connections,
            version,
        });
    }

    /// Whether another front has made this call.
    fn is_former(&self, call: u64) -> bool {
        self.numbered.is_some()
            || self
                .calls
                .open
                .get(&call)
                .is_some_and(|call| !self.is_current(call.asker))
    }

    /// Sends the latest host's `initialize` to the backend, as a call of the attached front; before
    /// everything else if it was sent before.
    pub(super) fn send_initialize(&mut self, again: bool, now: Millis) {
        let Some(line) = self.handshake.host.as_ref().map(|host| host.line.clone()) else {
            return;
        };
        let copy = OnceCell::new();
        let Some(message) = Line::of(&line, &copy).message() else {
            return;
        };
        let Kind::Request { id, method } = &message.kind else {
            return;
        };
        let first = self.handshake.pending.is_none();
        let purpose = if first {
            Purpose::Initialize
        } else {
            Purpose::Plain
        };
        let (edits, number) = self.take_call(&message, id, method, purpose, now);
        if first {
            self.handshake.pending = Some(number);
            self.note_initialize_sent();
        }
        let entry = Entry::one(edits.spliced(&message).into(), ToBackend::Call(number));
        if again {
            self.to_backend.push_front(entry);
        } else {
            self.to_backend.push(entry);
        }
        self.wake(now);
    }

    /// The backend is sent the latest host's `initialize`.
    pub(super) fn note_initialize_sent(&mut self) {
        let Some(host) = &self.handshake.host else {
            return;
        };
        self.handshake.requested = host.version.clone();
        let connection = host.connection;
        let current = self.is_current(connection);
        if let Some(front) = &mut self.front
            && current
        {
            front.takes_every_ask = true;
        }
    }

    /// Whether the latest host can use what the backend has answered.
    fn is_answer_usable(&self) -> bool {
        let Handshake {
            told,
            requested,
            host,
            ..
        } = &self.handshake;
        host.as_ref()
            .is_some_and(|host| host.version.can_use(&told.version, requested))
    }

    /// Answers the latest host from what the backend has said, or replaces the backend where the
    /// host can't use that.
    fn answer_from_memory(&mut self, id: Option<&str>, now: Millis) {
        let Handshake {
            answer: Some(answer),
            told,
            requested,
            host: Some(host),
            ..
        } = &self.handshake
        else {
            return;
        };
        if !host.version.can_use(&told.version, requested) {
            let why = format!(
                "the host speaks protocol {} at most, and the running server answered {}",
                host.version, told.version
            );
            let next = if id.is_some() {
                FirstRequest::Initialize
            } else {
                FirstRequest::Revive
            };
            self.replace_wanted(why, next, now);
            return;
        }
        match id {
            Some(id) => {
                let line = self.answer_for_host(answer, id);
                self.tell_front(line);
                self.say_open_call(now);
            }
            None => self.announce_lists(),
        }
    }

    /// The backend's answer, as the latest host gets it.
    fn answer_for_host(&self, answer: &Bytes, id: &str) -> Bytes {
        edited(answer, |message, edits| {
            if let Kind::Answer { id: own, .. } = &message.kind {
                edits.replace(message, own, id);
                self.declare_lists(message, edits);
            }
        })
    }

    /// The latest host is told of changed lists, since the backend may be started again and have
    /// others then.
    pub(super) fn declare_lists(&self, message: &Message<'_>, edits: &mut Edits) {
        let host = self.handshake.host.as_ref();
        if host.is_some_and(|host| !host.version.listens()) {
            declare_list_changes(message, edits);
        }
    }

    /// The backend has answered the `initialize` that the host of some front has sent. True if the
    /// host does not get that, since a fresh backend is asked.
    pub(super) fn initialize_answered(
        &mut self,
        message: &Message<'_>,
        failed: bool,
        now: Millis,
    ) -> bool {
        self.handshake.pending = None;
        self.handshake.deaths = 0;
        if failed {
            if self.is_former_era(now) {
                return true;
            }
            self.fail_waiter(message, now);
        } else {
            self.era_is_initialized();
            self.keep_answer(message);
            self.liveness_begins(now);
            self.serve_waiter(now);
        }
        false
    }

    /// Keeps the answer for later hosts.
    pub(super) fn keep_answer(&mut self, message: &Message<'_>) {
        self.handshake.answer = Some(Bytes::copy_from_slice(message.raw));
        self.handshake.told = Told::of(message.result());
        self.era_has_version();
    }

    /// The front that waited for the backend's answer gets it.
    pub(super) fn serve_waiter(&mut self, now: Millis) {
        if let Some(waiter) = self.handshake.waiter.take() {
            self.answer_from_memory(waiter.id.as_deref(), now);
            self.ask_for_roots(now);
        }
    }

    /// The front that waited gets an error; false if there is none that could.
    pub(super) fn fail_waiter(&mut self, message: &Message<'_>, now: Millis) -> bool {
        match self.handshake.waiter.take() {
            None => false,
            Some(Waiter { id: Some(id) }) => {
                self.tell_front(with_id(&Bytes::copy_from_slice(message.raw), &id));
                // What it calls all the same does not wait for ever.
                self.ask_for_roots(now);
                true
            }
            Some(Waiter { id: None }) => {
                self.on_revival_refused(now);
                true
            }
        }
    }

    /// The backend ended before it was initialised: the front that waited for its answer
    /// initialises the next one itself.
    pub(super) fn requeue_waiter(&mut self, now: Millis) {
        match self.handshake.waiter.take() {
            Some(Waiter { id: Some(_) }) => self.send_initialize(true, now),
            Some(Waiter { id: None }) => self.handshake.revive = true,
            None => {}
        }
    }

    /// The host has the answer.
    pub(super) fn host_initialized(&mut self, now: Millis) -> Verdict<ToBackend> {
        if let Some(front) = &mut self.front {
            front.ready = true;
        }
        self.ask_for_roots(now);
        if self.handshake.initialized || self.handshake.revive {
            return None;
        }
        self.handshake.initialized = true;
        Some((Edits::default(), ToBackend::Initialized))
    }
}

/// What a backend that was started again is sent again.
impl Relay {
    /// Notes a request that changes how the backend behaves from then on.
    pub(super) fn note_habit(&mut self, method: &str, message: &Message<'_>, edits: &Edits) {
        if !matches!(
            method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        ) {
            return;
        }
        // With the number in place of the host's progress token, which might be the number of
        // something else.
        let sent = Bytes::from(edits.spliced(message));
        let copy = OnceCell::new();
        let sent = Line::of(&sent, &copy).message();
        // What had to be made readable is not remembered.
        let params = sent.and_then(|sent| sent.params()).and_then(Readable::sent);
        let Some(params) = params.filter(|params| params.len() <= PARAMS_MAX) else {
            return;
        };
        let subscriptions = &mut self.habits.subscriptions;
        match (method, message.uri()) {
            ("logging/setLevel", _) => self.habits.level = Some(params.into()),
            ("resources/unsubscribe", Some(uri)) => {
                subscriptions.remove(&uri);
            }
            ("resources/subscribe", Some(uri))
                if subscriptions.len() < SUBSCRIPTIONS_MAX || subscriptions.contains_key(&uri) =>
            {
                subscriptions.insert(uri, params.into());
            }
            _ => {}
        }
    }

    /// The front is gone that has asked for something.
    pub(super) fn habits_end(&mut self) {
        let habits = core::mem::take(&mut self.habits);
        // One that only probes leaves what the front before it has asked for.
        self.former_habits.join(habits);
    }

    /// The backend is gone that has heard of it.
    pub(super) fn forget_former_habits(&mut self) {
        self.former_habits = Habits::default();
    }

    /// Another host begins: the running backend no longer does what a former one has asked for.
    fn undo_habits(&mut self, now: Millis) {
        let Habits {
            level,
            subscriptions,
        } = core::mem::take(&mut self.former_habits);
        let params = |name: &str, value: &str| {
            let value = serde_json::Value::from(value);
            format!(r#"{{"{name}":{value}}}"#)
        };
        let level = level.map(|_| ("logging/setLevel", params("level", LEVEL)));
        let uris = subscriptions.into_keys();
        let ends = uris.map(|uri| ("resources/unsubscribe", params("uri", &uri)));
        for (method, params) in level.into_iter().chain(ends) {
            self.send_ours(method, &params, now);
        }
    }

    /// A request of our own, whose answer nobody needs.
    fn send_ours(&mut self, method: &str, params: &str, now: Millis) {
        let number = self.calls.numbers.ours();
        self.lane
            .push_back(answers::request(number, method, params));
        self.open_ours(number, method, Purpose::Replay, now);
    }

    /// A call that a former host has made may keep the backend from answering this one.
    fn say_open_call(&mut self, now: Millis) {
        let calls = self.calls.open.values().filter(|call| {
            let is_open = call.kind.sent && call.cancelled.is_none();
            let is_former = call.kind.purpose == Purpose::Plain && !self.is_current(call.asker);
            is_open && is_former && !only_asks(&call.method)
        });
        if let Some(since) = calls.map(|call| call.made).min() {
            let age = match now.saturating_sub(since) / 1000 {
                0 => "less than 1".to_string(),
                seconds => seconds.to_string(),
            };
            self.say(format!(
                "a call of the previous connection has been open for {age} s; the server may answer nothing else until it has ended"
            ));
        }
    }

    /// Initialises the running backend, if the relay has to do that itself.
    pub(super) fn revive(&mut self, now: Millis) {
        if !self.handshake.revive || !matches!(self.life, Life::Running { .. }) {
            return;
        }
        let Some(line) = self.handshake.host.as_ref().map(|host| host.line.clone()) else {
            self.handshake.revive = false;
            return;
        };
        let copy = OnceCell::new();
        let Some(message) = Line::of(&line, &copy).message() else {
            return;
        };
        let Kind::Request { id, .. } = &message.kind else {
            return;
        };
        let number = self.calls.numbers.ours();
        let mut edits = Edits::default();
        edits.replace(&message, id, number.to_string());
        if let Some(token) = message.asked_progress() {
            edits.replace(&message, token, number.to_string());
        }
        self.lane.push_back(edits.spliced(&message).into());
        self.open_ours(number, "initialize", Purpose::Revive, now);
        self.handshake.pending = Some(number);
        self.note_initialize_sent();
    }

    fn open_ours(&mut self, number: u64, method: &str, purpose: Purpose, now: Millis) {
        let kind = Call {
            purpose,
            sent: true,
        };
        let call = Open {
            id: "null".into(),
            method: display_method(method),
            asker: 0,
            made: now,
            cancelled: None,
            kind,
        };
        self.calls.open.insert(number, call);
    }

    /// The backend has answered our own `initialize`.
    pub(super) fn revival_answered(&mut self, message: &Message<'_>, failed: bool, now: Millis) {
        self.handshake.pending = None;
        if failed {
            self.handshake.revive = false;
            if self.handshake.answer.is_some() || !self.fail_waiter(message, now) {
                self.on_revival_refused(now);
            }
            return;
        }
        let former = self
            .handshake
            .answer
            .is_some()
            .then(|| self.handshake.told.version.clone());
        self.era_is_initialized();
        self.keep_answer(message);
        self.liveness_begins(now);
        self.handshake.revive = false;
        self.handshake.initialized = true;
        let version = &self.handshake.told.version;
        if let Some(former) = former.filter(|former| former != version) {
            let words = format!(
                "the server was started again and speaks protocol {version}, no longer {former}"
            );
            self.say(words);
        }
        self.lane
            .push_back(answers::notification("notifications/initialized"));
        self.announce_loss();
        self.replay(now);
        if self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| self.is_current(host.connection))
        {
            self.announce_lists();
        }
        self.serve_waiter(now);
    }

    fn replay(&mut self, now: Millis) {
        let level = self
            .habits
            .level
            .iter()
            .map(|params| ("logging/setLevel", params.clone()));
        let subscriptions = self.habits.subscriptions.values();
        let requests: Vec<_> = level
            .chain(subscriptions.map(|params| ("resources/subscribe", params.clone())))
            .collect();
        for (method, params) in requests {
            self.send_ours(method, &params, now);
        }
    }

    /// The host is told to list again what the backend has lists of.
    pub(super) fn announce_lists(&mut self) {
        if self.front.as_ref().is_some_and(|front| front.ready) {
            for method in self.handshake.told.lists.clone() {
                self.tell_front(answers::notification(method));
            }
        }
    }
}

/// An answer, with another id.
fn with_id(answer: &Bytes, id: &str) -> Bytes {
    edited(answer, |message, edits| {
        if let Kind::Answer { id: own, .. } = &message.kind {
            edits.replace(message, own, id);
        }
    })
}
