//! A session that this process serves: its server, its open calls, and the clients that read its
//! streams.

mod calls;
pub(crate) mod handshake;
mod pump;
mod restore;
mod room;
mod seen;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mcp_sessiond_client::{Caller, EventId, Json, Session, SessionError, SessionId, StreamId};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Duration, Instant};

use crate::backend::{Backends, Slot};
use crate::counts::Counts;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::which::{Id, Which};

pub use self::handshake::Began;
pub(crate) use self::handshake::held;
pub use self::seen::Now;

/// The key of the session's state under which the last event is noted that a reader of the
/// standalone stream was sent: its position and its id.
const TOLD: &str = "serve.told";

/// Events that wait for a reader's connection. A reader that is slower reads the rest from the
/// daemon.
const WAITING_MAX: usize = 64;

/// What all sessions of this process share.
pub struct Shared {
    /// The settings of this process.
    pub settings: Arc<Settings>,
    /// The daemon's sessions of this service.
    pub sessions: mcp_sessiond_client::Sessions,
    /// Starts servers, and finds those that run.
    pub backends: Arc<dyn Backends>,
    /// What was answered and refused.
    pub counts: Counts,
}

/// An event that the daemon has stored, and that may be sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Its position in its stream.
    pub position: u64,
    /// The session's id.
    pub id: EventId,
    /// The message.
    pub message: Json,
}

/// Why a reader gets no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The stream or the session has ended.
    Ended,
    /// Another reader has taken its place: each message goes to one reader.
    Replaced,
    /// It reads too slowly. It has to read the rest from the daemon.
    Lagging,
}

/// The receiving end of a stream.
#[derive(Debug)]
pub struct Reading {
    /// The events.
    pub events: mpsc::Receiver<Sent>,
    /// Why there are no more events, once the channel is closed.
    pub over: Arc<OnceLock<Over>>,
}

#[derive(Debug)]
struct Reader {
    events: mpsc::Sender<Sent>,
    over: Arc<OnceLock<Over>>,
}

impl Reader {
    fn end(self, why: Over) {
        let _ = self.over.set(why);
    }
}

#[derive(Debug)]
struct State {
    which: Which,
    readers: HashMap<StreamId, Reader>,
    /// Streams whose last message is being stored.
    finishing: HashSet<StreamId>,
    /// The last event of the standalone stream that was sent to a reader.
    told: Option<(u64, EventId)>,
    /// Whether a task stores `told` at the moment.
    is_storing_told: bool,
    /// The incarnation of the server that runs.
    running: Option<String>,
    /// The incarnation of the server that was sent `notifications/initialized`.
    welcomed: Option<String>,
    /// The calls that a former process has left open, until the server has said which of them it
    /// knows.
    left: Vec<Left>,
    /// When a client last read, called or waited.
    active: Instant,
    /// How often its server was started again.
    restarts: u32,
    /// Whether somebody was told that there is no room for events.
    has_complained: bool,
    ended: bool,
}

/// A stream of a former process, with calls that were not answered on it.
#[derive(Debug)]
struct Left {
    stream: StreamId,
    calls: Vec<Id>,
    /// Whether all of its events are still there. If not, an answer may be among those that are
    /// gone.
    is_whole: bool,
}

/// A session that this process serves.
pub struct Live {
    shared: Arc<Shared>,
    session: Session,
    caller: Caller,
    record: Record,
    state: Mutex<State>,
    backend: Slot,
    /// Notified when a server is gone, and all that it has said is stored.
    gone: Notify,
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Live({})", self.session.id())
    }
}

impl Live {
    fn new(shared: Arc<Shared>, session: Session, caller: Caller, record: Record) -> Arc<Self> {
        let state = State {
            which: Which::new(shared.settings.redirect),
            readers: HashMap::new(),
            finishing: HashSet::new(),
            told: None,
            is_storing_told: false,
            running: None,
            welcomed: None,
            left: Vec::new(),
            active: Instant::now(),
            restarts: 0,
            has_complained: false,
            ended: false,
        };
        let (state, backend) = (Mutex::new(state), Slot::default());
        Arc::new(Self {
            shared,
            session,
            caller,
            record,
            state,
            backend,
            gone: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// The session in the daemon.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its handshake.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The settings of this process.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Checks that the session was made for this caller.
    ///
    /// # Errors
    /// 403.
    pub fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        self.state().active = Instant::now();
        if same(&self.caller, caller) {
            Ok(())
        } else {
            Err(crate::who::bound_to_another())
        }
    }

    /// Notes which readers have gone.
    pub fn sweep(&self) {
        self.state().sweep();
    }

    /// Whether a client reads, or waits for an answer.
    fn is_busy(&self) -> bool {
        let mut state = self.state();
        state.sweep();
        let busy = !state.readers.is_empty() || !state.which.is_idle();
        if busy {
            state.active = Instant::now();
        }
        busy
    }

    /// For how long nobody has used this session of the caller. None: it is in use, or is another
    /// caller's.
    pub fn unused_for(&self, caller: &Caller) -> Option<Duration> {
        (same(&self.caller, caller) && !self.is_busy()).then(|| self.state().active.elapsed())
    }

    /// Ends the session if nobody has used it for too long. Tells the daemon of one that is in use,
    /// and lets go of one that the daemon has ended.
    pub async fn look(&self) {
        if self.is_busy() {
            drop(
                self.session
                    .touch()
                    .await
                    .map_err(|error| self.notice(error.into())),
            );
        } else if self.state().active.elapsed() >= self.settings().idle {
            drop(self.end().await);
        }
    }

    /// Passes a refusal of the daemon on. If the session has ended, this process lets go of it, and
    /// ends its server.
    pub(super) fn notice(&self, refusal: Refusal) -> Refusal {
        if refusal == Refusal::unknown_session() {
            self.close();
            let (shared, id, backend) = (
                self.shared.clone(),
                self.id().clone(),
                self.backend.try_take(),
            );
            tokio::spawn(async move {
                if let Some(backend) = backend {
                    backend.end().await;
                }
                shared.backends.forget(&id);
            });
        }
        refusal
    }

    /// Waits for a call of the daemon, for as long as a request may be held.
    ///
    /// # Errors
    /// What the daemon refuses; 503 if it does not answer in time.
    pub async fn held<T>(
        &self,
        call: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, Refusal> {
        held(self.settings().hold, call)
            .await
            .map_err(|refusal| self.notice(refusal))
    }

    /// Makes the caller the reader of a stream; the former reader's connection ends. None: nothing
    /// more will come there.
    pub fn read(&self, stream: &StreamId) -> Option<Reading> {
        let mut state = self.state();
        let comes = stream.as_str() == StreamId::STANDALONE
            || state.which.is_open(stream)
            || state.finishing.contains(stream);
        (comes && !state.ended).then(|| state.read(stream))
    }

    /// The last event of the standalone stream that was sent to a reader.
    pub fn told(&self) -> Option<EventId> {
        self.state().told.as_ref().map(|(_, id)| id.clone())
    }

    /// This event of the standalone stream is being sent to its reader. It is noted in the
    /// session's state, so that the next process goes on after it. If this process is killed before
    /// that, the next reader gets the event again.
    pub fn tell(self: &Arc<Self>, position: u64, id: &EventId) {
        let mut state = self.state();
        if state.told.as_ref().is_none_or(|(told, _)| *told < position) {
            state.told = Some((position, id.clone()));
            if !std::mem::replace(&mut state.is_storing_told, true) {
                tokio::spawn(self.clone().store_told());
            }
        }
    }

    async fn store_told(self: Arc<Self>) {
        let mut stored = None;
        loop {
            let told = {
                let mut state = self.state();
                let told = state
                    .told
                    .clone()
                    .filter(|told| stored.as_ref() != Some(told));
                state.is_storing_told = told.is_some();
                told
            };
            let Some(told) = told else { return };
            if let Ok(key) = TOLD.parse() {
                drop(self.session.set_as(&key, &(told.0, &told.1.0)).await);
            }
            stored = Some(told);
        }
    }

    /// Ends the session, and its server.
    ///
    /// # Errors
    /// When the daemon could not be told. Then the session goes on.
    pub async fn end(&self) -> Result<(), Refusal> {
        terminated(&self.session).await?;
        self.close();
        self.backend.end().await;
        self.shared.backends.forget(self.id());
        Ok(())
    }

    /// Lets go of the session: its readers' connections end. Its server goes on, for the process
    /// that serves the name next.
    pub fn close(&self) {
        let mut state = self.state();
        state.ended = true;
        state.running = None;
        state.which.clear();
        state
            .readers
            .drain()
            .for_each(|(_, reader)| reader.end(Over::Ended));
    }
}

impl State {
    fn read(&mut self, stream: &StreamId) -> Reading {
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let over = Arc::new(OnceLock::new());
        let reader = Reader {
            events: sender,
            over: over.clone(),
        };
        if let Some(former) = self.readers.insert(stream.clone(), reader) {
            former.end(Over::Replaced);
        }
        self.which.reader(stream, true);
        self.active = Instant::now();
        Reading { events, over }
    }

    /// Forgets readers that have gone.
    fn sweep(&mut self) {
        let Self {
            readers,
            which,
            active,
            ..
        } = self;
        readers.retain(|stream, reader| {
            let is_there = !reader.events.is_closed();
            if !is_there {
                which.reader(stream, false);
                *active = Instant::now();
            }
            is_there
        });
    }

    /// Sends an event to the reader of its stream.
    fn give(&mut self, stream: &StreamId, sent: Sent) {
        let Some(reader) = self.readers.get(stream) else {
            return;
        };
        match reader.events.try_send(sent) {
            Ok(()) => self.which.resumable(stream),
            Err(mpsc::error::TrySendError::Full(_)) => {
                // Its connection stays: it reads the rest from the daemon, and then reads here
                // again.
                if let Some(reader) = self.readers.remove(stream) {
                    reader.end(Over::Lagging);
                }
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                self.readers.remove(stream);
                self.which.reader(stream, false);
            }
        }
    }

    /// A stream has ended.
    fn finish(&mut self, stream: &StreamId) {
        self.finishing.remove(stream);
        self.which.reader(stream, false);
        if let Some(reader) = self.readers.remove(stream) {
            reader.end(Over::Ended);
        }
    }
}

/// Ends a session in the daemon, unless it has ended there already.
pub(crate) async fn terminated(session: &Session) -> Result<(), Refusal> {
    match session.terminate().await.map_err(Refusal::from) {
        Err(refusal) if refusal != Refusal::unknown_session() => Err(refusal),
        _ => Ok(()),
    }
}

/// Compares two callers; credentials in constant time.
pub(crate) fn same(one: &Caller, other: &Caller) -> bool {
    match (one, other) {
        (Caller::Credential { hash: one }, Caller::Credential { hash: other }) => {
            subtle::ConstantTimeEq::ct_eq(&one.0[..], &other.0[..]).into()
        }
        (one, other) => one == other,
    }
}
