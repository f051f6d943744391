//! The connection: what becomes of a message of the host.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_jsonrpc::id_prefix::{answering, asked_by};
use mcp_sessiond_proto::{Loss, RequestId};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::call_ids::Ids;
use crate::calls::Stream;
use crate::http::{HttpClient, HttpRequest, Reply};
use crate::ledger::{Record, SaveState, SavedState, SessionRecord, StreamCursor, found};
use crate::link::{Link, ServerMessage, WAITING_MAX};
use crate::messages::{CallFailure, HostMessage, Id, StreamHint, host, messages, refusals};
use crate::news::News;
use crate::numbers::base;
use crate::remote::{Remote, RemoteError};

/// How long a server may take to take a notification, or an answer to a request of its own.
const TELL_WAIT: Duration = Duration::from_secs(30);
/// How long the end of a session may take to be told, and again to be noted.
const END_WAIT: Duration = Duration::from_secs(2);

/// The connection to a server. Its clones are one connection. When all of them are gone, it ends,
/// and the session with the server stays for a next process.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Worker>);

/// The server has not taken a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server has not taken this")]
pub struct NotTaken {
    /// Whether it may have got the message.
    pub may_have_arrived: bool,
}

impl Connection {
    /// Sends a message to the server, or a batch of them, without a line's end. The first is
    /// `initialize`, unless [`Self::handshake`] is there and [`Ids`] are the same. Returns when the
    /// message is safe: a next process gets the answer to a call, if the server numbers its events;
    /// what wants no answer the server has taken.
    ///
    /// # Errors
    /// [`NotTaken`], of what wants no answer. A call is answered in any case.
    pub async fn send(&self, line: Bytes) -> Result<(), NotTaken> {
        if self.0.link.is_closed() {
            return Err(NotTaken {
                may_have_arrived: false,
            });
        }
        for line in self.0.lines(&line) {
            match self.0.pass(line).await {
                Remaining::Nothing => {}
                Remaining::Initialize(id, line) => {
                    // What the server says until it has answered waits for whoever has called this.
                    let link = self.0.link.clone();
                    self.0.spawn(async move { link.begin(&id, line).await });
                }
                Remaining::Tell(line, kind) => self.0.tell(line, &kind).await.map(drop)?,
            }
        }
        Ok(())
    }

    /// A channel that takes what [`Self::send`] does, and says what wants no answer beside the
    /// calls that follow on it. What is not JSON-RPC is refused to the host. When it is dropped, the connection ends, and with it the messages of
    /// the server. Both channels hold 64 messages.
    pub fn channel(&self) -> mpsc::Sender<Bytes> {
        let (to, lines) = mpsc::channel(WAITING_MAX);
        tokio::spawn(self.0.clone().work(lines));
        to
    }

    /// Ends the connection, and the messages of the server with it. The session stays.
    pub fn close(&self) {
        self.0.close();
    }

    /// The message of this number, and those before it on the same stream of the server, were
    /// passed on for good. What was not confirmed is said again to a next process.
    pub fn confirm(&self, number: u64) {
        self.0.link.ledger.confirmed(number);
    }

    /// Ends the session with the server, which a next process would find no more. The server is
    /// given two seconds. A session of a former process that this one has not taken up stays.
    pub async fn end_session(&self) {
        let link = &self.0.link;
        if !link.has_begun.swap(false, Ordering::Relaxed) {
            return;
        }
        let (stamp, _) = link.stamp();
        if stamp.session.is_some() {
            // It finds out by itself, sooner or later.
            drop(timeout(END_WAIT, link.wire.try_once(&HttpRequest::Delete, &stamp)).await);
        }
        drop(timeout(END_WAIT, link.ledger.ended()).await);
    }

    /// What the server has answered to `initialize`, where a former process has initialised the
    /// session.
    pub fn handshake(&self) -> Option<&RawValue> {
        self.0
            .inherited
            .result
            .as_deref()
            .filter(|_| self.0.inherited.ready)
    }

    /// Whether a former process has begun the session. The server may still wait for
    /// `notifications/initialized`, which is passed on once, however often it is said.
    pub fn is_begun(&self) -> bool {
        self.0.inherited.result.is_some()
    }

    /// The ids of the calls that a former process has made, and that were not answered.
    pub fn open_calls(&self) -> &[Id] {
        &self.0.inherited.open
    }

    /// Tells the numbers of the server's messages from those of every other connection: it stays
    /// until the session is ended here.
    pub fn incarnation(&self) -> &str {
        &self.0.inherited.incarnation
    }

    /// Whether a next process gets the answers to calls that are open now: whether the server
    /// numbers its events.
    pub fn outlasts(&self) -> bool {
        self.0.link.numbers_events()
    }
}

/// Connects to a server. With what a former process has `kept`, its session goes on; what that was
/// for another URL or with other headers only has its open calls answered. So has a session that
/// was begun with another login of the user's. Nothing is said to the server before the first
/// message, except where the host is the same and its session goes on.
///
/// To be called inside a tokio runtime, where the connection lives.
///
/// # Errors
/// [`RemoteError`]. That a server can't be reached, or wants a login, is told by the answer to
/// `initialize` and to each call.
pub async fn connect(
    remote: Remote,
    kept: Option<&SavedState>,
    keep: Arc<dyn SaveState>,
    ids: Ids,
) -> Result<(Connection, mpsc::Receiver<ServerMessage>), RemoteError> {
    let whose = remote.whose();
    let wire = HttpClient::to(remote)?;
    let Record { mut known, places } = kept.and_then(found).unwrap_or_default();
    // A login of a file of an older version can't be told from another one.
    let is_same = known.whose == whose && known.login.as_deref() != Some("");
    let was_there = known.session.is_some();
    if known.incarnation.is_empty() {
        known.incarnation = RequestId::mint().to_string();
    }
    known = SessionRecord {
        whose,
        process: known.process.wrapping_add(1),
        ..known
    };
    if !is_same {
        // The count goes on: requests of the former server are no other's.
        let sessions = known.sessions + 1;
        known = SessionRecord {
            sessions,
            ..known.without_session()
        };
        if was_there {
            keep.tell(News::Lost(Loss::OtherEntry)).await;
        }
    }
    let (said, from) = mpsc::channel(WAITING_MAX);
    let calls = places.iter().flat_map(|(_, place)| &place.calls);
    let inherited = InheritedState {
        result: known.result.clone(),
        ready: known.ready,
        open: calls.map(|id| normal(id)).collect(),
        incarnation: known.incarnation.clone(),
    };
    let worker = Worker {
        link: Arc::new(Link::new(wire, keep, ids, known.clone(), said)),
        inherited,
        tasks: Mutex::default(),
        listens: Mutex::new(false),
        former: Mutex::default(),
    };
    if known.process > 1 {
        worker.take_over(known, places, is_same).await?;
    }
    Ok((Connection(Arc::new(worker)), from))
}

/// What a former process has left on record, for the host.
#[derive(Debug)]
struct InheritedState {
    result: Option<Box<RawValue>>,
    ready: bool,
    open: Vec<Id>,
    incarnation: String,
}

/// Carries out what the host says. Its tasks end with it.
#[derive(Debug)]
struct Worker {
    link: Arc<Link>,
    inherited: InheritedState,
    tasks: Mutex<JoinSet<()>>,
    listens: Mutex<bool>,
    /// What a former process has begun, until the host has introduced itself.
    former: Mutex<Former>,
}

type StreamCursors = Vec<(u64, StreamCursor)>;

/// What a former process has begun for another connection of the host. Nothing of it is used until
/// the host has introduced itself.
#[derive(Debug, Default)]
struct Former {
    /// Its session and its streams; none: its session was not initialised, or is none of ours.
    open: Option<(SessionRecord, StreamCursors)>,
    /// Streams that are on record still.
    stale: Vec<u64>,
}

/// What is left to do of a message of the host.
enum Remaining {
    /// All is done.
    Nothing,
    /// This `initialize` with this id is to be said.
    Initialize(Id, Bytes),
    /// This, which wants no answer, is to be said.
    Tell(Bytes, HostMessage),
}

impl Worker {
    /// Carries out what comes on a channel, until that ends.
    async fn work(self: Arc<Self>, mut lines: mpsc::Receiver<Bytes>) {
        let (telling, mut told) = mpsc::channel(WAITING_MAX);
        let link = self.link.clone();
        self.spawn(async move {
            while let Some((line, kind)) = told.recv().await {
                let _ = tell(&link, line, &kind).await;
            }
        });
        while let Some(line) = lines.recv().await {
            for refusal in refusals(&line) {
                self.link
                    .put(self.link.numbers().ours(), None, refusal)
                    .await;
            }
            for line in self.lines(&line) {
                match self.pass(line).await {
                    Remaining::Nothing => {}
                    Remaining::Initialize(id, line) => self.link.begin(&id, line).await,
                    // What follows may depend on it.
                    Remaining::Tell(line, HostMessage::Initialized) => {
                        let _ = self.tell(line, &HostMessage::Initialized).await;
                    }
                    // The other end is a task of ours, which ends with this.
                    Remaining::Tell(line, kind) => drop(telling.send((line, kind)).await),
                }
            }
        }
        self.close();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// The messages of a line of the host, as the server gets them.
    fn lines(&self, line: &Bytes) -> Vec<Bytes> {
        let mut lines = messages(line);
        if let Some(ids) = &self.link.renamed {
            lines
                .iter_mut()
                .for_each(|line| *line = ids.to_server(line));
        }
        lines
    }

    fn close(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
        self.link.close();
    }

    /// Takes over what a former process has left. Where the host is the same, it goes on.
    ///
    /// # Errors
    /// [`RemoteError::NotStored`].
    async fn take_over(
        &self,
        known: SessionRecord,
        places: StreamCursors,
        is_same: bool,
    ) -> Result<(), RemoteError> {
        let is_ready = known.ready;
        if !self.link.ledger.know(known.clone()).await {
            // Another process would give the numbers of this one again.
            return Err(RemoteError::NotStored);
        }
        if self.link.renamed.is_none() {
            self.resume_calls(places, is_same, is_ready).await;
            return Ok(());
        }
        let goes_on = is_same && is_ready && known.session.is_some();
        let stale = places.iter().map(|(stream, _)| *stream).collect();
        *self.former.lock().unwrap_or_else(PoisonError::into_inner) = Former {
            open: goes_on.then_some((known, places)),
            stale,
        };
        Ok(())
    }

    /// Takes up what a former process has begun.
    async fn resume_calls(&self, places: StreamCursors, is_same: bool, is_ready: bool) {
        let mut standalone = None;
        for (stream, place) in places {
            // On record it is already; now this process follows it.
            self.link.ledger.place(stream, place.clone()).await;
            let place = if is_same {
                place
            } else {
                StreamCursor {
                    event: None,
                    ..place
                }
            };
            if place.calls.is_empty() {
                standalone = Some(place);
                continue;
            }
            let (link, stream) = (self.link.clone(), base(place.number));
            self.link.open(stream, place.calls.clone());
            let task = self.spawn(async move { link.resume_calls(place).await });
            self.link.carried_out(stream, task);
        }
        if is_same && is_ready {
            self.listen(standalone);
        }
    }

    /// Listens to what belongs to no call.
    fn listen(&self, found: Option<StreamCursor>) {
        let link = self.link.clone();
        let mut listens = self.listens.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *listens, true) {
            self.spawn(async move { link.listen(found).await });
        }
    }

    async fn pass(&self, line: Bytes) -> Remaining {
        match host(&line) {
            None => Remaining::Nothing,
            Some(HostMessage::Initialize(id, params)) => {
                if self.take_up(&id, &params).await {
                    return Remaining::Nothing;
                }
                self.link.wire.request_headers.begin_session();
                self.link.initialized_by(RawValue::from_string(params).ok());
                Remaining::Initialize(id, line)
            }
            Some(HostMessage::Call(call)) => {
                self.call(call, line).await;
                Remaining::Nothing
            }
            Some(kind) => Remaining::Tell(line, kind),
        }
    }

    /// Says what wants no answer. Whether the server has taken it, or need not get it.
    async fn tell(&self, line: Bytes, kind: &HostMessage) -> Result<bool, NotTaken> {
        if *kind != HostMessage::Initialized {
            return tell(&self.link, line, kind).await;
        }
        // A session that goes on has got it.
        let mut told = Ok(true);
        if !self.link.knows_ready() {
            told = tell(&self.link, line, kind).await;
            // Where it has not taken it, a next process makes the handshake anew.
            if told == Ok(true) {
                self.link.is_ready().await;
            }
        }
        self.listen(None);
        told
    }

    /// Goes on with the session of another connection of the host, where there is one and the host
    /// introduces itself in the same way. Whether `initialize` was answered by that.
    async fn take_up(&self, id: &str, params: &str) -> bool {
        let former = || self.former.lock().unwrap_or_else(PoisonError::into_inner);
        let open = former().open.take();
        if let Some((known, places)) = open {
            match self.link.resume(&known, id, params).await {
                Ok(true) => {
                    self.resume_calls(places, true, true).await;
                    return true;
                }
                Ok(false) => self.link.drops_former().await,
                // The host may try again.
                Err(why) => {
                    former().open = Some((known, places));
                    self.link
                        .deliver(self.link.numbers().ours(), None, why.answer(id))
                        .await;
                    return true;
                }
            }
        }
        let stale = std::mem::take(&mut former().stale);
        self.link.ledger.forgotten(stale);
        false
    }

    /// Makes a call. Returns when it is about to be made, or can't be.
    async fn call(&self, call: Box<str>, line: Bytes) {
        let stream = Stream::new(self.link.numbers(), StreamHint::Call(call.clone()));
        let (id, calls) = (stream.id(), vec![call]);
        let place = StreamCursor {
            calls: calls.clone(),
            number: id,
            ..StreamCursor::default()
        };
        let is_on_record = self.link.ledger.place(id, place).await;
        self.link.open(id, calls);
        if !is_on_record {
            let why = "what the next process needs of this call could not be stored, so the call was not made";
            return self
                .link
                .give_up(stream, &CallFailure::NotSent(why.to_owned()))
                .await;
        }
        let (link, (begun, begins)) = (self.link.clone(), oneshot::channel());
        let task = self.spawn(async move { link.call(stream, line, begun).await });
        self.link.carried_out(id, task);
        // It is dropped, and that is the word.
        drop(begins.await);
    }
}

/// Says what wants no answer. Whether the server has taken it.
async fn tell(link: &Link, line: Bytes, kind: &HostMessage) -> Result<bool, NotTaken> {
    let told = match kind {
        // The end of its connection is the word (MCP 2026-07-28, Cancellation).
        HostMessage::Cancelled(_) if link.wire.request_headers.is_modern() => Ok(true),
        _ => say(link, line, kind).await,
    };
    if let HostMessage::Cancelled(id) = kind {
        link.cancelled(id);
    }
    told
}

async fn say(link: &Link, line: Bytes, kind: &HostMessage) -> Result<bool, NotTaken> {
    let not_taken = |may_have_arrived| NotTaken { may_have_arrived };
    let line = match kind {
        // A session that the server has forgotten has asked for it, perhaps.
        HostMessage::Answer(id) => match asked_by(&link.tag(), id) {
            Some(own) => answering(&line, &own),
            None => return Ok(false),
        },
        _ => line,
    };
    let ask = HttpRequest::Post(line);
    for _ in 0..2 {
        let (stamp, session) = link.stamp();
        let replied = timeout(TELL_WAIT, link.wire.ask(&ask, &stamp)).await;
        let replied = match replied.map_err(|_| not_taken(true))? {
            Ok(replied) => replied,
            Err(why) => return Err(not_taken(matches!(why, CallFailure::Unknown(_)))),
        };
        let Reply::Lost(loss, begun) = replied.reply else {
            return Ok(replied.reply.is_taken());
        };
        if link.renew(session, loss).await.is_err() {
            return Err(not_taken(begun.is_some()));
        }
        if begun.is_some() {
            return Err(not_taken(true));
        }
        // Another session of the server's has no such call, has asked for nothing, and has just
        // been initialised.
        if matches!(
            kind,
            HostMessage::Answer(_) | HostMessage::Cancelled(_) | HostMessage::Initialized
        ) {
            return Ok(matches!(kind, HostMessage::Initialized));
        }
    }
    Ok(false)
}
