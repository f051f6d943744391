//! The open requests of one server, and to which of them a message of the server belongs.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use mcp_sessiond_client::Json;
use mcp_sessiond_http_session::messages::{Id, with_edits};
use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::id_prefix::{parts, prefixed};
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message};
use tokio::sync::mpsc;

use super::params::Tools;

/// Messages that wait for the client of one request. A client that leaves more has stopped reading.
const WAITING_MAX: usize = 1_024;
/// Bytes of them; one message may have more.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Tells one request from every other, also from those of former processes.
pub(super) type Key = Box<str>;

/// What a request is, as far as its messages depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestKind {
    /// What it asks for.
    pub(super) what: RequestMethod,
    /// Whether it asks for log messages.
    pub(super) wants_log: bool,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestMethod {
    /// It is `subscriptions/listen`.
    Listen,
    /// It is `tools/list`.
    List {
        /// For the first page.
        is_first_page: bool,
    },
    /// It is any other request.
    Other,
}

/// A message for the client of a request.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    /// The message, with the client's own ids.
    pub(super) message: Json,
    /// Whether it is the answer, and so the last one.
    pub(super) is_answer: bool,
}

/// The messages of one request, in order.
#[derive(Debug)]
pub(super) struct Messages {
    receiver: mpsc::UnboundedReceiver<Delivery>,
    load: Arc<Load>,
}

/// What waits for a client.
#[derive(Debug, Default)]
struct Load {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether there was more than may wait.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct Request {
    /// Its id, as the server knows it.
    id: Id,
    asked: RequestKind,
    /// None: its client has gone, and the server may still say something of it.
    client: Option<(mpsc::UnboundedSender<Delivery>, Arc<Load>)>,
}

/// The open requests.
#[derive(Debug, Default)]
pub(super) struct OpenRequests(HashMap<Key, Request>);

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
    Unaddressed {
        /// Whether it is a log message.
        is_log: bool,
    },
}

/// What is to be done after a line of the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Requests whose clients do not read. The server is to be told that they are cancelled.
    pub(super) cancel: Vec<Cancelled>,
    /// Requests of the server's own, of which this era has none.
    pub(super) refuse: Vec<Id>,
    /// Subscriptions that the server has ended. The result may come right after that.
    pub(super) end: Vec<Key>,
}

/// A request that is not to be answered any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cancelled {
    /// It.
    pub(super) key: Key,
    /// Its id, as the server knows it.
    pub(super) id: Id,
}

impl Effects {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Messages {
    /// The next one. None: there will be none.
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        let sent = self.receiver.recv().await?;
        self.load.messages.fetch_sub(1, Ordering::Relaxed);
        self.load
            .bytes
            .fetch_sub(sent.message.len(), Ordering::Relaxed);
        Some(sent)
    }

    /// Whether the request was cancelled because its client did not read.
    pub(super) fn is_over(&self) -> bool {
        self.load.is_over.load(Ordering::Relaxed)
    }
}

impl Load {
    /// Takes a message in, if it may wait.
    fn take(&self, bytes: usize, is_answer: bool) -> bool {
        let (messages, waiting) = (
            self.messages.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        );
        let is_full =
            messages >= WAITING_MAX || messages > 0 && waiting + bytes > WAITING_BYTES_MAX;
        if is_full && !is_answer {
            self.is_over.store(true, Ordering::Relaxed);
            return false;
        }
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl OpenRequests {
    /// A request is sent to the server. Its messages come here, up to the answer.
    pub(super) fn add(&mut self, key: Key, id: &str, asked: RequestKind) -> Messages {
        let (messages, receiver) = mpsc::unbounded_channel();
        let load = Arc::<Load>::default();
        let id = prefixed(&key, id);
        self.0.insert(
            key,
            Request {
                id,
                asked,
                client: Some((messages, load.clone())),
            },
        );
        Messages { receiver, load }
    }

    /// A request of a former process is open, under this id.
    pub(super) fn add_former(&mut self, id: &str) -> Option<Cancelled> {
        let key = Key::from(parts(id)?.0);
        let asked = RequestKind {
            what: RequestMethod::Other,
            wants_log: true,
        };
        self.0.insert(
            key.clone(),
            Request {
                id: id.into(),
                asked,
                client: None,
            },
        );
        Some(Cancelled { key, id: id.into() })
    }

    /// The client of a request has gone. None: the request was answered.
    pub(super) fn cancel(&mut self, key: &str) -> Option<Cancelled> {
        let request = self.0.get_mut(key)?;
        request.client.take()?;
        Some(Cancelled {
            key: key.into(),
            id: request.id.clone(),
        })
    }

    /// The server says nothing of this request any more.
    pub(super) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// How many clients wait.
    pub(super) fn count(&self) -> usize {
        self.0
            .values()
            .filter(|request| request.client.is_some())
            .count()
    }

    /// No request will be answered.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Passes the messages of a line on. Learns of the tools from a list that is among them.
    pub(super) fn route(&mut self, line: &Bytes, tools: &mut Tools) -> Effects {
        let mut effects = Effects::default();
        let copy = OnceCell::new();
        let read = Line::of(line, &copy);
        read.messages()
            .for_each(|message| self.route_one(message, tools, &mut effects));
        effects
    }

    fn route_one(&mut self, message: &Message<'_>, tools: &mut Tools, effects: &mut Effects) {
        if let Kind::Request { id, .. } = &message.kind {
            effects.refuse.push((*id).into());
            return;
        }
        let Some((about, message)) = read(message) else {
            return;
        };
        let key = match &about {
            About::Answer(key) | About::Of(key) | About::Ends(key) => Some(key.clone()),
            About::Unaddressed { is_log } => self.only(*is_log),
        };
        let Some((key, request)) = key.and_then(|key| self.0.get_key_value(&key)) else {
            return;
        };
        let (key, is_answer) = (key.clone(), matches!(about, About::Answer(_)));
        if let (true, RequestMethod::List { is_first_page }) = (is_answer, request.asked.what) {
            tools.learn(&message, is_first_page);
        }
        let mut is_full = false;
        if let Some((messages, load)) = &request.client {
            if load.take(message.len(), is_answer) {
                let _ = messages.send(Delivery { message, is_answer });
            } else {
                is_full = true;
            }
        }
        match about {
            About::Answer(_) => self.forget(&key),
            _ if is_full => effects.cancel.extend(self.cancel(&key)),
            About::Ends(_) => effects.end.push(key),
            About::Of(_) | About::Unaddressed { .. } => {}
        }
    }

    /// The only request to which such a message can belong. It must not reach the client of another
    /// one.
    fn only(&self, is_log: bool) -> Option<Key> {
        let fits = |request: &Request| {
            request.asked.what != RequestMethod::Listen && (request.asked.wants_log || !is_log)
        };
        let mut fitting = self.0.iter().filter(|(_, request)| fits(request));
        let (key, _) = fitting.next()?;
        fitting.next().is_none().then(|| key.clone())
    }
}

/// What a message is about, and the message with the client's own ids. None: it is about no request
/// of ours.
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
            None => About::Unaddressed {
                is_log: method == "notifications/message",
            },
        },
        Kind::Request { .. } => return None,
    };
    Some((about, with_edits(message, &edits)))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    fn say(open: &mut OpenRequests, message: &Value) -> Effects {
        open.route(&message.to_string().into(), &mut Tools::default())
    }

    fn got(messages: &mut Messages) -> Option<(Value, bool)> {
        let sent = messages.next().now_or_never()??;
        Some((
            serde_json::from_str(sent.message.as_str()).expect("JSON"),
            sent.is_answer,
        ))
    }

    fn note(method: &str, params: &Value) -> Value {
        json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params})
    }

    const CALL: RequestKind = RequestKind {
        what: RequestMethod::Other,
        wants_log: false,
    };
    const LOGS: RequestKind = RequestKind {
        what: RequestMethod::Other,
        wants_log: true,
    };
    const LISTEN: RequestKind = RequestKind {
        what: RequestMethod::Listen,
        wants_log: false,
    };

    fn has_ended(messages: &mut Messages) -> bool {
        matches!(messages.next().now_or_never(), Some(None))
    }
    const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

    #[test]
    fn each_message_reaches_its_own_request_with_the_clients_own_ids() {
        let mut open = OpenRequests::default();
        let (mut one, mut two) = (
            open.add("k-1".into(), "7", CALL),
            open.add("k-2".into(), "7", CALL),
        );
        say(
            &mut open,
            &note(
                "progress",
                &json!({"progressToken": "k-2/\"t\"", "progress": 1}),
            ),
        );
        assert_eq!(
            got(&mut two).expect("progress").0["params"]["progressToken"],
            "t"
        );
        say(
            &mut open,
            &json!({"jsonrpc": "2.0", "id": "k-1/7", "result": {"id": "k-2/7"}}),
        );
        let (answer, is_answer) = got(&mut one).expect("an answer");
        assert!(is_answer && answer["id"] == 7 && answer["result"]["id"] == "k-2/7");
        assert!(has_ended(&mut one) && got(&mut two).is_none());
        for stray in ["k-1/7", "k-3/7"] {
            say(
                &mut open,
                &json!({"jsonrpc": "2.0", "id": stray, "result": {}}),
            );
        }
        say(&mut open, &json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
        assert_eq!(got(&mut two), None);
    }

    #[test]
    fn a_subscription_gets_its_notifications_until_either_end_ends_it() {
        let mut open = OpenRequests::default();
        let mut listen = open.add("k-1".into(), "7", LISTEN);
        let mut other = open.add("k-2".into(), "7", LISTEN);
        say(
            &mut open,
            &note(
                "tools/list_changed",
                &json!({"_meta": {SUBSCRIPTION: "k-1/1"}}),
            ),
        );
        assert_eq!(
            got(&mut listen).expect("a change").0["params"]["_meta"][SUBSCRIPTION],
            1
        );
        say(&mut open, &note("tools/list_changed", &json!({})));
        say(
            &mut open,
            &note("cancelled", &json!({"requestId": "k-1/1"})),
        );
        assert_eq!(
            got(&mut listen).expect("its end").0["params"]["requestId"],
            1
        );
        say(
            &mut open,
            &json!({"jsonrpc": "2.0", "id": "k-1/1", "result": {"_meta": {SUBSCRIPTION: "k-1/1"}}}),
        );
        assert_eq!(
            got(&mut listen).expect("its result").0["result"]["_meta"][SUBSCRIPTION],
            1
        );
        assert!(has_ended(&mut listen));
        let result = json!({"resultType": "complete", "_meta": {SUBSCRIPTION: "k-2/\"x\""}});
        say(
            &mut open,
            &json!({"jsonrpc": "2.0", "id": "k-2/\"x\"", "result": result}),
        );
        let (answer, is_answer) = got(&mut other).expect("its end");
        assert!(is_answer && answer["id"] == "x" && answer["result"]["_meta"][SUBSCRIPTION] == "x");
        assert!(open.count() == 0);
    }

    #[test]
    fn a_message_that_names_no_request_reaches_the_only_one_that_it_can_be_of_or_none() {
        let mut open = OpenRequests::default();
        let mut calls =
            [CALL, LOGS].map(|asked| open.add(format!("k-{asked:?}").into(), "7", asked));
        let log = note("message", &json!({"level": "info", "data": 1}));
        say(&mut open, &log);
        assert!(got(&mut calls[0]).is_none() && got(&mut calls[1]).is_some());
        say(&mut open, &note("x", &json!({})));
        assert!(calls.iter_mut().all(|call| got(call).is_none()));
        let mut third = open.add("k-3".into(), "7", LOGS);
        say(&mut open, &log);
        assert!(
            got(&mut third).is_none() && got(&mut calls[1]).is_none(),
            "it might be of the other"
        );
    }

    /// The server may still work on what was cancelled, and what it says of that names no request.
    #[test]
    fn a_log_message_may_be_of_a_request_whose_client_has_gone() {
        let mut open = OpenRequests::default();
        open.add("k-1".into(), "7", LOGS);
        let mut call = open.add("k-2".into(), "7", LOGS);
        assert_eq!(&*open.cancel("k-1").expect("it was open").id, "\"k-1/7\"");
        assert_eq!(open.cancel("k-1"), None);
        let log = note("message", &json!({"level": "info", "data": 1}));
        say(&mut open, &log);
        assert_eq!(got(&mut call), None);
        say(
            &mut open,
            &json!({"jsonrpc": "2.0", "id": "k-1/7", "result": {}}),
        );
        say(&mut open, &log);
        assert!(got(&mut call).is_some());
        let former = open.add_former("\"k-0/7\"").expect("an id of ours");
        say(&mut open, &log);
        assert_eq!(got(&mut call), None);
        open.forget(&former.key);
        say(&mut open, &log);
        assert!(got(&mut call).is_some());
    }

    #[test]
    fn a_client_that_does_not_read_costs_no_more_than_its_share() {
        let mut open = OpenRequests::default();
        let mut slow = open.add("k-1".into(), "7", CALL);
        let progress = note(
            "progress",
            &json!({"progressToken": "k-1/1", "progress": 1}),
        );
        for _ in 0..WAITING_MAX {
            assert_eq!(say(&mut open, &progress), Effects::default());
        }
        let id = "\"k-1/7\"".into();
        assert_eq!(
            say(&mut open, &progress).cancel,
            [Cancelled {
                key: "k-1".into(),
                id
            }]
        );
        assert!(open.count() == 0 && slow.is_over());
        while let Some((_, is_answer)) = got(&mut slow) {
            assert!(!is_answer);
        }
        // One large message may wait, and the answer always may.
        let mut large = open.add("k-2".into(), "7", CALL);
        let data = "x".repeat(WAITING_BYTES_MAX);
        let big = note(
            "progress",
            &json!({"progressToken": "k-2/1", "message": data}),
        );
        assert!(say(&mut open, &big).is_empty());
        assert!(
            say(
                &mut open,
                &json!({"jsonrpc": "2.0", "id": "k-2/7", "result": data})
            )
            .is_empty()
        );
        assert!(!got(&mut large).expect("progress").1 && got(&mut large).expect("the answer").1);
        let ask = json!({"jsonrpc": "2.0", "id": 3, "method": "roots/list"});
        assert_eq!(say(&mut open, &ask).refuse, ["3".into()]);
    }
}
