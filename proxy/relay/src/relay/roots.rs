//! Roots: the folders that a host gives its servers. A backend that has asked for them works in
//! those of the host that has answered. So the relay asks the next host itself, and holds what would
//! be done in the former one's folders.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::Message;
use mcp_sessiond_jsonrpc::readable::Readable;
use serde::Deserialize;

use super::life::{FirstRequest, Life};
use super::losses::Before;
use super::messages::{ROOTS, only_looks};
use super::queue::ToBackend;
use super::{Call, Purpose, Relay};
use crate::Millis;
use crate::entry::Entry;
use crate::numbers::Open;
use crate::version::Capability;

/// What a backend that has asked for them is told where they are others now.
const CHANGED: &str = "notifications/roots/list_changed";

/// How long a call waits for the host to give them, in ms. A host that waits for the call itself
/// before it answers anything gives none.
const HOST_WAIT_MS: u64 = 2_000;

/// How long calls wait for a backend to ask again, in ms, since it was told that they are others.
const BACKEND_WAIT_MS: u64 = 1_000;

/// The URIs of a host's roots.
type Uris = BTreeSet<String>;

/// What the running backend knows of its host's roots.
#[derive(Default)]
pub(super) struct Roots {
    /// Whether it has ever asked for them.
    is_asked: bool,
    /// What it was given last. None: nothing, or its host said last that it gives none.
    known: Option<Uris>,
    /// Whether it had been used when the attached host came.
    was_used: bool,
    check: Check,
}

/// How far it is known whether the attached host has the same.
#[derive(Default, Clone, Copy)]
enum Check {
    /// It is, or need not be.
    #[default]
    Done,
    /// The host is to be asked once it can be.
    Due,
    /// It was, under this number, or by the backend itself, which has none; and since when a call waits
    /// for that.
    WaitsForHost(Option<u64>, Option<Millis>),
    /// The backend was told that they are others, and is to ask itself; until then.
    Asks(Millis),
    /// It is answered with what waits for it. Calls go behind that.
    GivenByHost,
}

impl Roots {
    /// Whether calls wait.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.check, Check::Done)
    }

    /// When the wait is over.
    pub(super) fn due(&self) -> Option<Millis> {
        match self.check {
            Check::WaitsForHost(_, since) => since.map(|since| since.saturating_add(HOST_WAIT_MS)),
            Check::Asks(until) => Some(until),
            Check::Done | Check::Due | Check::GivenByHost => None,
        }
    }

    /// The backend asks.
    pub(super) fn note_question(&mut self) {
        self.is_asked = true;
    }

    /// The backend is given what it has asked for. None: it gets an error, with which it goes on in what
    /// it has, as far as anybody knows.
    fn note_answer(&mut self, given: Option<Uris>) {
        let is_compared = matches!(self.check, Check::Due | Check::WaitsForHost(..));
        if given.is_some() || !is_compared {
            self.known = given;
        }
        if matches!(self.check, Check::Asks(_) | Check::WaitsForHost(None, _)) {
            self.check = Check::GivenByHost;
        }
    }

    /// The backend gets an error in place of a host that can't give any.
    pub(super) fn note_refusal(&mut self) {
        // A host that has said nothing yet changes nothing.
        if matches!(self.check, Check::Asks(_)) {
            self.note_answer(None);
        }
    }
}

impl Relay {
    /// The backend is gone that knows them.
    pub(super) fn forget_roots(&mut self) {
        self.roots = Roots::default();
    }

    /// Another host goes on with the running backend than the one that has initialised it, or the
    /// last one that has gone on with it.
    pub(super) fn check_roots(&mut self) {
        if self.roots.is_asked && matches!(self.life, Life::Running { .. }) {
            self.roots.was_used = self.losses.is_used();
            self.roots.check = Check::Due;
        }
    }

    /// Asks the attached host, if that is to be asked and is past its handshake.
    pub(super) fn ask_for_roots(&mut self, now: Millis) {
        let front = self.front.as_ref().filter(|front| front.ready);
        let (Check::Due, Some(front), false) = (self.roots.check, front, self.handshake.awaited())
        else {
            return;
        };
        if !front.capabilities.include(Capability::Roots) {
            self.compare_roots(None, now);
            return;
        }
        // This host answers what the backend has asked while there was none.
        let number = (!self.asks_for_roots()).then(|| self.asks.numbers.ours());
        if let Some(number) = number {
            self.tell_front(answers::bare_request(number, ROOTS));
        }
        // A former host's call is nothing that this one has to hurry for.
        let mut calls = self.calls.open.values();
        let waits = calls.any(|call| self.is_held_call(call));
        self.roots.check = Check::WaitsForHost(number, waits.then_some(now));
    }

    /// Whether the backend waits for the answer to a question of its own.
    fn asks_for_roots(&self) -> bool {
        let mut asks = self.asks.open.values();
        asks.any(|ask| &*ask.method == ROOTS && ask.cancelled.is_none())
    }

    /// Whether a call of the attached host's waits for its folders to be known.
    fn is_held_call(&self, call: &Open<Call>) -> bool {
        let looks = call.kind.purpose != Purpose::Plain || only_looks(&call.method);
        call.asker == self.connections && !call.kind.sent && !looks
    }

    /// The backend does not wait any more for what it has asked.
    pub(super) fn question_ended(&mut self, now: Millis) {
        if matches!(self.roots.check, Check::WaitsForHost(None, _)) && !self.asks_for_roots() {
            self.roots.check = Check::Due;
            self.ask_for_roots(now);
        }
    }

    /// The attached host leaves. What it has called and was not made, since nobody knew its folders,
    /// would be made in those of another one.
    pub(super) fn roots_host_left(&mut self) {
        match self.roots.check {
            // The calls are behind the answer.
            Check::Done | Check::GivenByHost => return,
            Check::Due | Check::WaitsForHost(..) if !self.limits.is_users => {}
            Check::Due | Check::WaitsForHost(..) | Check::Asks(_) => {
                self.roots.check = Check::Done;
                return;
            }
        }
        self.roots.check = Check::Done;
        let mut held = BTreeSet::new();
        for (number, call) in &self.calls.open {
            if self.is_held_call(call) {
                held.insert(*number);
            }
        }
        self.calls.open.retain(|number, _| !held.contains(number));
        self.to_backend.retain(|part| match part {
            ToBackend::Call(number) | ToBackend::Cancel(number) => !held.contains(number),
            _ => true,
        });
        let dropped = held.len();
        self.counts.dropped += dropped as u64;
        if dropped > 0 {
            let calls = match dropped {
                1 => "1 call was".to_owned(),
                several => format!("{several} calls were"),
            };
            self.say(format!(
                "{calls} not sent to the server: the host left before it gave its folders (roots)"
            ));
        }
    }

    /// The attached host has made a call: it waits for no longer than a host may need.
    pub(super) fn note_waiting_call(&mut self, now: Millis) {
        if let Check::WaitsForHost(_, since) = &mut self.roots.check {
            since.get_or_insert(now);
        }
    }

    /// Whether an answer of the host is the one to the relay's own request.
    pub(super) fn takes_roots(&mut self, number: u64, message: &Message<'_>, now: Millis) -> bool {
        let is_ours =
            matches!(self.roots.check, Check::WaitsForHost(Some(asked), _) if asked == number);
        if is_ours {
            self.compare_roots(uris(message.result()).as_ref(), now);
        }
        is_ours
    }

    /// The host answers what the backend has asked. True if that gets no answer, since another one
    /// takes its place.
    pub(super) fn host_gives_roots(&mut self, message: &Message<'_>, now: Millis) -> bool {
        let given = uris(message.result());
        let is_compared = matches!(self.roots.check, Check::WaitsForHost(None, _));
        if is_compared && given.is_none() && self.roots.known.is_some() && !self.limits.is_users {
            self.compare_roots(None, now);
            return true;
        }
        self.roots.note_answer(given);
        false
    }

    /// These are the attached host's roots. The backend goes on if it knows the same.
    fn compare_roots(&mut self, found: Option<&Uris>, now: Millis) {
        if found == self.roots.known.as_ref() {
            // The backend may have been given them just now: that goes before the calls.
            self.roots.check = Check::GivenByHost;
            return;
        }
        self.roots.check = Check::Done;
        if self.limits.is_users {
            self.lane.push_back(answers::notification(CHANGED));
            self.roots.check = Check::Asks(now + BACKEND_WAIT_MS);
            return;
        }
        let why = match found {
            Some(_) => "the host's folders (roots) are not those that the server was given",
            None => "the host no longer gives folders (roots), and the server was given some",
        };
        let before = if self.roots.was_used {
            Before::Wanted(why.to_owned())
        } else {
            Before::Unused(why.to_owned())
        };
        self.replace_for(before, FirstRequest::Revive, now);
    }

    /// Calls have waited for long enough.
    pub(super) fn end_roots_wait(&mut self, now: Millis) {
        if self.roots.due().is_none_or(|due| due > now) {
            return;
        }
        match self.roots.check {
            Check::WaitsForHost(number, _) => {
                if let Some(number) = number {
                    self.tell_front(answers::cancelled(number, "it was not answered in time"));
                }
                self.compare_roots(None, now);
            }
            _ => self.roots.check = Check::Done,
        }
    }

    /// The next line that may go to the backend while calls wait, if one does.
    pub(super) fn pull_before_calls(&mut self) -> Option<Entry<ToBackend>> {
        let calls = &self.calls.open;
        let call = |number: &u64| calls.get(number);
        let is_answered = matches!(self.roots.check, Check::GivenByHost);
        let next = self.to_backend.pull_if(|part| match part {
            ToBackend::Answer | ToBackend::Initialized => true,
            ToBackend::Cancel(number) => call(number).is_some_and(|call| call.kind.sent),
            ToBackend::Call(number) => {
                let looks = |call: &Open<Call>| {
                    call.kind.purpose == Purpose::Initialize || only_looks(&call.method)
                };
                !is_answered && call(number).is_some_and(looks)
            }
            ToBackend::Notice | ToBackend::Other => false,
        });
        if next.is_none() && is_answered {
            self.roots.check = Check::Done;
            return self.to_backend.pull(0);
        }
        next
    }
}

/// The URIs of an answer's roots. None: it has none.
fn uris(result: Option<Readable<'_>>) -> Option<Uris> {
    #[derive(Deserialize)]
    struct Given {
        roots: Vec<Root>,
    }
    #[derive(Deserialize)]
    struct Root {
        uri: String,
    }
    let given: Given = result?.object()?;
    Some(given.roots.into_iter().map(|root| root.uri).collect())
}
