//! One of several backends, in a keeper of its own.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{End, Failure, FailureCode, Pipe, Source, WAITING};
use mcp_sessiond_client::{ClaimRequest, Loss, Options};
use mcp_sessiond_proto::types::LeaseRef;
use mcp_sessiond_proto::{BackendName, LossId};
use mcp_sessiond_relay::link::Policy;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Launch, Server};
use crate::front::client::Client;
use crate::front::connection_report::{ToldByClaim, reports};
use crate::front::drive::{self, Driver, Start};
use crate::front::leave::CurrentKeeper;
use crate::front::pending_leaves::{PendingLeave, PendingLeaves};
use crate::front_settings::FrontSettings;
use crate::id_prefix::with_id_prefix;
use crate::program::{LaunchEnv, Program};
use crate::server::child::ChildConnector;
use crate::server::connector::{
    Connected, Connector, Hello, NoBackend, connect_first_waiting, connect_unkept,
};
use crate::server::keeper_connector::{KeeperConnector, SessionCalls};
use crate::server::remote::{ResumeStore, StoreUsers};
use crate::server::shared::connector::SharedConnector;
use crate::server::shared::{Looking, Shared};
use crate::signals::{GivenMask, Leaving, leaving_now};
use crate::stderr::{NamedStderr, Stderr};

/// What all backends of a front have in common.
#[derive(Debug, Clone)]
pub(crate) struct BundleContext {
    pub(crate) options: Options,
    pub(crate) claim: ClaimRequest,
    pub(crate) mask: GivenMask,
    pub(crate) settings: FrontSettings,
    pub(crate) stderr: Stderr,
    /// Whether the host has closed its end, where what is under way is still answered, and whether
    /// nobody waits for it any more.
    pub(crate) leaving: watch::Receiver<Leaving>,
    /// The lease on the session, where there is one.
    pub(crate) lease: Option<LeaseRef>,
    /// Who uses what is kept of servers that run elsewhere.
    pub(crate) shelves: StoreUsers,
    /// The keepers that have yet to be told that the host has left.
    pub(crate) pending_leaves: PendingLeaves,
    /// What was lost of the session before this front claimed it: of which of its servers, each of
    /// them shows.
    pub(crate) session_loss: Option<Loss>,
    /// The servers of which the claim was told that they were lost.
    pub(crate) lost_members: Vec<BackendName>,
    /// The losses that the claim was told of, which the front tells.
    pub(crate) claimed_losses: Vec<LossId>,
    /// Why there are no keepers, where there can be none.
    pub(crate) unkept: Option<String>,
}

/// A backend of a server in the list.
#[derive(Debug)]
pub(crate) struct Backend {
    server: Server,
    common: Arc<BundleContext>,
    single: Option<Single>,
    /// What is kept of it, if it runs elsewhere.
    store: ResumeStore,
}

/// What is different where the server is the only one: its keeper has no name, and if it can't be
/// started at first, that is the front's to say.
#[derive(Debug, Default)]
struct Single {
    has_begun: AtomicBool,
    failed: Mutex<Option<NoBackend>>,
    /// Why it could not be started, as was said last: it is tried again and again.
    said: Mutex<String>,
    /// Whether there was a connection to it already.
    was_opened: AtomicBool,
}

impl Backend {
    pub(crate) fn new(server: Server, common: Arc<BundleContext>) -> Self {
        let BundleContext {
            options,
            lease,
            stderr,
            leaving,
            shelves,
            ..
        } = &*common;
        let store = ResumeStore::new(
            options,
            lease.as_ref(),
            &server.name,
            stderr.clone(),
            leaving.clone(),
        );
        let store = shelves.share(store);
        Self {
            server,
            common,
            single: None,
            store,
        }
    }

    /// The only one.
    pub(crate) fn single(server: Server, common: Arc<BundleContext>) -> Self {
        Self {
            single: Some(Single::default()),
            ..Self::new(server, common)
        }
    }

    /// It was tried to start the only one. Returns why it could not be started, if it was tried and
    /// could not.
    pub(crate) fn first_failure(&self) -> Option<NoBackend> {
        let single = self.single.as_ref()?;
        single.has_begun.store(true, Ordering::SeqCst);
        single
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The name of its keeper; none where it needs none.
    fn keeper_name(&self) -> Result<Option<BackendName>, Failure> {
        if self.single.is_some() {
            return Ok(None);
        }
        let why = "its name has more than 119 bytes, or control characters";
        self.server
            .keeper_name()
            .map(Some)
            .ok_or_else(|| Failure::new(FailureCode::BadEntry, why))
    }

    fn stderr(&self) -> NamedStderr {
        let name = self.single.is_none().then(|| self.server.name.clone());
        NamedStderr {
            name,
            stderr: self.common.stderr.clone(),
        }
    }

    /// What carries lines to the server, and the pipe to that. `session` ends the server.
    fn driver(&self, session: SessionCalls) -> (Driver, Pipe) {
        // The keeper hears of its end from this front, too: the daemon may be slow, and this front may
        // be killed. One that is shared takes it for the end of the connection.
        let current = CurrentKeeper::default();
        let keeper = current.clone();
        let is_leaving = self.common.leaving.clone();
        let end = End::new(move || {
            // The connections of a front that leaves are over, and their servers wait for the next one.
            if *is_leaving.borrow() > Leaving::No {
                return Box::pin(std::future::ready(()));
            }
            keeper.end();
            Box::pin(session.stop())
        });
        let (to, wanted) = mpsc::channel(WAITING);
        let (said, from) = mpsc::channel(WAITING);
        let is_first = |single: &Single| !single.was_opened.swap(true, Ordering::SeqCst);
        // The keeper has failed what was asked on a former connection.
        let shares_host = !self.single.as_ref().is_some_and(is_first);
        let client = Client::task(wanted, said);
        let policy = Policy {
            shares_host,
            ..drive::policy()
        };
        let BundleContext {
            session_loss,
            lost_members,
            claimed_losses,
            leaving,
            pending_leaves,
            ..
        } = &*self.common;
        let own = self.server.keeper_name();
        let told = ToldByClaim {
            session_loss: *session_loss,
            is_told: own.is_some_and(|own| lost_members.contains(&own)),
            losses: claimed_losses.clone(),
        };
        let driver = Driver::new(client, policy, self.stderr())
            .reporting(reports(self.stderr(), Some(told)))
            .leaving(leaving.clone(), pending_leaves.clone())
            .showing(current);
        (driver, Pipe { to, from, end })
    }

    /// The way to its keeper. `name`: see [`Self::keeper_name`].
    fn to_keeper(
        &self,
        name: Option<BackendName>,
        program: Program,
        (environment, home): LaunchEnv,
    ) -> Result<KeeperConnector, NoBackend> {
        let BundleContext {
            options,
            claim,
            mask,
            settings,
            ..
        } = &*self.common;
        let connector =
            KeeperConnector::new(options.clone(), claim.clone(), program, *mask, *settings)?;
        Ok(connector.for_backend(name, environment, home))
    }

    /// A shared server, or one of this host's own in its place: that depends on the first line.
    fn open_shared(&self, shared: Shared, own: KeeperConnector) -> Pipe {
        let session = own.session();
        let (driver, pipe) = self.driver(session);
        let launch = self.server.launch.clone();
        let looking = Looking::new(move || match launch() {
            Ok(Launch::Shared(shared)) => Ok(shared),
            Ok(_) => Err("it is no longer shared".to_owned()),
            Err(failure) => Err(failure.message),
        });
        let connector = SharedConnector::new(shared, looking, self.common.mask, own);
        tokio::spawn(driver.run(Some(Box::new(connector)), Start::FirstLine));
        pipe
    }

    async fn open_kept(&self, connector: KeeperConnector) -> Result<Pipe, Failure> {
        let session = connector.session();
        let opening = opened(connector, self.common.clone());
        let mut opened = opening
            .await
            .map_err(|_| not_started())?
            .map_err(|why| self.not_opened(why))?;
        let (connector, connected, pending_leave) = opened.parts.take().ok_or_else(not_started)?;
        let (driver, pipe) = self.driver(session);
        let start = Start::Connected(connected, Some(pending_leave));
        tokio::spawn(driver.run(Some(connector), start));
        Ok(pipe)
    }

    fn not_opened(&self, why: NoBackend) -> Failure {
        let sentence = why.to_string();
        let is_first = |single: &&Single| !single.has_begun.load(Ordering::SeqCst);
        if let Some(single) = self.single.as_ref().filter(is_first) {
            *single.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            return Failure::new(FailureCode::NotStarted, sentence);
        }
        // Of one of several the bundle's report says it.
        if let Some(single) = &self.single {
            let mut said = single.said.lock().unwrap_or_else(PoisonError::into_inner);
            if *said != sentence {
                self.stderr().print(&sentence);
                *said = sentence;
            }
        }
        why.into()
    }
}

fn not_started() -> Failure {
    Failure::new(FailureCode::NotStarted, "it was not started")
}

impl Source for Backend {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn identity(&self) -> Option<String> {
        self.server.keeper_name().map(|name| name.to_string())
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            let launch = self.server.launch.clone();
            let (program, launch_env, shared) = match blocking(move || launch()).await?? {
                Launch::Program {
                    program,
                    environment,
                    home,
                } => (program, (environment, home), None),
                Launch::Shared(shared) => (shared.program(), shared.launch_env(), Some(shared)),
                Launch::Remote(server) => {
                    let mut remote = server.connector(self.store.clone());
                    return connect_unkept(&mut *remote).await.map(with_id_prefix);
                }
            };
            if let Some(why) = &self.common.unkept {
                let name = &self.server.name;
                self.common
                    .stderr
                    .print(&format_args!("{name}: {why}; it is run without being kept"));
                let (environment, home) = launch_env;
                let mut child = ChildConnector {
                    program,
                    environment,
                    home,
                    mask: self.common.mask,
                };
                return connect_unkept(&mut child).await.map(with_id_prefix);
            }
            let connector = self.to_keeper(self.keeper_name()?, program, launch_env);
            let connector = connector.map_err(|why| self.not_opened(why))?;
            match shared {
                Some(shared) => Ok(self.open_shared(shared, connector)),
                None => self.open_kept(connector).await,
            }
        })
    }

    fn is_running(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let (Ok(name), None) = (self.keeper_name(), &self.common.unkept) else {
                return false;
            };
            // Nothing is started by this, so it need not be known what.
            let program = Program {
                name: OsString::new(),
                arguments: Vec::new(),
                title: None,
                has_sources: true,
            };
            let until = Instant::now() + self.common.settings.keeper_wait;
            match self.to_keeper(name, program, LaunchEnv::default()) {
                Ok(mut connector) => connector.is_running(until).await,
                Err(_) => false,
            }
        })
    }
}

/// Connects for the first time, in a task. Where nobody waits for it any more, the server is ended;
/// where the host has left, it waits for the next one as the others do.
fn opened(
    mut connector: KeeperConnector,
    common: Arc<BundleContext>,
) -> oneshot::Receiver<Result<OpenGuard, NoBackend>> {
    let (mut give, given) = oneshot::channel();
    let pending_leave = common.pending_leaves.add();
    tokio::spawn(async move {
        let hello = Hello::default();
        let unwanted = async {
            give.closed().await;
            if *common.leaving.borrow() > Leaving::No {
                std::future::pending::<()>().await;
            }
        };
        let connected = tokio::select! {
            connected = connect_first_waiting(&mut connector, &hello, common.settings.keeper_wait) => connected,
            () = unwanted => {
                connector.release().await;
                return connector.session().stop().await;
            }
        };
        let session = connector.session();
        let opened = connected.map(|connected| OpenGuard {
            parts: Some((Box::new(connector), connected, pending_leave)),
            session,
            common,
        });
        drop(give.send(opened));
    });
    given
}

/// What was opened. If nobody takes it, the server is ended; where the host has left, it waits for
/// the next one as the others do.
struct OpenGuard {
    parts: Option<(Box<dyn Connector>, Connected, PendingLeave)>,
    session: SessionCalls,
    common: Arc<BundleContext>,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let Some((_, connected, _pending_leave)) = self.parts.take() else {
            return;
        };
        match connected {
            Connected::Keeper(attachment) if *self.common.leaving.borrow() > Leaving::No => {
                attachment.sender.leave(leaving_now());
            }
            _ => drop(tokio::spawn(self.session.clone().stop())),
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::new(FailureCode::NotStarted, error.to_string()))
}
