//! Begins a session, and starts a new server for it when the former one is gone.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use mcp_sessiond_client::{
    Binding, Caller, CreateOptions, Lifetimes, OnMismatch, Session, SessionError, SessionId,
};
use mcp_sessiond_http_session::handshake::Handshake;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_proto::begins_afresh;
use serde_json::value::RawValue;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::{Live, Shared};
use crate::backend::{Backend, ServerLine, ServerLoss};
use crate::first_answer::FirstAnswer;
use crate::record;
use crate::refusal::{Refusal, daemon_away};

/// How long a server may take to answer `initialize`: `npx` and `uvx` download some first.
pub(crate) const HANDSHAKE_WAIT: Duration = Duration::from_secs(120);

/// The id of the first request that `serve` sends to a server.
const ID: &str = r#""mcp-sessiond-serve""#;

/// How a session has begun.
#[derive(Debug)]
pub enum Beginning {
    /// The server has answered `initialize`.
    Session(Arc<Live>),
    /// The server has refused `initialize`, with this error.
    Refused(Box<RawValue>),
}

/// Lines of the server from before its first answer.
pub(crate) type EarlyLines = Vec<ServerLine>;

impl Live {
    /// Begins a session, with a server of its own.
    ///
    /// # Errors
    /// When there is no daemon, or no server can be started.
    pub async fn begin(
        shared: &Arc<Shared>,
        caller: Caller,
        params: Box<RawValue>,
    ) -> Result<Beginning, Refusal> {
        let hold = shared.settings.hold;
        let session = shared.create(SessionId::mint(), &caller).await?;
        let made = async {
            let backend = shared.backends.backend(&session).await?;
            let (handshaken, early) = initialize(&*backend, &params).await?;
            Ok((backend, handshaken, early))
        };
        let (backend, handshaken, early) = match made.await {
            Ok(made) => made,
            Err(refusal) => {
                shared.discard(&session).await;
                return Err(refusal);
            }
        };
        let result = match handshaken {
            FirstAnswer::Result(result) => result,
            FirstAnswer::Error(error) => {
                backend.end().await;
                shared.discard(&session).await;
                return Ok(Beginning::Refused(error));
            }
        };
        let handshake = Handshake::new(params, result);
        if let Err(refusal) = within_hold(hold, record::store(&handshake, &session)).await {
            backend.end().await;
            shared.discard(&session).await;
            return Err(refusal);
        }
        let live = Self::new(shared.clone(), session, caller, handshake);
        live.adopt(backend, early).await;
        Ok(Beginning::Session(live))
    }

    /// The session's server. If none runs, one is started and sent the recorded handshake.
    ///
    /// # Errors
    /// When no server can be started.
    pub(super) async fn server(self: &Arc<Self>) -> Result<Arc<dyn Backend>, Refusal> {
        let mut slot = self.backend.lock().await;
        if let Some(backend) = &*slot {
            return Ok(backend.clone());
        }
        if self.has_ended() {
            return Err(Refusal::unknown_session());
        }
        let backend = self.shared.backends.backend(&self.session).await;
        let backend = backend.map_err(|refusal| self.on_refusal(refusal))?;
        self.settle_inherited(&*backend).await;
        let early = self
            .ready(&*backend)
            .await
            .inspect_err(|_| self.give_up_open())?;
        self.state().session.initialized(backend.incarnation());
        self.start_reading(&backend, early);
        *slot = Some(backend.clone());
        Ok(backend)
    }

    /// Sends the server the recorded handshake, as far as it needs that.
    async fn ready(&self, backend: &dyn Backend) -> Result<EarlyLines, Refusal> {
        let mut early = Vec::new();
        if !backend.continues() {
            self.note_fresh(backend);
            let (handshaken, lines) = initialize(backend, &self.handshake.initialize).await?;
            early = lines;
            if let FirstAnswer::Error(_) = handshaken {
                backend.end().await;
                let message =
                    "the server was started again, and has refused the handshake that is on record";
                return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
            }
        }
        // A former process may have been killed before it had sent this. A keeper passes it on
        // once.
        backend
            .send(answers::notification("notifications/initialized"))
            .await
            .map_err(|_| no_answer())?;
        Ok(early)
    }

    /// The session had a server, and gets a fresh one. Its client is told why.
    fn note_fresh(&self, backend: &dyn Backend) {
        self.state().restarts += 1;
        let mut losses = backend.losses();
        if losses.is_empty() {
            let why = "the previous one, or the process that kept it, has ended";
            losses.push(ServerLoss::unrecorded(begins_afresh(why)));
        }
        self.note_losses(losses);
    }

    /// Attaches to the session's server, or starts one, so that a client that only listens hears
    /// it.
    ///
    /// # Errors
    /// When no server can be started.
    pub async fn wake(self: &Arc<Self>) -> Result<(), Refusal> {
        self.server().await.map(drop)
    }

    async fn adopt(self: &Arc<Self>, backend: Arc<dyn Backend>, early: EarlyLines) {
        let mut slot = self.backend.lock().await;
        self.start_reading(&backend, early);
        *slot = Some(backend);
    }

    fn start_reading(self: &Arc<Self>, backend: &Arc<dyn Backend>, early: EarlyLines) {
        self.state().session.runs(backend.incarnation());
        tokio::spawn(self.clone().read_server(backend.clone(), early));
    }
}

impl Shared {
    /// Ends a session that has not begun.
    async fn discard(&self, session: &Session) {
        drop(session.terminate().await);
        self.backends.forget(session.id());
    }

    /// A new session of this service, bound to its caller.
    ///
    /// # Errors
    /// When the daemon does not make it in time.
    pub(crate) async fn create(&self, id: SessionId, caller: &Caller) -> Result<Session, Refusal> {
        // This process ends an idle session, as it knows whether a client reads. If nobody serves
        // the name any more, the daemon ends it.
        let idle_ms = u64::try_from(self.settings.idle.as_millis())
            .unwrap_or(u64::MAX)
            .saturating_mul(2);
        let options = CreateOptions::default()
            .id(id)
            .binding(Binding {
                caller: caller.clone(),
                on_mismatch: OnMismatch::Refuse,
            })
            .lifetimes(Lifetimes {
                idle_ms: Some(idle_ms),
                absolute_ms: Some(0),
                grace_ms: Some(0),
            });
        within_hold(self.settings.hold, self.sessions.create(options)).await
    }
}

/// Waits for a call of the daemon, for as long as a request may be held.
pub(crate) async fn within_hold<T>(
    hold: Duration,
    call: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, Refusal> {
    match timeout(hold, call).await {
        Ok(answer) => answer.map_err(Refusal::from),
        Err(_) => Err(daemon_away(hold)),
    }
}

/// Sends `initialize`, and waits for the answer.
async fn initialize(
    backend: &dyn Backend,
    params: &RawValue,
) -> Result<(FirstAnswer, EarlyLines), Refusal> {
    match first_request(backend, "initialize", params, HANDSHAKE_WAIT).await {
        Ok(Some(answered)) => Ok(answered),
        Ok(None) => {
            backend.end().await;
            Err(no_answer())
        }
        Err(_) => {
            backend.end().await;
            let message =
                format!("the server did not answer `initialize` within {HANDSHAKE_WAIT:?}");
            Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, message))
        }
    }
}

/// Sends a server its first request, and waits for the answer. Returns what the server has said
/// before that, too. None: the server has ended.
///
/// # Errors
/// When it has not answered in time.
pub(crate) async fn first_request(
    backend: &dyn Backend,
    method: &str,
    params: &RawValue,
    wait: Duration,
) -> Result<Option<(FirstAnswer, EarlyLines)>, Elapsed> {
    let line = answers::request(ID, method, params.get());
    if backend.send(line).await.is_err() {
        return Ok(None);
    }
    let mut early = Vec::new();
    let answered = async {
        while let Some(line) = backend.next().await {
            if let Some(answer) = FirstAnswer::read(&line.line, ID) {
                backend.confirm(line.number);
                return Some(answer);
            }
            early.push(line);
        }
        None
    };
    let answered = timeout(wait, answered).await?;
    Ok(answered.map(|handshaken| (handshaken, early)))
}

fn no_answer() -> Refusal {
    let message = "the server ended before it had answered `initialize`; what it said is on `serve`'s standard error";
    Refusal::new(StatusCode::BAD_GATEWAY, message)
}
