//! What the server sends.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;

use super::{Ask, Had, Kind, Many, reading};
use crate::entry::Edits;
use crate::message::{self, Line, Message, Part};
use crate::raw::number;
use crate::{Millis, words};

/// Why an ask is refused.
const WHOSE: &str = "this server is shared by several hosts, and it can't be known which of them this is for; a server that asks is not \
                     to be shared";

impl Many {
    /// The server has sent a line.
    pub fn from_server(&mut self, line: &Bytes, now: Millis) {
        let copy = OnceCell::new();
        match Line::of(line, &copy) {
            Line::Blank => {}
            Line::One(part) => self.server_part(part, now),
            Line::Batch(parts) => parts
                .into_iter()
                .for_each(|(_, part)| self.server_part(part, now)),
        }
    }

    fn server_part(&mut self, part: Part<'_>, now: Millis) {
        // Of what can't be read nobody knows whose it is.
        let Part::Message(message) = part else { return };
        match &message.kind {
            message::Kind::Answer { id, failed } => self.server_answers(&message, id, *failed, now),
            message::Kind::Request { id, method } => self.server_asks(&message, id, method, now),
            message::Kind::Notification { method } => self.server_notifies(&message, method, now),
        }
    }

    fn server_answers(&mut self, message: &Message<'_>, id: &str, failed: bool, now: Millis) {
        let Some(call) = number(id).and_then(|number| self.calls.remove(&number)) else {
            return;
        };
        if call.kind == Kind::Initialize {
            return self.greeted(message, failed);
        }
        let Some(place) = call.place else { return };
        self.served.note(place, now);
        if failed {
            for page in reading::pages_required(message) {
                self.shown(page, place);
            }
            if let Kind::Subscribe(uri) = &call.kind
                && let Some(place) = self.places.get_mut(&place)
            {
                place.subscribed.remove(uri);
            }
        }
        let mut edits = Edits::default();
        edits.replace(message, id, call.id);
        self.tell_place(place, edits.spliced(message));
    }

    fn server_asks(&mut self, message: &Message<'_>, id: &str, method: &str, now: Millis) {
        if method == "ping" {
            return self.tell_server(words::empty_result(id));
        }
        let Some(place) = self.concerned(now) else {
            return self.tell_server(words::failed(id, WHOSE));
        };
        if let Some(page) = reading::page(message) {
            self.shown(page, place);
        }
        self.asks.insert(
            id.into(),
            Ask {
                place,
                token: message.asked_progress().map(Into::into),
            },
        );
        self.tell_place(place, message.raw.to_vec());
    }

    fn server_notifies(&mut self, message: &Message<'_>, method: &str, now: Millis) {
        let to: Vec<u64> = match method {
            "notifications/progress" => return self.server_progress(message),
            "notifications/cancelled" => {
                let ask = message.cancelled().and_then(|id| self.end_ask(id, now));
                ask.map(|ask| ask.place).into_iter().collect()
            }
            "notifications/resources/updated" => {
                let uri = message.uri().unwrap_or_default();
                let wants = |subscribed: &str| covers(subscribed, &uri);
                let places = self.places.iter();
                let told =
                    places.filter(|(_, place)| place.subscribed.iter().any(|uri| wants(uri)));
                told.map(|(number, _)| *number).collect()
            }
            "notifications/elicitation/complete" => {
                let place = reading::page(message).and_then(|page| self.pages.remove(&page));
                place.flatten().into_iter().collect()
            }
            "notifications/tasks/status" => return,
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => return self.tell_all_of_list(method),
            // A message of the log, or a notification that we don't know, may have in it what a
            // call is about.
            _ => match self.had {
                Had::One(only) => vec![only],
                Had::Nobody | Had::Several => {
                    self.withheld += 1;
                    return;
                }
            },
        };
        let line = Bytes::copy_from_slice(message.raw);
        for place in to {
            self.tell_place(place, line.clone());
        }
    }

    /// That a list has changed concerns everybody. What else the server has written there may not.
    fn tell_all_of_list(&mut self, method: &str) {
        let places: Vec<u64> = self.places.keys().copied().collect();
        let line = words::notification(method);
        for place in places {
            self.tell_place(place, line.clone());
        }
    }

    fn server_progress(&mut self, message: &Message<'_>) {
        let Some(sent) = message.progress() else {
            return;
        };
        let call = number(sent).and_then(|number| self.calls.get(&number));
        let Some((place, token)) = call.and_then(|call| Some((call.place?, call.token.clone()?)))
        else {
            return;
        };
        let mut edits = Edits::default();
        edits.replace(message, sent, token);
        self.tell_place(place, edits.spliced(message));
    }
}

/// Whether who has subscribed to one resource hears of another: of itself, and of what is below it
/// (MCP, Resources: an update may name "a sub-resource of the one that the client actually
/// subscribed to").
fn covers(subscribed: &str, updated: &str) -> bool {
    updated.strip_prefix(subscribed).is_some_and(|below| {
        below.is_empty() || subscribed.ends_with('/') || below.starts_with(['/', '?', '#'])
    })
}
