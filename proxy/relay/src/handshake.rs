//! `initialize`: the backend gets it once, and later hosts get the answer that it gave.

use alloc::boxed::Box;
use alloc::format;
use core::cell::OnceCell;

use bytes::Bytes;

use super::entry::{Edits, Entry, Verdict};
use super::fresh::Next;
use super::message::{Kind, Line, Message};
use super::queue::ToBackend;
use super::version::{Asked, Told, Version};
use super::{Millis, Relay, What, words};

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

impl Relay {
    /// The host initialises.
    pub(super) fn host_initialize(&mut self, message: &Message<'_>, id: &str, now: Millis) {
        let comes_back = self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| host.connection != self.connections);
        self.meet_host(message, id);
        if self.handshake.answer.is_some() {
            let until = if comes_back && self.is_of_use() {
                self.sign_due(now)
            } else {
                None
            };
            match until {
                Some(until) => {
                    self.handshake.waiter = Some(Waiter {
                        id: Some(id.into()),
                    });
                    self.await_sign(until);
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
            self.handshake.waiter = Some(Waiter {
                id: Some(id.into()),
            });
        } else if let Some(why) = self.stillborn.take() {
            // The next attempt starts another one.
            self.tell_front(words::failed(id, &words::ended_unheard(&why)));
        } else if let Some(why) = self.refusal(now) {
            self.tell_front(words::not_sent(id, &why));
        } else {
            self.send_initialize(false, now);
        }
    }

    /// A front has attached whose host was answered by a former keeper: this backend is initialised
    /// for it.
    pub(super) fn adopt(&mut self, initialize: &Bytes, now: Millis) {
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
        self.meet_host(&message, id);
        if self.handshake.answer.is_some() {
            self.answer_from_memory(None, now);
        } else if self.handshake.revive || self.handshake.pending.is_some() {
            self.handshake.waiter = Some(Waiter { id: None });
        } else {
            self.handshake.revive = true;
            self.revive(now);
            self.wake(now);
        }
    }

    fn meet_host(&mut self, message: &Message<'_>, id: &str) {
        let Asked { version, can } = Asked::of(message.params);
        if let Some(front) = &mut self.front {
            front.can = can;
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
        let what = if first { What::Initialize } else { What::Plain };
        let (edits, number) = self.take_call(&message, id, method, what, now);
        if first {
            self.handshake.pending = Some(number);
            self.seen_by_backend();
        }
        let entry = Entry::one(edits.spliced(&message).into(), ToBackend::Call(number));
        if again {
            self.to_backend.push_front(entry);
        } else {
            self.to_backend.push(entry);
        }
        self.wake(now);
    }

    /// The backend gets to know the latest host.
    pub(super) fn seen_by_backend(&mut self) {
        let Some(host) = &self.handshake.host else {
            return;
        };
        self.handshake.requested = host.version.clone();
        let connection = host.connection;
        let current = self.is_current(connection);
        if let Some(front) = &mut self.front
            && current
        {
            front.regardless = true;
        }
    }

    /// Whether the latest host can use what the backend has answered.
    fn is_of_use(&self) -> bool {
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
                Next::Initialize
            } else {
                Next::Revive
            };
            self.replace(why, next, false, now);
            return;
        }
        match id {
            Some(id) => {
                let line = with_id(answer, id);
                self.tell_front(line);
            }
            None => self.tell_lists(),
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
            self.keep_answer(message);
            self.pulse_begins(now);
            self.serve_waiter(now);
        }
        false
    }

    /// Keeps the answer for later hosts.
    pub(super) fn keep_answer(&mut self, message: &Message<'_>) {
        self.handshake.answer = Some(Bytes::copy_from_slice(message.raw));
        self.handshake.told = Told::of(message.text);
    }

    /// The front that waited for the backend's answer gets it.
    pub(super) fn serve_waiter(&mut self, now: Millis) {
        if let Some(waiter) = self.handshake.waiter.take() {
            self.answer_from_memory(waiter.id.as_deref(), now);
        }
    }

    /// The front that waited gets an error; false if there is none that could.
    pub(super) fn fail_waiter(&mut self, message: &Message<'_>, now: Millis) -> bool {
        match self.handshake.waiter.take() {
            None => false,
            Some(Waiter { id: Some(id) }) => {
                self.tell_front(with_id(&Bytes::copy_from_slice(message.raw), &id));
                true
            }
            Some(Waiter { id: None }) => {
                self.refused(now);
                true
            }
        }
    }

    /// The call that was to initialise the backend died with it: who waited for the answer asks on
    /// its own.
    pub(super) fn requeue_waiter(&mut self, now: Millis) {
        match self.handshake.waiter.take() {
            Some(Waiter { id: Some(_) }) => self.send_initialize(true, now),
            Some(Waiter { id: None }) => self.handshake.revive = true,
            None => {}
        }
    }

    /// The host has the answer.
    pub(super) fn host_initialized(&mut self) -> Verdict<ToBackend> {
        if let Some(front) = &mut self.front {
            front.ready = true;
        }
        if self.handshake.initialized || self.handshake.revive {
            return None;
        }
        self.handshake.initialized = true;
        Some((Edits::default(), ToBackend::Initialized))
    }
}

/// An answer, with another id.
fn with_id(answer: &Bytes, id: &str) -> Bytes {
    let copy = OnceCell::new();
    let Some(message) = Line::of(answer, &copy).message() else {
        return answer.clone();
    };
    let Kind::Answer { id: own, .. } = &message.kind else {
        return answer.clone();
    };
    let mut edits = Edits::default();
    edits.replace(&message, own, id);
    edits.spliced(&message).into()
}
