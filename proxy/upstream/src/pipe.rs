//! The pipe: what becomes of a message of the host.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id_prefix::{answering, asked_by};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::call_ids::Ids;
use crate::calls::Stream;
use crate::http::{HttpClient, HttpRequest, Reply};
use crate::ledger::{Record, SaveState, SavedState, SessionRecord, StreamCursor, found};
use crate::link::{Link, ServerMessage, WAITING_MAX};
use crate::messages::{CallFailure, HostMessage, host, messages};
use crate::news::News;
use crate::numbers::base;
use crate::remote::{Remote, RemoteError};

/// How long a server may take to take a notification, or an answer to a request of its own.
const TELL_WAIT: Duration = Duration::from_secs(30);
/// How long the end of a session may take to be told.
const END_WAIT: Duration = Duration::from_secs(2);

/// The two ends of the connection. Both channels hold 64 messages.
#[derive(Debug)]
pub struct Pipe {
    /// Messages to the server, or batches of them, without a line's end. The first is `initialize`,
    /// unless `handshake` is there and [`Ids`] are the same. When this is dropped, the connection
    /// ends, and the session with the server stays for a next process.
    pub to: mpsc::Sender<Bytes>,
    /// Messages of the server. It ends when `to` is dropped.
    pub from: mpsc::Receiver<ServerMessage>,
    /// Takes the numbers of messages that were passed on for good.
    pub confirm: Confirm,
    /// What the server has answered to `initialize`, where a former process has initialised the
    /// session.
    pub handshake: Option<Box<RawValue>>,
}

/// Takes the numbers of messages that were passed on for good: what was not confirmed is said again
/// to a next process.
#[derive(Debug, Clone)]
pub struct Confirm(Arc<Link>);

impl Confirm {
    /// The message of this number, and those before it on the same stream of the server, were
    /// passed on for good.
    pub fn up_to(&self, number: u64) {
        self.0.ledger.confirmed(number);
    }

    /// Ends the session with the server, which a next process would find no more. The server is
    /// given two seconds. A session of a former process that this one has not taken up stays.
    pub async fn end_session(&self) {
        if !self.0.has_begun.load(Ordering::Relaxed) {
            return;
        }
        let (stamp, _) = self.0.stamp();
        if stamp.session.is_some() {
            // It finds out by itself, sooner or later.
            drop(timeout(END_WAIT, self.0.wire.try_once(&HttpRequest::Delete, &stamp)).await);
        }
        self.0.ledger.ended().await;
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
pub fn connect(
    remote: Remote,
    kept: Option<&SavedState>,
    keep: Arc<dyn SaveState>,
    ids: Ids,
) -> Result<Pipe, RemoteError> {
    let whose = remote.whose();
    let wire = HttpClient::to(remote)?;
    let Record { mut known, places } = kept.and_then(found).unwrap_or_default();
    // A login of a file of an older version can't be told from another one.
    let is_same = known.whose == whose && known.login.as_deref() != Some("");
    let was_there = known.session.is_some();
    known = SessionRecord {
        whose,
        process: known.process.wrapping_add(1),
        ..known
    };
    if !is_same {
        // The count goes on: requests of the former server are no other's.
        let SessionRecord {
            whose,
            process,
            sessions,
            ..
        } = known;
        known = SessionRecord {
            whose,
            process,
            sessions: sessions + 1,
            ..SessionRecord::default()
        };
        if was_there {
            keep.tell(News::OtherEntry);
        }
    }
    let handshake = known.result.clone().filter(|_| known.ready);
    let (to, lines_in) = mpsc::channel(WAITING_MAX);
    let (said, from) = mpsc::channel(WAITING_MAX);
    let link = Arc::new(Link::new(wire, keep, ids, known.clone(), said));
    let worker = Worker {
        link: link.clone(),
        tasks: Mutex::default(),
        listens: Mutex::new(false),
        former: Mutex::default(),
    };
    let confirm = Confirm(link);
    tokio::spawn(worker.work(known, places, is_same, lines_in));
    Ok(Pipe {
        to,
        from,
        confirm,
        handshake,
    })
}

/// Carries out what the host says. Its tasks end with it.
#[derive(Debug)]
struct Worker {
    link: Arc<Link>,
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

impl Worker {
    async fn work(
        self,
        known: SessionRecord,
        places: StreamCursors,
        is_same: bool,
        mut lines: mpsc::Receiver<Bytes>,
    ) {
        let is_ready = known.ready;
        if known.process > 1 {
            self.link.ledger.know(known.clone()).await;
            if self.link.renamed.is_none() {
                self.resume_calls(places, is_same, is_ready).await;
            } else {
                let goes_on = is_same && is_ready && known.session.is_some();
                let stale = places.iter().map(|(stream, _)| *stream).collect();
                *self.former.lock().unwrap_or_else(PoisonError::into_inner) = Former {
                    open: goes_on.then_some((known, places)),
                    stale,
                };
            }
        }
        let (telling, told) = mpsc::channel(WAITING_MAX);
        let link = self.link.clone();
        self.spawn(async move { tell_all(&link, told).await });
        while let Some(line) = lines.recv().await {
            for line in messages(&line) {
                let line = self
                    .link
                    .renamed
                    .as_ref()
                    .map_or(line.clone(), |ids| ids.to_server(&line));
                self.pass(line, &telling).await;
            }
        }
        self.link.close();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
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

    async fn pass(&self, line: Bytes, telling: &mpsc::Sender<(Bytes, HostMessage)>) {
        match host(&line) {
            None => {}
            Some(HostMessage::Initialize(id, params)) => {
                if self.take_up(&id, &params).await {
                    return;
                }
                self.link.initialized_by(RawValue::from_string(params).ok());
                self.link.begin(&id, line).await;
            }
            Some(HostMessage::Call(call)) => self.call(call, line).await,
            Some(HostMessage::Initialized) => {
                // A session that goes on has got it.
                if !self.link.knows_ready() {
                    // Where it has not, a next process makes the handshake anew.
                    if tell(&self.link, line, &HostMessage::Initialized).await {
                        self.link.is_ready().await;
                    }
                }
                self.listen(None);
            }
            Some(kind) => {
                // The other end is a task of ours, which ends with this.
                let _ = telling.send((line, kind)).await;
            }
        }
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
                        .deliver(self.link.numbers().ours(), why.answer(id))
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
        let calls = vec![call];
        let stream = Stream::new(self.link.numbers());
        let id = stream.id();
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

/// Says what wants no answer, in its order.
async fn tell_all(link: &Link, mut told: mpsc::Receiver<(Bytes, HostMessage)>) {
    while let Some((line, kind)) = told.recv().await {
        tell(link, line, &kind).await;
        if let HostMessage::Cancelled(id) = kind {
            link.cancelled(&id);
        }
    }
}

/// Says what wants no answer. Whether the server has taken it.
async fn tell(link: &Link, line: Bytes, kind: &HostMessage) -> bool {
    let line = match kind {
        // A session that the server has forgotten has asked for it, perhaps.
        HostMessage::Answer(id) => match asked_by(&link.tag(), id) {
            Some(own) => answering(&line, &own),
            None => return false,
        },
        _ => line,
    };
    let ask = HttpRequest::Post(line);
    for _ in 0..2 {
        let (stamp, session) = link.stamp();
        let Ok(Ok(replied)) = timeout(TELL_WAIT, link.wire.ask(&ask, &stamp)).await else {
            return false;
        };
        let Reply::Lost(loss) = replied.reply else {
            return replied.reply.is_taken();
        };
        if link.renew(session, loss).await.is_err() {
            return false;
        }
        // Another session of the server's has no such call, has asked for nothing, and has just
        // been initialised.
        if matches!(
            kind,
            HostMessage::Answer(_) | HostMessage::Cancelled(_) | HostMessage::Initialized
        ) {
            return matches!(kind, HostMessage::Initialized);
        }
    }
    false
}
