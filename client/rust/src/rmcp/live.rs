//! A session with the server that answers it in this process: which message goes to which stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::request::Parts;
use mcp_sessiond_http_session::handshake::primes;
use mcp_sessiond_http_session::keep::Use;
use mcp_sessiond_http_session::origin::stream_name;
use mcp_sessiond_http_session::policy::Policy;
use mcp_sessiond_http_session::session::{Effect, HttpSession, Opened};
use mcp_sessiond_jsonrpc::id_prefix::{asked_by, prefixed};
use mcp_sessiond_proto::streams::EventId;
use mcp_sessiond_proto::{Json, SessionId, StreamId};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, JsonRpcRequest, ProgressToken, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::OriginatingRequestId;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::sync::oneshot;

use super::events::NewStream;
use super::lists::{Lists, Reading, Record, recorded};
use super::recorder::{InPlace, Outgoing, Recorder, StoreFailures};
use super::request_stream;
use crate::error::SessionError;
use crate::session::Session;

/// A server that tells rmcp of each request and of each notification to which call it belongs, but of
/// lines for the log.
const POLICY: Policy = Policy {
    redirect: false,
    attributes: true,
};

/// Messages of the client's that wait for the server.
const INBOX: usize = 64;

/// A server, and the requests that it works on.
pub(super) struct Live {
    id: SessionId,
    /// Tells this server from the former ones of its session.
    incarnation: String,
    since: Instant,
    failures: Arc<StoreFailures>,
    state: Mutex<State>,
}

struct State {
    /// On behalf of whoever used it last.
    session: Session,
    http: HttpSession,
    /// None: the server was closed, by whomever.
    inbox: Option<Sender<ClientJsonRpcMessage>>,
    /// Who waits for the answer to `initialize`.
    initializing: Option<oneshot::Sender<ServerJsonRpcMessage>>,
    /// The version of MCP that the server has chosen. None: it is not initialised.
    version: Option<String>,
    lists: Lists,
    /// The requests of this crate's own, and who waits for their results.
    own: HashMap<RequestId, oneshot::Sender<Value>>,
    /// How many of them there were.
    owned: u64,
    standalone: UnboundedSender<Outgoing>,
    /// The streams of the requests that the server works on.
    streams: HashMap<StreamId, UnboundedSender<Outgoing>>,
}

/// The server was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server of this session has ended")]
pub(super) struct Closed;

/// Why a request is not begun.
pub(super) enum NotBegun {
    Closed,
    Refused(SessionError),
}

impl Live {
    /// A server's place, and what arrives at the server.
    pub(super) fn new(session: &Session) -> (Arc<Self>, Incoming) {
        let (inbox, arriving) = channel(INBOX);
        let (standalone, messages) = unbounded_channel();
        let id = session.id().clone();
        let failures = Arc::new(StoreFailures::of(id.clone()));
        let incarnation = mcp_sessiond_proto::RequestId::mint().to_string();
        let mut http = HttpSession::new(POLICY, Duration::ZERO);
        http.runs(&incarnation);
        let state = State {
            session: session.clone(),
            http,
            inbox: Some(inbox),
            initializing: None,
            version: None,
            lists: Lists::default(),
            own: HashMap::new(),
            owned: 0,
            standalone,
            streams: HashMap::new(),
        };
        let live = Arc::new(Self {
            id,
            incarnation,
            since: Instant::now(),
            failures: failures.clone(),
            state: Mutex::new(state),
        });
        let of = Arc::downgrade(&live);
        let first = session.clone();
        tokio::spawn(async move {
            let stream = || {
                of.upgrade()
                    .map_or_else(|| first.clone(), |live| live.session())
                    .standalone()
            };
            Recorder {
                stream,
                failures,
                reader: None,
            }
            .run(messages)
            .await;
        });
        (live, arriving)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    pub(super) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(super) fn session(&self) -> Session {
        self.state().session.clone()
    }

    /// Somebody uses it, on whose behalf it goes on.
    pub(super) fn used_by(&self, session: &Session) {
        let mut state = self.state();
        state.session = session.clone();
        state.http.used(self.now());
    }

    /// Whether it can be used: its server is initialised, and was not closed.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.state();
        state.version.is_some() && state.inbox.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().inbox.is_none()
    }

    /// Whether the server works on something, or is about to.
    pub(super) fn is_busy(&self) -> bool {
        self.state().http.has_calls()
    }

    /// For how long nobody has used it.
    pub(super) fn idle(&self) -> Duration {
        self.state().http.idle(self.now())
    }

    /// Gives `initialize` to the server, and waits for its answer.
    pub(super) async fn initialize(
        &self,
        initialize: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Closed> {
        let (initializing, answer) = oneshot::channel();
        self.state().initializing = Some(initializing);
        self.give(initialize).await?;
        answer.await.map_err(|_| Closed)
    }

    /// The server is initialised.
    pub(super) fn ready(&self, version: String) {
        self.state().version = Some(version);
    }

    /// What the server has answered to `initialize`.
    pub(super) fn declares(&self, result: &Value) {
        self.state().lists.declare(result);
    }

    /// Asks the server for the lists that the client knows, for the request with this head. What has
    /// changed the client is told on the stream of its next request.
    pub(super) async fn compare_lists(
        &self,
        session: &Session,
        parts: &Parts,
    ) -> Result<(), SessionError> {
        let recorded = recorded(session).await?;
        let known = self.state().lists.known(recorded);
        for (list, digest) in known {
            let mut reading = Reading::of(list);
            while let Some(params) = reading.next() {
                match self.ask(list.method, params, parts).await {
                    Some(page) => reading.page(&page),
                    None => break,
                }
            }
            if let Some(now) = reading.digest() {
                self.state().lists.compared(list, &digest, now);
            }
        }
        Ok(())
    }

    /// Asks the server something that its client does not get to know of. None: it answers by an
    /// error, or has ended.
    async fn ask(&self, method: &str, params: Value, parts: &Parts) -> Option<Value> {
        let (told, answer) = oneshot::channel();
        let message = {
            let mut state = self.state();
            state.owned += 1;
            let name = RequestId::String(format!("mcp-sessiond-{}", state.owned).into());
            let asked = json!({"jsonrpc": "2.0", "id": name, "method": method, "params": params});
            let mut message: ClientJsonRpcMessage = serde_json::from_value(asked).ok()?;
            message.insert_extension(parts.clone());
            state.own.insert(name, told);
            message
        };
        self.give(message).await.ok()?;
        answer.await.ok()
    }

    /// Gives a message to the server.
    async fn give(&self, message: ClientJsonRpcMessage) -> Result<(), Closed> {
        self.inbox()?.send(message).await.map_err(|_| Closed)
    }

    fn inbox(&self) -> Result<Sender<ClientJsonRpcMessage>, Closed> {
        self.state().inbox.clone().ok_or(Closed)
    }

    /// Gives the server what needs no answer. A request that is cancelled is not answered any more.
    pub(super) async fn accept(&self, mut message: ClientJsonRpcMessage) -> Result<(), Closed> {
        let inbox = self.inbox()?;
        // First, so that nothing comes between what is noted here and what the server gets.
        let place = inbox.reserve().await.map_err(|_| Closed)?;
        let mut state = self.state();
        if state.accept(&mut message, self).is_some() {
            place.send(message);
        }
        Ok(())
    }

    /// Opens the stream of a request, and gives the request to the server.
    pub(super) async fn begin(
        &self,
        session: Session,
        request: JsonRpcRequest<ClientRequest>,
    ) -> Result<NewStream, NotBegun> {
        #[expect(clippy::expect_used, reason = "it is made of letters and digits")]
        let stream = stream_name(
            &self.incarnation,
            false,
            &mcp_sessiond_proto::RequestId::mint(),
        )
        .expect("a stream's id");
        let id = as_text(&request.id);
        let calls = vec![id.as_str().into()];
        self.state().http.begin(stream.clone(), calls, self.now());
        let begun = self.send(session, &stream, &id, request).await;
        if begun.is_err() {
            self.state().http.not_opened(&stream);
        }
        begun
    }

    async fn send(
        &self,
        session: Session,
        stream: &StreamId,
        id: &str,
        mut request: JsonRpcRequest<ClientRequest>,
    ) -> Result<NewStream, NotBegun> {
        let does_prime = self.state().version.as_deref().is_some_and(primes);
        let failures = self.failures.clone();
        let opened = request_stream::open(session, stream.clone(), id, does_prime, failures).await;
        let (messages, fresh) = opened.map_err(NotBegun::Refused)?;
        let inbox = self.inbox().map_err(|_| NotBegun::Closed)?;
        // First, so that no cancellation of the request comes before it.
        let place = inbox.reserve().await.map_err(|_| NotBegun::Closed)?;
        let mut state = self.state();
        if state.http.opened(stream, &self.incarnation, true) != Opened::Open {
            return Err(NotBegun::Closed);
        }
        state.begin(stream.clone(), messages, &mut request);
        place.send(JsonRpcMessage::Request(request));
        Ok(fresh)
    }

    /// What the server says. Whoever gets something waits until it is kept, or can't be.
    pub(super) fn say(&self, message: ServerJsonRpcMessage) -> Option<oneshot::Receiver<InPlace>> {
        self.state().say(message, self)
    }

    /// The reader of this question has got it, and this event is stored in its place.
    pub(super) fn unkept(&self, question: &RequestId, event: &EventId) {
        let question = as_text(question).into();
        self.state().http.request_unkept(event, question);
    }

    /// A client that has come back is sent this event. If it is stored in the place of a question,
    /// the client has not got that, and the server is told.
    pub(super) fn replayed(self: &Arc<Self>, event: &EventId) {
        let refused = self.state().http.replayed(event);
        if let Some(refused) = refused.and_then(|refused| serde_json::from_slice(&refused).ok()) {
            let live = self.clone();
            tokio::spawn(async move { live.give(refused).await });
        }
    }

    /// The server has ended: what it has not answered it never will.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.inbox = None;
        state.initializing = None;
        state.own.clear();
        for effect in state.http.gone(&self.incarnation) {
            state.carry_out(effect, None, self.now());
        }
    }
}

impl State {
    /// A request is the server's now, which knows it and its progress by names that tell its stream.
    fn begin(
        &mut self,
        stream: StreamId,
        messages: UnboundedSender<Outgoing>,
        request: &mut JsonRpcRequest<ClientRequest>,
    ) {
        request.id = named(&prefixed(stream.as_str(), &as_text(&request.id)));
        let token = request.request.get_meta().get_progress_token();
        if let Some(ProgressToken(token)) = token {
            let token = named(&prefixed(stream.as_str(), &as_text(&token)));
            let meta = request.request.get_meta_mut();
            meta.set_progress_token(ProgressToken(token));
        }
        self.lists.asked(&request.id, &request.request);
        self.streams.insert(stream, messages);
    }

    /// What needs no answer, by the names that the server knows. None: it is not for this server.
    fn accept(&mut self, message: &mut ClientJsonRpcMessage, live: &Live) -> Option<()> {
        let (incarnation, now) = (&live.incarnation, live.now());
        let mut answered = |id: &mut RequestId| {
            *id = named(&self.http.answered(incarnation, &as_text(id))?);
            Some(())
        };
        let notification = match message {
            JsonRpcMessage::Response(response) => return answered(&mut response.id),
            JsonRpcMessage::Error(error) => return answered(error.id.as_mut()?),
            JsonRpcMessage::Request(_) => return Some(()),
            JsonRpcMessage::Notification(notification) => &mut notification.notification,
        };
        match notification {
            ClientNotification::CancelledNotification(cancel) => {
                let id = cancel.params.request_id.as_mut()?;
                let cancelled = self.http.cancelled(&as_text(id))?;
                *id = named(&cancelled.id);
                if cancelled.ends {
                    self.carry_out(Effect::Close(cancelled.stream), None, now);
                }
            }
            ClientNotification::ProgressNotification(progress) => {
                let ProgressToken(token) = &mut progress.params.progress_token;
                *token = named(&asked_by(incarnation, &as_text(token))?);
            }
            // A client that was restarted goes through the handshake again, of which its server
            // needs no second half.
            ClientNotification::InitializedNotification(_) => {
                return self.http.initialized(incarnation).then_some(());
            }
            _ => {}
        }
        Some(())
    }

    fn say(
        &mut self,
        message: ServerJsonRpcMessage,
        live: &Live,
    ) -> Option<oneshot::Receiver<InPlace>> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        if let Some(id) = &id {
            if let Some(initializing) = self.initializing.take() {
                let _ = initializing.send(message);
                return None;
            }
            if let Some(waiting) = self.own.remove(id) {
                if let JsonRpcMessage::Response(response) = message {
                    let result = serde_json::to_value(&response.result);
                    let _ = waiting.send(result.unwrap_or_default());
                }
                return None;
            }
            self.http.touch(live.now());
        }
        let line = as_text(&message).into();
        let said_on = said_on(&message).filter(|stream| self.http.is_open(stream));
        let said = self.http.said(&line, said_on.as_ref(), &live.incarnation);
        // Of a request that was cancelled nobody wants the answer.
        let effect = said.into_iter().next();
        let is_told = match &effect {
            Some(Effect::Keep(message)) => self.announce(&message.stream),
            _ => false,
        };
        let is_new = id.is_some_and(|id| self.lists.answered(&id, &message));
        let record = (is_told || is_new).then(|| self.lists.record());
        self.carry_out(effect?, record, live.now())
    }

    /// Tells the client of lists that have changed since another process has served the session, on
    /// the stream of this request. Returns whether there was something to tell: then it is to be
    /// recorded before anything else is said there.
    fn announce(&mut self, stream: &StreamId) -> bool {
        let Some(messages) = self.streams.get(stream) else {
            return false;
        };
        let changes = self.lists.changes();
        let has_told = !changes.is_empty();
        for text in changes {
            send(messages, Json::trusted(text), Use::Plain, None);
        }
        has_told
    }

    /// Gives a message to whoever keeps those of its stream, which nobody does any more after the
    /// last one: a recorder that gets nothing more closes its stream.
    fn carry_out(
        &mut self,
        effect: Effect,
        record: Option<Record>,
        now: Duration,
    ) -> Option<oneshot::Receiver<InPlace>> {
        let message = match effect {
            Effect::Keep(message) => message,
            Effect::Close(stream) => {
                self.http.finished(&stream, now);
                self.streams.remove(&stream);
                return None;
            }
            Effect::ToServer(_) | Effect::Lost(_) => return None,
        };
        let (what, text) = (message.what, message.message);
        let to = self.streams.get(&message.stream);
        let is_kept = send(to.unwrap_or(&self.standalone), text, what.clone(), record);
        if what == (Use::Answer { ends: true }) {
            self.carry_out(Effect::Close(message.stream), None, now);
        }
        is_kept
    }
}

/// The stream of the request for which the server has said something, as rmcp tells.
fn said_on(message: &ServerJsonRpcMessage) -> Option<StreamId> {
    let extensions = match message {
        JsonRpcMessage::Request(request) => request.request.extensions(),
        JsonRpcMessage::Notification(notification) => notification.notification.extensions(),
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return None,
    };
    match extensions.get::<OriginatingRequestId>()? {
        OriginatingRequestId(RequestId::String(id)) => id.split_once('/')?.0.parse().ok(),
        OriginatingRequestId(RequestId::Number(_)) => None,
    }
}

fn send(
    to: &UnboundedSender<Outgoing>,
    message: Json,
    what: Use,
    record: Option<Record>,
) -> Option<oneshot::Receiver<InPlace>> {
    let (done, is_kept) = oneshot::channel();
    to.send(Outgoing {
        message,
        what,
        record,
        done,
    })
    .ok()
    .map(|()| is_kept)
}

fn as_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// An id, of its JSON.
fn named(json: &str) -> RequestId {
    serde_json::from_str(json).unwrap_or(RequestId::Number(0))
}

/// What arrives at a server.
pub(super) type Incoming = Receiver<ClientJsonRpcMessage>;
