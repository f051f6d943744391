//! Roots: the folders that a host gives its servers. A backend that has asked for them works in
//! those of the host that has answered. So the relay asks the next host itself, and holds what would
//! be done in the former one's folders.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
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
    /// What it was answered last. None: nothing, or an error.
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
    /// It was, under this number; and since when a call waits for that.
    Asked(u64, Option<Millis>),
    /// The backend is to be answered, which asks itself; until then.
    Asks(Millis),
    /// It is answered with what waits for it. Calls go behind that.
    Answered,
}

impl Roots {
    /// Whether calls wait.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.check, Check::Done)
    }

    /// The attached host leaves.
    pub(super) fn host_left(&mut self) {
        self.check = Check::Done;
    }

    /// When the wait is over.
    pub(super) fn due(&self) -> Option<Millis> {
        match self.check {
            Check::Asked(_, since) => since.map(|since| since.saturating_add(HOST_WAIT_MS)),
            Check::Asks(until) => Some(until),
            Check::Done | Check::Due | Check::Answered => None,
        }
    }

    /// The backend asks.
    pub(super) fn note_question(&mut self) {
        self.is_asked = true;
    }

    /// The backend is answered what it has asked. None: with an error.
    pub(super) fn note_answer(&mut self, answer: Option<&Message<'_>>) {
        self.known = answer.and_then(|answer| uris(answer.result()));
        if matches!(self.check, Check::Asks(_)) {
            self.check = Check::Answered;
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
        let mut asks = self.asks.open.values();
        if asks.any(|ask| &*ask.method == ROOTS && ask.cancelled.is_none()) {
            // This host answers what the backend has asked while there was none.
            self.roots.check = Check::Asks(now + HOST_WAIT_MS);
        } else if front.capabilities.include(Capability::Roots) {
            let number = self.asks.numbers.ours();
            self.tell_front(answers::bare_request(number, ROOTS));
            let waits = !self.to_backend.entries.is_empty();
            self.roots.check = Check::Asked(number, waits.then_some(now));
        } else {
            self.compare_roots(None, now);
        }
    }

    /// The attached host has made a call: it waits for no longer than a host may need.
    pub(super) fn note_waiting_call(&mut self, now: Millis) {
        if let Check::Asked(_, since) = &mut self.roots.check {
            since.get_or_insert(now);
        }
    }

    /// Whether an answer of the host is the one to the relay's own request.
    pub(super) fn takes_roots(&mut self, number: u64, message: &Message<'_>, now: Millis) -> bool {
        let is_ours = matches!(self.roots.check, Check::Asked(asked, _) if asked == number);
        if is_ours {
            self.compare_roots(uris(message.result()), now);
        }
        is_ours
    }

    /// These are the attached host's roots. The backend goes on if it knows the same.
    fn compare_roots(&mut self, found: Option<Uris>, now: Millis) {
        self.roots.check = Check::Done;
        if found == self.roots.known {
            return;
        }
        if self.limits.is_users {
            self.lane.push_back(answers::notification(CHANGED));
            self.roots.check = Check::Asks(now + BACKEND_WAIT_MS);
            return;
        }
        let why = match found {
            Some(_) => "the host's folders (roots) are not those that the server was given",
            None => "the host gives no folders (roots) any more, and the server was given some",
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
            Check::Asked(number, _) => {
                self.tell_front(answers::cancelled(number, "it was not answered in time"));
                self.compare_roots(None, now);
            }
            _ => self.roots.check = Check::Done,
        }
    }

    /// The next line that may go to the backend while calls wait, if one does.
    pub(super) fn pull_before_calls(&mut self) -> Option<Entry<ToBackend>> {
        let calls = &self.calls.open;
        let call = |number: &u64| calls.get(number);
        let is_answered = matches!(self.roots.check, Check::Answered);
        let next = self.to_backend.pull_if(|part| match part {
            ToBackend::Answer => true,
            ToBackend::Cancel(number) => call(number).is_some_and(|call| call.kind.sent),
            ToBackend::Call(number) => {
                let looks = |call: &Open<Call>| {
                    call.kind.purpose == Purpose::Initialize || only_looks(&call.method)
                };
                !is_answered && call(number).is_some_and(looks)
            }
            ToBackend::Initialized | ToBackend::Notice | ToBackend::Other => false,
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
