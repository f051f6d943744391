//! What is between a host and a server that is started at the first call, without I/O: what is
//! answered from memory, what is watched, and what is remembered.

use std::cell::OnceCell;
use std::collections::HashMap;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::Line;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::known::{Known, initialize_key};
use crate::call::{List, Target};
use crate::pages::{Page, Pages};

/// Requests of the host that are watched at once. What is asked beyond that is not remembered.
const WATCHED_MAX: usize = 64;

/// What to do with a line while the server does not run.
#[derive(Debug)]
pub(super) enum Effect {
    /// This is the answer.
    Answer(Bytes),
    /// It is not needed.
    Drop,
    /// It is for the server, which has to be started.
    Start,
    /// It is for the server, should it be started for something else.
    Hold,
}

/// A request of the host whose answer is stored.
#[derive(Debug)]
enum WatchedRequest {
    Initialize,
    /// A list, and which chain of pages it belongs to.
    List(List, u64),
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The key of the host, once it is known.
    pub(super) key: Option<String>,
    pub(super) known: Known,
    /// The lists that the host has got from memory.
    pub(super) lists_from_memory: Vec<List>,
    /// The parameters of the last `logging/setLevel` that was answered from memory.
    pub(super) level: Option<Box<RawValue>>,
    /// Whether the host has said that it got the answer to its `initialize`.
    pub(super) initialized: bool,
    /// Whether the server was initialised: lines go through.
    pub(super) is_started: bool,
    initialize_answered: bool,
    asked: HashMap<Id, oneshot::Sender<Outcome>>,
    watched: HashMap<Id, WatchedRequest>,
    pages: [PageChain; 4],
    count: u64,
}

/// The pages of one list that a host asks for one after the other. Where it begins anew, answers of
/// the former chain are no part of it.
#[derive(Debug, Default)]
struct PageChain {
    number: u64,
    pages: Pages,
}

impl PageChain {
    /// This one is over: another one begins.
    fn anew(&mut self) {
        self.pages = Pages::default();
        self.number += 1;
    }
}

/// What is to be remembered now.
pub(super) type News = (String, Known);

impl State {
    /// For a host with this key, and a server of which this is known.
    pub(super) fn new(key: Option<String>, known: Known, is_started: bool) -> Self {
        Self {
            key,
            known,
            is_started,
            ..Self::default()
        }
    }

    /// What becomes of a line of the host while the server does not run.
    pub(super) fn on_line(&mut self, line: &[u8]) -> Effect {
        // A batch, or what can't be read, is the server's.
        if line.trim_ascii_start().starts_with(b"[") {
            return Effect::Start;
        }
        let [message] = &Message::read(line)[..] else {
            return Effect::Start;
        };
        match message {
            Message::Request { id, method, params } => match self.answer(method, params.as_deref())
            {
                Some(outcome) => Effect::Answer(
                    Message::Answer {
                        id: id.clone(),
                        outcome,
                    }
                    .write(),
                ),
                None => Effect::Start,
            },
            Message::Notification { method, .. } => match &**method {
                "notifications/initialized" => {
                    self.initialized = true;
                    Effect::Drop
                }
                // Of something that was answered, or that the server waits for with everything
                // else.
                "notifications/cancelled"
                | "notifications/progress"
                | "notifications/roots/list_changed" => Effect::Hold,
                _ => Effect::Start,
            },
            // Nothing was asked.
            Message::Answer { .. } => Effect::Drop,
        }
    }

    fn answer(&mut self, method: &str, params: Option<&RawValue>) -> Option<Outcome> {
        let empty = || Ok(raw(&Object::default()));
        match method {
            "ping" => Some(empty()),
            "initialize" if !self.initialize_answered => {
                self.initialize_answered = true;
                Some(Ok(self.known.for_host()))
            }
            _ if !self.initialize_answered => None,
            "logging/setLevel" if self.known.has("logging") => {
                self.level = params.map(ToOwned::to_owned);
                Some(empty())
            }
            _ => {
                let list = List::of(method)?;
                // There is one page, which no cursor leads to.
                if cursor(params).is_some() {
                    return None;
                }
                let outcome = self.known.list(list)?;
                self.lists_from_memory.push(list);
                Some(outcome)
            }
        }
    }

    /// Watches a line that goes to the server. False: it must not go there.
    pub(super) fn watch(&mut self, line: &[u8]) -> bool {
        // Nearly all lines are something else, and some are long.
        let may_matter = [&b"list\""[..], b"\"initialize\"", b"initialized\""]
            .iter()
            .any(|part| line.windows(part.len()).any(|window| window == *part));
        if !may_matter {
            return true;
        }
        for message in Message::read(line) {
            match message {
                Message::Request { id, method, params } => {
                    self.watch_request(id, &method, params.as_deref());
                }
                // The server has got this already, in the host's name.
                Message::Notification { method, .. }
                    if method == "notifications/initialized"
                        && self.initialize_answered
                        && !self.initialized =>
                {
                    self.initialized = true;
                    return false;
                }
                _ => {}
            }
        }
        true
    }

    fn watch_request(&mut self, id: Id, method: &str, params: Option<&RawValue>) {
        if self.watched.len() >= WATCHED_MAX {
            return;
        }
        let watched = match (method, List::of(method)) {
            ("initialize", _) => {
                let key = params.map(initialize_key).unwrap_or_default();
                if self.key.as_ref() != Some(&key) {
                    (self.key, self.known) = (Some(key), Known::default());
                    self.pages.iter_mut().for_each(PageChain::anew);
                }
                WatchedRequest::Initialize
            }
            (_, Some(list)) => {
                let chain = &mut self.pages[list as usize];
                let number = match cursor(params) {
                    None => {
                        chain.anew();
                        chain.number
                    }
                    Some(cursor) if chain.pages.continues_at(&cursor) => chain.number,
                    Some(_) => return,
                };
                WatchedRequest::List(list, number)
            }
            _ => return,
        };
        self.watched.insert(id, watched);
    }

    /// Whether an answer of the server means anything to us.
    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty() || !self.watched.is_empty()
    }

    /// Takes an answer of the server. True in the first place: it was for a request of our
    /// own.
    pub(super) fn on_answer(&mut self, id: &Id, outcome: &Outcome) -> (bool, Option<News>) {
        if let Some(asked) = self.asked.remove(id) {
            let _ = asked.send(outcome.clone());
            return (true, None);
        }
        (
            false,
            self.watched
                .remove(id)
                .and_then(|watched| self.learn(watched, outcome)),
        )
    }

    fn learn(&mut self, watched: WatchedRequest, outcome: &Outcome) -> Option<News> {
        match (watched, outcome) {
            (WatchedRequest::Initialize, Ok(result)) => self.known.initialized(result.clone()),
            (WatchedRequest::List(list, number), page) => {
                let chain = &mut self.pages[list as usize];
                if chain.number != number {
                    return None;
                }
                let told = match chain.pages.add(list, page) {
                    Page::More(_) => return None,
                    Page::Whole(outcome) => Some(outcome),
                    // Its host may ask for more.
                    Page::TooMany | Page::Failed(_) => None,
                };
                chain.anew();
                self.known.set_list(list, told);
            }
            _ => return None,
        }
        self.news()
    }

    /// What is to be remembered as it is now.
    pub(super) fn news(&self) -> Option<News> {
        // Lists alone are of no use.
        self.known
            .is_initialized()
            .then(|| Some((self.key.clone()?, self.known.clone())))
            .flatten()
    }

    /// A request of ours: its line, and where its answer comes. None comes if the server is gone.
    pub(super) fn ask(
        &mut self,
        nonce: u64,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> (Bytes, oneshot::Receiver<Outcome>) {
        self.count += 1;
        let id = Id::text(&format!("{OWN}{nonce:x}/{}", self.count));
        let (tell, answer) = oneshot::channel();
        self.asked.insert(id.clone(), tell);
        (
            Message::Request {
                id,
                method: method.to_owned(),
                params,
            }
            .write(),
            answer,
        )
    }

    /// The server is gone: nothing that was asked has an answer.
    pub(super) fn on_server_lost(&mut self) {
        self.asked.clear();
        self.watched.clear();
        self.pages.iter_mut().for_each(PageChain::anew);
    }
}

/// Ids of our own requests begin with this.
pub(super) const OWN: &str = "mcp-sessiond/lazy/";

fn cursor(params: Option<&RawValue>) -> Option<Box<RawValue>> {
    let params = params.and_then(Object::read)?;
    params
        .get("cursor")
        .filter(|cursor| cursor.get() != "null")
        .map(ToOwned::to_owned)
}

/// Answers to each request in what the host has said: it was not sent, for this reason.
pub(super) fn refusals(line: &[u8], why: &str) -> Vec<Bytes> {
    let message = format!(
        "the server can't be started: {why}; this call was not sent. The next call tries again"
    );
    let copy = OnceCell::new();
    let read = Line::of(line, &copy);
    let refusals = read
        .requests()
        .map(|(id, _)| answers::not_sent(id, &message));
    refusals.collect()
}

/// What sets the level of the server's log.
pub(super) fn set_level() -> &'static str {
    Target::Level.method()
}

#[cfg(test)]
mod tests;
