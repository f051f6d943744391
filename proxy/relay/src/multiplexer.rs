//! One server for many: which of its messages is whose. It is told lines of *places*, each the
//! connection of one host, and of the server, and hands out lines for either.
//!
//! A call gets a number that no other one has, and its answer and progress go to the place that
//! made it. An ask of the server goes to the one place with calls under way; where there are
//! several, or may be, nobody can know whose it is, and it is refused.
//!
//! **Architecture Invariant:** a message that concerns one place goes to that place or to nobody.

mod admission;
mod ask_routing;
mod fields;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;

use self::admission::Greeting;
#[cfg(test)]
use self::ask_routing::QUIET;
use self::ask_routing::Served;
use crate::entry::Edits;
use crate::message::{self, Line, Message, Part, Unreadable};
use crate::numbers::Numbers;
use crate::oversized::{Glimpse, OVERSIZED_ANSWER};
use crate::raw::number;
use crate::unreadable::UNREADABLE_ANSWER;
use crate::{Millis, words};

/// Pages of the server's that are remembered.
const PAGES: usize = 1024;

/// Why there is no such method.
const NO_ERA: &str =
    "Method not found: a shared server speaks the versions of MCP that begin with `initialize`";
const NO_TASKS: &str = "Method not found: there are no tasks on a shared server";
/// Why an ask is refused.
const WHOSE: &str = "this server is shared by several hosts, and it can't be known which of them this is for; a server that asks is not \
                     to be shared";

/// What the driver is to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// A line for the server.
    Server(Bytes),
    /// A line for a place.
    Place(u64, Bytes),
    /// This place shares the server from now on.
    Welcome(u64),
    /// This place does not: its host gets a server of its own. Why, in a sentence. The place is
    /// gone with this.
    Own(u64, String),
    /// This place can't now: its host is to come again after a while. Why, in a sentence. The place
    /// is gone with this.
    Later(u64, String),
    /// The server was stopped before it had answered the first host: every place is gone with this,
    /// and whoever comes again gets a fresh server.
    Over,
}

/// Places by number, and the server that they share.
#[derive(Default)]
pub struct Many {
    places: BTreeMap<u64, Place>,
    greeting: Greeting,
    /// The first lines of those that wait to know whether they may share, in their order.
    arriving: Vec<(u64, Bytes, bool)>,
    numbers: Numbers,
    calls: BTreeMap<u64, Call>,
    /// Open asks of the server, by their raw id: whom they were handed to.
    asks: BTreeMap<Box<str>, Ask>,
    /// For whom the server was at work last.
    served: Served,
    /// Which place a page of the server's was shown to (`elicitationId`); none: several, or one
    /// that is gone.
    pages: BTreeMap<String, Option<u64>>,
    /// Who has shared the server so far.
    had: Had,
    /// How many notifications nobody was told, since it can't be known whom they concern.
    withheld: u64,
    /// Whether no ask of the server can be known to be a call's: it has asked something while no
    /// call was under way, or may be at work for somebody who is not known.
    asks_apart: bool,
    deeds: Vec<Deed>,
}

#[derive(Default)]
struct Place {
    /// The error that its `initialize` is answered with, where the server has refused it.
    refused: Option<Box<str>>,
    subscribed: BTreeSet<String>,
}

/// Who has shared the server so far.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Had {
    #[default]
    Nobody,
    One(u64),
    Several,
}

/// A request that the server was handed and has not answered.
struct Call {
    /// Who gets the answer; none: nobody, it is ours.
    place: Option<u64>,
    /// Its raw id.
    id: Box<str>,
    /// Its raw progress token.
    token: Option<Box<str>>,
    kind: Kind,
    /// Its place does not wait for it any more. The server may still be at work, and ask something
    /// about it.
    cancelled: bool,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Plain,
    /// What a server may have to ask its user something for.
    Work,
    Initialize,
    /// A subscription to this resource, which fails with it.
    Subscribe(String),
}

struct Ask {
    place: u64,
    /// Its raw progress token.
    token: Option<Box<str>>,
}

impl Many {
    /// Nobody is here yet. `resumed`: the server has worked for others before, and may still do.
    #[must_use]
    pub fn new(resumed: bool) -> Self {
        let had = if resumed { Had::Several } else { Had::Nobody };
        Self {
            asks_apart: resumed,
            had,
            ..Self::default()
        }
    }

    /// What is to be done.
    pub fn deeds(&mut self) -> Vec<Deed> {
        core::mem::take(&mut self.deeds)
    }

    /// How many share the server.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// How many notifications nobody was told, since it can't be known whom they concern.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// Whether this place shares the server: it was welcomed, and is not gone.
    #[must_use]
    pub fn is_shared_by(&self, place: u64) -> bool {
        self.places.contains_key(&place)
    }

    /// A place is gone. What the server does for it goes on, and nobody hears of it.
    pub fn leave(&mut self, place: u64, now: Millis) {
        self.arriving.retain(|(arriving, ..)| *arriving != place);
        let Some(left) = self.places.remove(&place) else {
            return;
        };
        let handed: Vec<Box<str>> = self
            .asks
            .iter()
            .filter(|(_, ask)| ask.place == place)
            .map(|(id, _)| id.clone())
            .collect();
        for id in handed {
            self.fail_ask(
                &id,
                "the host disconnected before it answered; the outcome is unknown",
                now,
            );
        }
        self.pages
            .values_mut()
            .filter(|of| **of == Some(place))
            .for_each(|of| *of = None);
        for uri in left.subscribed {
            self.unsubscribe_if_unwanted(&uri);
        }
        self.drop_unwanted();
    }

    fn tell_server(&mut self, line: impl Into<Bytes>) {
        self.deeds.push(Deed::Server(line.into()));
    }

    fn tell_place(&mut self, place: u64, line: impl Into<Bytes>) {
        if self.places.contains_key(&place) {
            self.deeds.push(Deed::Place(place, line.into()));
        }
    }

    /// A request of our own, whose answer nobody waits for.
    fn ask_server(&mut self, method: &str, params: &str) {
        let number = self.numbers.ours();
        let call = Call {
            place: None,
            id: "null".into(),
            token: None,
            kind: Kind::Plain,
            cancelled: false,
        };
        self.calls.insert(number, call);
        self.tell_server(words::request(number, method, params));
    }

    /// This place was shown a page. Of one that another place was shown, too, nobody knows whose it
    /// is.
    fn shown(&mut self, page: String, place: u64) {
        if let Some(of) = self.pages.get_mut(&page) {
            *of = of.filter(|of| *of == place);
            return;
        }
        if self.pages.len() >= PAGES {
            self.pages.pop_first();
        }
        self.pages.insert(page, Some(place));
    }

    fn is_subscribed(&self, uri: &str) -> bool {
        self.places
            .values()
            .any(|place| place.subscribed.contains(uri))
    }

    fn unsubscribe_if_unwanted(&mut self, uri: &str) {
        if !self.is_subscribed(uri) {
            let params = serde_json::json!({ "uri": uri }).to_string();
            self.ask_server("resources/unsubscribe", &params);
        }
    }
}

/// What hosts send.
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
            _ if method.starts_with("tasks/") || fields::wants_task(message) => {
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
        let is_its = |ask: &Ask| ask.place == place && ask.token.as_deref() == Some(token);
        if self.asks.values().any(is_its) {
            self.tell_server(message.raw.to_vec());
        }
    }
}

/// What the server sends.
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
            for page in fields::pages_required(message) {
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
        if let Some(page) = fields::page(message) {
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
                let place = fields::page(message).and_then(|page| self.pages.remove(&page));
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

/// Messages that can't be read, or are too large to be. Of some it can be told who waits for them,
/// and nobody else hears of them.
impl Many {
    /// A place has sent what can't be read, though it has an id.
    pub(super) fn unreadable_from_place(
        &mut self,
        place: u64,
        unreadable: &Unreadable,
        now: Millis,
    ) {
        let Unreadable {
            id,
            request,
            answer,
        } = unreadable;
        match id.as_deref().filter(|id| self.is_asked(place, id)) {
            Some(asked) if !request => {
                self.fail_ask(asked, UNREADABLE_ANSWER, now);
            }
            _ if *answer && !request => {}
            _ => {
                // A call that was made in this name is not what has failed.
                let is_open = |id: &str| {
                    self.calls
                        .values()
                        .any(|call| call.place == Some(place) && *call.id == *id)
                };
                let id = id.as_deref().filter(|id| !is_open(id)).unwrap_or("null");
                self.tell_place(place, words::unreadable(id));
            }
        }
    }

    /// A place has sent a line of more than 16 MiB, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_place(&mut self, place: u64, head: &[u8], tail: &[u8], now: Millis) {
        let Glimpse {
            id,
            request,
            answer,
        } = Glimpse::of(head, tail);
        if !answer || request {
            return self.tell_place(place, words::too_large(id.as_deref().unwrap_or("null")));
        }
        if let Some(asked) = id.filter(|id| self.is_asked(place, id)) {
            self.fail_ask(&asked, OVERSIZED_ANSWER, now);
        }
    }

    /// The server has sent a line of more than 16 MiB, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_server(&mut self, head: &[u8], tail: &[u8], now: Millis) {
        let Glimpse {
            id: Some(id),
            request,
            answer,
        } = Glimpse::of(head, tail)
        else {
            return;
        };
        if request {
            // No answer to a call that happens to have its number.
            self.tell_server(words::too_large(&id));
        } else if answer {
            // It goes the way that an error of the server's own would go.
            self.from_server(&words::too_large(&id), now);
        }
    }

    /// Whether this place was handed an ask of this id, which is open.
    pub(super) fn is_asked(&self, place: u64, id: &str) -> bool {
        self.asks.get(id).is_some_and(|ask| ask.place == place)
    }

    /// Nobody answers an ask.
    pub(super) fn fail_ask(&mut self, id: &str, why: &str, now: Millis) {
        self.end_ask(id, now);
        self.tell_server(words::failed(id, why));
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
