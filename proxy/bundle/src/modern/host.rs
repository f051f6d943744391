//! A host of 2026-07-28, in front of a bundle. The bundle is initialised in the name of the first
//! request. What a server asks is the result of a call that is under way; the call goes on when the
//! host makes it again with the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::between::{Out, Translation, translated};
use super::calls::asked_by;
use super::{VERSION, answer, cancel, empty, meta, one, unknown, with_envelope};
use crate::backend::VERSIONS;
use crate::call::{List, Target};
use crate::pipe::Pipe;

/// What ids of ours begin with at the bundle.
const OWN: &str = "mcp-sessiond/host/";

/// Calls that may wait for a host that was asked something and does not come back with the answer.
/// The oldest is given up then.
const ASKED_MAX: usize = 64;

/// Questions that may wait for one call.
const QUESTIONS_MAX: usize = 64;

/// Which server of the bundle a call is for, as far as that is known.
pub type ServerOf = Box<dyn Fn(&Target) -> Option<String> + Send>;

/// The pipe of a bundle, for a host of the later era.
pub fn for_modern_host(pipe: Pipe, server_of: ServerOf) -> Pipe {
    translated(pipe, HostTranslation::new(server_of))
}

/// Whether a host of the later era has sent this: a request that says so, as each of its requests
/// does.
pub fn is_of_modern_host(line: &[u8]) -> bool {
    let params = one(line).and_then(|message| message.params());
    let meta = params.and_then(|params| params.object("_meta"));
    meta.is_some_and(|meta| meta.get(meta::VERSION).is_some())
}

/// What is between a host of the later era and a bundle.
pub(super) struct HostTranslation {
    server_of: ServerOf,
    /// Tells what we have given this host from what another process has.
    nonce: u64,
    /// How many ids and states of our own there were.
    count: u64,
    /// Whether the bundle was sent `initialize`, and what it has answered.
    has_begun: bool,
    introduction: Option<Object>,
    /// What asks for that before it is there.
    discovers: Vec<Id>,
    /// The level of the log that was asked for last.
    level: Option<Box<RawValue>>,
    /// The calls under way, in their order.
    calls: Vec<Call>,
    /// The subscriptions, by the requests that have opened them.
    listening: BTreeMap<Id, Filter>,
}

/// A request of a server's.
struct Question {
    id: Id,
    request: Object,
}

/// A call under way.
struct Call {
    /// Its id at the bundle: that of the request by which it was made first.
    id: Id,
    kind: Kind,
    /// The server that it is for, where that is known.
    server: Option<String>,
    state: State,
    /// What the host is asked next.
    questions: Vec<Question>,
}

/// What kind of a call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its answer may be a question.
    Asking,
    /// The same, and its result may be cached.
    Reading,
    /// Its result may be cached.
    Listing,
    Other,
}

/// Who waits for whom.
enum State {
    /// The host waits for the answer to this request.
    Waited { host: Id },
    /// The host was asked, and gives this back with its answers.
    Asked {
        state: String,
        questions: BTreeMap<String, Id>,
        /// How the call has ended meanwhile.
        ended: Option<Outcome>,
    },
}

/// What a host wants to hear of.
#[derive(Debug, Default)]
struct Filter {
    lists: BTreeSet<&'static str>,
    uris: BTreeSet<String>,
}

impl Translation for HostTranslation {
    fn on_host(&mut self, line: Bytes, _: Instant) -> Vec<Out> {
        let Some(message) = one(&line) else {
            // The bundle says what there is to say of it.
            return vec![Out::Server(line)];
        };
        match message {
            Message::Request { id, method, params } => {
                self.host_requests(id, method, params.as_deref())
            }
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                self.host_cancels(params.as_deref().and_then(Object::read).unwrap_or_default())
            }
            // The host is asked by no request, and whatever else it tells is as it was.
            Message::Answer { .. } => Vec::new(),
            Message::Notification { .. } => vec![Out::Server(line)],
        }
    }

    fn on_server(&mut self, line: Bytes, _: Instant) -> Vec<Out> {
        match one(&line) {
            Some(Message::Answer { id, outcome }) => self.bundle_answers(&id, outcome),
            Some(Message::Request { id, method, params }) => self.bundle_asks(id, &method, params),
            Some(Message::Notification { method, params }) => self.bundle_notes(&method, params),
            None => vec![Out::Host(line)],
        }
    }

    /// Nobody comes back with an answer, or hears of a change: nothing is under way because of that.
    fn on_host_end(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        for (id, _) in std::mem::take(&mut self.listening) {
            let mut result = Object::default();
            complete(&mut result, false);
            out.push(answer(&id, Ok(result.write())));
        }
        while let Some(at) = self.calls.iter().position(Call::is_asked) {
            out.extend(self.give_up(at));
        }
        out
    }
}

impl HostTranslation {
    pub(super) fn new(server_of: ServerOf) -> Self {
        Self {
            server_of,
            nonce: RandomState::new().build_hasher().finish(),
            count: 0,
            has_begun: false,
            introduction: None,
            discovers: Vec::new(),
            level: None,
            calls: Vec::new(),
            listening: BTreeMap::new(),
        }
    }

    /// A request of our own.
    fn own(&mut self, method: &str, params: &Object) -> Out {
        self.count += 1;
        let asked = Message::Request {
            id: Id::text(&format!("{OWN}{}", self.count)),
            method: method.to_owned(),
            params: Some(params.write()),
        };
        Out::Server(asked.write())
    }

    fn host_requests(&mut self, id: Id, method: String, params: Option<&RawValue>) -> Vec<Out> {
        let mut params = params.and_then(Object::read).unwrap_or_default();
        let mut meta = params.object("_meta").unwrap_or_default();
        if let Err(error) = checked(&method, meta.text(meta::VERSION)) {
            return vec![answer(&id, Err(error))];
        }
        let mut out = self.begin(&meta);
        if method == "server/discover" {
            match &self.introduction {
                Some(introduction) => out.push(answer(&id, Ok(discovered(introduction)))),
                None => self.discovers.push(id),
            }
            return out;
        }
        let level = meta.get(meta::LEVEL).map(ToOwned::to_owned);
        if let Some(level) =
            level.filter(|level| self.level.as_deref().map(RawValue::get) != Some(level.get()))
        {
            let mut params = Object::default();
            params.set("level", level.clone());
            out.push(self.own("logging/setLevel", &params));
            self.level = Some(level);
        }
        if method == "subscriptions/listen" {
            out.extend(self.listen(id, &params));
            return out;
        }
        if let Some(state) = params.text("requestState") {
            out.extend(self.host_comes_back(&id, &state, &params));
            return out;
        }
        for name in [meta::VERSION, meta::CLIENT, meta::CAPABILITIES, meta::LEVEL] {
            meta.remove(name);
        }
        params.set("_meta", meta.write());
        let kind = Kind::of(&method);
        // One whose id was answered may be under way still.
        let is_taken = self.calls.iter().any(|call| call.id == id);
        let own = match is_taken {
            true => {
                self.count += 1;
                id.with_prefix(&format!("{OWN}{}", self.count))
            }
            false => id.clone(),
        };
        let params = params.write();
        let target = crate::call::Call::read(own.clone(), &method, Some(&params));
        let server = target.ok().and_then(|call| (self.server_of)(&call.target));
        let asked = Message::Request {
            id: own.clone(),
            method,
            params: Some(params),
        };
        self.calls.push(Call {
            id: own,
            kind,
            server,
            state: State::Waited { host: id },
            questions: Vec::new(),
        });
        out.push(Out::Server(asked.write()));
        out
    }

    /// Initialises the bundle, in the name of this request.
    fn begin(&mut self, meta: &Object) -> Vec<Out> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Vec::new();
        }
        let mut params = Object::default();
        params.set_text("protocolVersion", VERSIONS[0]);
        let capabilities = meta.object(meta::CAPABILITIES).unwrap_or_default();
        params.set("capabilities", capabilities.write());
        let client = meta.object(meta::CLIENT).unwrap_or_default();
        params.set("clientInfo", client.write());
        let asked = Message::Request {
            id: initialize_id(),
            method: "initialize".to_owned(),
            params: Some(params.write()),
        };
        vec![Out::Server(asked.write())]
    }

    /// The host has an answer to what a call has asked.
    fn host_comes_back(&mut self, id: &Id, state: &str, params: &Object) -> Vec<Out> {
        let is_it =
            |call: &Call| matches!(&call.state, State::Asked { state: its, .. } if its == state);
        let Some(at) = self.calls.iter().position(is_it) else {
            return vec![answer(id, Err(unknown(UNKNOWN_STATE)))];
        };
        let waited = State::Waited { host: id.clone() };
        let State::Asked {
            questions, ended, ..
        } = std::mem::replace(&mut self.calls[at].state, waited)
        else {
            return Vec::new();
        };
        let responses = params.object("inputResponses").unwrap_or_default();
        let mut out: Vec<Out> = questions
            .into_iter()
            .map(|(key, id)| {
                let response = responses.get(&key).map(ToOwned::to_owned);
                let missing = || RpcError::new(code::INTERNAL, NOT_ANSWERED);
                let outcome = response.ok_or_else(missing);
                Out::Server(Message::Answer { id, outcome }.write())
            })
            .collect();
        match ended {
            Some(outcome) => out.extend(self.end(at, outcome)),
            None => out.extend(self.ask(at)),
        }
        out
    }

    /// Answers the host, which waits for this call.
    fn end(&mut self, at: usize, outcome: Outcome) -> Vec<Out> {
        let call = self.calls.remove(at);
        let mut out: Vec<Out> = call.questions.iter().map(Question::refusal).collect();
        if let State::Waited { host } = &call.state {
            out.push(answer(host, call.kind.completed(outcome)));
        }
        out
    }

    /// Gives a call up whose host does not come back.
    fn give_up(&mut self, at: usize) -> Vec<Out> {
        let call = self.calls.remove(at);
        let mut out: Vec<Out> = call.questions.iter().map(Question::refusal).collect();
        if let State::Asked { questions, .. } = call.state {
            let error = || RpcError::new(code::INTERNAL, NOT_ANSWERED);
            out.extend(questions.into_values().map(|id| {
                let outcome = Err(error());
                Out::Server(Message::Answer { id, outcome }.write())
            }));
        }
        out.push(Out::Server(cancel(&call.id, NOT_ANSWERED)));
        out
    }

    fn host_cancels(&mut self, mut params: Object) -> Vec<Out> {
        let Some(wanted) = params.get("requestId").and_then(Id::read) else {
            return Vec::new();
        };
        if let Some(filter) = self.listening.remove(&wanted) {
            return self.tell_servers("resources/unsubscribe", &filter.uris);
        }
        let is_its =
            |call: &Call| matches!(&call.state, State::Waited { host, .. } if *host == wanted);
        let Some(at) = self.calls.iter().position(is_its) else {
            return Vec::new();
        };
        let call = self.calls.remove(at);
        params.set("requestId", call.id.raw());
        let method = "notifications/cancelled".to_owned();
        let params = Some(params.write());
        vec![Out::Server(
            Message::Notification { method, params }.write(),
        )]
    }

    fn bundle_answers(&mut self, id: &Id, outcome: Outcome) -> Vec<Out> {
        if *id == initialize_id() {
            return self.introduced(outcome);
        }
        if let Some(at) = self.calls.iter().position(|call| call.id == *id) {
            if let State::Asked { ended, .. } = &mut self.calls[at].state {
                *ended = Some(outcome);
                return Vec::new();
            }
            return self.end(at, outcome);
        }
        match id.begins_with(OWN) {
            true => Vec::new(),
            false => vec![answer(id, Kind::Other.completed(outcome))],
        }
    }

    fn introduced(&mut self, outcome: Outcome) -> Vec<Out> {
        let initialized = Message::notification("notifications/initialized");
        let mut out = vec![Out::Server(initialized.write())];
        let discovers = std::mem::take(&mut self.discovers);
        match outcome.map(|result| Object::read(&result).unwrap_or_default()) {
            Ok(introduction) => {
                let result = discovered(&introduction);
                out.extend(discovers.iter().map(|id| answer(id, Ok(result.clone()))));
                self.introduction = Some(introduction);
            }
            Err(error) => out.extend(discovers.iter().map(|id| answer(id, Err(error.clone())))),
        }
        out
    }

    /// A server asks the host something.
    fn bundle_asks(&mut self, id: Id, method: &str, params: Option<Box<RawValue>>) -> Vec<Out> {
        if method == "ping" {
            let outcome = Ok(empty());
            return vec![Out::Server(Message::Answer { id, outcome }.write())];
        }
        let mut request = Object::default();
        request.set_text("method", method);
        if let Some(params) = params {
            request.set("params", params);
        }
        let question = Question { id, request };
        match self.call_of(&question) {
            Some(at) if self.calls[at].questions.len() < QUESTIONS_MAX => {
                self.calls[at].questions.push(question);
                self.ask(at)
            }
            _ => vec![question.refusal()],
        }
    }

    /// The call during which a server asks something: the one that it says, or the oldest of its own
    /// that waits.
    fn call_of(&self, question: &Question) -> Option<usize> {
        let may_ask = |call: &&(usize, &Call)| matches!(call.1.kind, Kind::Asking | Kind::Reading);
        let is_its = |(_, call): &(usize, &Call)| {
            let server = call.server.as_deref();
            server.is_none_or(|server| question.id.without_prefix(server).is_some())
        };
        let all = self.calls.iter().enumerate();
        let its: Vec<(usize, &Call)> = all.filter(|call| may_ask(&call) && is_its(call)).collect();
        let named = its.iter().find(|(_, call)| {
            let own = call
                .server
                .as_deref()
                .and_then(|server| question.id.without_prefix(server));
            own.and_then(|own| asked_by(&own))
                .is_some_and(|(_, of)| of == call.id)
        });
        let waiting = || its.iter().find(|(_, call)| !call.is_asked());
        let found = named.or_else(waiting).or(its.first());
        found.map(|(at, _)| *at)
    }

    /// Asks the host what waits for this call.
    fn ask(&mut self, at: usize) -> Vec<Out> {
        let call = &mut self.calls[at];
        if call.questions.is_empty() || call.is_asked() {
            return Vec::new();
        }
        self.count += 1;
        let state = format!("{:x}/{}", self.nonce, self.count);
        let (mut requests, mut questions) = (Object::default(), BTreeMap::new());
        for (number, question) in call.questions.drain(..).enumerate() {
            let key = number.to_string();
            requests.set(&key, question.request.write());
            questions.insert(key, question.id);
        }
        let mut result = Object::default();
        result.set_text("resultType", "input_required");
        result.set("inputRequests", requests.write());
        result.set_text("requestState", &state);
        let asked = State::Asked {
            state,
            questions,
            ended: None,
        };
        let mut out = Vec::new();
        if let State::Waited { host } = std::mem::replace(&mut call.state, asked) {
            out.push(answer(&host, Ok(result.write())));
        }
        let all_asked = self.calls.iter().filter(|call| call.is_asked()).count();
        if all_asked > ASKED_MAX
            && let Some(oldest) = self.calls.iter().position(Call::is_asked)
        {
            out.extend(self.give_up(oldest));
        }
        out
    }

    fn bundle_notes(&mut self, method: &str, params: Option<Box<RawValue>>) -> Vec<Out> {
        let note = |params| {
            let method = method.to_owned();
            Out::Host(Message::Notification { method, params }.write())
        };
        let read = || params.as_deref().and_then(Object::read).unwrap_or_default();
        let wants = |filter: &Filter| match method {
            "notifications/resources/updated" => read()
                .text("uri")
                .is_some_and(|uri| filter.uris.contains(&uri)),
            _ => filter.lists.contains(method),
        };
        match method {
            "notifications/cancelled" => {
                let id = read().get("requestId").and_then(Id::read);
                for call in &mut self.calls {
                    call.questions
                        .retain(|question| Some(&question.id) != id.as_ref());
                }
                Vec::new()
            }
            // Nobody has asked for it.
            "notifications/message" if self.level.is_none() => Vec::new(),
            "notifications/resources/updated" => self.tell_listeners(wants, read, note),
            _ if is_change(method) => self.tell_listeners(wants, read, note),
            _ => vec![note(params)],
        }
    }

    /// Tells those who have subscribed.
    fn tell_listeners(
        &self,
        wants: impl Fn(&Filter) -> bool,
        read: impl Fn() -> Object,
        note: impl Fn(Option<Box<RawValue>>) -> Out,
    ) -> Vec<Out> {
        let listening = self.listening.iter().filter(|(_, filter)| wants(filter));
        listening
            .map(|(id, _)| {
                let mut params = read();
                with_envelope(&mut params, &[(meta::SUBSCRIPTION, id.raw())]);
                note(Some(params.write()))
            })
            .collect()
    }

    fn listen(&mut self, id: Id, params: &Object) -> Vec<Out> {
        let wanted = params.object("notifications").unwrap_or_default();
        let uris = wanted.array("resourceSubscriptions").unwrap_or_default();
        let uris: BTreeSet<String> = uris
            .iter()
            .filter_map(|uri| serde_json::from_str(uri.get()).ok())
            .collect();
        let lists = List::ALL.iter().filter(|list| {
            wanted
                .get(list.filter_key())
                .is_some_and(|wanted| wanted.get() == "true")
        });
        let filter = Filter {
            lists: lists.map(|list| list.changed()).collect(),
            uris,
        };
        let subscribing = self.tell_servers("resources/subscribe", &filter.uris);
        let mut params = Object::default();
        params.set("notifications", wanted.write());
        with_envelope(&mut params, &[(meta::SUBSCRIPTION, id.raw())]);
        let acknowledged = Message::Notification {
            method: "notifications/subscriptions/acknowledged".to_owned(),
            params: Some(params.write()),
        };
        self.listening.insert(id, filter);
        let mut out = vec![Out::Host(acknowledged.write())];
        out.extend(subscribing);
        out
    }

    /// Tells the bundle this of each URI that no subscription has.
    fn tell_servers(&mut self, method: &str, uris: &BTreeSet<String>) -> Vec<Out> {
        let has = |uri: &&String| self.listening.values().any(|one| one.uris.contains(*uri));
        let alone: Vec<String> = uris.iter().filter(|uri| !has(uri)).cloned().collect();
        let tell = |uri: String| {
            let mut params = Object::default();
            params.set_text("uri", &uri);
            self.own(method, &params)
        };
        alone.into_iter().map(tell).collect()
    }
}

const UNKNOWN_STATE: &str = "the call that this goes on with was given up, or was made by a process that is gone; it is not known what the server has done";

const NOT_ANSWERED: &str = "the host was asked this during a call, and has not answered it";

const ASKED_BY_NO_CALL: &str =
    "the host speaks MCP 2026-07-28, and can be asked during a call of this server only";

fn initialize_id() -> Id {
    Id::text(&format!("{OWN}initialize"))
}

/// The version that a request has said that it speaks.
fn checked(method: &str, version: Option<String>) -> Result<(), RpcError> {
    let version = match version {
        // It is how an earlier era begins.
        None if method == "initialize" => "before 2026-07-28".to_owned(),
        None => {
            let why = format!(
                "a request of MCP {VERSION} says so in `params._meta`, by {:?}",
                meta::VERSION
            );
            return Err(RpcError::new(code::INVALID_PARAMS, why));
        }
        Some(version) if version == VERSION => return Ok(()),
        Some(version) => version,
    };
    let data = serde_json::json!({"supported": [VERSION], "requested": version});
    let message = format!("Unsupported protocol version: {version}");
    Err(RpcError {
        data: Some(raw(&data)),
        ..RpcError::new(code::OTHER_VERSION, message)
    })
}

impl Call {
    /// Whether the host was asked, and has not come back.
    fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked { .. })
    }
}

impl Question {
    /// What its server gets where the host can't be asked.
    fn refusal(&self) -> Out {
        let id = self.id.clone();
        let outcome = Err(RpcError::new(code::NO_METHOD, ASKED_BY_NO_CALL));
        Out::Server(Message::Answer { id, outcome }.write())
    }
}

/// The answer to `server/discover`.
fn discovered(introduction: &Object) -> Box<RawValue> {
    let mut result = Object::default();
    result.set("supportedVersions", raw(&[VERSION]));
    for name in ["capabilities", "instructions"] {
        if let Some(value) = introduction.get(name) {
            result.set(name, value.to_owned());
        }
    }
    if let Some(server) = introduction.get("serverInfo") {
        with_envelope(&mut result, &[(meta::SERVER, server.to_owned())]);
    }
    complete(&mut result, true);
    result.write()
}

impl Kind {
    fn of(method: &str) -> Self {
        match method {
            "tools/call" | "prompts/get" => Self::Asking,
            "resources/read" => Self::Reading,
            _ if List::of(method).is_some() => Self::Listing,
            _ => Self::Other,
        }
    }

    /// An answer as the later era has it. What a server of that era has said of itself stays.
    fn completed(self, outcome: Outcome) -> Outcome {
        let result = outcome?;
        let Some(mut read) = Object::read(&result) else {
            return Ok(result);
        };
        complete(&mut read, matches!(self, Self::Reading | Self::Listing));
        Ok(read.write())
    }
}

/// Adds what each result has: that it is one; and where it may be cached, that it is not.
fn complete(result: &mut Object, may_be_cached: bool) {
    let known = [
        ("resultType", raw("complete")),
        ("ttlMs", raw(&0)),
        ("cacheScope", raw("private")),
    ];
    let known = known.into_iter().take(if may_be_cached { 3 } else { 1 });
    for (name, value) in known {
        if result.get(name).is_none() {
            result.set(name, value);
        }
    }
}

fn is_change(method: &str) -> bool {
    List::ALL.iter().any(|list| list.changed() == method)
}
