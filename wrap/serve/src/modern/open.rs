//! The open requests of one server, and to which of them a message of the server belongs.

use std::cell::OnceCell;
use std::collections::HashMap;

use bytes::Bytes;
use mcp_sessiond_client::Json;
use mcp_sessiond_relay::Edits;
use mcp_sessiond_relay::message::{Kind, Line, Message, Part};
use tokio::sync::mpsc;

use super::params::Tools;
use crate::said::{parts, prefixed, written};
use crate::which::Id;

/// Messages that wait for the client of one request. A client that is slower than that has stopped reading.
const WAITING_MAX: usize = 1_024;

/// Tells one request from every other, also from those of former processes.
pub(super) type Key = Box<str>;

/// What a request is, as far as its messages depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// `subscriptions/listen`.
    Listen,
    /// `tools/list`.
    List {
        /// Whether its answer replaces what is known of the tools.
        is_first_page: bool,
    },
    /// Any other request.
    Call {
        /// Whether it has asked for log messages.
        wants_log: bool,
    },
}

/// A message for the client of a request.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// The message, with the client's own ids.
    pub(super) message: Json,
    /// Whether it is the answer, and so the last one.
    pub(super) is_answer: bool,
}

#[derive(Debug)]
struct Request {
    /// Its id, as the server knows it.
    id: Id,
    asked: Asked,
    messages: mpsc::Sender<Sent>,
}

/// The open requests.
#[derive(Debug, Default)]
pub(super) struct Open(HashMap<Key, Request>);

/// What a message of the server is about.
#[derive(Debug, PartialEq, Eq)]
enum About {
    /// It answers this request.
    Answer(Key),
    /// It belongs to this one.
    Of(Key),
    /// It ends this subscription.
    Ends(Key),
    /// It does not say to which request it belongs.
    Unsaid {
        /// Whether it is a log message.
        is_log: bool,
    },
}

/// What is to be done after a line of the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Requests whose clients do not read, by the ids that the server knows: they are to be cancelled.
    pub(super) cancel: Vec<Id>,
    /// Requests of the server's own, of which this era has none.
    pub(super) refuse: Vec<Id>,
}

impl Todo {
    /// Whether there is nothing to do.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.cancel.is_empty() && self.refuse.is_empty()
    }
}

impl Open {
    /// A request is sent to the server. Its messages come here, up to the answer.
    pub(super) fn add(&mut self, key: Key, id: &str, asked: Asked) -> mpsc::Receiver<Sent> {
        let (messages, receiver) = mpsc::channel(WAITING_MAX);
        let id = prefixed(&key, id);
        self.0.insert(key, Request { id, asked, messages });
        receiver
    }

    /// A request is not to be answered any more. If it was open: its id, as the server knows it.
    pub(super) fn remove(&mut self, key: &str) -> Option<Id> {
        self.0.remove(key).map(|request| request.id)
    }

    /// How many requests are open.
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether no request is open.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// No request will be answered.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Passes the messages of a line on. Learns of the tools from a list that is among them.
    pub(super) fn hear(&mut self, line: &Bytes, tools: &mut Tools) -> Todo {
        let mut todo = Todo::default();
        let copy = OnceCell::new();
        match Line::of(line, &copy) {
            Line::Blank => {}
            Line::One(part) => self.hear_one(&part, tools, &mut todo),
            Line::Batch(parts) => {
                parts.iter().for_each(|(_, part)| self.hear_one(part, tools, &mut todo));
            }
        }
        todo
    }

    fn hear_one(&mut self, part: &Part<'_>, tools: &mut Tools, todo: &mut Todo) {
        let Part::Message(message) = part else { return };
        if let Kind::Request { id, .. } = &message.kind {
            todo.refuse.push((*id).into());
            return;
        }
        let Some((about, message)) = read(message) else { return };
        let key = match &about {
            About::Answer(key) | About::Of(key) | About::Ends(key) => Some(key.clone()),
            About::Unsaid { is_log } => self.only(*is_log),
        };
        let Some((key, request)) = key.and_then(|key| self.0.get_key_value(&key)) else { return };
        let is_answer = matches!(about, About::Answer(_));
        if let (true, Asked::List { is_first_page }) = (is_answer, request.asked) {
            tools.learn(&message, is_first_page);
        }
        let is_full = request.messages.try_send(Sent { message, is_answer }).is_err();
        if is_full || is_answer || matches!(about, About::Ends(_)) {
            let key = key.clone();
            let id = self.remove(&key);
            todo.cancel.extend(id.filter(|_| is_full && !is_answer));
        }
    }

    /// The only call to which such a message can belong. It must not reach the client of another one.
    fn only(&self, is_log: bool) -> Option<Key> {
        let fits = |request: &Request| match request.asked {
            Asked::Call { wants_log } => wants_log || !is_log,
            Asked::List { .. } => !is_log,
            Asked::Listen => false,
        };
        let mut fitting = self.0.iter().filter(|(_, request)| fits(request));
        let (key, _) = fitting.next()?;
        fitting.next().is_none().then(|| key.clone())
    }
}

/// What a message is about, and the message with the client's own ids. None: it is about no request of ours.
fn read(message: &Message<'_>) -> Option<(About, Json)> {
    let mut edits = Edits::default();
    let mut own = |text: &str| {
        let (key, own) = parts(text)?;
        edits.replace(message, text, own);
        Some(Key::from(key))
    };
    let about = match &message.kind {
        Kind::Answer { id, .. } => {
            let about = About::Answer(own(id)?);
            if let Some(id) = message.answered_subscription() {
                own(id);
            }
            about
        }
        Kind::Notification { method } if method == "notifications/progress" => {
            About::Of(own(message.progress()?)?)
        }
        Kind::Notification { method } if method == "notifications/cancelled" => {
            if let Some(id) = message.subscription() {
                own(id);
            }
            About::Ends(own(message.cancelled()?)?)
        }
        Kind::Notification { method } => match message.subscription() {
            Some(id) => About::Of(own(id)?),
            None => About::Unsaid { is_log: method == "notifications/message" },
        },
        Kind::Request { .. } => return None,
    };
    Some((about, written(message, &edits)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn say(open: &mut Open, message: &Value) -> Todo {
        open.hear(&message.to_string().into(), &mut Tools::default())
    }

    fn got(receiver: &mut mpsc::Receiver<Sent>) -> Option<(Value, bool)> {
        let sent = receiver.try_recv().ok()?;
        Some((serde_json::from_str(sent.message.as_str()).expect("JSON"), sent.is_answer))
    }

    fn note(method: &str, params: &Value) -> Value {
        json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params})
    }

    const CALL: Asked = Asked::Call { wants_log: false };
    const LOGS: Asked = Asked::Call { wants_log: true };
    const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

    #[test]
    fn each_message_reaches_its_own_request_with_the_clients_own_ids() {
        let mut open = Open::default();
        let (mut one, mut two) = (open.add("k-1".into(), "7", CALL), open.add("k-2".into(), "7", CALL));
        say(&mut open, &note("progress", &json!({"progressToken": "k-2/\"t\"", "progress": 1})));
        assert_eq!(got(&mut two).expect("progress").0["params"]["progressToken"], "t");
        say(&mut open, &json!({"jsonrpc": "2.0", "id": "k-1/7", "result": {"id": "k-2/7"}}));
        let (answer, is_answer) = got(&mut one).expect("an answer");
        assert!(is_answer && answer["id"] == 7 && answer["result"]["id"] == "k-2/7");
        assert!(one.try_recv().is_err() && got(&mut two).is_none());
        for stray in ["k-1/7", "k-3/7"] {
            say(&mut open, &json!({"jsonrpc": "2.0", "id": stray, "result": {}}));
        }
        say(&mut open, &json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
        assert_eq!(got(&mut two), None);
    }

    #[test]
    fn a_subscription_gets_its_notifications_until_either_end_ends_it() {
        let mut open = Open::default();
        let mut listen = open.add("k-1".into(), "7", Asked::Listen);
        let mut other = open.add("k-2".into(), "7", Asked::Listen);
        say(&mut open, &note("tools/list_changed", &json!({"_meta": {SUBSCRIPTION: "k-1/1"}})));
        assert_eq!(got(&mut listen).expect("a change").0["params"]["_meta"][SUBSCRIPTION], 1);
        say(&mut open, &note("tools/list_changed", &json!({})));
        say(&mut open, &note("cancelled", &json!({"requestId": "k-1/1"})));
        assert_eq!(got(&mut listen).expect("its end").0["params"]["requestId"], 1);
        assert!(matches!(listen.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
        let result = json!({"resultType": "complete", "_meta": {SUBSCRIPTION: "k-2/\"x\""}});
        say(&mut open, &json!({"jsonrpc": "2.0", "id": "k-2/\"x\"", "result": result}));
        let (answer, is_answer) = got(&mut other).expect("its end");
        assert!(is_answer && answer["id"] == "x" && answer["result"]["_meta"][SUBSCRIPTION] == "x");
        assert!(open.is_empty());
    }

    #[test]
    fn a_message_that_names_no_request_reaches_the_only_one_that_it_can_be_of_or_none() {
        let mut open = Open::default();
        let mut calls = [CALL, LOGS].map(|asked| open.add(format!("k-{asked:?}").into(), "7", asked));
        let log = note("message", &json!({"level": "info", "data": 1}));
        say(&mut open, &log);
        assert!(got(&mut calls[0]).is_none() && got(&mut calls[1]).is_some());
        say(&mut open, &note("x", &json!({})));
        assert!(calls.iter_mut().all(|call| got(call).is_none()));
        let mut third = open.add("k-3".into(), "7", LOGS);
        say(&mut open, &log);
        assert!(got(&mut third).is_none() && got(&mut calls[1]).is_none(), "it might be of the other");
    }

    #[test]
    fn a_client_that_does_not_read_costs_no_more_than_its_share() {
        let mut open = Open::default();
        let mut slow = open.add("k-1".into(), "7", CALL);
        let progress = note("progress", &json!({"progressToken": "k-1/1", "progress": 1}));
        for _ in 0..WAITING_MAX {
            assert_eq!(say(&mut open, &progress), Todo::default());
        }
        assert_eq!(say(&mut open, &progress).cancel, ["\"k-1/7\"".into()]);
        assert!(open.is_empty());
        while let Some((_, is_answer)) = got(&mut slow) {
            assert!(!is_answer);
        }
        let ask = json!({"jsonrpc": "2.0", "id": 3, "method": "roots/list"});
        assert_eq!(say(&mut open, &ask).refuse, ["3".into()]);
    }
}
