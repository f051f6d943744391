//! One server for many: which of its messages is whose. It is told lines of *places*, each the
//! connection of one host, and of the server, and hands out lines for either.
//!
//! A call gets a number that no other one has, and its answer and progress go to the place that
//! made it. An ask of the server goes to the one place with calls under way; where there are
//! several, or may be, nobody can know whose it is, and it is refused.
//!
//! - `whose`: which place an ask is about.
//! - `arrivals`: who may share: the first host's `initialize` is the server's, and a host that can
//!   do less gets a server of its own.
//! - `from_place`, `from_server`: messages. `unread`: those that can't be read. `reading`: what
//!   else is read of messages.
//!
//! **Architecture Invariant:** a message that concerns one place goes to that place or to nobody.

mod arrivals;
mod from_place;
mod from_server;
mod reading;
mod unread;
mod whose;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;

use self::arrivals::Greeting;
#[cfg(test)]
pub(crate) use self::whose::QUIET;
use self::whose::Served;
use super::numbers::Numbers;
use super::{Millis, words};

/// Pages of the server's that are remembered.
const PAGES: usize = 1024;

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
