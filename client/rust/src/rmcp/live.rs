//! A session with the server that answers it in this process: which message goes to which stream.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::request::Parts;
use mcp_sessiond_proto::SessionId;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, JsonRpcRequest, ProgressToken, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::sync::oneshot;

use super::events::NewStream;
use super::handshake::outcome_unknown;
use super::lists::{Lists, Reading, Record, recorded};
use super::recorder::{Outgoing, Recorder, StoreFailures};
use super::request_names::RequestNames;
use super::request_stream;
use super::tail::primes;
use crate::error::SessionError;
use crate::session::Session;

/// Messages of the client's that wait for the server.
const INBOX: usize = 64;

/// A server, and the requests that it works on.
pub(super) struct Live {
    id: SessionId,
    failures: Arc<StoreFailures>,
    state: Mutex<State>,
}

struct State {
    /// On behalf of whoever used it last.
    session: Session,
    /// None: the server was closed, by whomever.
    inbox: Option<Sender<ClientJsonRpcMessage>>,
    /// Who waits for the answer to `initialize`.
    initializing: Option<oneshot::Sender<ServerJsonRpcMessage>>,
    /// The version of MCP that the server has chosen. None: it is not initialised.
    version: Option<String>,
    /// The server got `notifications/initialized`.
    is_initialized: bool,
    lists: Lists,
    /// The requests of this crate's own, and who waits for their results.
    own: HashMap<RequestId, oneshot::Sender<Value>>,
    standalone: UnboundedSender<Outgoing>,
    open: HashMap<RequestId, OpenRequest>,
    tokens: HashMap<ProgressToken, RequestId>,
    /// The requests of the server's, and for which of the client's it has sent them.
    asked: HashMap<RequestId, RequestId>,
    /// How many requests of each id of the client's wait for their stream, or for a place among
    /// what the server gets.
    opening: HashMap<RequestId, usize>,
    /// The newest request of each id of the client's that the server works on, as the server knows
    /// it.
    newest: HashMap<RequestId, RequestId>,
    names: RequestNames,
    used: Instant,
}

/// A request that the server works on.
struct OpenRequest {
    messages: UnboundedSender<Outgoing>,
    /// Its id, as the client knows it.
    id: RequestId,
    /// Its progress token: as the server knows it, and as the client does.
    token: Option<(ProgressToken, ProgressToken)>,
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
        let state = State {
            session: session.clone(),
            inbox: Some(inbox),
            initializing: None,
            version: None,
            is_initialized: false,
            lists: Lists::default(),
            own: HashMap::new(),
            standalone,
            open: HashMap::new(),
            tokens: HashMap::new(),
            asked: HashMap::new(),
            opening: HashMap::new(),
            newest: HashMap::new(),
            names: RequestNames::new(),
            used: Instant::now(),
        };
        let live = Arc::new(Self {
            id,
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
        state.used = Instant::now();
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
        let state = self.state();
        !state.open.is_empty() || !state.opening.is_empty()
    }

    /// For how long nobody has used it.
    pub(super) fn idle(&self) -> Duration {
        self.state().used.elapsed()
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
            let name = state.names.give();
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
        // A client that was restarted goes through the handshake again, of which its server needs no
        // second half.
        if is_initialized(&message) && std::mem::replace(&mut state.is_initialized, true) {
            return Ok(());
        }
        if let Some(id) = cancelled(&mut message)
            && !state.cancel(id)
        {
            return Ok(());
        }
        place.send(message);
        Ok(())
    }

    /// Opens the stream of a request, and gives the request to the server.
    pub(super) async fn begin(
        &self,
        session: Session,
        mut request: JsonRpcRequest<ClientRequest>,
    ) -> Result<NewStream, NotBegun> {
        let does_prime = self.state().version.as_deref().is_some_and(primes);
        let mut opening = Opening::of(self, &request.id);
        let id = as_value(&request.id);
        let opened = request_stream::open(session, id, does_prime, self.failures.clone()).await;
        let (messages, fresh) = opened.map_err(NotBegun::Refused)?;
        let inbox = self.inbox().map_err(|_| NotBegun::Closed)?;
        // First, so that no cancellation of the request comes before it.
        let place = inbox.reserve().await.map_err(|_| NotBegun::Closed)?;
        let mut state = self.state();
        if state.inbox.is_none() {
            return Err(NotBegun::Closed);
        }
        opening.is_over(&mut state);
        state.take(messages, &mut request);
        place.send(JsonRpcMessage::Request(request));
        Ok(fresh)
    }

    /// What the server says. Whoever gets something waits until it is kept, or can't be.
    pub(super) fn say(&self, message: ServerJsonRpcMessage) -> Option<oneshot::Receiver<()>> {
        self.state().say(message)
    }

    /// The server has ended: what it has not answered it never will.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.inbox = None;
        state.initializing = None;
        state.own.clear();
        for post in std::mem::take(&mut state.open).into_values() {
            let id = as_value(&post.id);
            let text = outcome_unknown(&id).as_str().to_owned();
            let _ = post.messages.send(Outgoing {
                text,
                answers: Some(id),
                record: None,
                done: oneshot::channel().0,
            });
        }
    }
}

/// A request that is not the server's yet, as long as somebody waits for that.
struct Opening<'a> {
    live: &'a Live,
    /// As the client knows it. None: it is the server's.
    id: Option<RequestId>,
}

impl<'a> Opening<'a> {
    fn of(live: &'a Live, id: &RequestId) -> Self {
        *live.state().opening.entry(id.clone()).or_default() += 1;
        Self {
            live,
            id: Some(id.clone()),
        }
    }

    fn is_over(&mut self, state: &mut State) {
        let Some(id) = self.id.take() else { return };
        if let Entry::Occupied(mut count) = state.opening.entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if self.id.is_some() {
            let live = self.live;
            self.is_over(&mut live.state());
        }
    }
}

impl State {
    /// A request is the server's now, by another id where the client uses one again.
    fn take(
        &mut self,
        messages: UnboundedSender<Outgoing>,
        request: &mut JsonRpcRequest<ClientRequest>,
    ) {
        let id = request.id.clone();
        if self.open.contains_key(&id) || !self.names.is_free(&id) {
            request.id = self.names.give();
        }
        self.lists.asked(&request.id, &request.request);
        self.newest.insert(id.clone(), request.id.clone());
        let token = request
            .request
            .get_meta()
            .get_progress_token()
            .map(|token| {
                let mut name = token.clone();
                if self.tokens.contains_key(&token) || !self.names.is_free(&token.0) {
                    name = ProgressToken(self.names.give());
                    request
                        .request
                        .get_meta_mut()
                        .set_progress_token(name.clone());
                }
                self.tokens.insert(name.clone(), request.id.clone());
                (name, token)
            });
        self.open.insert(
            request.id.clone(),
            OpenRequest {
                messages,
                id,
                token,
            },
        );
    }

    /// The server does not work on a request any more. Its stream is closed once nobody can say
    /// anything there.
    fn done(&mut self, id: &RequestId) -> Option<OpenRequest> {
        let post = self.open.remove(id)?;
        if let Some((name, _)) = &post.token {
            self.tokens.remove(name);
        }
        if self.newest.get(&post.id) == Some(id) {
            self.newest.remove(&post.id);
        }
        self.asked.retain(|_, of| of != id);
        Some(post)
    }

    /// The client has cancelled its request of this id, which becomes the server's. Returns whether
    /// the server is to hear of it.
    fn cancel(&mut self, id: &mut RequestId) -> bool {
        // Two pages of one client may count alike, and the other one's call is not to be cancelled:
        // better none.
        if self.opening.contains_key(id)
            || self.open.values().filter(|post| post.id == *id).count() > 1
        {
            return false;
        }
        let Some(name) = self.newest.get(id) else {
            // It has been answered. A former one of that id is not meant.
            return !self.open.contains_key(id);
        };
        *id = name.clone();
        if let Some(post) = self.done(id) {
            self.names.leave(id.clone());
            if let Some((name, _)) = post.token {
                self.names.leave(name.0);
            }
        }
        true
    }

    fn say(&mut self, message: ServerJsonRpcMessage) -> Option<oneshot::Receiver<()>> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        if let Some(id) = id {
            if let Some(initializing) = self.initializing.take() {
                let _ = initializing.send(message);
                return None;
            }
            if let Some(waiting) = self.own.remove(&id) {
                if let JsonRpcMessage::Response(response) = message {
                    let result = serde_json::to_value(&response.result);
                    let _ = waiting.send(result.unwrap_or_default());
                }
                return None;
            }
            self.used = Instant::now();
            let announced = self.announce(&id);
            let is_new = self.lists.answered(&id, &message);
            let record = (announced || is_new).then(|| self.lists.record());
            // Of a request that was cancelled nobody wants the answer.
            let post = self.done(&id)?;
            return post.say(&id, &message, true, record);
        }
        let of = self.post_of(&message);
        let of = of.filter(|id| self.open.contains_key(id));
        if let Some(id) = of.or_else(|| self.only_request(&message)) {
            let record = self.announce(&id).then(|| self.lists.record());
            return self.open.get(&id)?.say(&id, &message, false, record);
        }
        // It tells of requests under way alone (MCP 2025-11-25, Progress).
        if is_progress(&message) {
            return None;
        }
        send(&self.standalone, as_text(&message), None, None)
    }

    /// Tells the client of lists that have changed since another process has served the session, on
    /// the stream of this request. Returns whether there was something to tell: then it is to be
    /// recorded before anything else is said there.
    fn announce(&mut self, id: &RequestId) -> bool {
        let Some(post) = self.open.get(id) else {
            return false;
        };
        let changes = self.lists.changes();
        let has_told = !changes.is_empty();
        for text in changes {
            send(&post.messages, text, None, None);
        }
        has_told
    }

    /// The request that is open, if it is the only one and this is a line for the client's log. rmcp
    /// says of requests alone for which one of the client's they were sent.
    fn only_request(&self, message: &ServerJsonRpcMessage) -> Option<RequestId> {
        let mut open = self.open.keys();
        match (is_log(message), open.next(), open.next()) {
            (true, only, None) => only.cloned(),
            _ => None,
        }
    }

    /// The request that a message belongs to.
    fn post_of(&mut self, message: &ServerJsonRpcMessage) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(request) => {
                let OriginatingRequestId(id) =
                    request.request.extensions().get::<OriginatingRequestId>()?;
                if self.open.contains_key(id) {
                    self.asked.insert(request.id.clone(), id.clone());
                }
                Some(id.clone())
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.tokens.get(&progress.params.progress_token).cloned()
                }
                ServerNotification::CancelledNotification(cancelled) => self
                    .asked
                    .get(cancelled.params.request_id.as_ref()?)
                    .cloned(),
                other => {
                    let OriginatingRequestId(id) = other.extensions().get()?;
                    Some(id.clone())
                }
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        }
    }
}

impl OpenRequest {
    /// Says something to the client, by the names that it knows.
    fn say(
        &self,
        name: &RequestId,
        message: &ServerJsonRpcMessage,
        is_answer: bool,
        record: Option<Record>,
    ) -> Option<oneshot::Receiver<()>> {
        let id = as_value(&self.id);
        let mut text = as_text(message);
        let of_token = self.token.as_ref().filter(|(name, token)| name != token);
        if is_answer && *name != self.id {
            text = with(&text, "/id", &id);
        } else if let Some((_, token)) = of_token.filter(|_| !is_answer) {
            text = with(&text, "/params/progressToken", &as_value(&token.0));
        }
        send(&self.messages, text, is_answer.then_some(id), record)
    }
}

/// The id of the request that a message cancels, if it does.
fn cancelled(message: &mut ClientJsonRpcMessage) -> Option<&mut RequestId> {
    let JsonRpcMessage::Notification(notification) = message else {
        return None;
    };
    match &mut notification.notification {
        ClientNotification::CancelledNotification(cancel) => cancel.params.request_id.as_mut(),
        _ => None,
    }
}

fn is_initialized(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(notification) = message else {
        return false;
    };
    matches!(
        notification.notification,
        ClientNotification::InitializedNotification(_)
    )
}

fn is_log(message: &ServerJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(notification) = message else {
        return false;
    };
    matches!(
        notification.notification,
        ServerNotification::LoggingMessageNotification(_)
    )
}

fn is_progress(message: &ServerJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(notification) = message else {
        return false;
    };
    matches!(
        notification.notification,
        ServerNotification::ProgressNotification(_)
    )
}

fn send(
    to: &UnboundedSender<Outgoing>,
    text: String,
    answers: Option<Value>,
    record: Option<Record>,
) -> Option<oneshot::Receiver<()>> {
    let (done, is_kept) = oneshot::channel();
    to.send(Outgoing {
        text,
        answers,
        record,
        done,
    })
    .ok()
    .map(|()| is_kept)
}

/// A message with another value at this place, if there is one.
fn with(text: &str, place: &str, value: &Value) -> String {
    let mut message: Value = serde_json::from_str(text).unwrap_or_default();
    match message.pointer_mut(place) {
        Some(found) => *found = value.clone(),
        None => return text.to_owned(),
    }
    message.to_string()
}

fn as_text(message: &ServerJsonRpcMessage) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

fn as_value(id: &RequestId) -> Value {
    serde_json::to_value(id).unwrap_or_default()
}

/// What arrives at a server.
pub(super) type Incoming = Receiver<ClientJsonRpcMessage>;
