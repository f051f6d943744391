//! What hosts send.

use alloc::string::ToString;
use core::cell::OnceCell;

use bytes::Bytes;

use super::{Call, Kind, Many, reading};
use crate::entry::Edits;
use crate::message::{self, Line, Message, Part};
use crate::{Millis, words};

impl Many {
    /// A place has sent a line.
    pub fn from_place(&mut self, place: u64, line: &Bytes, now: Millis) {
        if !self.places.contains_key(&place) {
            return;
        }
        let copy = OnceCell::new();
        match Line::of(line, &copy) {
            Line::Blank => {}
            Line::One(part) => self.place_part(place, part, now),
            Line::Batch(parts) => parts
                .into_iter()
                .for_each(|(_, part)| self.place_part(place, part, now)),
        }
    }

    fn place_part(&mut self, place: u64, part: Part<'_>, now: Millis) {
        let message = match part {
            Part::Message(message) => message,
            Part::Unreadable(unreadable) => {
                return self.unreadable_from_place(place, &unreadable, now);
            }
            // Nobody else may be answered by what a server says of this.
            Part::Other => return self.tell_place(place, words::unreadable("null")),
        };
        match &message.kind {
            message::Kind::Request { id, method } => {
                self.place_request(place, &message, id, method);
            }
            message::Kind::Notification { method } => match &**method {
                // The server was told so when it had answered; and what is one host's own is not
                // the server's.
                "notifications/initialized"
                | "notifications/roots/list_changed"
                | "notifications/tasks/status" => {}
                "notifications/cancelled" => self.place_cancels(place, &message),
                "notifications/progress" => self.place_progress(place, &message),
                _ => {
                    self.served.note(place, now);
                    self.tell_server(message.raw.to_vec());
                }
            },
            message::Kind::Answer { id, .. } => {
                if self.is_asked(place, id) {
                    self.end_ask(id, now);
                    self.tell_server(message.raw.to_vec());
                }
            }
        }
    }

    fn place_request(&mut self, place: u64, message: &Message<'_>, id: &str, method: &str) {
        if !message.has_clear_token() {
            return self.tell_place(place, words::unclear_token(id));
        }
        let mut edits = Edits::default();
        let mut kind = Kind::Plain;
        match method {
            "initialize" => return self.place_initializes(place, id),
            // A host that speaks MCP 2026-07-28 goes on with `initialize`, if it can; and tasks
            // would be everybody's.
            "server/discover" | message::LISTEN => {
                return self.tell_place(place, words::no_method(id, NO_ERA));
            }
            _ if method.starts_with("tasks/") || reading::wants_task(message) => {
                return self.tell_place(place, words::no_method(id, NO_TASKS));
            }
            "tools/call" | "prompts/get" | "resources/read" | "completion/complete" => {
                kind = Kind::Work;
            }
            "resources/subscribe" => {
                if let (Some(uri), Some(place)) = (message.uri(), self.places.get_mut(&place)) {
                    place.subscribed.insert(uri.clone());
                    kind = Kind::Subscribe(uri);
                }
            }
            "resources/unsubscribe" => {
                if let (Some(uri), Some(own)) = (message.uri(), self.places.get_mut(&place)) {
                    own.subscribed.remove(&uri);
                    if self.is_subscribed(&uri) {
                        return self.tell_place(place, words::empty_result(id));
                    }
                }
            }
            _ => {}
        }
        let number = self.numbers.ours();
        let token = message.asked_progress();
        if let Some(token) = token {
            edits.replace(message, token, number.to_string());
        }
        edits.replace(message, id, number.to_string());
        let token = token.map(Into::into);
        self.calls.insert(
            number,
            Call {
                place: Some(place),
                id: id.into(),
                token,
                kind,
                cancelled: false,
            },
        );
        self.tell_server(edits.spliced(message));
    }

    fn place_cancels(&mut self, place: u64, message: &Message<'_>) {
        let Some(id) = message.cancelled() else {
            return;
        };
        let is_it = |call: &Call| call.place == Some(place) && *call.id == *id;
        // An id that was used again is the newest call's.
        let Some((number, call)) = self.calls.iter_mut().rev().find(|(_, call)| is_it(call)) else {
            return;
        };
        call.cancelled = true;
        let mut edits = Edits::default();
        edits.replace(message, id, number.to_string());
        self.tell_server(edits.spliced(message));
        self.drop_unwanted();
    }

    fn place_progress(&mut self, place: u64, message: &Message<'_>) {
        let Some(token) = message.progress() else {
            return;
        };
        let is_its = |ask: &super::Ask| ask.place == place && ask.token.as_deref() == Some(token);
        if self.asks.values().any(is_its) {
            self.tell_server(message.raw.to_vec());
        }
    }
}

/// Why there is no such method.
const NO_ERA: &str =
    "Method not found: a shared server speaks the versions of MCP that begin with `initialize`";
const NO_TASKS: &str = "Method not found: there are no tasks on a shared server";
