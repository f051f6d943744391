//! What stands between HTTP and a server.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_client::{Loss, Session, SessionId, StreamId};
use mcp_sessiond_http_session::messages::Id;
use mcp_sessiond_proto::{BackendName, LossId, LossRecord, begins_afresh};
use mcp_sessiond_proxy::server::service::{self, Service};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use crate::refusal::Refusal;

/// How long a loss waits for a daemon that can put it on record: longer than one takes to start again.
const RECORD_WAIT: Duration = Duration::from_secs(5);

/// The pause before the daemon, or a server, is asked again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// The backend is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server has ended")]
pub struct Ended {
    /// Whether the line may have reached the server.
    pub may_have_arrived: bool,
}

/// A line of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLine {
    /// Its number, which no other line of this incarnation has.
    pub number: u64,
    /// A message, or a batch, without a newline.
    pub line: Bytes,
    /// The stream on which the server has said it, where it has streams.
    pub stream: Option<StreamId>,
}

/// Something is lost that a server of the session had.
#[derive(Clone)]
pub struct ServerLoss {
    /// What and why, in a sentence for people.
    pub what: String,
    /// Its number, where the daemon has it on record.
    pub id: Option<LossId>,
    /// Called once the client was told: whoever has it on record forgets it.
    pub confirm: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for ServerLoss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ServerLoss({:?}, {})", self.id, self.what)
    }
}

impl ServerLoss {
    /// One that is on no record.
    pub fn unrecorded(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            id: None,
            confirm: Arc::new(|| {}),
        }
    }

    /// The server has ended, and its keeper has started it again. `of`: its name in a list.
    pub fn ended(of: Option<&str>, why: &str, backend: &Arc<service::Backend>) -> Self {
        let told = begins_afresh(&format!("the previous server has ended ({why})"));
        // It is let go of when another one takes its place.
        let backend = Arc::downgrade(backend);
        Self {
            what: of.map_or_else(|| told.clone(), |of| format!("{of}: {told}")),
            id: None,
            confirm: Arc::new(move || {
                if let Some(backend) = backend.upgrade() {
                    backend.confirm_end();
                }
            }),
        }
    }

    /// One that the daemon has on record for a session of this service.
    pub fn recorded(record: &LossRecord, service: &Service, session: &SessionId) -> Self {
        let (id, service, session) = (record.id, service.clone(), session.clone());
        Self {
            what: record.notice(),
            id: Some(id),
            confirm: Arc::new(move || {
                let (service, session) = (service.clone(), session.clone());
                tokio::spawn(async move { service.losses_told(&session, vec![id]).await });
            }),
        }
    }
}

/// What was lost, until somebody takes it to tell the client.
#[derive(Debug, Clone, Default)]
pub struct Losses(Arc<std::sync::Mutex<Vec<ServerLoss>>>);

impl Losses {
    /// Something is lost.
    pub fn note(&self, loss: ServerLoss) {
        self.lock().push(loss);
    }

    /// What the daemon has on record of a session of this service; where `of` is given, of that server of a list.
    pub async fn note_recorded(
        &self,
        service: &Service,
        session: &SessionId,
        of: Option<&BackendName>,
    ) {
        let in_list = of.map(BackendName::in_list);
        for record in service.losses(session).await {
            let name = record.of.as_ref().map(BackendName::in_list);
            if in_list.is_none() || name == in_list {
                self.note(ServerLoss::recorded(&record, service, session));
            }
        }
    }

    /// Something that the daemon can't know of is lost of a session of this service: it goes on record
    /// there, so that a next process tells it if this one is killed. If the daemon does not answer for
    /// long, this process alone tells it.
    pub async fn record(
        &self,
        service: &Service,
        session: &SessionId,
        of: Option<&BackendName>,
        because: Loss,
    ) {
        let until = Instant::now() + RECORD_WAIT;
        let loss = loop {
            match service.note_loss(session, of, because).await {
                Ok(record) => break ServerLoss::recorded(&record, service, session),
                Err(error) if error.passes() && Instant::now() < until => sleep(PAUSE).await,
                Err(_) => break ServerLoss::unrecorded(because.notice_of(of)),
            }
        };
        self.note(loss);
    }

    /// Takes what was lost since the last time.
    pub fn take(&self) -> Vec<ServerLoss> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ServerLoss>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server of one session, which reads and writes lines.
pub trait Backend: Send + Sync {
    /// Sends it a line, without a newline. Returns when the line is safe: if this process is killed
    /// after that, the server gets the line all the same, as long as the server lives.
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>>;

    /// The next line of the server. None: the server is gone. There may be one caller at a time.
    fn next(&self) -> BoxFuture<'_, Option<ServerLine>>;

    /// The daemon has stored the line of this number, and all that came before it.
    fn confirm(&self, number: u64);

    /// The ids of the calls that the server was sent and has not answered, also of those that a
    /// former process has sent.
    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>>;

    /// By which the line of this number is known when it comes again, also from a later process.
    fn mark(&self, number: u64) -> String {
        format!("{}-{number}", self.incarnation())
    }

    /// Takes what was lost with this server, or with one before it, since the last time.
    fn losses(&self) -> Vec<ServerLoss>;

    /// Ends the server.
    fn end(&self) -> BoxFuture<'_, ()>;

    /// Waits until the server's processes are gone, once it was ended. Those of a server elsewhere
    /// are not known.
    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Tells this server from every other one, and from what it was before a restart. Each
    /// incarnation numbers its own lines.
    fn incarnation(&self) -> &str;

    /// Whether the server has answered `initialize` in this session before. If not, it has to be
    /// sent the recorded handshake.
    fn continues(&self) -> bool;

    /// Whether a call of this incarnation that is not among the open ones was never sent. If not,
    /// its outcome is unknown.
    fn knows_all(&self) -> bool {
        true
    }

    /// Whether a later process can get the answers to the calls that this one sends. If not, each
    /// stream gets a last will.
    fn outlasts(&self) -> bool {
        true
    }
}

/// Where backends come from.
pub trait Backends: Send + Sync {
    /// The backend of a session: the one that runs, or else a new one.
    ///
    /// # Errors
    /// When there is no such session any more, or no server can be started or reached.
    fn backend<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>>;

    /// Makes sure that this machine may have the backend of a session that another process has
    /// begun. False: another machine has it.
    ///
    /// # Errors
    /// When the daemon could not be asked.
    fn claim<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool, Refusal>>;

    /// A client asks for MCP 2026-07-28. True: it is known without a server that none speaks it.
    /// Called again only after a while.
    fn note_probe(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// This session has ended.
    fn forget(&self, _: &SessionId) {}

    /// Ends all backends that processes of this service have started on this machine. Returns
    /// their sessions.
    fn stop_all(&self) -> BoxFuture<'_, Vec<SessionId>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// This process ends, and the backends go on: what was not confirmed is for the next one.
    fn leave(&self) {}
}

/// The server that a session has at the moment, if it has one.
#[derive(Default)]
pub struct Slot(Mutex<Option<Arc<dyn Backend>>>);

impl Slot {
    /// For whoever starts a server, or ends it. Others wait meanwhile.
    pub async fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Backend>>> {
        self.0.lock().await
    }

    /// Takes the server out, unless somebody starts or ends one at the moment.
    pub fn try_take(&self) -> Option<Arc<dyn Backend>> {
        self.0.try_lock().ok()?.take()
    }

    /// This server is gone.
    pub async fn forget(&self, incarnation: &str) {
        let mut slot = self.0.lock().await;
        slot.take_if(|held| held.incarnation() == incarnation);
    }

    /// Ends the server.
    pub async fn end(&self) {
        let backend = self.0.lock().await.take();
        if let Some(backend) = backend {
            backend.end().await;
        }
    }
}
