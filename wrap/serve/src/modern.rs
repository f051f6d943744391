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
//! - `reply.rs`: the response. `unsent.rs`: a bound.
//!
//! A server that speaks HTTP itself gets the requests as they came.

mod common;
mod envelope;
mod open;
mod params;
mod reply;
mod unsent;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, join_all};
use mcp_sessiond_client::{Caller, Session, SessionId, SessionStatus, Update};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use self::common::Common;
use self::envelope::{Posted, Refused, VERSION, names_modern, unsupported};
use crate::backend::Backend;
use crate::live::handshake::{Early, HANDSHAKE_WAIT, asked, held};
use crate::live::{self, same};
use crate::record::VERSIONS;
use crate::refusal::Refusal;
use crate::said::unknown;
use crate::settings::Behind;
use crate::upstream::forward::{NotForwarded, forward};
use crate::upstream::url::Url;

/// How long a client waits until a server has said that it speaks this version. By then it is told that the server doesn't: some servers
/// ignore what comes before `initialize`. The question stays for as long as a server may take to start.
const CLIENT_WAIT: Duration = Duration::from_secs(20);
/// After this time a server is asked again that has said nothing, or has ended.
const OLDER_FOR: Duration = Duration::from_secs(60);

/// What the ids of these sessions begin with.
const PREFIX: &str = "modern-";

/// A server that is being started, or runs. All clients that wait for it share its start, and how that fails.
type Making = Shared<BoxFuture<'static, Result<Arc<Common>, Unfit>>>;

/// Whether a server was asked that does not speak this version.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Older {
    /// None was.
    #[default]
    No,
    /// One has ended, said nothing, or failed at the question: that counts until then.
    Until(Instant),
    /// One has said so.
    Yes,
}

/// Servers that were not heard yet, by their sessions.
type BeingAsked = HashMap<SessionId, (Session, Arc<dyn Backend>)>;

/// The servers of all callers.
#[derive(Default)]
pub struct Callers {
    makings: Mutex<Vec<(Caller, Making)>>,
    older: Mutex<Older>,
    /// The servers that are being asked.
    asked: Mutex<BeingAsked>,
    has_ended: AtomicBool,
}

impl fmt::Debug for Callers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Callers({})", self.count())
    }
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
    Err(Refusal::not_allowed("POST", format!("MCP {VERSION} has nothing but POST")))
}

/// Carries out a POST of this era. None: it is of the era before.
pub async fn post(
    callers: &Arc<Callers>,
    shared: &Arc<live::Shared>,
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
                if let Some(line) = line {
                    callers.of(shared, room, caller, VERSION).await?.notify(line).await?;
                }
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
        Err(NotForwarded::Unknown) => {
            let mut response = crate::response::json(unknown(id).as_str().to_owned());
            if let Posted::Notification(_) = posted {
                *response.status_mut() = StatusCode::BAD_GATEWAY;
            }
            response
        }
    }
}

impl Callers {
    fn makings(&self) -> MutexGuard<'_, Vec<(Caller, Making)>> {
        let mut makings = self.makings.lock().unwrap_or_else(PoisonError::into_inner);
        makings.retain(|(_, making)| match making.peek() {
            Some(Ok(common)) => !common.has_ended(),
            Some(Err(_)) => false,
            None => true,
        });
        makings
    }

    fn asked(&self) -> MutexGuard<'_, BeingAsked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn older(&self) -> MutexGuard<'_, Older> {
        self.older.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many servers there are, with those that are being started.
    #[must_use]
    pub fn count(&self) -> usize {
        self.makings().len()
    }

    /// How many requests are open at the server of this session. None: this process does not have it.
    #[must_use]
    pub fn requests(&self, id: &SessionId) -> Option<usize> {
        self.all().iter().find_map(|common| common.requests(id))
    }

    async fn ask(
        self: &Arc<Self>,
        shared: &Arc<live::Shared>,
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

    /// The server of a caller. `version`: what the client would like to speak.
    async fn of(
        self: &Arc<Self>,
        shared: &Arc<live::Shared>,
        room: impl FnOnce() -> Result<(), Refusal>,
        caller: &Caller,
        version: &str,
    ) -> Result<Arc<Common>, Refusal> {
        let is_older = match *self.older() {
            Older::No => false,
            Older::Until(until) => Instant::now() < until,
            Older::Yes => true,
        };
        if is_older {
            return Err(unsupported(version, &VERSIONS));
        }
        let making = self.making(caller);
        let making = match making {
            Some(making) => making,
            None => {
                room()?;
                self.make(shared, caller)
            }
        };
        match timeout(CLIENT_WAIT, making).await {
            Ok(Ok(common)) => Ok(common),
            Ok(Err(Unfit::Refused(refusal))) => Err(refusal),
            Ok(Err(Unfit::Older)) | Err(_) => Err(unsupported(version, &VERSIONS)),
        }
    }

    fn making(&self, caller: &Caller) -> Option<Making> {
        let makings = self.makings();
        makings.iter().find(|(other, _)| same(other, caller)).map(|(_, making)| making.clone())
    }

    /// Starts a server, in a task of its own: a client that hangs up leaves nothing half made.
    fn make(self: &Arc<Self>, shared: &Arc<live::Shared>, caller: &Caller) -> Making {
        let mut makings = self.makings();
        if let Some((_, making)) = makings.iter().find(|(other, _)| same(other, caller)) {
            return making.clone();
        }
        let (callers, shared, of) = (self.clone(), shared.clone(), caller.clone());
        let making = async move { callers.begin(&shared, &of).await }.boxed().shared();
        tokio::spawn(making.clone());
        makings.push((caller.clone(), making.clone()));
        making
    }

    fn all(&self) -> Vec<Arc<Common>> {
        let makings = self.makings();
        makings.iter().filter_map(|(_, making)| making.peek()?.clone().ok()).collect()
    }

    /// Ends servers that are idle for too long.
    pub async fn look(&self) {
        join_all(self.all().iter().map(|common| common.look())).await;
    }

    /// Lets go of all servers, which go on for the process that serves the name next.
    pub fn close(&self) {
        self.all().iter().for_each(|common| common.close());
    }

    /// Ends all servers, also those that are being asked.
    pub async fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let asked: Vec<_> = self.asked().drain().map(|(_, asked)| asked).collect();
        let asked = asked.iter().map(|(session, backend)| async {
            drop(session.terminate().await);
            backend.end().await;
        });
        let all = self.all();
        let all = all.iter().map(|common| async {
            drop(common.end().await);
        });
        futures::future::join(join_all(asked), join_all(all)).await;
    }

    /// Goes on with the server that a former process has started for this caller, or starts one and asks it what it speaks.
    async fn begin(&self, shared: &Arc<live::Shared>, caller: &Caller) -> Result<Arc<Common>, Unfit> {
        if let Some(session) = former(shared, caller).await? {
            return Ok(Common::new(shared.clone(), session));
        }
        let id = format!("{PREFIX}{}", SessionId::mint()).parse().map_err(|_| Refusal::unknown_session())?;
        let session = shared.create(id, caller).await?;
        match self.begin_in(shared, &session).await {
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

    async fn begin_in(
        &self,
        shared: &Arc<live::Shared>,
        session: &Session,
    ) -> Result<(Arc<dyn Backend>, Early), Unfit> {
        let backend = shared.backends.backend(session).await?;
        self.asked().insert(session.id().clone(), (session.clone(), backend.clone()));
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")},
        });
        let params = json!({"_meta": meta}).to_string();
        let params = RawValue::from_string(params).map_err(|_| Refusal::unknown_session())?;
        let answered = if self.has_ended.load(Ordering::Relaxed) {
            Ok(None)
        } else {
            asked(&*backend, "server/discover", &params, HANDSHAKE_WAIT).await
        };
        self.asked().remove(session.id());
        let (answer, early) = match answered {
            Ok(Some((answer, early))) => (Some(answer), early),
            Ok(None) | Err(_) => (None, Vec::new()),
        };
        let result = answer.as_ref().and_then(|answer| answer.result.as_deref());
        if result.is_some_and(speaks) {
            held(shared.settings.hold, session.update(Update::default().status(SessionStatus::Ready)))
                .await?;
            return Ok((backend, early));
        }
        *self.older() = match answer {
            Some(answer)
                if answer.result.is_some() || answer.error.as_deref().is_some_and(knows_no_method) =>
            {
                Older::Yes
            }
            _ => Older::Until(Instant::now() + OLDER_FOR),
        };
        backend.end().await;
        // Some servers can't be started while another one of them runs, and the next request may be `initialize`.
        backend.gone().await;
        Err(Unfit::Older)
    }
}

/// Why there is no server that speaks this era.
#[derive(Debug, Clone)]
enum Unfit {
    /// There is none at all.
    Refused(Refusal),
    /// It speaks the era before.
    Older,
}

impl From<Refusal> for Unfit {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The session that a former process has made for this caller. Ends those that it has left half made.
async fn former(shared: &Arc<live::Shared>, caller: &Caller) -> Result<Option<Session>, Refusal> {
    let hold = shared.settings.hold;
    let sessions = shared.sessions.on_behalf_of(caller.clone());
    let listed = held(hold, sessions.list()).await?;
    let of_this_era = listed.iter().filter(|view| view.session.as_str().starts_with(PREFIX));
    let mut found = None;
    for view in of_this_era.filter(|view| view.status != SessionStatus::Terminated) {
        match held(hold, sessions.open(&view.session)).await {
            Ok(session) if view.status == SessionStatus::Ready && found.is_none() => found = Some(session),
            Ok(session) => drop(session.terminate().await),
            // It is another caller's, or has ended.
            Err(refusal) if [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&refusal.status) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(found)
}

/// Whether an error says that there is no such method, or none before `initialize`, and not merely that something has failed.
fn knows_no_method(error: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Failure {
        code: i64,
    }
    // No method; parameters that can't be taken; no request: what servers of the era before are known to answer.
    let is_known = |failure: Failure| [-32601, -32602, -32600].contains(&failure.code);
    serde_json::from_str(error.get()).is_ok_and(is_known)
}

/// Whether an answer to `server/discover` names a version of this era.
fn speaks(result: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: Vec<String>,
    }
    serde_json::from_str::<Discovered>(result.get())
        .is_ok_and(|discovered| discovered.supported_versions.iter().any(|version| version == VERSION))
}
