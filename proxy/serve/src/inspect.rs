//! `serve --inspect`: a page about the service's sessions, and what the page asks for: sessions,
//! streams, servers, and events as they come. No message is ever among it. The page is also a
//! client of MCP, which shows the messages of its own calls.
//!
//! The page itself holds no data, so a browser may fetch it without the token. Everything else is
//! for whoever may use `/mcp`, and each caller sees its own sessions only.

mod guard;
mod views;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use mcp_sessiond_client::{
    Caller, Control, Directory, Error, Options, Session, SessionError, SessionId, SessionStatus,
    SessionView, Sessions,
};
use mcp_sessiond_proto::backends::{
    Backend, BackendState, BackendStatus, KeeperReply, KeeperRequest, StopReason, StopRequest,
};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::debug::{InspectRequest, PAGE_MAX, Page};
use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::{ServiceName, paths};
use mcp_sessiond_proxy::keeper::dial::dial;
use serde::Serialize;
use tokio::sync::Semaphore;

use self::guard::{admit_page, admitted, with_safe_headers};
use self::views::{Access, Call, Server, SessionDetails, SessionList, SessionRow, Stream, shorten};
use self::watch::Watch;
use crate::live::{Live, LiveStatus, within_hold};
use crate::modern;
use crate::refusal::Refusal;
use crate::response::{event_stream, json};
use crate::settings::{Settings, Target};
use crate::table::Table;

/// Where the page is.
pub const PATH: &str = "/inspect";

/// The page, with its script and its style.
const PAGE: &str = include_str!("inspect/page.html");
/// What stands in the page where each response has a value of its own.
const NONCE: &str = "{{nonce}}";

/// Sessions that are listed, those that were active last.
const LISTED_MAX: usize = 200;

/// Connections that may be told of events at one time.
const WATCHERS_MAX: usize = 16;

/// What the page asks.
struct Inspector {
    table: Arc<Table>,
    sessions: Sessions,
    control: Control,
    /// Which sessions that this process does not serve are the caller's: asking the daemon counts
    /// as use of the session, so it is done once.
    known: Mutex<HashMap<SessionId, (Caller, Access)>>,
    watchers: Arc<Semaphore>,
}

/// The routes; none without `--inspect`.
pub fn router(table: &Arc<Table>) -> Router {
    let settings = &table.shared().settings;
    if !settings.inspect {
        return Router::new();
    }
    let options = Options::default()
        .start(settings.start.clone())
        .timeout(settings.hold);
    let inspector = Arc::new(Inspector {
        table: table.clone(),
        sessions: table.shared().sessions.clone(),
        control: Control::new(options),
        known: Mutex::default(),
        watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
    });
    let page = get(page).layer(middleware::from_fn_with_state(table.clone(), admit_page));
    Router::new()
        .route("/inspect/sessions", get(list))
        .route("/inspect/sessions/{session}", get(one).delete(end))
        .route("/inspect/sessions/{session}/events", get(events))
        .route("/inspect/sessions/{session}/restart", post(restart))
        .layer(middleware::from_fn_with_state(table.clone(), admitted))
        .with_state(inspector)
        .route(PATH, page)
        .layer(middleware::map_response(with_safe_headers))
}

async fn page() -> Result<Response<Body>, Refusal> {
    let nonce = guard::nonce()?;
    let mut response = Response::new(Body::from(PAGE.replace(NONCE, &nonce)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(header::CONTENT_SECURITY_POLICY, guard::policy(&nonce));
    Ok(response)
}

/// The service's sessions.
async fn list(
    State(inspector): State<Arc<Inspector>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response<Body>, Refusal> {
    let mut views = inspector.living().await?;
    let backends = inspector.backends().await?;
    inspector.forget(&views);
    views.sort_by_key(|view| std::cmp::Reverse(view.active_ms));
    let more = views.len().saturating_sub(LISTED_MAX);
    let (mut sessions, mut others) = (Vec::new(), 0);
    for view in views.iter().take(LISTED_MAX) {
        match inspector
            .row(view, &caller, backends.get(&view.session))
            .await?
        {
            Some(row) => sessions.push(row),
            None => others += 1,
        }
    }
    sessions.sort_by_key(|row| std::cmp::Reverse(row.created_ms));
    Ok(json_response(&SessionList::new(
        inspector.settings(),
        sessions,
        others,
        more,
    )))
}

/// One session, with its streams and its server.
async fn one(
    State(inspector): State<Arc<Inspector>>,
    Extension(caller): Extension<Caller>,
    Path(named): Path<String>,
) -> Result<Response<Body>, Refusal> {
    let id = session_id(&named)?;
    let views = inspector.living().await?;
    let view = views
        .into_iter()
        .find(|view| view.session == id)
        .ok_or_else(Refusal::unknown_session)?;
    let backend = inspector.backends().await?.remove(&id);
    let row = inspector.row(&view, &caller, backend.as_ref()).await?;
    let row = row.ok_or_else(crate::admission::bound_to_another)?;
    let live = inspector.table.served(&id);
    let (now, restarts) = live.map(|live| (live.status(), live.restarts())).unzip();
    let streams = inspector.streams(&id, now.as_ref()).await?;
    let server = inspector.server(backend, restarts).await;
    Ok(json_response(&SessionDetails {
        row,
        streams,
        server,
    }))
}

/// Each event of a session as it comes: which kind of message it is, and how large.
async fn events(
    State(inspector): State<Arc<Inspector>>,
    Extension(caller): Extension<Caller>,
    Path(named): Path<String>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let permit = inspector.watchers.clone().try_acquire_owned();
    let permit = permit
        .map_err(|_| Refusal::for_now(format!("{WATCHERS_MAX} pages watch events already")))?;
    let session = inspector.open(&session_id(&named)?, &caller).await?;
    let last = headers
        .get("last-event-id")
        .and_then(|last| last.to_str().ok()?.parse().ok());
    let last_number = inspector.daemons(session.view()).await?.last_number;
    let keep_alive = inspector.settings().keep_alive;
    let watch = Watch::after(session, last, last_number, keep_alive, permit);
    Ok(event_stream(futures::stream::unfold(
        watch,
        async |mut watch| {
            let part = watch.next().await?;
            Some((part, watch))
        },
    )))
}

/// Ends a session, and its server.
async fn end(
    State(inspector): State<Arc<Inspector>>,
    Extension(caller): Extension<Caller>,
    Path(named): Path<String>,
) -> Result<StatusCode, Refusal> {
    let id = session_id(&named)?;
    match inspector.served(&id, &caller)? {
        Some(live) => detached(async move { live.end().await }).await?,
        None => {
            let session = inspector.open(&id, &caller).await?;
            detached(async move {
                inspector.daemons(session.terminate()).await?;
                inspector.stop(&id).await
            })
            .await?;
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Ends the server of a session. The session's next request starts a fresh one.
async fn restart(
    State(inspector): State<Arc<Inspector>>,
    Extension(caller): Extension<Caller>,
    Path(named): Path<String>,
) -> Result<StatusCode, Refusal> {
    let id = session_id(&named)?;
    let live = inspector.served(&id, &caller)?;
    if live.is_none() {
        inspector.open(&id, &caller).await?;
    }
    detached(async move {
        let was_attached = match live {
            Some(live) => live.restart().await?,
            None => false,
        };
        // A keeper that no front has attached to, since this process was started.
        if was_attached {
            Ok(())
        } else {
            inspector.stop(&id).await
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Inspector {
    fn settings(&self) -> &Settings {
        &self.table.shared().settings
    }

    fn service(&self) -> &ServiceName {
        &self.settings().service
    }

    /// Waits for a call of the daemon, for as long as a request may be held.
    async fn daemons<T>(
        &self,
        call: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, Refusal> {
        within_hold(self.settings().hold, call).await
    }

    /// The service's sessions that have not ended.
    async fn living(&self) -> Result<Vec<SessionView>, Refusal> {
        let mut views = self.daemons(self.sessions.list()).await?;
        views.retain(|view| view.status != SessionStatus::Terminated);
        Ok(views)
    }

    /// A session that this process serves, if it is the caller's.
    fn served(&self, id: &SessionId, caller: &Caller) -> Result<Option<Arc<Live>>, Refusal> {
        match self.table.served(id) {
            Some(live) if !live.is_of(caller) => Err(crate::admission::bound_to_another()),
            live => Ok(live),
        }
    }

    /// Takes up a session of the caller's in the daemon, without serving it.
    async fn open(&self, id: &SessionId, caller: &Caller) -> Result<Session, Refusal> {
        let sessions = self.sessions.on_behalf_of(caller.clone());
        let opened = self.daemons(sessions.open(id)).await;
        opened.map_err(|refusal| {
            if refusal.status == StatusCode::FORBIDDEN {
                crate::admission::bound_to_another()
            } else {
                refusal
            }
        })
    }

    /// A session as the list shows it. None: it is another caller's.
    async fn row(
        &self,
        view: &SessionView,
        caller: &Caller,
        backend: Option<&Backend>,
    ) -> Result<Option<SessionRow>, Refusal> {
        let live = self.table.served(&view.session);
        let access = match &live {
            Some(live) if live.is_of(caller) => Access::of(live.handshake()),
            Some(_) => Access::Others,
            None => self.access(&view.session, caller).await?,
        };
        let Access::Own(client) = access else {
            return Ok(None);
        };
        let pid = backend.and_then(|backend| backend.pid);
        let row = SessionRow::new(view, client, live.map(|live| live.status()).as_ref(), pid);
        Ok(Some(match modern::version_of(&view.session) {
            Some(version) => row.of_all(version, self.table.modern_requests(&view.session)),
            None => row,
        }))
    }

    /// Whether the caller may see a session that this process does not serve.
    async fn access(&self, id: &SessionId, caller: &Caller) -> Result<Access, Refusal> {
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .cloned();
        if let Some((_, access)) = known.filter(|(of, _)| of == caller) {
            return Ok(access);
        }
        let (service, caller) = (self.service(), caller.clone());
        let of = SessionRef {
            session: id.clone(),
            service: Some(service.clone()),
            epoch: None,
            caller: Some(caller.clone()),
        };
        let viewed = self.control.ask(Client::get_session, of);
        let viewed = within_hold(self.settings().hold, async {
            match viewed.await {
                Err(SessionError::Refused(Error::BindingMismatch | Error::UnknownSession)) => {
                    Ok(None)
                }
                viewed => viewed.map(Some),
            }
        });
        let access = viewed
            .await?
            .map_or(Access::Others, |view| Access::stored(&view));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(id.clone(), (caller, access.clone()));
        Ok(access)
    }

    /// Forgets what is known of sessions that are gone.
    fn forget(&self, there: &[SessionView]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|id, _| there.iter().any(|view| view.session == *id));
    }

    /// Ends the server of a session to which this process is not attached.
    async fn stop(&self, id: &SessionId) -> Result<(), Refusal> {
        if let Target::Upstream(_) = self.settings().target {
            return Ok(());
        }
        let request = StopRequest {
            session: id.clone(),
            service: Some(self.service().clone()),
            backend: None,
            why: StopReason::default(),
        };
        let stopped = self.control.ask(Client::stop_backend, request);
        self.daemons(async {
            match stopped.await {
                // None runs.
                Err(SessionError::Refused(Error::UnknownBackend)) => Ok(()),
                stopped => stopped,
            }
        })
        .await
    }

    /// The servers of this service's sessions, as the daemon knows them.
    async fn backends(&self) -> Result<HashMap<SessionId, Backend>, Refusal> {
        if let Target::Upstream(_) = self.settings().target {
            return Ok(HashMap::new());
        }
        let mut all: Vec<Backend> = Vec::new();
        loop {
            let after = all.last().map(|last| last.session.clone());
            let page = self.control.ask(Client::list_backends, Page { after });
            let page = self.daemons(page).await?;
            let more = page.len() >= PAGE_MAX;
            all.extend(page);
            if !more {
                let ours = all
                    .into_iter()
                    .filter(|backend| backend.service.as_ref() == Some(self.service()));
                return Ok(ours
                    .map(|backend| (backend.session.clone(), backend))
                    .collect());
            }
        }
    }

    /// The streams of a session.
    async fn streams(
        &self,
        id: &SessionId,
        now: Option<&LiveStatus>,
    ) -> Result<Vec<Stream>, Refusal> {
        let request = InspectRequest {
            session: id.clone(),
            owner: Some(format!("service {}", self.service())),
        };
        let inspected = self.control.ask(Client::inspect_session, request);
        let inspected = self.daemons(inspected).await?;
        let streams = inspected.into_iter().flat_map(|one| one.streams);
        Ok(streams.map(|stream| Stream::new(stream, now)).collect())
    }

    /// The server of a session. None: none runs.
    async fn server(&self, backend: Option<Backend>, restarts: Option<u32>) -> Option<Server> {
        if let Target::Upstream(url) = &self.settings().target {
            return Some(Server {
                server: url.to_string(),
                ..Server::default()
            });
        }
        let Backend {
            keeper,
            keeper_pid,
            program,
            pid,
            ..
        } = backend?;
        let asked = tokio::task::spawn_blocking(move || {
            let directory = Directory::of_user().ok()?;
            dial(
                &paths::keeper_socket(directory.path(), keeper),
                &KeeperRequest::Status {},
            )
            .ok()
        });
        let keeper_pid = Some(keeper_pid);
        let silent = Server {
            server: program,
            pid,
            keeper_pid,
            restarts,
            state: Some("silent"),
            ..Server::default()
        };
        Some(
            match asked.await.ok().flatten().map(|dialled| dialled.reply) {
                Some(KeeperReply::Status(status)) => with_status(silent, *status),
                _ => silent,
            },
        )
    }
}

fn session_id(named: &str) -> Result<SessionId, Refusal> {
    named.parse().map_err(|_| Refusal::unknown_session())
}

/// Does this in a task of its own, which goes on when the client hangs up.
async fn detached(
    work: impl Future<Output = Result<(), Refusal>> + Send + 'static,
) -> Result<(), Refusal> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|error| Err(Refusal::for_now(error.to_string())))
}

fn json_response(value: &impl Serialize) -> Response<Body> {
    json(serde_json::to_string(value).unwrap_or_default())
}

/// What its keeper says.
fn with_status(server: Server, status: BackendStatus) -> Server {
    let state = match status.state {
        BackendState::Stopping => "stopping",
        BackendState::Restarting | BackendState::Initializing => "starting",
        BackendState::Started | BackendState::Ready if status.front.is_some() => "in use",
        BackendState::Started | BackendState::Ready => "waiting",
    };
    let calls = status.calls.into_iter();
    Server {
        pid: status.pid,
        state: Some(state),
        age_ms: status.pid.map(|_| status.age_ms),
        restarts: server.restarts.map(|restarts| restarts + status.restarts),
        memory: Some(status.backend_bytes).filter(|bytes| *bytes > 0),
        last_error: status.last_error,
        calls: calls
            .map(|call| Call {
                method: shorten(call.method),
                age_ms: call.age_ms,
            })
            .collect(),
        ..server
    }
}
