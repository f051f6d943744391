//! The servers of all callers: one for each, which is started for the first request.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, join_all};
use mcp_sessiond_client::{Caller, Session, SessionId, SessionStatus, Update};
use mcp_sessiond_http_session::handshake::VERSIONS;
use mcp_sessiond_jsonrpc::code::OTHER_VERSION;
use tokio::time::{Instant, timeout_at};

use super::envelope::{self, VERSION, unsupported};
use super::era::{self, CLIENT_WAIT, Era};
use super::pending::{PendingRequest, send_request};
use super::server::{RequestGuard, Server};
use crate::backend::Backend;
use crate::live::handshake::{EarlyLines, within_hold};
use crate::live::{self, same_caller, terminate};
use crate::refusal::Refusal;

/// How long nothing is asked, neither a server nor the daemon, after it was found that servers don't
/// speak this version.
const OLDER_ERA_FOR: Duration = Duration::from_secs(60);

/// What the ids of these sessions begin with.
const PREFIX: &str = "modern-";

/// A server that is being started, or runs. All clients that wait for it share its start, and how
/// that fails.
#[derive(Clone)]
struct Starting {
    since: Instant,
    server: Shared<BoxFuture<'static, Result<Arc<Server>, NoModernServer>>>,
}

/// Servers that were not heard yet, by their sessions.
type Discovering = HashMap<SessionId, (Session, Arc<dyn Backend>)>;

/// The servers of all callers.
#[derive(Default)]
pub struct Callers {
    servers: Mutex<Vec<(Caller, Starting)>>,
    /// Until when all clients are told that servers don't speak this version.
    older_until: tokio::sync::Mutex<Option<Instant>>,
    /// The servers that are being asked.
    discovering: Mutex<Discovering>,
    has_ended: AtomicBool,
}

impl fmt::Debug for Callers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Callers({})", self.count())
    }
}

/// The version of MCP that a session's id tells: all requests of one caller share this one.
pub fn version_of(id: &SessionId) -> Option<&'static str> {
    id.as_str().starts_with(PREFIX).then_some(VERSION)
}

impl Callers {
    fn servers(&self) -> MutexGuard<'_, Vec<(Caller, Starting)>> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|(_, starting)| match starting.server.peek() {
            Some(Ok(server)) => !server.has_ended(),
            Some(Err(_)) => false,
            None => true,
        });
        servers
    }

    fn discovering(&self) -> MutexGuard<'_, Discovering> {
        self.discovering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many servers there are, with those that are being started.
    pub fn count(&self) -> usize {
        self.servers().len()
    }

    /// How many requests are open at the server of this session. None: this process does not have
    /// it.
    pub fn requests(&self, id: &SessionId) -> Option<usize> {
        self.all().iter().find_map(|server| server.requests(id))
    }

    /// Sends a client's request to the server of its caller.
    ///
    /// # Errors
    /// When there is no server that speaks this era, or none that takes the request.
    pub(super) async fn ask(
        self: &Arc<Self>,
        shared: &Arc<live::Shared>,
        room: impl Fn() -> Result<(), Refusal>,
        caller: &Caller,
        request: &envelope::Request,
        headers: &HeaderMap,
    ) -> Result<PendingRequest, Refusal> {
        let older = |refusal: Refusal| {
            let is_probe = refusal.code == OTHER_VERSION && request.method == "server/discover";
            if is_probe {
                envelope::no_discover()
            } else {
                refusal
            }
        };
        let using = self
            .of(shared, &room, caller, &request.version)
            .await
            .map_err(older)?;
        if request.version != VERSION {
            return Err(unsupported(&request.version, &[VERSION]));
        }
        match send_request(using, request, headers).await {
            // The daemon has ended the session.
            Err(refusal) if refusal == Refusal::unknown_session() => {
                let using = self.of(shared, &room, caller, &request.version).await?;
                send_request(using, request, headers).await
            }
            asked => asked,
        }
    }

    /// The server of a caller, for a request. `version`: what the client would like to speak.
    ///
    /// # Errors
    /// When there is no server that speaks this era.
    pub(super) async fn of(
        self: &Arc<Self>,
        shared: &Arc<live::Shared>,
        room: impl Fn() -> Result<(), Refusal>,
        caller: &Caller,
        version: &str,
    ) -> Result<RequestGuard, Refusal> {
        loop {
            let known = find(&self.servers(), caller);
            let starting = match known {
                Some(starting) => starting,
                None if self.is_older(shared).await => return Err(unsupported(version, &VERSIONS)),
                None => {
                    room()?;
                    self.start(shared, caller)
                }
            };
            let until = starting.since + CLIENT_WAIT;
            let server = match timeout_at(until, starting.server).await {
                Ok(Ok(server)) => server,
                Ok(Err(NoModernServer::Refused(refusal))) => return Err(refusal),
                Ok(Err(NoModernServer::Older)) | Err(_) => {
                    return Err(unsupported(version, &VERSIONS));
                }
            };
            if let Some(using) = server.guard_request().await {
                return Ok(using);
            }
        }
    }

    /// Whether servers don't speak this version, as far as is known.
    async fn is_older(&self, shared: &live::Shared) -> bool {
        // Clients that come at the same time count as one.
        let mut older_until = self.older_until.lock().await;
        if older_until.is_some_and(|until| Instant::now() < until) {
            return true;
        }
        let is_older = shared.backends.note_probe().await;
        if is_older {
            *older_until = Some(Instant::now() + OLDER_ERA_FOR);
        }
        is_older
    }

    /// Starts a server, in a task of its own: a client that hangs up leaves nothing half made.
    fn start(self: &Arc<Self>, shared: &Arc<live::Shared>, caller: &Caller) -> Starting {
        let mut servers = self.servers();
        if let Some(starting) = find(&servers, caller) {
            return starting;
        }
        let (callers, shared, of) = (self.clone(), shared.clone(), caller.clone());
        let server = async move { callers.begin(&shared, &of).await }
            .boxed()
            .shared();
        tokio::spawn(server.clone());
        let starting = Starting {
            since: Instant::now(),
            server,
        };
        servers.push((caller.clone(), starting.clone()));
        starting
    }

    fn all(&self) -> Vec<Arc<Server>> {
        let servers = self.servers();
        servers
            .iter()
            .filter_map(|(_, starting)| starting.server.peek()?.clone().ok())
            .collect()
    }

    /// Ends servers that are idle for too long.
    pub async fn check_idle(&self) {
        join_all(self.all().iter().map(|server| server.check_idle())).await;
    }

    /// Lets go of all servers, which go on for the process that serves the name next.
    pub fn close(&self) {
        self.all().iter().for_each(|server| server.close());
    }

    /// Ends all servers, also those that are being asked.
    pub async fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let asked: Vec<_> = self.discovering().drain().map(|(_, asked)| asked).collect();
        let asked = asked.iter().map(|(session, backend)| async {
            drop(terminate(session).await);
            backend.end().await;
        });
        let all = self.all();
        let all = all.iter().map(|server| async {
            drop(server.end().await);
        });
        futures::future::join(join_all(asked), join_all(all)).await;
    }

    /// Goes on with the server that a former process has started for this caller, or starts one and
    /// asks it what it speaks.
    async fn begin(
        &self,
        shared: &Arc<live::Shared>,
        caller: &Caller,
    ) -> Result<Arc<Server>, NoModernServer> {
        if let Some(session) = former(shared, caller).await? {
            return Ok(Server::new(shared.clone(), session));
        }
        let id = format!("{PREFIX}{}", SessionId::mint());
        let id: SessionId = id.parse().map_err(|_| Refusal::unknown_session())?;
        let session = shared.create(id, caller).await?;
        match self.begin_in(shared, &session).await {
            Ok((backend, early)) => {
                let server = Server::new(shared.clone(), session);
                server.adopt(backend, early).await;
                Ok(server)
            }
            Err(unfit) => {
                drop(terminate(&session).await);
                Err(unfit)
            }
        }
    }

    async fn begin_in(
        &self,
        shared: &Arc<live::Shared>,
        session: &Session,
    ) -> Result<(Arc<dyn Backend>, EarlyLines), NoModernServer> {
        let backend = shared.backends.backend(session).await?;
        self.discovering()
            .insert(session.id().clone(), (session.clone(), backend.clone()));
        let era = match self.has_ended.load(Ordering::Relaxed) {
            true => Era::Older,
            false => era::ask(&*backend).await,
        };
        self.discovering().remove(session.id());
        match era {
            Era::Modern(early) => {
                let ready = Update::default().status(SessionStatus::ready());
                within_hold(shared.settings.hold, session.update(ready)).await?;
                return Ok((backend, early));
            }
            Era::Late => {}
            Era::Older => {
                *self.older_until.lock().await = Some(Instant::now() + OLDER_ERA_FOR);
            }
        }
        backend.end().await;
        // Some servers can't be started while another one of them runs, and the next request may be
        // `initialize`.
        backend.gone().await;
        Err(NoModernServer::Older)
    }
}

fn find(servers: &[(Caller, Starting)], caller: &Caller) -> Option<Starting> {
    servers
        .iter()
        .find(|(other, _)| same_caller(other, caller))
        .map(|(_, starting)| starting.clone())
}

/// Why there is no server that speaks this era.
#[derive(Debug, Clone)]
enum NoModernServer {
    /// There is none at all.
    Refused(Refusal),
    /// It speaks the era before.
    Older,
}

impl From<Refusal> for NoModernServer {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The session that a former process has made for this caller. Ends those that it has left half
/// made.
async fn former(shared: &Arc<live::Shared>, caller: &Caller) -> Result<Option<Session>, Refusal> {
    let hold = shared.settings.hold;
    let sessions = shared.sessions.on_behalf_of(caller.clone());
    let listed = within_hold(hold, sessions.list()).await?;
    let of_this_era = listed
        .iter()
        .filter(|view| view.session.as_str().starts_with(PREFIX));
    let mut found = None;
    for view in of_this_era.filter(|view| view.status != SessionStatus::Terminated) {
        let opened = match within_hold(hold, sessions.open(&view.session)).await {
            Ok(session) => {
                let claimed = shared.backends.claim(&session).await;
                claimed.map(|is_here| (session, is_here))
            }
            Err(refusal) => Err(refusal),
        };
        match opened {
            // Another machine serves it.
            Ok((_, false)) => {}
            Ok((session, true))
                if matches!(view.status, SessionStatus::Ready { .. }) && found.is_none() =>
            {
                found = Some(session);
            }
            Ok((session, true)) => drop(terminate(&session).await),
            // It is another caller's, or has ended.
            Err(refusal)
                if [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&refusal.status) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(found)
}
