//! A backend that was started again is brought into the state that the host believes it to be in.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::OnceCell;

use super::entry::Edits;
use super::life::Life;
use super::message::{Kind, Line, Message};
use super::numbers::{Open, shown};
use super::{Call, Millis, Relay, What, words};

/// Subscriptions that are remembered. Any further ones end with the backend.
const SUBSCRIPTIONS: usize = 256;
/// Bytes of the parameters of such a request. Larger ones are not remembered.
const PARAMS: usize = 4 * 1024;

/// What the attached front has asked the backend to do from then on: parameters, as they were sent.
#[derive(Default)]
pub(super) struct Habits {
    level: Option<Box<str>>,
    subscriptions: BTreeMap<String, Box<str>>,
}

impl Habits {
    /// The front is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

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
        let sent = edits.spliced(message);
        // What had to be made readable is not remembered.
        let text = core::str::from_utf8(&sent).ok();
        let params = text
            .and_then(|text| Message::of(&sent, text))
            .and_then(|sent| sent.params);
        let Some(params) = params.filter(|params| params.len() <= PARAMS) else {
            return;
        };
        let subscriptions = &mut self.habits.subscriptions;
        match (method, message.uri()) {
            ("logging/setLevel", _) => self.habits.level = Some(params.into()),
            ("resources/unsubscribe", Some(uri)) => {
                subscriptions.remove(&uri);
            }
            ("resources/subscribe", Some(uri))
                if subscriptions.len() < SUBSCRIPTIONS || subscriptions.contains_key(&uri) =>
            {
                subscriptions.insert(uri, params.into());
            }
            _ => {}
        }
    }

    /// Initialises the running backend, if that is ours to do.
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
        self.open_ours(number, "initialize", What::Revive, now);
        self.handshake.pending = Some(number);
        self.seen_by_backend();
    }

    fn open_ours(&mut self, number: u64, method: &str, what: What, now: Millis) {
        let kind = Call { what, sent: true };
        let call = Open {
            id: "null".into(),
            method: shown(method),
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
                self.refused(now);
            }
            return;
        }
        let former = self
            .handshake
            .answer
            .is_some()
            .then(|| self.handshake.told.version.clone());
        self.keep_answer(message);
        self.pulse_begins(now);
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
            .push_back(words::notification("notifications/initialized"));
        self.replay(now);
        if self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| self.is_current(host.connection))
        {
            self.tell_lists();
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
            let number = self.calls.numbers.ours();
            self.lane.push_back(words::request(number, method, &params));
            self.open_ours(number, method, What::Habit, now);
        }
    }

    /// The host is told to list again what the backend has lists of.
    pub(super) fn tell_lists(&mut self) {
        if self.front.as_ref().is_some_and(|front| front.ready) {
            for method in self.handshake.told.lists.clone() {
                self.tell_front(words::notification(method));
            }
        }
    }
}
