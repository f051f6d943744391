//! What all requests to one session's server have in common.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id::normal;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::call_ids::{CallIds, Ids};
use crate::cookies::Cookies;
use crate::http::HttpClient;
use crate::ledger::{Ledger, SaveState, SessionRecord};
use crate::messages::{Id, StreamHint, answered};
use crate::news::News;
use crate::numbers::{Numbers, is_ours};
use crate::session_headers::SessionHeaders;

/// Messages that wait to be taken. Until there is room, the server is not read from.
pub(super) const WAITING_MAX: usize = 64;

/// A message of the server.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerMessage {
    /// Its number, which no other message of this incarnation of the connection has. A message that
    /// a next process says again has the same one.
    pub number: u64,
    /// One JSON-RPC message, without a line's end.
    pub line: Bytes,
    /// The stream on which the server has said it. None: it came before there was one, or is ours
    /// and belongs to no call.
    pub stream: Option<StreamHint>,
}

/// Shows how long the message is, and not what it says.
impl fmt::Debug for ServerMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ServerMessage");
        shown
            .field("number", &self.number)
            .field("bytes", &self.line.len())
            .finish()
    }
}

/// What all requests to one session's server have in common.
#[derive(Debug)]
pub(super) struct Link {
    /// The way to it.
    pub(super) wire: HttpClient,
    /// What is on record.
    pub(super) ledger: Ledger,
    keep: Arc<dyn SaveState>,
    /// None: the host has the ids that the server has.
    pub(super) renamed: Option<CallIds>,
    /// One handshake at a time.
    pub(super) initializing: tokio::sync::Mutex<()>,
    /// The server's session, counted.
    sessions: watch::Sender<u32>,
    /// Changes whenever a session is found to be lost.
    pub(super) losses: watch::Sender<()>,
    /// Whether this process uses the session that is on record: it has begun it, or taken it up.
    pub(super) has_begun: AtomicBool,
    /// None: nothing is said any more.
    lines: Mutex<Option<mpsc::Sender<ServerMessage>>>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    known: SessionRecord,
    /// Sessions that the server has had for ours, also those that are not used.
    sessions: u32,
    streams: u64,
    open: HashMap<u64, Open>,
}

/// An open request, and what carries it out.
#[derive(Debug)]
struct Open {
    calls: Vec<Id>,
    task: Option<AbortHandle>,
}

/// A session that the server has begun for ours.
pub(super) struct NewSession {
    /// The id that the server has given it, if it has.
    pub(super) id: Option<String>,
    /// The version of MCP that the server has chosen.
    pub(super) version: Option<String>,
    /// The user's login that it was begun with, if it was.
    pub(super) login: Option<String>,
    /// The cookies that were set when it was begun.
    pub(super) cookies: Cookies,
    /// Whether the server numbers its events.
    pub(super) numbers: bool,
    /// What the server can do.
    pub(super) capabilities: Value,
    /// All that it has answered.
    pub(super) result: Box<RawValue>,
}

impl NewSession {
    /// What a request in it says of its session.
    pub(super) fn stamp(&self) -> SessionHeaders {
        SessionHeaders::of(
            self.id.as_deref(),
            self.version.as_deref(),
            self.login.as_deref(),
            &self.cookies,
        )
    }
}

impl Link {
    pub(super) fn new(
        wire: HttpClient,
        keep: Arc<dyn SaveState>,
        ids: Ids,
        known: SessionRecord,
        lines: mpsc::Sender<ServerMessage>,
    ) -> Self {
        let ledger = Ledger::new(keep.clone(), ids == Ids::Same);
        let renamed = (ids == Ids::Renamed).then(CallIds::new);
        let count = known.sessions;
        // Another host has to introduce itself before it may use anything of the former one's.
        let known = if ids == Ids::Same {
            known
        } else {
            known.without_session()
        };
        let sessions = watch::Sender::new(known.sessions);
        let now = Now {
            known,
            sessions: count,
            streams: 0,
            open: HashMap::new(),
        };
        let (initializing, lines) = (tokio::sync::Mutex::new(()), Mutex::new(Some(lines)));
        // Where the host is the same, it uses what it has used before.
        let has_begun = AtomicBool::new(ids == Ids::Same);
        let losses = watch::Sender::default();
        let now = Mutex::new(now);
        Self {
            wire,
            ledger,
            keep,
            renamed,
            initializing,
            sessions,
            losses,
            has_begun,
            lines,
            now,
        }
    }

    /// The user should know this.
    pub(super) async fn tell(&self, news: News) {
        self.keep.tell(news).await;
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request has to say of its session, and which one that is.
    pub(super) fn stamp(&self) -> (SessionHeaders, u32) {
        let now = self.now();
        (now.known.stamp(), now.known.sessions)
    }

    /// What ids of the server's requests in its present session begin with.
    pub(super) fn tag(&self) -> String {
        self.now().known.sessions.to_string()
    }

    /// Waits until the server has another session for ours than this one.
    pub(super) async fn is_renewed(&self, session: u32) {
        // The sender lives as long as this does.
        drop(
            self.sessions
                .subscribe()
                .wait_for(|now| *now != session)
                .await,
        );
    }

    /// The parameters of `initialize`, once they are known.
    pub(super) fn initialize(&self) -> Option<Box<RawValue>> {
        self.now().known.initialize.clone()
    }

    /// The host has said `initialize` with these.
    pub(super) fn initialized_by(&self, params: Option<Box<RawValue>>) {
        self.now().known.initialize = params;
    }

    /// The server has a new session for ours, and has got `notifications/initialized` in it, or
    /// not. It is on record when this returns. False: it can't be kept.
    pub(super) async fn has_session(&self, session: NewSession, ready: bool) -> bool {
        let NewSession {
            id,
            version,
            login,
            cookies,
            numbers,
            result,
            ..
        } = session;
        let known = {
            let mut now = self.now();
            now.sessions += 1;
            let sessions = now.sessions;
            SessionRecord {
                session: id,
                version,
                login,
                cookies,
                numbers,
                sessions,
                ready,
                result: Some(result),
                ..now.known.clone()
            }
        };
        self.has_begun.store(true, Ordering::Relaxed);
        let is_kept = self.ledger.know(known.clone()).await;
        let sessions = known.sessions;
        self.now().known = known;
        self.sessions.send_replace(sessions);
        is_kept
    }

    /// The host goes on with this session, which a former process has begun, and which is on
    /// record.
    pub(super) fn takes_up(&self, former: SessionRecord) {
        let sessions = former.sessions;
        self.has_begun.store(true, Ordering::Relaxed);
        self.now().known = former;
        self.sessions.send_replace(sessions);
    }

    /// The session of the former process is nobody's any more.
    pub(super) async fn drops_former(&self) {
        let known = {
            let now = self.now();
            // Its number is given to no other.
            SessionRecord {
                sessions: now.sessions,
                ..now.known.clone()
            }
        };
        self.ledger.know(known).await;
    }

    /// Whether the server can be asked for what follows on an event.
    pub(super) fn numbers_events(&self) -> bool {
        self.now().known.numbers
    }

    /// Whether the server has got `notifications/initialized`.
    pub(super) fn knows_ready(&self) -> bool {
        self.now().known.ready
    }

    /// The server has got `notifications/initialized`.
    pub(super) async fn is_ready(&self) {
        let known = {
            let mut now = self.now();
            if now.known.result.is_none() {
                // No session was begun: what is on record is the former one's still.
                return;
            }
            now.known.ready = true;
            now.known.clone()
        };
        self.ledger.know(known).await;
    }

    /// The standalone stream's numbers.
    pub(super) fn standalone(&self) -> Numbers {
        Numbers::of(self.now().known.process, 0)
    }

    /// Numbers for another stream.
    pub(super) fn numbers(&self) -> Numbers {
        let mut now = self.now();
        now.streams += 1;
        Numbers::of(now.known.process, now.streams)
    }

    /// These calls are open.
    pub(super) fn open(&self, stream: u64, calls: Vec<Id>) {
        self.now().open.insert(stream, Open { calls, task: None });
    }

    /// This carries them out.
    pub(super) fn carried_out(&self, stream: u64, task: AbortHandle) {
        if let Some(open) = self.now().open.get_mut(&stream) {
            open.task = Some(task);
        }
    }

    /// The calls of a stream that were not answered.
    pub(super) fn unanswered(&self, stream: u64) -> Vec<Id> {
        self.now()
            .open
            .get(&stream)
            .map(|open| open.calls.clone())
            .unwrap_or_default()
    }

    /// Whether a call of this id is open, on whichever stream.
    pub(super) fn waits_for(&self, id: &str) -> bool {
        self.now()
            .open
            .values()
            .flat_map(|open| &open.calls)
            .any(|call| *normal(call) == *id)
    }

    /// A call of the stream was answered. Whether it was the last one.
    pub(super) fn answered(&self, stream: u64, id: &str) -> bool {
        let mut now = self.now();
        let Some(open) = now.open.get_mut(&stream) else {
            return false;
        };
        open.calls.retain(|call| normal(call) != normal(id));
        let is_over = open.calls.is_empty();
        if is_over {
            now.open.remove(&stream);
        }
        is_over
    }

    /// Nobody waits for the answer to this call any more: a server may never answer it.
    pub(super) fn cancelled(&self, id: &str) {
        let mut now = self.now();
        let is_it = |open: &Open| open.calls.iter().any(|call| *normal(call) == *id);
        let Some(stream) = now
            .open
            .iter()
            .find_map(|(stream, open)| is_it(open).then_some(*stream))
        else {
            return;
        };
        let Some(open) = now.open.get_mut(&stream) else {
            return;
        };
        open.calls.retain(|call| *normal(call) != *id);
        if open.calls.is_empty() {
            if let Some(task) = now.open.remove(&stream).and_then(|open| open.task) {
                task.abort();
            }
            drop(now);
            self.ledger.over(stream);
        }
    }

    /// Hands on a line that was said on this stream, once there is room for it.
    pub(super) async fn deliver(
        &self,
        number: u64,
        stream: Option<StreamHint>,
        line: impl Into<Bytes>,
    ) {
        let line = line.into();
        let Some(line) = self
            .renamed
            .as_ref()
            .map_or(Some(line.clone()), |ids| ids.to_host(&line))
        else {
            // Nobody waits for it.
            if answered(&line).is_some() {
                self.tell(if is_ours(number) {
                    News::FormerUnknown
                } else {
                    News::FormerAnswered
                })
                .await;
            }
            return self.ledger.confirmed(number);
        };
        let stream = match (stream, &self.renamed) {
            (Some(StreamHint::Call(id)), Some(ids)) => {
                ids.own(&id).map(|own| StreamHint::Call(own.into()))
            }
            (stream, _) => stream,
        };
        self.put(number, stream, line).await;
    }

    /// The same of a line that has the host's own ids.
    pub(super) async fn put(&self, number: u64, stream: Option<StreamHint>, line: Bytes) {
        let lines = self.lines().clone();
        if let Some(lines) = lines {
            // Whoever does not listen any more has ended the session.
            let message = ServerMessage {
                number,
                line,
                stream,
            };
            let _ = lines.send(message).await;
        }
    }

    fn lines(&self) -> MutexGuard<'_, Option<mpsc::Sender<ServerMessage>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is said any more.
    pub(super) fn close(&self) {
        self.lines().take();
    }

    /// Whether nothing is said any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lines().is_none()
    }
}
