//! A session that this process serves: its server, its open calls, and the clients that read its
//! streams.

mod calls;
mod delivery;
pub(crate) mod handshake;
mod losses;
mod restore;
pub mod tail;

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mcp_sessiond_client::{Caller, EventId, Json, Session, SessionError, SessionId, StreamId};
use mcp_sessiond_http_session::handshake::Handshake;
use mcp_sessiond_http_session::policy::Policy;
pub use mcp_sessiond_http_session::session::Disuse;
use mcp_sessiond_http_session::session::HttpSession;
use tokio::sync::{Notify, RwLock, mpsc};
use tokio::time::{Duration, Instant, timeout};

use crate::backend::{Backends, Slot};
use crate::counts::Counts;
use crate::refusal::Refusal;
use crate::settings::Settings;

pub use self::handshake::Beginning;
pub(crate) use self::handshake::within_hold;
use self::losses::LossNotices;

/// The key of the session's state under which the last event is noted that a reader of the
/// standalone stream was sent: its position and its id.
const LAST_DELIVERED: &str = "serve.last_delivered";

/// Events that wait for a reader's connection. A reader that is slower reads the rest from the
/// daemon.
const WAITING_MAX: usize = 64;

/// How long it may take until what a server said last is stored.
const STORE_WAIT: Duration = Duration::from_secs(5);

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

/// How a session is at the moment.
#[derive(Debug)]
pub struct LiveStatus {
    /// The streams that have open calls, and how many.
    pub calls: Vec<(StreamId, usize)>,
    /// The streams that a client reads.
    pub readers: Vec<StreamId>,
}

/// An event that the daemon has stored, and that may be sent.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// Its position in its stream.
    pub position: u64,
    /// The session's id.
    pub id: EventId,
    /// The message.
    pub message: Json,
}

/// Why a reader gets no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderEnd {
    /// The stream or the session has ended.
    Ended,
    /// Another reader has taken its place: each message goes to one reader.
    Replaced,
    /// It reads too slowly. It has to read the rest from the daemon.
    Lagging,
    /// The session has ended, to make room for another one, after this time without a call.
    MadeRoom(Duration),
}

/// The receiving end of a stream.
#[derive(Debug)]
pub struct EventReceiver {
    /// The events.
    pub events: mpsc::Receiver<StoredEvent>,
    /// Why there are no more events, once the channel is closed.
    pub end: Arc<OnceLock<ReaderEnd>>,
}

#[derive(Debug)]
struct EventSender {
    events: mpsc::Sender<StoredEvent>,
    end: Arc<OnceLock<ReaderEnd>>,
}

impl EventSender {
    fn end(self, why: ReaderEnd) {
        let _ = self.end.set(why);
    }
}

#[derive(Debug)]
struct State {
    session: HttpSession,
    readers: HashMap<StreamId, EventSender>,
    /// Whether a task stores which event was delivered last.
    is_storing_delivered: bool,
    /// How often its server was started again.
    restarts: u32,
    /// What was lost, and whether the client was told.
    losses: LossNotices,
    /// Whether standard error says already that there is no room for events.
    has_warned: bool,
    /// Why readers get no more events once it has ended.
    end: ReaderEnd,
}

/// A session that this process serves.
pub struct Live {
    shared: Arc<Shared>,
    session: Session,
    caller: Caller,
    handshake: Handshake,
    /// When this process took it up.
    since: Instant,
    state: Mutex<State>,
    backend: Slot,
    /// Notified when a server is gone, and all that it has said is stored.
    gone: Notify,
    /// Held by whoever sends calls, until it is known whether the server has got them.
    sending: RwLock<()>,
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Live({})", self.session.id())
    }
}

impl Live {
    fn new(
        shared: Arc<Shared>,
        session: Session,
        caller: Caller,
        handshake: Handshake,
    ) -> Arc<Self> {
        let policy = Policy {
            redirect: shared.settings.redirect,
            attributes: false,
        };
        let state = State {
            session: HttpSession::new(policy, Duration::ZERO),
            readers: HashMap::new(),
            is_storing_delivered: false,
            restarts: 0,
            losses: LossNotices::default(),
            has_warned: false,
            end: ReaderEnd::Ended,
        };
        Arc::new(Self {
            shared,
            session,
            caller,
            handshake,
            since: Instant::now(),
            state: Mutex::new(state),
            backend: Slot::default(),
            gone: Notify::new(),
            sending: RwLock::default(),
        })
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// The session in the daemon.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its handshake.
    pub fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// The settings of this process.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.state().session.has_ended()
    }

    /// Checks that the session was made for this caller.
    ///
    /// # Errors
    /// 403.
    pub fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        self.state().session.touch(self.now());
        if same_caller(&self.caller, caller) {
            Ok(())
        } else {
            Err(crate::admission::bound_to_another())
        }
    }

    /// A reader of this stream has gone, who may have been too slow to be one at that moment.
    fn reader_left(&self, stream: &StreamId) {
        let mut state = self.state();
        state.forget_gone_readers(self.now());
        if !state.readers.contains_key(stream) {
            state.session.reader_gone(stream, self.now());
            state.losses.reader_gone(stream);
        }
    }

    /// How this session of the caller could make room for another one. None: it is another
    /// caller's, or a call or a question of its server's is open.
    pub fn disuse(&self, caller: &Caller) -> Option<Disuse> {
        if !same_caller(&self.caller, caller) {
            return None;
        }
        let mut state = self.state();
        state.forget_gone_readers(self.now());
        state.session.disuse(self.now())
    }

    /// Ends the session if nobody has used it for too long. Tells the daemon of one that is in use,
    /// and lets go of one that the daemon has ended.
    pub async fn check_idle(&self) {
        let (is_busy, idle) = {
            let mut state = self.state();
            state.forget_gone_readers(self.now());
            let is_busy = state.session.is_busy(self.now());
            (is_busy, state.session.idle(self.now()))
        };
        if is_busy {
            drop(
                self.session
                    .touch()
                    .await
                    .map_err(|error| self.on_refusal(error.into())),
            );
        } else if idle >= self.settings().idle {
            drop(self.end().await);
        }
    }

    /// Passes a refusal of the daemon on. If the session has ended, this process lets go of it, and
    /// ends its server.
    pub(super) fn on_refusal(&self, refusal: Refusal) -> Refusal {
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
    pub async fn within_hold<T>(
        &self,
        call: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, Refusal> {
        within_hold(self.settings().hold, call)
            .await
            .map_err(|refusal| self.on_refusal(refusal))
    }

    /// Makes the caller the reader of a stream; the former reader's connection ends. None: nothing
    /// more will come there.
    pub fn read(&self, stream: &StreamId) -> Option<EventReceiver> {
        self.state().read(stream, self.now())
    }

    /// The last event of the standalone stream that was sent to a reader.
    pub fn last_delivered(&self) -> Option<(u64, EventId)> {
        self.state().session.last_delivered().cloned()
    }

    /// This event of the standalone stream is being sent to its reader. It is noted in the
    /// session's state, so that the next process goes on after it. If this process is killed before
    /// that, the next reader gets the event again.
    pub fn delivered(self: &Arc<Self>, position: u64, id: &EventId) {
        let mut state = self.state();
        if state.session.delivered(position, id)
            && !std::mem::replace(&mut state.is_storing_delivered, true)
        {
            tokio::spawn(self.clone().store_last_delivered());
        }
    }

    /// This event was read from the daemon, and is being sent to a reader. If it is kept in the
    /// place of a request of the server's, nobody got that, and the server is told.
    pub async fn replayed(self: &Arc<Self>, event: &EventId) {
        let refused = self.state().session.replayed(event);
        if let Some(refused) = refused
            && let Ok(server) = self.server().await
        {
            let _ = server.send(refused).await;
        }
    }

    async fn store_last_delivered(self: Arc<Self>) {
        let mut stored = None;
        loop {
            let last = {
                let mut state = self.state();
                let last = state.session.last_delivered().cloned();
                let last = last.filter(|last| stored.as_ref() != Some(last));
                state.is_storing_delivered = last.is_some();
                last
            };
            let Some(last) = last else { return };
            if let Ok(key) = LAST_DELIVERED.parse() {
                drop(self.session.set_as(&key, &(last.0, &last.1.0)).await);
            }
            stored = Some(last);
        }
    }

    /// Ends the session, and its server.
    ///
    /// # Errors
    /// When the daemon could not be told. Then the session goes on.
    pub async fn end(&self) -> Result<(), Refusal> {
        terminate(&self.session).await?;
        self.close();
        self.backend.end().await;
        self.shared.backends.forget(self.id());
        Ok(())
    }

    /// Ends the session, and its server, to make room for another session. Who reads it is sent a
    /// message that says so.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub async fn make_room(&self, uncalled: Duration) -> Result<(), Refusal> {
        // First, as whatever finds that the session has ended closes it.
        self.state().end = ReaderEnd::MadeRoom(uncalled);
        let ended = self.end().await;
        if ended.is_err() {
            self.state().end = ReaderEnd::Ended;
        }
        ended
    }

    /// Lets go of the session: its readers' connections end. Its server goes on, for the process
    /// that serves the name next.
    pub fn close(&self) {
        let mut state = self.state();
        state.session.end();
        let why = state.end;
        state
            .readers
            .drain()
            .for_each(|(_, reader)| reader.end(why));
    }

    /// Whether the session was made for this caller. That does not count as use.
    pub fn is_of(&self, caller: &Caller) -> bool {
        same_caller(&self.caller, caller)
    }

    /// How it is at the moment.
    pub fn status(&self) -> LiveStatus {
        let mut state = self.state();
        state.forget_gone_readers(self.now());
        let calls = state.session.open_calls();
        LiveStatus {
            calls: calls
                .map(|(stream, count)| (stream.clone(), count))
                .collect(),
            readers: state.readers.keys().cloned().collect(),
        }
    }

    /// How often its server was started again since this process serves it.
    pub fn restarts(&self) -> u32 {
        self.state().restarts
    }

    /// Ends the server. Its open calls get an error: their outcome is unknown. The next request
    /// starts a fresh server, and sends it the recorded handshake. False: this process has no
    /// server for the session.
    ///
    /// # Errors
    /// When the server does not end.
    pub async fn restart(&self) -> Result<bool, Refusal> {
        // A request that comes now waits for the fresh server.
        let mut slot = self.backend.lock().await;
        let Some(backend) = slot.clone() else {
            return Ok(false);
        };
        backend.end().await;
        self.left(backend.incarnation()).await?;
        *slot = None;
        drop(timeout(STORE_WAIT, backend.gone()).await);
        Ok(true)
    }

    /// Waits until the server of this incarnation, which ends, is gone, and what it has said is stored:
    /// before a fresh one says anything.
    ///
    /// # Errors
    /// When that takes longer than [`STORE_WAIT`].
    async fn left(&self, incarnation: &str) -> Result<(), Refusal> {
        let gone = async {
            loop {
                let mut gone = pin!(self.gone.notified());
                gone.as_mut().enable();
                if !self.state().session.is_running(incarnation) {
                    return;
                }
                gone.await;
            }
        };
        timeout(STORE_WAIT, gone)
            .await
            .map_err(|_| Refusal::for_now("the server is ending, and has not ended yet: try again"))
    }
}

impl State {
    fn read(&mut self, stream: &StreamId, now: Duration) -> Option<EventReceiver> {
        if !self.session.reads(stream, now) {
            return None;
        }
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let end = Arc::new(OnceLock::new());
        let reader = EventSender {
            events: sender,
            end: end.clone(),
        };
        if let Some(former) = self.readers.insert(stream.clone(), reader) {
            former.end(ReaderEnd::Replaced);
        }
        Some(EventReceiver { events, end })
    }

    /// Forgets readers that have gone.
    fn forget_gone_readers(&mut self, now: Duration) {
        let Self {
            readers, session, ..
        } = self;
        readers.retain(|stream, reader| {
            let is_there = !reader.events.is_closed();
            if !is_there {
                session.reader_gone(stream, now);
            }
            is_there
        });
    }

    /// Sends an event to the reader of its stream. False: there is none.
    fn deliver(&mut self, stream: &StreamId, sent: StoredEvent, now: Duration) -> bool {
        let Some(reader) = self.readers.get(stream) else {
            return false;
        };
        match reader.events.try_send(sent) {
            Ok(()) => {
                self.session.sent(stream);
                true
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                // Its connection stays: it reads the rest from the daemon, and then reads here
                // again.
                if let Some(reader) = self.readers.remove(stream) {
                    reader.end(ReaderEnd::Lagging);
                }
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                self.readers.remove(stream);
                self.session.reader_gone(stream, now);
                false
            }
        }
    }

    /// A stream has ended.
    fn finish(&mut self, stream: &StreamId, now: Duration) {
        self.session.finished(stream, now);
        self.losses.call_ends(stream);
        if let Some(reader) = self.readers.remove(stream) {
            reader.end(ReaderEnd::Ended);
        }
    }
}

/// Ends a session in the daemon, unless it has ended there already.
pub(crate) async fn terminate(session: &Session) -> Result<(), Refusal> {
    match session.terminate().await.map_err(Refusal::from) {
        Err(refusal) if refusal != Refusal::unknown_session() => Err(refusal),
        _ => Ok(()),
    }
}

/// Compares two callers; credentials in constant time.
pub(crate) fn same_caller(one: &Caller, other: &Caller) -> bool {
    match (one, other) {
        (Caller::Credential { hash: one }, Caller::Credential { hash: other }) => {
            subtle::ConstantTimeEq::ct_eq(&one.0[..], &other.0[..]).into()
        }
        (one, other) => one == other,
    }
}
