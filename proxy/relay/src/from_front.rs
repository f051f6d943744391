//! What the host sends.

use alloc::string::ToString;
use core::cell::OnceCell;

use bytes::Bytes;

use super::entry::{Edits, Verdict, translate};
use super::life::Life;
use super::message::{Kind, Line, Message};
use super::numbers::{Open, shown};
use super::queue::ToBackend;
use super::raw::number;
use super::{Call, Millis, Relay, What, words};

impl Relay {
    /// The front has sent a line.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller is done with the line, which is kept"
    )]
    pub fn from_front(&mut self, line: Bytes, now: Millis) {
        if self.front.is_none() {
            return;
        }
        let copy = OnceCell::new();
        let read = Line::of(&line, &copy);
        let entry = translate(
            &line,
            &read,
            || ToBackend::Other,
            |message| self.front_message(message, now),
        );
        read.unreadable()
            .for_each(|unreadable| self.unreadable_from_front(unreadable));
        let Some(entry) = entry else { return };
        if matches!(self.life, Life::Stopping) {
            self.counts.dropped += 1;
            return;
        }
        if entry
            .parts
            .iter()
            .any(|(_, part)| matches!(part, ToBackend::Other))
        {
            self.used = true;
            if let Some(front) = &mut self.front {
                front.unparsed += 1;
            }
        }
        self.to_backend.push(entry);
        self.wake(now);
    }

    fn front_message(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToBackend> {
        self.used |= is_use(&message.kind);
        if let Some(front) = &mut self.front {
            front.tried |=
                !matches!(&message.kind, Kind::Request { method, .. } if is_probe(method));
        }
        match &message.kind {
            Kind::Request { id, method } => self.front_request(message, id, method, now),
            Kind::Notification { method } => match &**method {
                "notifications/initialized" => self.host_initialized(),
                "notifications/cancelled" => self.host_cancels(message, now),
                "notifications/progress" => self.host_progress(message),
                _ => Some((Edits::default(), ToBackend::Notice)),
            },
            Kind::Answer { id, .. } => self.host_answers(message, id),
        }
    }

    fn front_request(
        &mut self,
        message: &Message<'_>,
        id: &str,
        method: &str,
        now: Millis,
    ) -> Verdict<ToBackend> {
        if !message.has_clear_token() {
            self.counts.dropped += 1;
            self.tell_front(words::unclear_token(id));
            return None;
        }
        if method == "initialize" {
            self.host_initialize(message, id, now);
            return None;
        }
        if !is_probe(method)
            && let Some(front) = &mut self.front
        {
            front.ready = true;
        }
        if let Some(why) = self.refusal(now) {
            self.tell_front(words::not_sent(id, &why));
            return None;
        }
        let (edits, number) = self.take_call(message, id, method, What::Plain, now);
        if method == "server/discover" {
            self.note_discover(message, number);
        }
        self.note_habit(method, message, &edits);
        Some((edits, ToBackend::Call(number)))
    }

    /// Gives a call of the host its number.
    pub(super) fn take_call(
        &mut self,
        message: &Message<'_>,
        id: &str,
        method: &str,
        what: What,
        now: Millis,
    ) -> (Edits, u64) {
        let number = self.calls.numbers.take(id);
        let text = number.to_string();
        let mut edits = Edits::default();
        if let Some(token) = message.asked_progress() {
            let open = &self.calls.open;
            self.calls
                .tokens
                .insert(number, token, |of| open.contains_key(&of));
            edits.replace(message, token, text.clone());
        }
        edits.replace(message, id, text);
        let call = Open {
            id: id.into(),
            method: shown(method),
            asker: self.connections,
            made: now,
            cancelled: None,
            kind: Call { what, sent: false },
        };
        self.calls.open.insert(number, call);
        (edits, number)
    }

    fn host_cancels(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToBackend> {
        let connection = self.connections;
        let found = message.cancelled().and_then(|id| {
            let mut calls = self.calls.open.iter_mut().rev();
            let (number, call) = calls.find(|(_, call)| {
                call.asker == connection && !call.kind.ours() && *call.id == *id
            })?;
            call.cancelled = Some(now);
            Some((id, *number))
        });
        let Some((id, number)) = found else {
            self.counts.dropped += 1;
            return None;
        };
        let mut edits = Edits::default();
        edits.replace(message, id, number.to_string());
        Some((edits, ToBackend::Cancel(number)))
    }

    fn host_progress(&mut self, message: &Message<'_>) -> Verdict<ToBackend> {
        let token = message.progress();
        let mut edits = Edits::default();
        match token
            .and_then(number)
            .and_then(|number| self.asks.tokens.get(number))
        {
            Some(original) => edits.replace(message, token?, original),
            None => {
                self.counts.dropped += 1;
                return None;
            }
        }
        Some((edits, ToBackend::Answer))
    }

    fn host_answers(&mut self, message: &Message<'_>, id: &str) -> Verdict<ToBackend> {
        let mut edits = Edits::default();
        // An error without an id is about what was no JSON-RPC.
        if id != "null" {
            let connection = Some(self.connections);
            let asked = number(id).filter(|number| {
                self.asks
                    .open
                    .get(number)
                    .is_some_and(|ask| ask.kind.handed == connection)
            });
            let Some(ask) = asked.and_then(|number| self.asks.open.remove(&number)) else {
                self.counts.dropped += 1;
                return None;
            };
            edits.replace(message, id, ask.id);
        }
        Some((edits, ToBackend::Answer))
    }
}

/// Whether a request only finds out whether somebody is there, and in which version.
fn is_probe(method: &str) -> bool {
    matches!(method, "server/discover" | "ping")
}

/// Whether a message of the host has the backend do more than greet, ping and list: then it may
/// keep something because of it.
fn is_use(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::Request { method, .. } => !matches!(
            &**method,
            "initialize"
                | "server/discover"
                | "ping"
                | "tools/list"
                | "prompts/list"
                | "resources/list"
                | "resources/templates/list"
        ),
        Kind::Notification { method } => !matches!(
            &**method,
            "notifications/initialized" | "notifications/cancelled" | "notifications/progress"
        ),
        // What was asked is a use already.
        Kind::Answer { .. } => false,
    }
}
