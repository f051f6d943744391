//! What becomes of each message between a bundle, which speaks MCP 2025-11-25, and a server that may
//! speak 2026-07-28 alone. It is asked by `initialize` first: one that speaks both is then one of
//! 2025-11-25, and nothing of it is changed. One that refuses that is asked by `server/discover`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::between::{Out, Translation};
use super::{VERSION, answer, cancel, empty, meta, one, with_envelope};
use crate::call::List;

/// Ids of our own requests begin with this, and so do those of a server's questions.
const OWN: &str = "mcp-sessiond/modern/";

/// How long a server that has refused `initialize` may take to answer `server/discover`. One of the
/// later era has nothing else to do.
const DISCOVER_WAIT: Duration = Duration::from_secs(5);

/// How long to wait before a subscription that has ended is opened again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// How often a call is made again because the server wants to know something more: a server that
/// never has enough is not asked for ever.
const ROUNDS_MAX: u32 = 32;

/// What opens a subscription.
const LISTEN: &str = "subscriptions/listen";

/// What is between a bundle and a server.
#[derive(Debug)]
pub(super) struct ServerTranslation {
    phase: Phase,
    /// Whether the server is asked by `server/discover` first: one of its kind has ended on an
    /// `initialize`.
    discovers: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Phase {
    /// The bundle has not begun.
    Waiting,
    /// The server has got the bundle's `initialize`.
    Initializing(Handshake),
    /// The server is asked by `server/discover`.
    Discovering {
        handshake: Handshake,
        /// What it has answered to `initialize`. None: it has not got that.
        refusal: Option<RpcError>,
        until: Instant,
        /// What the bundle has said meanwhile.
        held: Vec<Bytes>,
    },
    /// It speaks 2025-11-25, as the bundle does.
    Older,
    /// It speaks 2026-07-28.
    Modern(Box<Modern>),
}

/// The bundle's `initialize`.
#[derive(Debug, Clone)]
struct Handshake {
    id: Id,
    params: Option<Box<RawValue>>,
}

/// A server of 2026-07-28.
#[derive(Debug)]
struct Modern {
    /// What each request says in `_meta`.
    envelope: Vec<(&'static str, Box<RawValue>)>,
    /// The level that the host wants of its log.
    level: Option<Box<RawValue>>,
    capabilities: Object,
    /// The calls under way, by the ids that the server knows.
    calls: HashMap<Id, Call>,
    /// The server's questions that the host has yet to answer: of which call, and by which key.
    questions: HashMap<Id, (Id, String)>,
    /// The subscription to changed lists, and those to resources, by URI.
    lists: Listening,
    resources: BTreeMap<String, Listening>,
    /// How many subscriptions were opened.
    opened: u64,
}

/// A call under way.
#[derive(Debug)]
struct Call {
    /// Its id at the bundle.
    id: Id,
    method: String,
    params: Object,
    round: u32,
    /// What the server wants to know, while the host is asked.
    wanted: Option<Wanted>,
}

/// What the server wants to know before it goes on with a call.
#[derive(Debug, Default)]
struct Wanted {
    open: usize,
    responses: Object,
    state: Option<Box<RawValue>>,
}

/// A subscription.
#[derive(Debug, Default)]
enum Listening {
    /// There is none, and there will be none: the server has not declared it, or refuses it.
    #[default]
    No,
    /// It was opened by this request.
    Open(Id),
    /// It has ended, and is opened again then.
    Again(Instant),
}

impl Translation for ServerTranslation {
    fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Discovering { until, .. } => Some(*until),
            Phase::Modern(modern) => modern.deadline(),
            _ => None,
        }
    }

    fn on_host(&mut self, line: Bytes, now: Instant) -> Vec<Out> {
        match &mut self.phase {
            Phase::Waiting => {
                let Some(handshake) = Handshake::of(&line) else {
                    return vec![Out::Server(line)];
                };
                if self.discovers.load(Ordering::Relaxed) {
                    return self.discover(handshake, None, now);
                }
                self.phase = Phase::Initializing(handshake);
                vec![Out::Server(line)]
            }
            Phase::Initializing(_) | Phase::Older => vec![Out::Server(line)],
            Phase::Discovering { held, .. } => {
                held.push(line);
                Vec::new()
            }
            Phase::Modern(modern) => modern.on_host(&line),
        }
    }

    fn on_server(&mut self, line: Bytes, now: Instant) -> Vec<Out> {
        match &mut self.phase {
            Phase::Waiting | Phase::Older => vec![Out::Host(line)],
            Phase::Initializing(handshake) => {
                let Some(outcome) = answer_to(&handshake.id, &line) else {
                    return vec![Out::Host(line)];
                };
                match outcome {
                    Err(error) if !error.is_not_the_servers() => {
                        let handshake = handshake.clone();
                        self.discover(handshake, Some(error), now)
                    }
                    _ => {
                        self.phase = Phase::Older;
                        vec![Out::Host(line)]
                    }
                }
            }
            Phase::Discovering { .. } => match answer_to(&discover_id(), &line) {
                Some(outcome) => self.discovered(outcome.ok(), now),
                None => vec![Out::Host(line)],
            },
            Phase::Modern(modern) => modern.on_server(line, now),
        }
    }

    fn on_time(&mut self, now: Instant) -> Vec<Out> {
        match &mut self.phase {
            Phase::Discovering { until, .. } if *until <= now => self.discovered(None, now),
            Phase::Modern(modern) => modern.listen_again(now),
            _ => Vec::new(),
        }
    }

    fn on_end(&mut self) {
        if let Phase::Initializing(_) | Phase::Discovering { .. } = self.phase {
            // It may end on what it was asked by; the next one is asked by the other.
            self.discovers.fetch_not(Ordering::Relaxed);
        }
    }
}

impl ServerTranslation {
    pub(super) fn new(discovers: Arc<AtomicBool>) -> Self {
        let phase = Phase::Waiting;
        Self { phase, discovers }
    }

    fn discover(
        &mut self,
        handshake: Handshake,
        refusal: Option<RpcError>,
        now: Instant,
    ) -> Vec<Out> {
        let mut params = Object::default();
        with_envelope(&mut params, &handshake.envelope());
        self.phase = Phase::Discovering {
            handshake,
            refusal,
            until: now + DISCOVER_WAIT,
            held: Vec::new(),
        };
        let asked = Message::Request {
            id: discover_id(),
            method: "server/discover".to_owned(),
            params: Some(params.write()),
        };
        vec![Out::Server(asked.write())]
    }

    /// The server has answered `server/discover`. None: with an error, or not in time.
    fn discovered(&mut self, result: Option<Box<RawValue>>, now: Instant) -> Vec<Out> {
        let former = std::mem::replace(&mut self.phase, Phase::Older);
        let Phase::Discovering {
            handshake,
            refusal,
            held,
            ..
        } = former
        else {
            self.phase = former;
            return Vec::new();
        };
        let result = result.as_deref().and_then(Object::read);
        let mut out = Vec::new();
        match (result.filter(is_modern), refusal) {
            (Some(result), _) => {
                out.push(answer(&handshake.id, Ok(handshake.result(&result))));
                self.phase = Phase::Modern(Box::new(Modern::new(&handshake, &result)));
            }
            // What it has said of itself.
            (None, Some(refusal)) => out.push(answer(&handshake.id, Err(refusal))),
            (None, None) => {
                out.push(Out::Server(handshake.line()));
                self.phase = Phase::Initializing(handshake);
            }
        }
        for line in held {
            out.extend(self.on_host(line, now));
        }
        out
    }
}

impl Handshake {
    fn of(line: &[u8]) -> Option<Self> {
        match one(line)? {
            Message::Request { id, method, params } if method == "initialize" => {
                Some(Self { id, params })
            }
            _ => None,
        }
    }

    fn line(&self) -> Bytes {
        let Self { id, params } = self.clone();
        let method = "initialize".to_owned();
        Message::Request { id, method, params }.write()
    }

    fn params(&self) -> Object {
        let params = self.params.as_deref().and_then(Object::read);
        params.unwrap_or_default()
    }

    /// What each request says in `_meta`.
    fn envelope(&self) -> Vec<(&'static str, Box<RawValue>)> {
        let params = self.params();
        let mut capabilities = params.object("capabilities").unwrap_or_default();
        // Tasks are another thing in each era.
        capabilities.remove("tasks");
        let client = params.get("clientInfo").map(ToOwned::to_owned);
        let known = [
            (meta::VERSION, raw(VERSION)),
            (meta::CAPABILITIES, capabilities.write()),
        ];
        let client = client.map(|client| (meta::CLIENT, client));
        known.into_iter().chain(client).collect()
    }

    /// What the server would have answered to `initialize`.
    fn result(&self, discovered: &Object) -> Box<RawValue> {
        let mut result = Object::default();
        let version = self.params().text("protocolVersion").unwrap_or_default();
        result.set_text("protocolVersion", &version);
        let capabilities = discovered.object("capabilities").unwrap_or_default();
        result.set("capabilities", capabilities.write());
        let meta = discovered.object("_meta").unwrap_or_default();
        let server = meta.get(meta::SERVER).or(discovered.get("serverInfo"));
        let nameless = || raw(&serde_json::json!({"name": "", "version": ""}));
        result.set(
            "serverInfo",
            server.map_or_else(nameless, ToOwned::to_owned),
        );
        if let Some(instructions) = discovered.get("instructions") {
            result.set("instructions", instructions.to_owned());
        }
        result.write()
    }
}

/// Whether a server that has answered `server/discover` speaks the version that we do.
fn is_modern(result: &Object) -> bool {
    let versions = result.array("supportedVersions").unwrap_or_default();
    let own = raw(VERSION);
    versions.iter().any(|version| version.get() == own.get())
}

impl Modern {
    fn new(handshake: &Handshake, discovered: &Object) -> Self {
        Self {
            envelope: handshake.envelope(),
            level: None,
            capabilities: discovered.object("capabilities").unwrap_or_default(),
            calls: HashMap::new(),
            questions: HashMap::new(),
            lists: Listening::No,
            resources: BTreeMap::new(),
            opened: 0,
        }
    }

    /// A request of the bundle's or ours, as the server gets it.
    fn request(&self, id: &Id, method: &str, mut params: Object) -> Out {
        with_envelope(&mut params, &self.envelope);
        if let Some(level) = &self.level {
            with_envelope(&mut params, &[(meta::LEVEL, level.clone())]);
        }
        let asked = Message::Request {
            id: id.clone(),
            method: method.to_owned(),
            params: Some(params.write()),
        };
        Out::Server(asked.write())
    }

    fn on_host(&mut self, line: &[u8]) -> Vec<Out> {
        let messages = Message::read(line).into_iter();
        messages
            .flat_map(|message| self.on_message_of_host(message))
            .collect()
    }

    fn on_message_of_host(&mut self, message: Message) -> Vec<Out> {
        match message {
            Message::Request { id, method, params } => {
                let params = params.as_deref().and_then(Object::read).unwrap_or_default();
                match &*method {
                    "ping" => vec![answer(&id, Ok(empty()))],
                    "logging/setLevel" => {
                        self.level = params.get("level").map(ToOwned::to_owned);
                        vec![answer(&id, Ok(empty()))]
                    }
                    "resources/subscribe" => {
                        let uri = params.text("uri").unwrap_or_default();
                        let opened = match self.resources.get(&uri) {
                            Some(Listening::Open(_) | Listening::Again(_)) => None,
                            _ => Some(self.listen(Some(uri))),
                        };
                        let answer = answer(&id, Ok(empty()));
                        opened.into_iter().chain([answer]).collect()
                    }
                    "resources/unsubscribe" => {
                        let uri = params.text("uri").unwrap_or_default();
                        let cancelled = match self.resources.remove(&uri) {
                            Some(Listening::Open(id)) => {
                                Some(Out::Server(cancel(&id, "it is no longer wanted")))
                            }
                            _ => None,
                        };
                        let answer = answer(&id, Ok(empty()));
                        cancelled.into_iter().chain([answer]).collect()
                    }
                    _ => {
                        let asked = self.request(&id, &method, params.clone());
                        let call = Call {
                            id: id.clone(),
                            method,
                            params,
                            round: 0,
                            wanted: None,
                        };
                        self.calls.insert(id, call);
                        vec![asked]
                    }
                }
            }
            Message::Notification { method, params } => match &*method {
                "notifications/initialized" => match self.listens_to().is_empty() {
                    true => Vec::new(),
                    false => vec![self.listen(None)],
                },
                "notifications/cancelled" => {
                    let params = params.as_deref().and_then(Object::read);
                    self.cancelled(params.unwrap_or_default())
                }
                // The later era has none.
                "notifications/roots/list_changed" => Vec::new(),
                _ => vec![Out::Server(
                    Message::Notification { method, params }.write(),
                )],
            },
            Message::Answer { id, outcome } => self.answered(&id, outcome),
        }
    }

    /// The host does not want a call any more.
    fn cancelled(&mut self, mut params: Object) -> Vec<Out> {
        let wanted = params.get("requestId").and_then(Id::read);
        let found = self
            .calls
            .iter()
            .find(|(_, call)| Some(&call.id) == wanted.as_ref());
        let Some(id) = found.map(|(id, _)| id.clone()) else {
            return Vec::new();
        };
        if let Some(Call {
            wanted: Some(_), ..
        }) = self.calls.remove(&id)
        {
            return self.drop_questions(&id);
        }
        params.set("requestId", id.raw());
        let method = "notifications/cancelled".to_owned();
        let params = Some(params.write());
        vec![Out::Server(
            Message::Notification { method, params }.write(),
        )]
    }

    /// Tells the host that these questions need no answer any more.
    fn drop_questions(&mut self, call: &Id) -> Vec<Out> {
        let mut out = Vec::new();
        self.questions.retain(|question, (of, _)| {
            if of == call {
                out.push(Out::Host(cancel(question, "the call is over")));
            }
            of != call
        });
        out
    }

    /// The host has answered a question.
    fn answered(&mut self, question: &Id, outcome: Outcome) -> Vec<Out> {
        let Some((of, key)) = self.questions.remove(question) else {
            // Of a front before this one, which knew the call.
            let call = asked_by(question).map(|(call, _)| call);
            let error = || RpcError::new(code::CONNECTION, UNKNOWN_CALL);
            return call
                .map(|call| answer(&call, Err(error())))
                .into_iter()
                .collect();
        };
        let Some(call) = self.calls.get_mut(&of) else {
            return Vec::new();
        };
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                let id = call.id.clone();
                self.calls.remove(&of);
                let mut out = self.drop_questions(&of);
                out.push(answer(&id, Err(error)));
                return out;
            }
        };
        let Some(wanted) = &mut call.wanted else {
            return Vec::new();
        };
        wanted.responses.set(&key, result);
        wanted.open = wanted.open.saturating_sub(1);
        match wanted.open {
            0 => self.go_on(&of),
            _ => Vec::new(),
        }
    }

    /// Makes a call again, with all that the server wanted to know.
    fn go_on(&mut self, of: &Id) -> Vec<Out> {
        let Some(mut call) = self.calls.remove(of) else {
            return Vec::new();
        };
        call.round += 1;
        let Wanted {
            responses, state, ..
        } = call.wanted.take().unwrap_or_default();
        let mut params = call.params.clone();
        params.set("inputResponses", responses.write());
        if let Some(state) = state {
            params.set("requestState", state);
        }
        let id = round_id(&call.id, call.round);
        let asked = self.request(&id, &call.method, params);
        self.calls.insert(id, call);
        vec![asked]
    }

    fn on_server(&mut self, line: Bytes, now: Instant) -> Vec<Out> {
        let mut out = Vec::new();
        for message in Message::read_all(&line) {
            match message {
                Ok(Message::Answer { id, outcome }) => {
                    out.extend(self.server_answers(&id, outcome, now));
                }
                Ok(Message::Notification { method, .. })
                    if method == "notifications/subscriptions/acknowledged" => {}
                Ok(message) => out.push(Out::Host(message.write())),
                // The bundle says what there is to say of it.
                Err(_) => return vec![Out::Host(line)],
            }
        }
        out
    }

    fn server_answers(&mut self, id: &Id, outcome: Outcome, now: Instant) -> Vec<Out> {
        if let Some(out) = self.subscription_ended(id, &outcome, now) {
            return out;
        }
        let Some(call) = self.calls.get_mut(id) else {
            // Of a front before this one, or of a call that was cancelled.
            let is_question = outcome.as_ref().is_ok_and(|result| wants_input(result));
            let outcome = match is_question {
                true => Err(RpcError::new(code::CONNECTION, UNKNOWN_CALL)),
                false => outcome,
            };
            return vec![answer(&first_round(id), outcome)];
        };
        let wanted = outcome.as_ref().ok().and_then(|result| input(result));
        let Some((requests, state)) = wanted else {
            let id_of_bundle = call.id.clone();
            self.calls.remove(id);
            return vec![answer(&id_of_bundle, outcome)];
        };
        if call.round >= ROUNDS_MAX {
            let why =
                format!("the server has asked for more input {ROUNDS_MAX} times during this call");
            let id_of_bundle = call.id.clone();
            self.calls.remove(id);
            let error = RpcError::new(code::INTERNAL, why);
            return vec![answer(&id_of_bundle, Err(error))];
        }
        call.wanted = Some(Wanted {
            open: requests.len(),
            responses: Object::default(),
            state,
        });
        if requests.is_empty() {
            return self.go_on(id);
        }
        let (of_bundle, round) = (call.id.clone(), call.round);
        let mut out = Vec::new();
        for (key, request) in requests {
            let question = question_id(&of_bundle, round, &key);
            let params = request.get("params").map(ToOwned::to_owned);
            let method = request.text("method").unwrap_or_default();
            self.questions.insert(question.clone(), (id.clone(), key));
            let asked = Message::Request {
                id: question,
                method,
                params,
            };
            out.push(Out::Host(asked.write()));
        }
        out
    }

    // Subscriptions.

    /// The lists whose changes the server tells.
    fn listens_to(&self) -> Vec<List> {
        let tells = |list: &List| {
            let capability = self.capabilities.object(list.capability());
            let tells = capability.and_then(|declared| {
                serde_json::from_str::<bool>(declared.get("listChanged")?.get()).ok()
            });
            tells == Some(true)
        };
        List::ALL.into_iter().filter(tells).collect()
    }

    /// Opens a subscription to a resource, or to the lists.
    fn listen(&mut self, uri: Option<String>) -> Out {
        let mut wanted = Object::default();
        match &uri {
            Some(uri) => wanted.set("resourceSubscriptions", raw(&[uri])),
            None => {
                for list in self.listens_to() {
                    wanted.set(list.filter(), raw(&true));
                }
            }
        }
        let mut params = Object::default();
        params.set("notifications", wanted.write());
        self.opened += 1;
        let id = Id::text(&format!("{LISTEN_ID}{}", self.opened));
        let asked = self.request(&id, LISTEN, params);
        let listening = Listening::Open(id);
        match uri {
            Some(uri) => drop(self.resources.insert(uri, listening)),
            None => self.lists = listening,
        }
        asked
    }

    /// All subscriptions, with what they are to.
    fn all_listening(&mut self) -> impl Iterator<Item = (Option<&String>, &mut Listening)> {
        let resources = self.resources.iter_mut();
        let resources = resources.map(|(uri, listening)| (Some(uri), listening));
        [(None, &mut self.lists)].into_iter().chain(resources)
    }

    fn deadline(&self) -> Option<Instant> {
        let all = self.resources.values().chain([&self.lists]);
        let pauses = all.filter_map(|listening| match listening {
            Listening::Again(at) => Some(*at),
            _ => None,
        });
        pauses.min()
    }

    /// Opens the subscriptions again whose pause is over.
    fn listen_again(&mut self, now: Instant) -> Vec<Out> {
        let mut due = Vec::new();
        for (uri, listening) in self.all_listening() {
            if let Listening::Again(at) = listening
                && *at <= now
            {
                due.push(uri.cloned());
            }
        }
        due.into_iter().map(|uri| self.listen(uri)).collect()
    }

    /// The server ends a subscription. What has changed until it is open again was not told, so it may
    /// have changed. None: it is the answer to something else.
    fn subscription_ended(&mut self, id: &Id, outcome: &Outcome, now: Instant) -> Option<Vec<Out>> {
        if !id.begins_with(LISTEN_ID) {
            return None;
        }
        let is_refused = outcome
            .as_ref()
            .is_err_and(|error| !error.is_not_the_servers());
        let mut ended = None;
        for (uri, listening) in self.all_listening() {
            if let Listening::Open(open) = listening
                && open == id
            {
                *listening = match is_refused {
                    true => Listening::No,
                    false => Listening::Again(now + LISTEN_PAUSE),
                };
                ended = (!is_refused).then(|| uri.cloned());
            }
        }
        Some(match ended {
            None => Vec::new(),
            Some(Some(uri)) => {
                let method = "notifications/resources/updated".to_owned();
                let mut params = Object::default();
                params.set_text("uri", &uri);
                let params = Some(params.write());
                vec![Out::Host(Message::Notification { method, params }.write())]
            }
            Some(None) => {
                let all: BTreeSet<&str> =
                    self.listens_to().into_iter().map(List::changed).collect();
                all.into_iter()
                    .map(|method| Out::Host(Message::notification(method).write()))
                    .collect()
            }
        })
    }
}

/// What is said of a call that a former front has made.
const UNKNOWN_CALL: &str = "the server has asked for input during this call, and the front that has made the call is gone; \
                            it is not known what the server has done";

const LISTEN_ID: &str = "mcp-sessiond/modern/listen/";

fn discover_id() -> Id {
    Id::text(&format!("{OWN}discover"))
}

/// The id of a call that is made again. The first time it is the bundle's.
fn round_id(id: &Id, round: u32) -> Id {
    id.with_prefix(&format!("{OWN}round/{round}"))
}

/// The bundle's id of a call, as the server knows it.
fn first_round(id: &Id) -> Id {
    let text: Option<String> = serde_json::from_str(id.as_json()).ok();
    let found = text.and_then(|text| {
        let round = text.strip_prefix(OWN)?.strip_prefix("round/")?;
        let (round, _) = round.split_once(':')?;
        id.without_prefix(&format!("{OWN}round/{round}"))
    });
    found.unwrap_or_else(|| id.clone())
}

/// The id of a question of the server's: of which call, in which of its rounds, and by which key.
fn question_id(call: &Id, round: u32, key: &str) -> Id {
    call.with_prefix(&format!("{OWN}input/{round}/{key}"))
}

/// What [`question_id`] made it of, if it was that: the call, and the key.
fn asked_by(question: &Id) -> Option<(Id, String)> {
    let text: String = serde_json::from_str(question.as_json()).ok()?;
    let rest = text.strip_prefix(OWN)?.strip_prefix("input/")?;
    let (_, rest) = rest.split_once('/')?;
    // A key may have a colon, and an id, too.
    let found = rest.match_indices(':').find_map(|(at, _)| {
        let own: Box<RawValue> = serde_json::from_str(&rest[at + 1..]).ok()?;
        Some((Id::read(&own)?, rest[..at].to_owned()))
    });
    found
}

/// Whether a result says that the server wants to know something first.
fn wants_input(result: &RawValue) -> bool {
    // Nearly all results say something else, and some are long.
    result.get().contains("input_required")
        && Object::read(result)
            .and_then(|result| result.text("resultType"))
            .as_deref()
            == Some("input_required")
}

/// What the server wants to know, by key, and what it is to get back.
type Input = (Vec<(String, Object)>, Option<Box<RawValue>>);

fn input(result: &RawValue) -> Option<Input> {
    if !wants_input(result) {
        return None;
    }
    let result = Object::read(result)?;
    let requests = result.get("inputRequests").map(RawValue::get);
    let requests: BTreeMap<String, Object> =
        serde_json::from_str(requests.unwrap_or("{}")).unwrap_or_default();
    let state = result.get("requestState").map(ToOwned::to_owned);
    Some((requests.into_iter().collect(), state))
}

fn answer_to(id: &Id, line: &[u8]) -> Option<Outcome> {
    match one(line)? {
        Message::Answer { id: of, outcome } if of == *id => Some(outcome),
        _ => None,
    }
}
