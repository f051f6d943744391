//! What a bundle asks a server of 2026-07-28, and what that wants to know before it answers.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::between::Out;
use super::subscriptions::{Ended, LISTEN, Subscriptions};
use super::{OWN, answer, cancel, empty, meta, one, unknown, with_envelope};

/// How often a call is made again because the server wants to know something more: a server that
/// never has enough is not asked for ever.
const ROUNDS_MAX: u32 = 32;

/// How long to wait before a call is made again of which the server wants to know nothing: it is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(250);

/// A server of 2026-07-28.
pub(super) struct ModernServer {
    /// Tells the ids of this process from those of another one.
    nonce: u64,
    /// What each request says in `_meta`.
    envelope: Vec<(&'static str, Box<RawValue>)>,
    /// The level that the host wants of its log.
    level: Option<Box<RawValue>>,
    /// The calls under way, by the ids that the server knows.
    calls: HashMap<Id, Call>,
    /// The server's questions that the host has yet to answer: of which call, and by which key.
    questions: HashMap<Id, (Id, String)>,
    subscriptions: Subscriptions,
}

/// A call under way.
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
#[derive(Default)]
struct Wanted {
    open: usize,
    responses: Object,
    state: Option<Box<RawValue>>,
    /// Where that is nothing: when the call is made again.
    again: Option<Instant>,
}

impl ModernServer {
    /// A server with these capabilities, each request to which says this of itself.
    pub(super) fn new(envelope: Vec<(&'static str, Box<RawValue>)>, capabilities: &Object) -> Self {
        let nonce = RandomState::new().build_hasher().finish();
        let subscriptions = Subscriptions::new(format!("{OWN}listen/{nonce:x}/"), capabilities);
        Self {
            nonce,
            envelope,
            level: None,
            calls: HashMap::new(),
            questions: HashMap::new(),
            subscriptions,
        }
    }

    /// When [`on_time`](Self::on_time) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let calls = self.calls.values();
        let busy = calls.filter_map(|call| call.wanted.as_ref()?.again);
        busy.chain(self.subscriptions.deadline()).min()
    }

    pub(super) fn on_time(&mut self, now: Instant) -> Vec<Out> {
        let is_due = |call: &Call| {
            let again = call.wanted.as_ref().and_then(|wanted| wanted.again);
            again.is_some_and(|again| again <= now)
        };
        let busy = self.calls.iter().filter(|(_, call)| is_due(call));
        let busy: Vec<Id> = busy.map(|(id, _)| id.clone()).collect();
        let mut out: Vec<Out> = busy.iter().flat_map(|id| self.go_on(id)).collect();
        for uri in self.subscriptions.due(now) {
            out.extend(self.listen(uri, None, now));
        }
        out
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

    fn listen(&mut self, uri: Option<String>, asked: Option<Id>, now: Instant) -> Option<Out> {
        let (id, params) = self.subscriptions.open(uri, asked, now)?;
        Some(self.request(&id, LISTEN, params))
    }

    pub(super) fn on_host(&mut self, line: &[u8], now: Instant) -> Vec<Out> {
        let messages = Message::read(line).into_iter();
        messages
            .flat_map(|message| match message {
                Message::Request { id, method, params } => {
                    let params = params.as_deref().and_then(Object::read);
                    self.host_asks(id, method, params.unwrap_or_default(), now)
                }
                Message::Notification { method, params } => self.host_notes(method, params, now),
                Message::Answer { id, outcome } => self.host_answers(id, outcome),
            })
            .collect()
    }

    fn host_asks(&mut self, id: Id, method: String, params: Object, now: Instant) -> Vec<Out> {
        match &*method {
            "ping" => vec![answer(&id, Ok(empty()))],
            "logging/setLevel" => {
                self.level = params.get("level").map(ToOwned::to_owned);
                vec![answer(&id, Ok(empty()))]
            }
            "resources/subscribe" => {
                let uri = params.text("uri").unwrap_or_default();
                let opened = self.listen(Some(uri), Some(id.clone()), now);
                // It is answered when the server has acknowledged it.
                vec![opened.unwrap_or_else(|| answer(&id, Ok(empty())))]
            }
            "resources/unsubscribe" => {
                let uri = params.text("uri").unwrap_or_default();
                let closed = self.subscriptions.close(uri);
                let closed = closed.map(|id| Out::Server(cancel(&id, "it is no longer wanted")));
                closed
                    .into_iter()
                    .chain([answer(&id, Ok(empty()))])
                    .collect()
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

    fn host_notes(
        &mut self,
        method: String,
        params: Option<Box<RawValue>>,
        now: Instant,
    ) -> Vec<Out> {
        match &*method {
            "notifications/initialized" => self.listen(None, None, now).into_iter().collect(),
            "notifications/cancelled" => {
                let params = params.as_deref().and_then(Object::read);
                self.host_cancels(params.unwrap_or_default())
            }
            // The later era has none.
            "notifications/roots/list_changed" => Vec::new(),
            _ => vec![Out::Server(
                Message::Notification { method, params }.write(),
            )],
        }
    }

    /// The host does not want a call any more.
    fn host_cancels(&mut self, mut params: Object) -> Vec<Out> {
        let cancelled = params.get("requestId").and_then(Id::read);
        let is_it = |call: &Call| Some(&call.id) == cancelled.as_ref();
        let found = self.calls.iter().find(|(_, call)| is_it(call));
        let Some(id) = found.map(|(id, _)| id.clone()) else {
            return Vec::new();
        };
        let is_asked = |call: &Call| call.wanted.is_some();
        if self.calls.remove(&id).as_ref().is_some_and(is_asked) {
            return self.drop_questions(&id);
        }
        params.set("requestId", id.raw());
        let method = "notifications/cancelled".to_owned();
        let params = Some(params.write());
        vec![Out::Server(
            Message::Notification { method, params }.write(),
        )]
    }

    /// Tells the host that the questions of a call need no answer any more.
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
    fn host_answers(&mut self, question: Id, outcome: Outcome) -> Vec<Out> {
        let Some((of, key)) = self.questions.remove(&question) else {
            return self.unknown_question(question, outcome);
        };
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.fail(&of, error),
        };
        let Some(wanted) = self
            .calls
            .get_mut(&of)
            .and_then(|call| call.wanted.as_mut())
        else {
            return Vec::new();
        };
        wanted.responses.set(&key, result);
        wanted.open = wanted.open.saturating_sub(1);
        match wanted.open {
            0 => self.go_on(&of),
            _ => Vec::new(),
        }
    }

    /// The answer to a question that is not open: it was answered before, or a former process has asked
    /// it, or the server itself.
    fn unknown_question(&self, id: Id, outcome: Outcome) -> Vec<Out> {
        match asked_by(&id) {
            Some((nonce, _)) if nonce == self.nonce => Vec::new(),
            Some((_, call)) => {
                vec![answer(&call, Err(unknown(UNKNOWN_CALL)))]
            }
            None => vec![Out::Server(Message::Answer { id, outcome }.write())],
        }
    }

    /// Ends a call by an error, and what was asked for it.
    fn fail(&mut self, id: &Id, error: RpcError) -> Vec<Out> {
        let Some(call) = self.calls.remove(id) else {
            return Vec::new();
        };
        let mut out = self.drop_questions(id);
        out.push(answer(&call.id, Err(error)));
        out
    }

    /// Makes a call again, with all that the server wanted to know.
    fn go_on(&mut self, id: &Id) -> Vec<Out> {
        let Some(mut call) = self.calls.remove(id) else {
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

    pub(super) fn on_server(&mut self, line: Bytes, now: Instant) -> Vec<Out> {
        let mut out = Vec::new();
        for message in Message::read_all(&line) {
            match message {
                Ok(Message::Answer { id, outcome }) => {
                    out.extend(self.server_answers(&id, outcome, now));
                }
                Ok(Message::Notification { method, params })
                    if method == "notifications/subscriptions/acknowledged" =>
                {
                    let params = params.as_deref().and_then(Object::read);
                    out.extend(self.subscriptions.acknowledged(&params.unwrap_or_default()));
                }
                Ok(message) => out.push(Out::Host(message.write())),
                // The bundle says what there is to say of it.
                Err(_) => return vec![Out::Host(line)],
            }
        }
        out
    }

    fn server_answers(&mut self, id: &Id, outcome: Outcome, now: Instant) -> Vec<Out> {
        if let Some(Ended { mut out, is_other }) = self.subscriptions.ended(id, &outcome, now) {
            if is_other {
                out.extend(self.server_is_another());
            }
            return out;
        }
        let Some(call) = self.calls.get_mut(id) else {
            // A call that was cancelled, or of a process before this one.
            return vec![former_answer(id, outcome)];
        };
        // What is not of the round that is under way.
        if call.wanted.is_some() {
            return Vec::new();
        }
        let (requests, state) = match outcome.as_ref().map(|result| Input::of(result)) {
            Ok(Input::Wanted(requests, state)) => (requests, state),
            Ok(Input::Malformed) => {
                return self.fail(id, RpcError::new(code::INTERNAL, MALFORMED));
            }
            Ok(Input::None) | Err(_) => {
                let id_of_bundle = call.id.clone();
                self.calls.remove(id);
                return vec![answer(&id_of_bundle, outcome)];
            }
        };
        if call.round >= ROUNDS_MAX {
            let why =
                format!("the server has asked for more input {ROUNDS_MAX} times during this call");
            return self.fail(id, RpcError::new(code::INTERNAL, why));
        }
        call.wanted = Some(Wanted {
            open: requests.len(),
            responses: Object::default(),
            state,
            again: requests.is_empty().then(|| now + BUSY_PAUSE),
        });
        let (of_bundle, round) = (call.id.clone(), call.round);
        let mut out = Vec::new();
        for (key, request) in requests {
            let question = question_id(self.nonce, &of_bundle, round, &key);
            let params = request.get("params").map(ToOwned::to_owned);
            let method = request.text("method").unwrap_or_default();
            self.questions.insert(question.clone(), (id.clone(), key));
            let asked = Message::Request {
                id: question,
                method,
                params,
            };
            out.push(Out::Question(asked.write()));
        }
        out
    }

    /// The server that has asked something is gone: what it has said of where it was is no other's.
    fn server_is_another(&mut self) -> Vec<Out> {
        let asked = self.calls.iter().filter(|(_, call)| call.wanted.is_some());
        let asked: Vec<Id> = asked.map(|(id, _)| id.clone()).collect();
        asked
            .iter()
            .flat_map(|id| self.fail(id, unknown(GONE)))
            .collect()
    }
}

/// The answer to a call that this process has not made.
fn former_answer(id: &Id, outcome: Outcome) -> Out {
    let input = outcome.as_ref().map(|result| Input::of(result));
    let outcome = match input {
        Ok(Input::None) | Err(_) => outcome,
        Ok(_) => Err(unknown(UNKNOWN_CALL)),
    };
    answer(&first_round(id), outcome)
}

/// A line of a server of which it is not known yet that it speaks 2026-07-28. It may have answered a call
/// of a process before this one.
pub(super) fn early(line: Bytes) -> Out {
    match one(&line) {
        Some(Message::Answer { id, outcome }) => former_answer(&id, outcome),
        _ => Out::Host(line),
    }
}

/// What is said of a call that a former process has made.
const UNKNOWN_CALL: &str = "the server has asked for input during this call, and the process that has made the call is gone; \
                            it is not known what the server has done";

const GONE: &str = "the server has asked for input during this call, and has ended since: the outcome of this call is unknown";

const MALFORMED: &str = "the server's result asks for input, and does not say for which (MCP 2026-07-28, `inputRequests`)";

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

/// The id of a question of the server's: which process has asked it, of which call, in which of its
/// rounds, and by which key.
fn question_id(nonce: u64, call: &Id, round: u32, key: &str) -> Id {
    call.with_prefix(&format!("{OWN}input/{nonce:x}/{round}/{key}"))
}

/// What [`question_id`] made it of, if it was that: the process, and the call.
pub(super) fn asked_by(question: &Id) -> Option<(u64, Id)> {
    let text: String = serde_json::from_str(question.as_json()).ok()?;
    let rest = text.strip_prefix(OWN)?.strip_prefix("input/")?;
    let (nonce, rest) = rest.split_once('/')?;
    let nonce = u64::from_str_radix(nonce, 16).ok()?;
    // A key may have a colon, and an id, too.
    let call = rest.match_indices(':').find_map(|(at, _)| {
        let own: Box<RawValue> = serde_json::from_str(&rest[at + 1..]).ok()?;
        Id::read(&own)
    });
    Some((nonce, call?))
}

/// What a server wants to know before it goes on with a call.
enum Input {
    /// Nothing: it is done.
    None,
    /// This, by key, and what it is to get back.
    Wanted(Vec<(String, Object)>, Option<Box<RawValue>>),
    /// It does not say what.
    Malformed,
}

impl Input {
    fn of(result: &RawValue) -> Self {
        // Nearly all results say something else, and some are long.
        if !result.get().contains("input_required") {
            return Self::None;
        }
        let read = Object::read(result);
        let Some(read) =
            read.filter(|read| read.text("resultType").as_deref() == Some("input_required"))
        else {
            return Self::None;
        };
        let requests = read.get("inputRequests").map(RawValue::get);
        let requests = serde_json::from_str::<BTreeMap<String, Object>>(requests.unwrap_or("{}"));
        let state = read.get("requestState").map(ToOwned::to_owned);
        match requests {
            Ok(requests) if !requests.is_empty() || state.is_some() => {
                Self::Wanted(requests.into_iter().collect(), state)
            }
            _ => Self::Malformed,
        }
    }
}
