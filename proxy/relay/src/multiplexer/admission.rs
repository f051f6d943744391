//! Who may share the server. It is initialised once, as the first host asks for, and tells every
//! host the same of itself.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::cell::OnceCell;

use bytes::Bytes;

use super::fields::{self, Hello};
use super::{Call, Deed, Had, Kind, Many, Place};
use crate::entry::Edits;
use crate::message::{self, Line, Message};
use crate::version::{Told, Version};
use crate::words;

/// How far the server is with its first host.
#[derive(Default)]
pub(super) enum Greeting {
    /// Nobody has come.
    #[default]
    None,
    /// It was asked for this.
    Asked { first: u64, hello: Hello },
    /// It has answered.
    Done {
        hello: Hello,
        /// The version that it speaks.
        version: Version,
        /// The result, for every host.
        result: Box<str>,
    },
}

/// The `initialize` in a line, if it can be passed on with a token of ours.
fn initialize<'a>(line: &'a Bytes, copy: &'a OnceCell<String>) -> Option<Message<'a>> {
    let message = Line::of(line, copy).message()?;
    let is_one =
        matches!(&message.kind, message::Kind::Request { method, .. } if method == "initialize");
    (is_one && message.has_clear_token()).then_some(message)
}

impl Many {
    /// A host comes with its first line. `again`: it has had the answer to that, from a server that
    /// is gone.
    pub fn arrive(&mut self, place: u64, line: Bytes, again: bool) {
        let copy = OnceCell::new();
        let Some(message) = initialize(&line, &copy) else {
            let why = "its host does not begin with `initialize`";
            self.deeds.push(Deed::Own(place, why.to_string()));
            return;
        };
        let hello = Hello::of(&message);
        match &self.greeting {
            Greeting::None => {
                self.greet(place, &message, hello);
                self.arriving.push((place, line, again));
            }
            Greeting::Asked { .. } => self.arriving.push((place, line, again)),
            Greeting::Done { .. } => self.admit(place, &hello, again),
        }
    }

    /// The server is initialised for its first host.
    fn greet(&mut self, first: u64, message: &Message<'_>, hello: Hello) {
        let message::Kind::Request { id, .. } = &message.kind else {
            return;
        };
        let number = self.numbers.ours();
        let mut edits = Edits::default();
        edits.replace(message, id, number.to_string());
        if let Some(token) = message.asked_progress() {
            edits.replace(message, token, number.to_string());
        }
        fields::without_own(message, message.params, &mut edits);
        self.tell_server(edits.spliced(message));
        let call = Call {
            place: None,
            id: "null".into(),
            token: None,
            kind: Kind::Initialize,
            cancelled: false,
        };
        self.calls.insert(number, call);
        self.greeting = Greeting::Asked { first, hello };
    }

    fn admit(&mut self, place: u64, hello: &Hello, again: bool) {
        let Greeting::Done {
            hello: first,
            version,
            ..
        } = &self.greeting
        else {
            return;
        };
        let why = if !hello.can_all_of(first) {
            "its host can do less than the one that the server was started for".to_string()
        } else if !hello.version.can_use(version, &first.version) {
            format!(
                "its host does not speak version {version} of the protocol, which the server does"
            )
        } else {
            self.welcome(place, Place::default());
            if again {
                self.tell_lists(place);
            }
            return;
        };
        self.deeds.push(Deed::Own(place, why));
    }

    fn welcome(&mut self, number: u64, place: Place) {
        self.had = if self.had == Had::Nobody {
            Had::One(number)
        } else {
            Had::Several
        };
        self.places.insert(number, place);
        self.deeds.push(Deed::Welcome(number));
    }

    /// A host that comes again is told to list again what the server has lists of: it may be
    /// another one.
    fn tell_lists(&mut self, place: u64) {
        let Greeting::Done { result, .. } = &self.greeting else {
            return;
        };
        for method in Told::of(&format!(r#"{{"result":{result}}}"#)).lists {
            self.tell_place(place, words::notification(method));
        }
    }

    /// The server has answered the first `initialize`.
    pub(super) fn greeted(&mut self, message: &Message<'_>, failed: bool) {
        let Greeting::Asked { first, hello } = core::mem::take(&mut self.greeting) else {
            return;
        };
        let arriving = core::mem::take(&mut self.arriving);
        if failed && fields::is_outcome_unknown(message) {
            // The keeper says this, not the server: the keeper was told to stop, and ends.
            self.deeds.push(Deed::Over);
            return;
        }
        if failed {
            // The first host hears of it. The next one is another matter.
            for (place, line, again) in arriving {
                if place != first {
                    self.arrive(place, line, again);
                } else if again {
                    // It has had its answer, and none would tell it of this one. The next attempt
                    // may go better.
                    let why = "the shared server refuses to be initialised again";
                    self.deeds.push(Deed::Later(place, why.to_string()));
                } else {
                    let refused = fields::error(message).map(Into::into);
                    self.welcome(
                        place,
                        Place {
                            refused,
                            ..Place::default()
                        },
                    );
                }
            }
            return;
        }
        let mut edits = Edits::default();
        let result = fields::result(message);
        fields::without_own(message, result, &mut edits);
        let spliced = edits.spliced(message);
        let text = String::from_utf8_lossy(&spliced);
        let whole = Message::of(text.as_bytes(), &text);
        let result = whole.as_ref().and_then(fields::result).unwrap_or("{}");
        let version = Told::of(&text).version;
        self.greeting = Greeting::Done {
            hello,
            version,
            result: result.into(),
        };
        self.tell_server(words::notification("notifications/initialized"));
        for (place, line, again) in arriving {
            self.arrive(place, line, again);
        }
    }

    /// A place sends its `initialize`, after it was welcomed by it.
    pub(super) fn place_initializes(&mut self, place: u64, id: &str) {
        let refused = self
            .places
            .get(&place)
            .and_then(|place| place.refused.as_ref());
        let line = match (refused, &self.greeting) {
            (Some(error), _) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
            (None, Greeting::Done { result, .. }) => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            }
            (None, _) => return,
        };
        self.tell_place(place, line);
    }
}
