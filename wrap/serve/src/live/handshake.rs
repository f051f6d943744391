//! How a session begins, and how its server is started again.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use mcp_sessiond_client::{
    Binding, Caller, CreateOptions, Lifetimes, OnMismatch, SessionError, SessionStatus, Update,
};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Live, Shared};
use crate::backend::Backend;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::said::{Handshaken, answers};

/// How long a server may take to answer `initialize`: some are downloaded first.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(120);

/// The id of our own `initialize`.
const ID: &str = r#""mcp-sessiond-serve-initialize""#;

/// How it began.
#[derive(Debug)]
pub enum Began {
    /// As a session.
    Session(Arc<Live>),
    /// The server has refused, with this error.
    Refused(Box<RawValue>),
}

/// Lines that came before the answer to `initialize`.
type Early = Vec<(u64, Bytes)>;

impl Live {
    /// Begins a session: with the daemon, and with a server of its own.
    ///
    /// # Errors
    /// Where there is no daemon, or no server.
    pub async fn begin(
        shared: &Arc<Shared>,
        caller: Caller,
        params: Box<RawValue>,
    ) -> Result<Began, Refusal> {
        let hold = shared.settings.hold;
        // Ended here, by who knows whether it is in use. The daemon does it where nobody serves the name any more.
        let idle_ms = u64::try_from(shared.settings.idle.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
        let options = CreateOptions::default()
            .binding(Binding { caller: caller.clone(), on_mismatch: OnMismatch::Refuse })
            .lifetimes(Lifetimes { idle_ms: Some(idle_ms), absolute_ms: Some(0), grace_ms: Some(0) });
        let session = held(hold, shared.sessions.create(options)).await?;
        let made = async {
            let backend = shared.backends.backend(&session).await.map_err(|error| not_started(&error))?;
            let (handshaken, early) = shake(&*backend, &params).await?;
            Ok((backend, handshaken, early))
        };
        let (backend, handshaken, early) = match made.await {
            Ok(made) => made,
            Err(refusal) => {
                drop(session.terminate().await);
                return Err(refusal);
            }
        };
        let Some(result) = handshaken.result else {
            backend.end().await;
            drop(session.terminate().await);
            let null = || RawValue::from_string("null".into()).map_err(|_| mute());
            return Ok(Began::Refused(handshaken.error.map_or_else(null, Ok)?));
        };
        let record = Record::new(params, result);
        let update = Update::default().status(SessionStatus::Ready).metadata(record.to_json());
        if let Err(refusal) = held(hold, session.update(update)).await {
            backend.end().await;
            drop(session.terminate().await);
            return Err(refusal);
        }
        let live = Self::new(shared.clone(), session, caller, record);
        live.take(backend, early).await;
        Ok(Began::Session(live))
    }

    /// The session's server. Where there is none it is started, and told the handshake that is on record.
    ///
    /// # Errors
    /// Where it can't be started.
    pub(super) async fn server(self: &Arc<Self>) -> Result<Arc<dyn Backend>, Refusal> {
        let mut slot = self.backend.lock().await;
        if let Some(backend) = &*slot {
            return Ok(backend.clone());
        }
        if self.has_ended() {
            return Err(Refusal::unknown_session());
        }
        let backend =
            self.shared.backends.backend(&self.session).await.map_err(|error| not_started(&error))?;
        let mut early = Vec::new();
        self.settle_left(&*backend).await;
        if !backend.continues() {
            let (handshaken, said) = shake(&*backend, &self.record.initialize).await?;
            early = said;
            if handshaken.result.is_none() {
                backend.end().await;
                let message = "the server was started again, and has refused the handshake that is on record";
                return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
            }
            let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            backend.send(initialized.into()).await.map_err(|_| mute())?;
        }
        self.state().welcomed = Some(backend.incarnation().to_owned());
        self.run(&backend, early);
        *slot = Some(backend.clone());
        Ok(backend)
    }

    /// Sees to it that there is a server: whoever listens wants to hear it.
    ///
    /// # Errors
    /// Where it can't be started.
    pub async fn wake(self: &Arc<Self>) -> Result<(), Refusal> {
        self.server().await.map(drop)
    }

    async fn take(self: &Arc<Self>, backend: Arc<dyn Backend>, early: Early) {
        let mut slot = self.backend.lock().await;
        self.run(&backend, early);
        *slot = Some(backend);
    }

    fn run(self: &Arc<Self>, backend: &Arc<dyn Backend>, early: Early) {
        self.state().running = Some(backend.incarnation().to_owned());
        tokio::spawn(self.clone().pump(backend.clone(), early));
    }
}

/// A call of the daemon's, for as long as a request may be held.
pub(super) async fn held<T>(
    hold: Duration,
    call: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, Refusal> {
    match timeout(hold, call).await {
        Ok(answer) => answer.map_err(Refusal::from),
        Err(_) => Err(Refusal::daemon_away(hold)),
    }
}

/// Says `initialize`, and waits for the answer.
async fn shake(backend: &dyn Backend, params: &RawValue) -> Result<(Handshaken, Early), Refusal> {
    let line = format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"initialize","params":{params}}}"#);
    backend.send(line.into()).await.map_err(|_| mute())?;
    let mut early = Vec::new();
    let answered = async {
        while let Some((number, line)) = backend.next().await {
            let is_it = std::str::from_utf8(&line).ok().and_then(|text| {
                let message = mcp_sessiond_client::Json::new(text).ok()?;
                answers(&message).filter(|id| **id == *ID)?;
                serde_json::from_str::<Handshaken>(text).ok()
            });
            match is_it {
                Some(handshaken) => return Some((number, handshaken)),
                None => early.push((number, line)),
            }
        }
        None
    };
    match timeout(HANDSHAKE_WAIT, answered).await {
        Ok(Some((number, handshaken))) => {
            backend.confirm(number);
            Ok((handshaken, early))
        }
        Ok(None) => {
            backend.end().await;
            Err(mute())
        }
        Err(_) => {
            backend.end().await;
            let message = format!("the server did not answer `initialize` within {HANDSHAKE_WAIT:?}");
            Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, message))
        }
    }
}

fn mute() -> Refusal {
    let message =
        "the server ended before it had answered `initialize`; what it said is on `serve`'s standard error";
    Refusal::new(StatusCode::BAD_GATEWAY, message)
}

fn not_started(error: &std::io::Error) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, format!("the server can't be started: {error}"))
}
