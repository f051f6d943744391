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
use tokio::time::{Instant, timeout};

use super::asking::{Waiting, ask};
use super::discover::{Speaks, discover};
use super::envelope::{self, VERSION, unsupported};
use super::server::{Server, Using};
use crate::backend::Backend;
use crate::live::handshake::{Early, held};
use crate::live::{self, same, terminated};
use crate::record::VERSIONS;
use crate::refusal::Refusal;

/// How long a client waits until a server has said that it speaks this version. By then it is told
/// that the server doesn't: some servers ignore what comes before `initialize`. The question stays
/// for as long as a server may take to start.
const CLIENT_WAIT: Duration = Duration::from_secs(20);
/// After this time a server is asked again that has said nothing, or has ended.
const OLDER_FOR: Duration = Duration::from_secs(60);

/// What the ids of these sessions begin with.
const PREFIX: &str = "modern-";

/// A server that is being started, or runs. All clients that wait for it share its start, and how
/// that fails.
type Making = Shared<BoxFuture<'static, Result<Arc<Server>, Unfit>>>;

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

impl Callers {
    fn makings(&self) -> MutexGuard<'_, Vec<(Caller, Making)>> {
        let mut makings = self.makings.lock().unwrap_or_else(PoisonError::into_inner);
        makings.retain(|(_, making)| match making.peek() {
            Some(Ok(server)) => !server.has_ended(),
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

    /// How many requests are open at the server of this session. None: this process does not have
    /// it.
    #[must_use]
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
    ) -> Result<Waiting, Refusal> {
        let older = |refusal: Refusal| {
            let is_probe =
                refusal.code == envelope::UNSUPPORTED && request.method == "server/discover";
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
        match ask(using, request, headers).await {
            // The daemon has ended the session.
            Err(refusal) if refusal == Refusal::unknown_session() => {
                let using = self.of(shared, &room, caller, &request.version).await?;
                ask(using, request, headers).await
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
    ) -> Result<Using, Refusal> {
        if self.is_older() {
            return Err(unsupported(version, &VERSIONS));
        }
        loop {
            let known = find(&self.makings(), caller);
            let making = match known {
                Some(making) => making,
                None => {
                    room()?;
                    self.make(shared, caller)
                }
            };
            let server = match timeout(CLIENT_WAIT, making).await {
                Ok(Ok(server)) => server,
                Ok(Err(Unfit::Refused(refusal))) => return Err(refusal),
                Ok(Err(Unfit::Older)) | Err(_) => return Err(unsupported(version, &VERSIONS)),
            };
            if let Some(using) = server.enter().await {
                return Ok(using);
            }
        }
    }

    /// Whether a server has said that it does not speak this version, or has failed a short while
    /// ago.
    fn is_older(&self) -> bool {
        match *self.older() {
            Older::No => false,
            Older::Until(until) => Instant::now() < until,
            Older::Yes => true,
        }
    }

    /// Starts a server, in a task of its own: a client that hangs up leaves nothing half made.
    fn make(self: &Arc<Self>, shared: &Arc<live::Shared>, caller: &Caller) -> Making {
        let mut makings = self.makings();
        if let Some(making) = find(&makings, caller) {
            return making;
        }
        let (callers, shared, of) = (self.clone(), shared.clone(), caller.clone());
        let making = async move { callers.begin(&shared, &of).await }
            .boxed()
            .shared();
        tokio::spawn(making.clone());
        makings.push((caller.clone(), making.clone()));
        making
    }

    fn all(&self) -> Vec<Arc<Server>> {
        let makings = self.makings();
        makings
            .iter()
            .filter_map(|(_, making)| making.peek()?.clone().ok())
            .collect()
    }

    /// Ends servers that are idle for too long.
    pub async fn look(&self) {
        join_all(self.all().iter().map(|server| server.look())).await;
    }

    /// Lets go of all servers, which go on for the process that serves the name next.
    pub fn close(&self) {
        self.all().iter().for_each(|server| server.close());
    }

    /// Ends all servers, also those that are being asked.
    pub async fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let asked: Vec<_> = self.asked().drain().map(|(_, asked)| asked).collect();
        let asked = asked.iter().map(|(session, backend)| async {
            drop(terminated(session).await);
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
    ) -> Result<Arc<Server>, Unfit> {
        if let Some(session) = former(shared, caller).await? {
            return Ok(Server::new(shared.clone(), session));
        }
        let id = format!("{PREFIX}{}", SessionId::mint());
        let id: SessionId = id.parse().map_err(|_| Refusal::unknown_session())?;
        let session = shared.create(id, caller).await?;
        match self.begin_in(shared, &session).await {
            Ok((backend, early)) => {
                let server = Server::new(shared.clone(), session);
                server.take(backend, early).await;
                Ok(server)
            }
            Err(unfit) => {
                drop(terminated(&session).await);
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
        self.asked()
            .insert(session.id().clone(), (session.clone(), backend.clone()));
        let (speaks, early) = match self.has_ended.load(Ordering::Relaxed) {
            true => (Speaks::Unknown, Vec::new()),
            false => discover(&*backend).await,
        };
        self.asked().remove(session.id());
        *self.older() = match speaks {
            Speaks::Modern => {
                let ready = Update::default().status(SessionStatus::Ready);
                held(shared.settings.hold, session.update(ready)).await?;
                return Ok((backend, early));
            }
            Speaks::Older => Older::Yes,
            Speaks::Unknown => Older::Until(Instant::now() + OLDER_FOR),
        };
        backend.end().await;
        // Some servers can't be started while another one of them runs, and the next request may be
        // `initialize`.
        backend.gone().await;
        Err(Unfit::Older)
    }
}

fn find(makings: &[(Caller, Making)], caller: &Caller) -> Option<Making> {
    makings
        .iter()
        .find(|(other, _)| same(other, caller))
        .map(|(_, making)| making.clone())
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

/// The session that a former process has made for this caller. Ends those that it has left half
/// made.
async fn former(shared: &Arc<live::Shared>, caller: &Caller) -> Result<Option<Session>, Refusal> {
    let hold = shared.settings.hold;
    let sessions = shared.sessions.on_behalf_of(caller.clone());
    let listed = held(hold, sessions.list()).await?;
    let of_this_era = listed
        .iter()
        .filter(|view| view.session.as_str().starts_with(PREFIX));
    let mut found = None;
    for view in of_this_era.filter(|view| view.status != SessionStatus::Terminated) {
        let opened = match held(hold, sessions.open(&view.session)).await {
            Ok(session) => shared.backends.claim(&session).await.map(|()| session),
            refused => refused,
        };
        match opened {
            Ok(session) if view.status == SessionStatus::Ready && found.is_none() => {
                found = Some(session);
            }
            Ok(session) => drop(terminated(&session).await),
            // It is another caller's or another machine's, or has ended.
            Err(refusal)
                if [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&refusal.status) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(found)
}
