//! One server for several hosts: which message goes to whom. It takes lines of *clients*, each
//! the connection of one host, and of the server, and hands out lines for either.
//!
//! A call gets a number that no other one has, and its answer and progress go to the client that
//! made it. An ask of the server goes to the one client with calls under way; where there are
//! several, or may be, nobody can know which of them it is for, and it is refused.
//!
//! **Architecture Invariant:** a message that concerns one client goes to that client or to nobody.

pub(super) mod admission;
pub(super) mod ask_routing;
pub(super) mod fields;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::Unreadable;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::id::number;
use mcp_sessiond_jsonrpc::message::{self, Line, Message, Part};

use self::admission::Initialization;
use self::ask_routing::LastWork;
#[cfg(test)]
use self::ask_routing::RECENT_MS;
use crate::Millis;
use crate::numbers::Numbers;

/// Pages of the server's that are remembered.
const PAGES_MAX: usize = 1024;

/// Why there is no such method.
const NO_ERA: &str =
    "Method not found: a shared server speaks the versions of MCP that begin with `initialize`";
const NO_TASKS: &str = "Method not found: there are no tasks on a shared server";
/// Why an ask is refused.
const UNROUTABLE: &str = "this server is shared by several hosts, and mcp-sessiond can't tell which of them this is for; don't share a server that asks";

/// What the driver is to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A line for the server.
    ToServer(Bytes),
    /// A line for a client.
    ToClient(u64, Bytes),
    /// This client shares the server from now on.
    Admit(u64),
    /// This client does not: its host gets a server of its own. Why, in a sentence. The client is
    /// gone with this.
    Own(u64, String),
    /// This client can't now: its host is to come again after a while. Why, in a sentence. The
    /// client is gone with this.
    Later(u64, String),
    /// The server was stopped before it had answered the first host: every client is gone
    /// with this, and the next ones get a fresh server.
    End,
}

/// Clients by number, and the server that they share. At first there are none, and nobody has used
/// the server.
#[derive(Default)]
pub struct Multiplexer {
    clients: BTreeMap<u64, Client>,
    initialization: Initialization,
    /// The first lines of those that wait to know whether they may share, in their order.
    arriving: Vec<(u64, Bytes, bool)>,
    numbers: Numbers,
    calls: BTreeMap<u64, Call>,
    /// Open asks of the server, by their raw id: the client that got each.
    asks: BTreeMap<Box<str>, Ask>,
    /// For which client the server was at work last.
    last_work: LastWork,
    /// Which client a page of the server's was shown to (`elicitationId`); none: several, or one
    /// that is gone.
    pages: BTreeMap<String, Option<u64>>,
    /// Who has shared the server so far.
    shared_by: SharedBy,
    /// How many notifications were dropped, since it can't be known which client they are
    /// for.
    withheld: u64,
    /// Whether no ask of the server can be attributed to a call any more: it has asked
    /// something while no call was under way, or may be at work for a client that is not
    /// known.
    asks_unroutable: bool,
    effects: Vec<Effect>,
}

#[derive(Default)]
struct Client {
    /// The error that its `initialize` is answered with, where the server has refused it.
    refused: Option<Box<str>>,
    subscribed: BTreeSet<String>,
}

/// Who has shared the server so far.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum SharedBy {
    #[default]
    Nobody,
    One(u64),
    Several,
}

/// A request that the server was handed and has not answered.
struct Call {
    /// The client that gets the answer; none where the request is our own.
    client: Option<u64>,
    /// Its raw id.
    id: Box<str>,
    /// Its raw progress token.
    token: Option<Box<str>>,
    kind: Kind,
    /// Its client does not wait for it any more. The server may still be at work for it,
    /// and ask something.
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
    client: u64,
    /// Its raw progress token.
    token: Option<Box<str>>,
}

impl Multiplexer {
    /// What is to be done.
    pub fn effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// How many clients share the server.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// How many notifications were dropped, since it can't be known which client they are for.
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// Whether this client shares the server: it was admitted, and is not gone.
    pub fn is_shared_by(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    /// A client is gone. What the server does for it goes on, and its answers are dropped.
    pub fn leave(&mut self, client: u64, now: Millis) {
        self.arriving.retain(|(arriving, ..)| *arriving != client);
        let Some(left) = self.clients.remove(&client) else {
            return;
        };
        let handed: Vec<Box<str>> = self
            .asks
            .iter()
            .filter(|(_, ask)| ask.client == client)
            .map(|(id, _)| id.clone())
            .collect();
        for id in handed {
            self.fail_ask(&id, &answers::unanswered("the host disconnected"), now);
        }
        self.pages
            .values_mut()
            .filter(|of| **of == Some(client))
            .for_each(|of| *of = None);
        for uri in left.subscribed {
            self.unsubscribe_if_unwanted(&uri);
        }
        self.drop_unwanted();
    }

    fn tell_server(&mut self, line: impl Into<Bytes>) {
        self.effects.push(Effect::ToServer(line.into()));
    }

    fn tell_client(&mut self, client: u64, line: impl Into<Bytes>) {
        if self.clients.contains_key(&client) {
            self.effects.push(Effect::ToClient(client, line.into()));
        }
    }

    /// Sends a request of our own, whose answer is dropped.
    fn send_own_request(&mut self, method: &str, params: &str) {
        let number = self.numbers.ours();
        let call = Call {
            client: None,
            id: "null".into(),
            token: None,
            kind: Kind::Plain,
            cancelled: false,
        };
        self.calls.insert(number, call);
        self.tell_server(answers::request(number, method, params));
    }

    /// This client was shown a page. If another client was shown it, too, the page belongs
    /// to neither.
    fn note_page(&mut self, page: String, client: u64) {
        if let Some(of) = self.pages.get_mut(&page) {
            *of = of.filter(|of| *of == client);
            return;
        }
        if self.pages.len() >= PAGES_MAX {
            self.pages.pop_first();
        }
        self.pages.insert(page, Some(client));
    }

    fn is_subscribed(&self, uri: &str) -> bool {
        self.clients
            .values()
            .any(|client| client.subscribed.contains(uri))
    }

    fn unsubscribe_if_unwanted(&mut self, uri: &str) {
        if !self.is_subscribed(uri) {
            let params = serde_json::json!({ "uri": uri }).to_string();
            self.send_own_request("resources/unsubscribe", &params);
        }
    }
}

/// What hosts send.
impl Multiplexer {
    /// A client has sent a line.
    pub fn from_client(&mut self, client: u64, line: &Bytes, now: Millis) {
        if !self.clients.contains_key(&client) {
            return;
        }
        let copy = OnceCell::new();
        for (_, part) in Line::of(line, &copy).parts() {
            self.client_part(client, part, now);
        }
    }

    fn client_part(&mut self, client: u64, part: &Part<'_>, now: Millis) {
        let message = match part {
            Part::Message(message) => message,
            Part::Unreadable(unreadable) => {
                return self.unreadable_from_client(client, unreadable, now);
            }
            // It is not passed on: the server's error for it would have no id, and
            // could reach another client.
            Part::Other => return self.tell_client(client, answers::unreadable("null")),
        };
        match &message.kind {
            message::Kind::Request { id, method } => {
                self.client_request(client, message, id, method);
            }
            message::Kind::Notification { method } => match &**method {
                // The server was told that it is initialised when it had
                // answered; roots and tasks are not shared.
                "notifications/initialized"
                | "notifications/roots/list_changed"
                | "notifications/tasks/status" => {}
                "notifications/cancelled" => self.client_cancels(client, message),
                "notifications/progress" => self.client_progress(client, message),
                _ => {
                    self.last_work.note(client, now);
                    self.tell_server(message.raw.to_vec());
                }
            },
            message::Kind::Answer { id, .. } => {
                if self.is_asked(client, id) {
                    self.end_ask(id, now);
                    self.tell_server(message.raw.to_vec());
                }
            }
        }
    }

    fn client_request(&mut self, client: u64, message: &Message<'_>, id: &str, method: &str) {
        if !message.has_clear_token() {
            return self.tell_client(client, answers::unclear_token(id));
        }
        let mut edits = Edits::default();
        let mut kind = Kind::Plain;
        match method {
            "initialize" => return self.client_initializes(client, id),
            // A host that speaks MCP 2026-07-28 goes on with `initialize`, if it
            // can; and tasks would be visible to every client.
            "server/discover" | message::LISTEN => {
                return self.tell_client(client, answers::no_method(id, NO_ERA));
            }
            _ if method.starts_with("tasks/") || fields::wants_task(message) => {
                return self.tell_client(client, answers::no_method(id, NO_TASKS));
            }
            "tools/call" | "prompts/get" | "resources/read" | "completion/complete" => {
                kind = Kind::Work;
            }
            "resources/subscribe" => {
                if let (Some(uri), Some(client)) = (message.uri(), self.clients.get_mut(&client)) {
                    client.subscribed.insert(uri.clone());
                    kind = Kind::Subscribe(uri);
                }
            }
            "resources/unsubscribe" => {
                if let (Some(uri), Some(own)) = (message.uri(), self.clients.get_mut(&client)) {
                    own.subscribed.remove(&uri);
                    if self.is_subscribed(&uri) {
                        return self.tell_client(client, answers::empty_result(id));
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
                client: Some(client),
                id: id.into(),
                token,
                kind,
                cancelled: false,
            },
        );
        self.tell_server(edits.spliced(message));
    }

    fn client_cancels(&mut self, client: u64, message: &Message<'_>) {
        let Some(id) = message.cancelled() else {
            return;
        };
        let is_it = |call: &Call| call.client == Some(client) && *call.id == *id;
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

    fn client_progress(&mut self, client: u64, message: &Message<'_>) {
        let Some(token) = message.progress() else {
            return;
        };
        let is_its = |ask: &Ask| ask.client == client && ask.token.as_deref() == Some(token);
        if self.asks.values().any(is_its) {
            self.tell_server(message.raw.to_vec());
        }
    }
}

/// What the server sends.
impl Multiplexer {
    /// The server has sent a line.
    pub fn from_server(&mut self, line: &Bytes, now: Millis) {
        let copy = OnceCell::new();
        // Nobody knows which client an unreadable message is for.
        for message in Line::of(line, &copy).messages() {
            match &message.kind {
                message::Kind::Answer { id, failed } => {
                    self.server_answers(message, id, *failed, now);
                }
                message::Kind::Request { id, method } => {
                    self.server_asks(message, id, method, now);
                }
                message::Kind::Notification { method } => {
                    self.server_notifies(message, method, now);
                }
            }
        }
    }

    fn server_answers(&mut self, message: &Message<'_>, id: &str, failed: bool, now: Millis) {
        let Some(call) = number(id).and_then(|number| self.calls.remove(&number)) else {
            return;
        };
        if call.kind == Kind::Initialize {
            return self.on_initialized(message, failed);
        }
        let Some(client) = call.client else { return };
        self.last_work.note(client, now);
        if failed {
            for page in fields::pages_required(message) {
                self.note_page(page, client);
            }
            if let Kind::Subscribe(uri) = &call.kind
                && let Some(client) = self.clients.get_mut(&client)
            {
                client.subscribed.remove(uri);
            }
        }
        let mut edits = Edits::default();
        edits.replace(message, id, call.id);
        self.tell_client(client, edits.spliced(message));
    }

    fn server_asks(&mut self, message: &Message<'_>, id: &str, method: &str, now: Millis) {
        if method == "ping" {
            return self.tell_server(answers::empty_result(id));
        }
        let Some(client) = self.route_ask(now) else {
            return self.tell_server(answers::failed(id, UNROUTABLE));
        };
        if let Some(page) = fields::page(message) {
            self.note_page(page, client);
        }
        self.asks.insert(
            id.into(),
            Ask {
                client,
                token: message.asked_progress().map(Into::into),
            },
        );
        self.tell_client(client, message.raw.to_vec());
    }

    fn server_notifies(&mut self, message: &Message<'_>, method: &str, now: Millis) {
        let to: Vec<u64> = match method {
            "notifications/progress" => return self.server_progress(message),
            "notifications/cancelled" => {
                let ask = message.cancelled().and_then(|id| self.end_ask(id, now));
                ask.map(|ask| ask.client).into_iter().collect()
            }
            "notifications/resources/updated" => {
                let uri = message.uri().unwrap_or_default();
                let wants = |subscribed: &str| covers(subscribed, &uri);
                let clients = self.clients.iter();
                let told =
                    clients.filter(|(_, client)| client.subscribed.iter().any(|uri| wants(uri)));
                told.map(|(number, _)| *number).collect()
            }
            "notifications/elicitation/complete" => {
                let client = fields::page(message).and_then(|page| self.pages.remove(&page));
                client.flatten().into_iter().collect()
            }
            "notifications/tasks/status" => return,
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => return self.tell_all_of_list(method),
            // A log message, or an unknown notification, may contain what a call of
            // one client is about.
            _ => match self.shared_by {
                SharedBy::One(only) => vec![only],
                SharedBy::Nobody | SharedBy::Several => {
                    self.withheld += 1;
                    return;
                }
            },
        };
        let line = Bytes::copy_from_slice(message.raw);
        for client in to {
            self.tell_client(client, line.clone());
        }
    }

    /// Every client is told that a list has changed, but not what else the server has
    /// written there.
    fn tell_all_of_list(&mut self, method: &str) {
        let clients: Vec<u64> = self.clients.keys().copied().collect();
        let line = answers::notification(method);
        for client in clients {
            self.tell_client(client, line.clone());
        }
    }

    fn server_progress(&mut self, message: &Message<'_>) {
        let Some(sent) = message.progress() else {
            return;
        };
        let call = number(sent).and_then(|number| self.calls.get(&number));
        let Some((client, token)) = call.and_then(|call| Some((call.client?, call.token.clone()?)))
        else {
            return;
        };
        let mut edits = Edits::default();
        edits.replace(message, sent, token);
        self.tell_client(client, edits.spliced(message));
    }
}

/// Messages that can't be read, or are too large. If it is known who waits for one, only that
/// client is told. The relay answers those of the server itself.
impl Multiplexer {
    /// A client has sent what can't be read, though it has an id.
    pub(super) fn unreadable_from_client(
        &mut self,
        client: u64,
        unreadable: &Unreadable,
        now: Millis,
    ) {
        let Unreadable {
            id,
            request,
            answer,
            ..
        } = unreadable;
        match id.as_deref().filter(|id| self.is_asked(client, id)) {
            Some(asked) if !request => {
                self.fail_ask(asked, answers::UNREADABLE_ANSWER, now);
            }
            _ if *answer && !request => {}
            _ => {
                // A call that was made under this id has not failed.
                let is_open = |id: &str| {
                    self.calls
                        .values()
                        .any(|call| call.client == Some(client) && *call.id == *id)
                };
                let id = id.as_deref().filter(|id| !is_open(id)).unwrap_or("null");
                self.tell_client(client, answers::unreadable(id));
            }
        }
    }

    /// A client has sent a line that is too large, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_client(&mut self, client: u64, head: &[u8], tail: &[u8], now: Millis) {
        let Unreadable {
            id,
            request,
            answer,
            ..
        } = Unreadable::of_ends(head, tail);
        if !answer || request {
            return self.tell_client(client, answers::too_large(id.as_deref().unwrap_or("null")));
        }
        if let Some(asked) = id.filter(|id| self.is_asked(client, id)) {
            self.fail_ask(&asked, answers::OVERSIZED_ANSWER, now);
        }
    }

    /// Whether this client was handed an ask of this id, which is open.
    pub(super) fn is_asked(&self, client: u64, id: &str) -> bool {
        self.asks.get(id).is_some_and(|ask| ask.client == client)
    }

    /// An ask gets no answer of a client.
    pub(super) fn fail_ask(&mut self, id: &str, why: &str, now: Millis) {
        self.end_ask(id, now);
        self.tell_server(answers::failed(id, why));
    }
}

/// Whether a subscription to one resource covers another: of itself, and of what is below it
/// (MCP, Resources: an update may name "a sub-resource of the one that the client actually
/// subscribed to").
fn covers(subscribed: &str, updated: &str) -> bool {
    updated.strip_prefix(subscribed).is_some_and(|below| {
        below.is_empty() || subscribed.ends_with('/') || below.starts_with(['/', '?', '#'])
    })
}
