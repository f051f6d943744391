//! MCP 2026-07-28, whose requests belong to no session: each says which version it speaks, is a POST of its own, and is cancelled when
//! its connection ends. Nothing of them is stored, since nothing can be resumed. What is kept is the server, with all that its
//! handles, tasks and request states stand for.
//!
//! All requests of one caller go to one server. It belongs to a session of the service, of which the client sees nothing. A server is asked
//! once whether it speaks this version. If not, a client that asks by `server/discover` is told that there is no such method, by which
//! every client knows that it has to begin with `initialize`; one that makes another request is told which versions there are. Nothing is
//! translated.
//!
//! - `envelope.rs`: what a POST says of itself. `params.rs`: arguments that are repeated in headers.
//! - `common.rs`: the server of one caller. `open.rs`: to which request a message of the server belongs.
//! - `reply.rs`: the response.
//!
//! A server that speaks HTTP itself gets the requests as they came.

mod common;
mod envelope;
mod open;
mod params;
mod reply;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use mcp_sessiond_client::{Caller, SessionId, SessionStatus, Update};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use self::common::Common;
use self::envelope::{Posted, Refused, VERSION, is_modern, names_modern, unsupported};
use crate::live::handshake::{asked, held};
use crate::live::{Shared, same};
use crate::record::VERSIONS;
use crate::refusal::Refusal;
use crate::said::unknown;
use crate::settings::Behind;
use crate::upstream::forward::{NotForwarded, forward};
use crate::upstream::url::Url;

/// How long a server may take to say that it speaks this version. One that does not answer is taken for one that doesn't: some ignore
/// what comes before `initialize`.
const DISCOVER_WAIT: Duration = Duration::from_secs(20);

/// What the ids of these sessions begin with.
const PREFIX: &str = "modern-";

type Slot = Arc<OnceCell<Arc<Common>>>;

/// The servers of all callers.
#[derive(Debug, Default)]
pub struct Callers {
    slots: Mutex<Vec<(Caller, Slot)>>,
    /// A server has said that it does not speak this version.
    is_older: AtomicBool,
}

/// The version of MCP that a session's id tells: all requests of one caller share this one.
#[must_use]
pub fn version_of(id: &SessionId) -> Option<&'static str> {
    id.as_str().starts_with(PREFIX).then_some(VERSION)
}

/// Whether a request is of this era by its headers. It has nothing but POST.
///
/// # Errors
/// 405.
pub fn only_posts(headers: &HeaderMap) -> Result<(), Refusal> {
    if !names_modern(headers) {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("MCP {VERSION} has nothing but POST")))
}

/// Carries out a POST of this era. None: it is of the era before.
pub async fn post(
    callers: &Arc<Callers>,
    shared: &Arc<Shared>,
    room: impl FnOnce() -> Result<(), Refusal>,
    caller: &Caller,
    headers: &HeaderMap,
    body: &Bytes,
) -> Option<Response<Body>> {
    let posted = envelope::read(headers, body).transpose()?;
    if let (Ok(posted), Behind::Upstream(url)) = (&posted, &shared.settings.behind) {
        return Some(through(url, shared.settings.hold, posted, headers, body.clone()).await);
    }
    let carried = async {
        match posted? {
            Posted::Request(request) => {
                let refused = |refusal| Refused { refusal, id: Some(request.id.clone()) };
                let asked = callers.ask(shared, room, caller, &request, headers).await.map_err(refused)?;
                Ok(reply::reply(asked).await)
            }
            Posted::Notification(line) => {
                callers.of(shared, room, caller, VERSION).await?.notify(line).await?;
                Ok(StatusCode::ACCEPTED.into_response())
            }
        }
    };
    Some(
        carried
            .await
            .unwrap_or_else(|Refused { refusal, id }| refusal.answering(id.as_deref().unwrap_or("null"))),
    )
}

/// Passes a message on to a server that speaks HTTP itself.
async fn through(
    url: &Url,
    hold: Duration,
    posted: &Posted,
    headers: &HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let id = if let Posted::Request(request) = posted { &*request.id } else { "null" };
    match forward(url, hold, headers, body).await {
        Ok(response) => response,
        Err(NotForwarded::Refused(refusal)) => refusal.answering(id),
        Err(NotForwarded::Unknown) => crate::response::json(unknown(id).as_str().to_owned()),
    }
}

impl Callers {
    fn slots(&self) -> MutexGuard<'_, Vec<(Caller, Slot)>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(_, slot)| slot.get().is_none_or(|common| !common.has_ended()));
        slots
    }

    /// How many servers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots().iter().filter(|(_, slot)| slot.initialized()).count()
    }

    /// How many requests are open at the server of this session. None: this process does not have it.
    #[must_use]
    pub fn requests(&self, id: &SessionId) -> Option<usize> {
        self.all().iter().find_map(|common| common.requests(id))
    }

    async fn ask(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        room: impl FnOnce() -> Result<(), Refusal>,
        caller: &Caller,
        request: &envelope::Request,
        headers: &HeaderMap,
    ) -> Result<common::Waiting, Refusal> {
        let older = |refusal: Refusal| {
            let is_probe = refusal.code == envelope::UNSUPPORTED && request.method == "server/discover";
            if is_probe { envelope::no_discover() } else { refusal }
        };
        let common = self.of(shared, room, caller, &request.version).await.map_err(older)?;
        if request.version != VERSION {
            return Err(unsupported(&request.version, &[VERSION]));
        }
        match common.ask(request, headers).await {
            // The session has ended, and its place is free now.
            Err(refusal) if refusal == Refusal::unknown_session() => {
                let common = self.of(shared, || Ok(()), caller, &request.version).await?;
                common.ask(request, headers).await
            }
            asked => asked,
        }
    }

    fn slot(&self, caller: &Caller) -> Slot {
        let mut slots = self.slots();
        if let Some((_, slot)) = slots.iter().find(|(other, _)| same(other, caller)) {
            return slot.clone();
        }
        let slot = Slot::default();
        slots.push((caller.clone(), slot.clone()));
        slot
    }

    /// The server of a caller. `version`: what the client would like to speak.
    async fn of(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        room: impl FnOnce() -> Result<(), Refusal>,
        caller: &Caller,
        version: &str,
    ) -> Result<Arc<Common>, Refusal> {
        if self.is_older.load(Ordering::Relaxed) {
            return Err(unsupported(version, &VERSIONS));
        }
        let slot = self.slot(caller);
        if slot.initialized() {
            return slot.get().cloned().ok_or_else(Refusal::unknown_session);
        }
        room()?;
        // In a task of its own, so that nothing is left half made when the client hangs up.
        let (callers, shared, caller) = (self.clone(), shared.clone(), caller.clone());
        let version = version.to_owned();
        let made = tokio::spawn(async move {
            let began = slot.get_or_try_init(|| begin(&shared, &caller)).await;
            match began {
                Ok(common) => Ok(common.clone()),
                Err(Unfit::Refused(refusal)) => Err(refusal),
                Err(Unfit::Older { is_certain }) => {
                    callers.is_older.fetch_or(is_certain, Ordering::Relaxed);
                    Err(unsupported(&version, &VERSIONS))
                }
            }
        });
        let failed =
            |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "`serve` has failed at this request");
        made.await.map_err(failed)?
    }

    fn all(&self) -> Vec<Arc<Common>> {
        self.slots().iter().filter_map(|(_, slot)| slot.get().cloned()).collect()
    }

    /// Ends servers that are idle for too long.
    pub async fn look(&self) {
        futures::future::join_all(self.all().iter().map(|common| common.look())).await;
    }

    /// Lets go of all servers, which go on for the process that serves the name next.
    pub fn close(&self) {
        self.all().iter().for_each(|common| common.close());
    }

    /// Ends all servers.
    pub async fn end(&self) {
        futures::future::join_all(self.all().iter().map(|common| async {
            drop(common.end().await);
        }))
        .await;
    }
}

/// Why there is no server that speaks this era.
enum Unfit {
    /// There is none at all.
    Refused(Refusal),
    /// It speaks the era before.
    Older {
        /// Whether the server has said so, or has ended, and not merely been silent.
        is_certain: bool,
    },
}

impl From<Refusal> for Unfit {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Goes on with the server that a former process has started for this caller, or starts one and asks it what it speaks.
async fn begin(shared: &Arc<Shared>, caller: &Caller) -> Result<Arc<Common>, Unfit> {
    let hold = shared.settings.hold;
    let sessions = shared.sessions.on_behalf_of(caller.clone());
    let listed = held(hold, sessions.list()).await?;
    for view in listed.iter().filter(|view| view.status == SessionStatus::Ready) {
        if view.session.as_str().starts_with(PREFIX)
            && let Ok(session) = held(hold, sessions.open(&view.session)).await
        {
            return Ok(Common::new(shared.clone(), session));
        }
    }
    let id: SessionId =
        format!("{PREFIX}{}", SessionId::mint()).parse().map_err(|_| Refusal::unknown_session())?;
    let session = shared.create(id, caller).await?;
    let begun = async {
        let backend = shared.backends.backend(&session).await?;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")},
        });
        let params = RawValue::from_string(json!({"_meta": meta}).to_string())
            .map_err(|_| Refusal::unknown_session())?;
        let answered = asked(&*backend, "server/discover", &params, DISCOVER_WAIT).await;
        let (discovered, early, is_certain) = match answered {
            Ok(Some((answer, early))) => (answer.result, early, true),
            Ok(None) => (None, Vec::new(), true),
            Err(_) => (None, Vec::new(), false),
        };
        if !discovered.as_deref().is_some_and(speaks) {
            backend.end().await;
            return Err(Unfit::Older { is_certain });
        }
        held(hold, session.update(Update::default().status(SessionStatus::Ready))).await?;
        Ok((backend, early))
    };
    match begun.await {
        Ok((backend, early)) => {
            let common = Common::new(shared.clone(), session);
            common.take(backend, early).await;
            Ok(common)
        }
        Err(unfit) => {
            drop(session.terminate().await);
            Err(unfit)
        }
    }
}

/// Whether an answer to `server/discover` names a version of this era.
fn speaks(result: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: Vec<String>,
    }
    serde_json::from_str::<Discovered>(result.get())
        .is_ok_and(|discovered| discovered.supported_versions.iter().any(|version| is_modern(version)))
}
