//! A session with the server that answers it in this process: which message goes to which stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mcp_sessiond_proto::SessionId;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, JsonRpcRequest, NumberOrString, ProgressToken, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::sync::oneshot;

use super::events::Fresh;
use super::post;
use super::pump::{Failing, Pump, Said};
use super::record::outcome_unknown;
use super::tail::primes;
use crate::error::SessionError;
use crate::session::Session;

/// Messages of the client's that wait for the server.
const INBOX: usize = 64;

/// A server, and the requests that it works on.
pub(super) struct Live {
    id: SessionId,
    failing: Arc<Failing>,
    desk: Mutex<Desk>,
}

struct Desk {
    /// On behalf of whoever used it last.
    session: Session,
    /// None: the server was closed, by whomever.
    inbox: Option<Sender<ClientJsonRpcMessage>>,
    /// Who waits for the answer to `initialize`.
    shaking: Option<oneshot::Sender<ServerJsonRpcMessage>>,
    /// The version of MCP that the server has chosen. None: it is not initialised.
    version: Option<String>,
    standalone: UnboundedSender<Said>,
    posts: HashMap<RequestId, Post>,
    tokens: HashMap<ProgressToken, RequestId>,
    /// The requests of the server's, and for which of the client's it has sent them.
    asked: HashMap<RequestId, RequestId>,
    /// Ids that the client uses again while the server still works on the former request of that id, as the server knows them.
    renamed: HashMap<RequestId, RequestId>,
    names: u64,
    used: Instant,
}

/// A request that the server works on.
struct Post {
    said: UnboundedSender<Said>,
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
    pub(super) fn new(session: &Session) -> (Arc<Self>, Arriving) {
        let (inbox, arriving) = channel(INBOX);
        let (standalone, said) = unbounded_channel();
        let id = session.id().clone();
        let failing = Arc::new(Failing::of(id.clone()));
        let desk = Desk {
            session: session.clone(),
            inbox: Some(inbox),
            shaking: None,
            version: None,
            standalone,
            posts: HashMap::new(),
            tokens: HashMap::new(),
            asked: HashMap::new(),
            renamed: HashMap::new(),
            names: 0,
            used: Instant::now(),
        };
        let live = Arc::new(Self { id, failing: failing.clone(), desk: Mutex::new(desk) });
        let of = Arc::downgrade(&live);
        let first = session.clone();
        tokio::spawn(async move {
            let stream = || of.upgrade().map_or_else(|| first.clone(), |live| live.session()).standalone();
            Pump { stream, failing, listener: None }.run(said).await;
        });
        (live, arriving)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(super) fn session(&self) -> Session {
        self.desk().session.clone()
    }

    /// Somebody uses it, on whose behalf it goes on.
    pub(super) fn used_by(&self, session: &Session) {
        let mut desk = self.desk();
        desk.session = session.clone();
        desk.used = Instant::now();
    }

    /// Whether it can be used: its server is initialised, and was not closed.
    pub(super) fn is_ready(&self) -> bool {
        let desk = self.desk();
        desk.version.is_some() && desk.inbox.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.desk().inbox.is_none()
    }

    /// Whether the server works on something.
    pub(super) fn is_busy(&self) -> bool {
        !self.desk().posts.is_empty()
    }

    /// For how long nobody has used it.
    pub(super) fn idle(&self) -> Duration {
        self.desk().used.elapsed()
    }

    /// Gives `initialize` to the server, and waits for its answer.
    pub(super) async fn shake(
        &self,
        initialize: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Closed> {
        let (shaking, answer) = oneshot::channel();
        self.desk().shaking = Some(shaking);
        self.give(initialize).await?;
        answer.await.map_err(|_| Closed)
    }

    /// The server is initialised.
    pub(super) fn ready(&self, version: String) {
        self.desk().version = Some(version);
    }

    /// Gives a message to the server.
    async fn give(&self, message: ClientJsonRpcMessage) -> Result<(), Closed> {
        let inbox = self.desk().inbox.clone().ok_or(Closed)?;
        inbox.send(message).await.map_err(|_| Closed)
    }

    /// Gives the server what needs no answer. A request that is cancelled is not answered any more.
    pub(super) async fn accept(&self, mut message: ClientJsonRpcMessage) -> Result<(), Closed> {
        let mut cancelled = None;
        if let JsonRpcMessage::Notification(notification) = &mut message
            && let ClientNotification::CancelledNotification(cancel) = &mut notification.notification
            && let Some(id) = &mut cancel.params.request_id
        {
            if let Some(name) = self.desk().renamed.get(id) {
                *id = name.clone();
            }
            cancelled = Some(id.clone());
        }
        self.give(message).await?;
        if let Some(id) = cancelled {
            self.desk().done(&id);
        }
        Ok(())
    }

    /// Opens the stream of a request, and gives the request to the server.
    pub(super) async fn begin(
        &self,
        session: Session,
        mut request: JsonRpcRequest<ClientRequest>,
    ) -> Result<Fresh, NotBegun> {
        let does_prime = self.desk().version.as_deref().is_some_and(primes);
        let id = as_value(&request.id);
        let opened = post::open(session, id, does_prime, self.failing.clone()).await;
        let (said, fresh) = opened.map_err(NotBegun::Refused)?;
        let name = self.desk().take(said, &mut request);
        if self.give(JsonRpcMessage::Request(request)).await.is_err() {
            self.desk().done(&name);
            return Err(NotBegun::Closed);
        }
        Ok(fresh)
    }

    /// What the server says. Whoever gets something waits until it is kept, or can't be.
    pub(super) fn say(&self, message: ServerJsonRpcMessage) -> Option<oneshot::Receiver<()>> {
        self.desk().say(message)
    }

    /// The server has ended: what it has not answered it never will.
    pub(super) fn close(&self) {
        let mut desk = self.desk();
        desk.inbox = None;
        desk.shaking = None;
        for post in std::mem::take(&mut desk.posts).into_values() {
            let id = as_value(&post.id);
            let text = outcome_unknown(&id).as_str().to_owned();
            let _ = post.said.send(Said { text, answers: Some(id), done: oneshot::channel().0 });
        }
    }
}

impl Desk {
    /// A request is the server's now. Returns its id, as the server knows it: where the client uses one again, another.
    fn take(
        &mut self,
        said: UnboundedSender<Said>,
        request: &mut JsonRpcRequest<ClientRequest>,
    ) -> RequestId {
        let id = request.id.clone();
        self.renamed.remove(&id);
        if self.posts.contains_key(&id) {
            request.id = self.name();
            self.renamed.insert(id.clone(), request.id.clone());
        }
        let token = request.request.get_meta().get_progress_token().map(|token| {
            let mut name = token.clone();
            if self.tokens.contains_key(&token) {
                name = ProgressToken(self.name());
                request.request.get_meta_mut().set_progress_token(name.clone());
            }
            self.tokens.insert(name.clone(), request.id.clone());
            (name, token)
        });
        self.posts.insert(request.id.clone(), Post { said, id, token });
        request.id.clone()
    }

    /// An id that no client has.
    fn name(&mut self) -> NumberOrString {
        self.names += 1;
        NumberOrString::String(format!("mcp-sessiond-{}", self.names).into())
    }

    /// The server does not work on a request any more. Its stream is closed once nobody can say anything there.
    fn done(&mut self, id: &RequestId) -> Option<Post> {
        let post = self.posts.remove(id)?;
        if let Some((name, _)) = &post.token {
            self.tokens.remove(name);
        }
        if self.renamed.get(&post.id) == Some(id) {
            self.renamed.remove(&post.id);
        }
        self.asked.retain(|_, of| of != id);
        Some(post)
    }

    fn say(&mut self, message: ServerJsonRpcMessage) -> Option<oneshot::Receiver<()>> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        if let Some(id) = id {
            if let Some(shaking) = self.shaking.take() {
                let _ = shaking.send(message);
                return None;
            }
            self.used = Instant::now();
            // Of a request that was cancelled nobody wants the answer.
            let post = self.done(&id)?;
            return post.say(&id, &message, true);
        }
        if let Some(id) = self.post_of(&message)
            && let Some(post) = self.posts.get(&id)
        {
            return post.say(&id, &message, false);
        }
        send(&self.standalone, as_text(&message), None)
    }

    /// The request that a message belongs to.
    fn post_of(&mut self, message: &ServerJsonRpcMessage) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(request) => {
                let OriginatingRequestId(id) = request.request.extensions().get::<OriginatingRequestId>()?;
                self.asked.insert(request.id.clone(), id.clone());
                Some(id.clone())
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.tokens.get(&progress.params.progress_token).cloned()
                }
                ServerNotification::CancelledNotification(cancelled) => {
                    self.asked.get(cancelled.params.request_id.as_ref()?).cloned()
                }
                _ => None,
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        }
    }
}

impl Post {
    /// Says something to the client, by the names that it knows.
    fn say(
        &self,
        name: &RequestId,
        message: &ServerJsonRpcMessage,
        is_answer: bool,
    ) -> Option<oneshot::Receiver<()>> {
        let id = as_value(&self.id);
        let mut text = as_text(message);
        let of_token = self.token.as_ref().filter(|(name, token)| name != token);
        if is_answer && *name != self.id {
            text = with(&text, "/id", &id);
        } else if let Some((_, token)) = of_token.filter(|_| !is_answer) {
            text = with(&text, "/params/progressToken", &as_value(&token.0));
        }
        send(&self.said, text, is_answer.then_some(id))
    }
}

fn send(to: &UnboundedSender<Said>, text: String, answers: Option<Value>) -> Option<oneshot::Receiver<()>> {
    let (done, is_kept) = oneshot::channel();
    to.send(Said { text, answers, done }).ok().map(|()| is_kept)
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
pub(super) type Arriving = Receiver<ClientJsonRpcMessage>;
