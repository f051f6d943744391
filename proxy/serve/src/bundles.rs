//! Several servers as one, for each session: a bundle, whose servers are in keepers of their own.
//! All of them belong to the session, and survive this process with everything that they are doing.
//!
//! - This file: where the bundles of sessions come from. `session`: the bundle of one session, as a
//!   [`Backend`].
//! - `source`: one of its servers. `confirm_order`: in which order its lines are confirmed.
//!   `resume_state`: what the next process has to know; `eras`: what is no longer so of that.

mod confirm_order;
mod eras;
mod resume_state;
mod session;
mod source;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use mcp_sessiond_bundle::{BundleStore, Decorations, Style};
use mcp_sessiond_client::{
    Control, Options, Session, SessionError, SessionId, SessionStatus, Start,
};
use mcp_sessiond_http_session::messages::Id;
use mcp_sessiond_proxy::front::bundle::{self, Server};
use mcp_sessiond_proxy::server::remote::ResumeStore;
use mcp_sessiond_proxy::server::service::{self, NotLeased, Service};
use tokio::sync::watch;
use tokio::time::sleep;

use self::eras::Eras;
use self::resume_state::{ResumeState, SessionMemory};
use self::session::BundleBackend;
use self::source::RunningServer;
use crate::backend::{Backend, Backends, Losses, PAUSE};
use crate::keeper_backend::{claim, refused};
use crate::record;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::stderr::warn;

/// How long the keeper of one server may take to let this process in, and again to say which calls
/// it has. All servers of the session wait for it, and with them the clients: as long as a POST is
/// held by default (`http.hold_ms`).
const KEEPER_WAIT: Duration = Duration::from_secs(5);

/// The servers, as they are written down at the moment.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// In their order.
    pub servers: Vec<Server>,
    /// What is added to them.
    pub decorations: Decorations,
}

impl Listing {
    /// What there is of one server.
    fn of(&self, name: &str) -> Self {
        let servers = self
            .servers
            .iter()
            .filter(|server| server.name == name)
            .cloned()
            .collect();
        Self {
            servers,
            decorations: self.decorations.alone(name),
        }
    }
}

/// The bundles of one service's sessions.
pub struct Bundles(Arc<Common>);

/// What the bundles of a service have in common.
struct Common {
    service: Service,
    listing: watch::Receiver<Arc<Listing>>,
    /// The only server of the list that is served. None: all of them.
    only: Option<String>,
    /// Where names are remembered.
    names: Option<Arc<dyn BundleStore>>,
    settings: bundle::Settings,
    hold: Duration,
    /// By which the daemon is told how the servers are.
    control: Control,
    /// By which it is told what the next process needs of connections to remote servers.
    stores: Control,
    /// Whether this process ends, and the servers go on.
    is_leaving: Arc<AtomicBool>,
    ended: Eras,
}

impl fmt::Debug for Bundles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Bundles({:?})", self.0.only)
    }
}

/// What bundles are made of.
pub(crate) struct BundleOptions {
    /// The servers.
    pub(crate) listing: watch::Receiver<Arc<Listing>>,
    /// Where they are written down.
    pub(crate) place: String,
    /// How they are started.
    pub(crate) settings: bundle::Settings,
    /// The most descriptors that a server may have.
    pub(crate) descriptors: Option<u64>,
}

impl Bundles {
    /// Leases the service of these settings, for bundles of all servers, or of `only` this one.
    ///
    /// # Errors
    /// When another process has leased it, or there is no daemon.
    pub(crate) async fn lease(
        settings: &Settings,
        service: mcp_sessiond_client::ServiceName,
        servers: &BundleOptions,
        only: Option<String>,
    ) -> Result<Self, NotLeased> {
        let control = Options::default().start(settings.start.clone());
        let reporting = Control::new(Options::default().start(Start::Never));
        let names = only
            .is_none()
            .then(|| bundle::memory(&servers.place, control.clone()))
            .flatten();
        let options = service::Options {
            control: Some(control),
            descriptors: servers.descriptors,
            ..service::Options::default()
        };
        let service = Service::lease(service, options).await?;
        // As with one server, whose next call starts it again.
        let mut bundle = bundle::Settings {
            retry_at_once: true,
            has_former: true,
            ..servers.settings.clone()
        };
        if only.is_some() {
            bundle.names = Style::Bare;
        }
        Ok(Self(Arc::new(Common {
            service,
            listing: servers.listing.clone(),
            only,
            names,
            settings: bundle,
            hold: settings.hold,
            control: reporting,
            stores: ResumeStore::control(&Options::default().start(settings.start.clone())),
            is_leaving: Arc::default(),
            ended: Eras::default(),
        })))
    }
}

/// Whether a session has ended, as the daemon sees it.
async fn has_ended<V: Future<Output = Result<SessionStatus, SessionError>>>(
    view: impl Fn() -> V,
) -> bool {
    loop {
        match view().await {
            Ok(status) => return status == SessionStatus::Terminated,
            Err(error) if error.passes() => sleep(PAUSE).await,
            Err(error) => return Refusal::from(error) == Refusal::unknown_session(),
        }
    }
}

impl Common {
    fn listing(&self) -> Arc<Listing> {
        let all = self.listing.borrow().clone();
        match &self.only {
            Some(name) => Arc::new(all.of(name)),
            None => all,
        }
    }

    /// An era has ended. It is remembered until its session begins another one, or has ended
    /// itself.
    fn end(self: &Arc<Self>, session: &Session, era: &str) {
        self.ended.end(session.id(), era);
        let (common, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            let view = || async { session.view().await.map(|view| view.status) };
            if has_ended(view).await {
                common.ended.forget(session.id());
            }
        });
    }

    /// Attaches to those servers of a session that run. One that can't be reached takes nothing
    /// from the others.
    async fn attach_running(
        &self,
        session: &Session,
        servers: &[Server],
    ) -> Result<HashMap<String, RunningServer<Vec<Id>>>, Refusal> {
        let found = servers
            .iter()
            .filter_map(|server| Some((server, server.keeper_name()?)));
        let found = found.map(|(server, name)| async move {
            let running = self
                .service
                .running(session.id(), Some(&name), KEEPER_WAIT)
                .await
                .map_err(refused)?;
            let Some(running) = running else {
                return Ok::<_, Refusal>(None);
            };
            let found = RunningServer::of(running, KEEPER_WAIT).await;
            if let RunningServer::Unreached(why) = &found {
                warn(format_args!(
                    "{}: {why}; mcp-sessiond tries again, and the outcome of its open calls is unknown",
                    server.name
                ));
            }
            Ok(Some((server.name.clone(), found)))
        });
        Ok(try_join_all(found).await?.into_iter().flatten().collect())
    }

    async fn bundle(self: &Arc<Self>, session: &Session) -> Result<Arc<dyn Backend>, Refusal> {
        let listing = self.listing();
        let (handshake, state) = crate::live::within_hold(self.hold, async {
            let view = session.view().await?;
            Ok((
                record::of(session, &view).await?,
                ResumeState::load(session, &self.ended).await?,
            ))
        })
        .await?;
        let running = self.attach_running(session, &listing.servers).await?;
        let losses = Losses::default();
        losses
            .note_recorded(&self.service, session.id(), None)
            .await;
        let (era, memory) = (
            state.era().to_owned(),
            SessionMemory::new(session.clone(), state, self.names.clone()),
        );
        let bundled = BundleBackend::new(
            self.clone(),
            session.clone(),
            era,
            Arc::new(memory),
            listing,
            (running, losses),
        );
        if let Some(handshake) = handshake {
            bundled.go_on(&handshake).await;
        }
        Ok(bundled)
    }
}

impl Backends for Bundles {
    fn backend<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>> {
        self.0.bundle(session).boxed()
    }

    fn claim<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool, Refusal>> {
        claim(&self.0.service, session).boxed()
    }

    /// A bundle speaks the era before.
    fn note_probe(&self) -> BoxFuture<'_, bool> {
        std::future::ready(true).boxed()
    }

    fn stop_all(&self) -> BoxFuture<'_, Vec<SessionId>> {
        self.0.service.stop_all().boxed()
    }

    fn forget(&self, session: &SessionId) {
        self.0.ended.forget(session);
    }

    fn leave(&self) {
        self.0.is_leaving.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_proto::Error;

    use super::*;

    #[tokio::test]
    async fn a_session_has_ended_where_the_daemon_says_so_in_either_way() {
        let gone = || async { Err(SessionError::Refused(Error::UnknownSession)) };
        assert!(has_ended(gone).await);
        assert!(has_ended(|| async { Ok(SessionStatus::Terminated) }).await);
        assert!(!has_ended(|| async { Ok(SessionStatus::ready()) }).await);
    }
}
