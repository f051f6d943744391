//! For a process that serves sessions which belong to no host, such as an HTTP server. It leases a
//! service's name; one process at a time may. Each session of the service has a backend in a keeper
//! of its own, and the keeper outlives the process.
//!
//! - [`Service`]: the lease on the name. [`Service::backend`] attaches to a session's keeper, or
//!   starts one.
//! - [`Backend`]: sends lines to the backend and receives numbered lines from it. The keeper
//!   repeats each line until it is confirmed, to this process or to the next one that leases the
//!   name.
//! - `link`: the connection to the keeper; it reconnects when the connection breaks.
//!
//! Only the lease, and finding or starting a backend, need the daemon.

mod backend;
mod link;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mcp_sessiond_client::{Control, Loss, Options as ControlOptions, SessionError, Start};
use mcp_sessiond_process::executable;
use mcp_sessiond_proto::backends::{StopReason, StopRequest};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::debug::Page;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::services::{
    FindRequest, NoteLossRequest, ServeRequest, ServiceLease, ServiceLossesRequest,
};
use mcp_sessiond_proto::types::LossToldRequest;
use mcp_sessiond_proto::{
    BackendName, Epoch, Error, KeeperName, LossId, LossRecord, ServiceName, SessionId, paths,
};

pub use backend::Backend;
pub use link::{Gone, Message};
use link::{KeeperAddress, Link};

use super::connector::START_MAX;
use super::facts::{ServerFacts, digest_of};
use crate::keeper::dial::DialError;
use crate::keeper::launch::{BackendOf, Launch, Report};
use crate::keeper::silence::Silence;
use crate::program::Program;
use crate::signals::GivenMask;
use crate::stderr::Stderr;

/// How long a keeper may take to start its backend and to let the front attach.
const ATTACH_WAIT: Duration = Duration::from_secs(10);

/// How long a new keeper waits for its front to attach. By then the front has given up.
const KEEPER_WAIT: Duration = Duration::from_secs(20);

/// The pause before a keeper is asked again that has no descriptor free.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// The pause before another attempt to find or start a backend.
const PAUSE: Duration = Duration::from_millis(20);

/// How to reach the daemon, and which executable starts keepers.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How to reach the daemon, and how long to wait for its answer. By default the client starts a
    /// daemon if none runs.
    pub control: Option<ControlOptions>,
    /// The executable `mcp-sessiond`, which starts keepers. By default this program's own.
    pub binary: Option<PathBuf>,
    /// The most descriptors that a backend may have, where this process has raised its own limit.
    /// By default as many as this process.
    pub descriptors: Option<u64>,
}

/// Why a name can't be served.
#[derive(Debug, thiserror::Error)]
pub enum NotLeased {
    /// Another live process holds the lease on the name.
    #[error("process {pid} already serves this name; only one process can")]
    Taken {
        /// Its pid.
        pid: u32,
        /// Since when.
        since: SystemTime,
    },
    /// The daemon could not be reached, or it refused.
    #[error(transparent)]
    Daemon(#[from] SessionError),
    /// There is no runtime directory, or no executable to start keepers with.
    #[error("{0}")]
    Impossible(String),
}

/// Why there is no backend.
#[derive(Debug, thiserror::Error)]
pub enum NoBackend {
    /// The program does not exist or is not executable.
    #[error("{sentence}")]
    NoProgram {
        /// The exit code that a shell would report.
        code: u8,
        /// One sentence.
        sentence: String,
    },
    /// Another process has leased the name since: this one must stop serving it.
    #[error("the lease on the service is lost: {0}")]
    LeaseLost(Error),
    /// There is no such session.
    #[error("there is no such session of this service")]
    NoSession,
    /// Its backend runs on another machine.
    #[error("another machine serves this session")]
    Elsewhere,
    /// A temporary failure, such as a timeout. The caller may try again.
    #[error("{0}")]
    Passing(String),
}

/// A backend that runs.
#[derive(Debug)]
pub enum Running {
    /// This process has attached to it.
    Attached(Backend),
    /// Its keeper has not let this process in: why.
    Unreached(String),
}

/// What a session's backend runs. It inherits this process's environment, and its working directory
/// where it has none of its own.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program and its arguments.
    pub program: Program,
    /// Variables that it gets in addition.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub home: Option<PathBuf>,
}

impl Command {
    /// Identifies what it starts, with the program's files as they are now: in a thread that may
    /// wait for them.
    fn digest(&self) -> ServerDigest {
        digest_of(&self.program, &self.environment, self.home.as_deref())
    }
}

/// This process's lease on a service's name. The daemon ends it when the process exits.
#[derive(Debug, Clone)]
pub struct Service(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: ServiceName,
    epoch: Mutex<Epoch>,
    control: Control,
    directory: PathBuf,
    binary: PathBuf,
    mask: GivenMask,
    /// Whether keepers start a daemon where none runs.
    starts_daemon: bool,
    descriptors: Option<u64>,
    /// Where the backends' standard error goes.
    stderr: Stderr,
}

impl Service {
    /// Leases this name. Repeating the call in the same process has no further effect. Call it
    /// within a tokio runtime.
    ///
    /// # Errors
    /// [`NotLeased`].
    pub async fn lease(name: ServiceName, options: Options) -> Result<Self, NotLeased> {
        let descriptors = options.descriptors;
        let binary = options.binary.or_else(executable::own);
        let binary = binary.ok_or_else(|| {
            NotLeased::Impossible("there is no executable to start keepers with".into())
        })?;
        let directory =
            paths::directory().map_err(|error| NotLeased::Impossible(error.to_string()))?;
        let start = || {
            ControlOptions::default().start(Start::Auto {
                binary: Some(binary.clone()),
            })
        };
        let options = options.control.unwrap_or_else(start);
        let starts_daemon = options.starts_daemon();
        let control = Control::new(options);
        let epoch = Mutex::new(lease_name(&control, &name).await?);
        let mask = GivenMask::block(&[]);
        let stderr = Stderr::new().map_err(|error| NotLeased::Impossible(error.to_string()))?;
        Ok(Self(Arc::new(Inner {
            name,
            epoch,
            control,
            directory,
            binary,
            mask,
            starts_daemon,
            descriptors,
            stderr,
        })))
    }

    /// The name.
    pub fn name(&self) -> &ServiceName {
        &self.0.name
    }

    /// The epoch of the lease. While the service has backends, it grows with each new lease.
    pub fn epoch(&self) -> Epoch {
        *self.0.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches to the backend of a session of this service, or starts one if none runs. The
    /// session must exist. Drop a session's former [`Backend`] first: otherwise the two disconnect
    /// each other in turn.
    ///
    /// # Errors
    /// [`NoBackend`].
    pub async fn backend(
        &self,
        session: &SessionId,
        command: &Command,
    ) -> Result<Backend, NoBackend> {
        self.backend_of(session, None, command).await
    }

    /// The same for one of several backends of a session, which is told from the others by its
    /// name.
    ///
    /// # Errors
    /// [`NoBackend`].
    pub async fn backend_of(
        &self,
        session: &SessionId,
        name: Option<&BackendName>,
        command: &Command,
    ) -> Result<Backend, NoBackend> {
        let until = Instant::now() + ATTACH_WAIT;
        retry_until(until, || async {
            let keeper = match self.find(session, name).await? {
                Some(keeper) => keeper,
                None => self.launch(session, name, command, until).await?,
            };
            self.attach_waiting(session, name, keeper).await
        })
        .await
    }

    /// Attaches to a backend of a session, if it runs. Its keeper may take as long as `patience` to
    /// let this process in.
    ///
    /// # Errors
    /// [`NoBackend`], where not the keeper is to blame, but the daemon, the session or the lease.
    pub async fn running(
        &self,
        session: &SessionId,
        name: Option<&BackendName>,
        patience: Duration,
    ) -> Result<Option<Running>, NoBackend> {
        let found = retry_until(Instant::now() + ATTACH_WAIT, || self.find(session, name)).await?;
        let Some(mut keeper) = found else {
            return Ok(None);
        };
        let until = Instant::now() + patience;
        loop {
            let mut silence = Silence::of(keeper);
            let why = match self.attach(session, name, &mut silence, until).await {
                Ok(backend) => return Ok(Some(Running::Attached(backend))),
                Err(why) => why,
            };
            if Instant::now() + PAUSE >= until {
                return Ok(Some(Running::Unreached(why.to_string())));
            }
            tokio::time::sleep(PAUSE).await;
            // It may be gone by now.
            match self.find(session, name).await {
                Ok(Some(found)) => keeper = found,
                Ok(None) => return Ok(None),
                Err(NoBackend::Passing(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A client begins with `server/discover`. True: it is refused in the place of this command's
    /// server, since a keeper or a front has seen that such a server refuses that, exits or says
    /// nothing. After some clients in a row that did not go on with `initialize`, a server is asked
    /// once more.
    pub async fn note_probe(&self, command: &Command) -> bool {
        let command = command.clone();
        let Ok(server) = tokio::task::spawn_blocking(move || command.digest()).await else {
            return false;
        };
        let options = ControlOptions::default().start(Start::Never);
        ServerFacts::within(ATTACH_WAIT, options, server)
            .note_probe()
            .await
    }

    /// Makes sure that the backend of a session of this service may run on this machine, where
    /// daemons of several machines share a storage. From then on it runs on no other, as long as
    /// the daemon here gives signs of life.
    ///
    /// # Errors
    /// [`NoBackend::Elsewhere`] while it runs on another machine; the other errors of
    /// [`Service::backend`].
    pub async fn claim(&self, session: &SessionId) -> Result<(), NoBackend> {
        let until = Instant::now() + ATTACH_WAIT;
        retry_until(until, || self.find(session, None))
            .await
            .map(drop)
    }

    /// Ends all backends of this service on this machine, also those that a former process has
    /// started. Returns their sessions, which stay. A backend that the daemon can't be told to end
    /// ends when no process has come for it in time.
    pub async fn stop_all(&self) -> Vec<SessionId> {
        let mut sessions = BTreeSet::new();
        let mut after = None;
        loop {
            let listed = self.0.control.ask(Client::list_backends, Page { after });
            let Ok(listed) = listed.await else { break };
            after = listed.last().map(|backend| backend.session.clone());
            if after.is_none() {
                break;
            }
            let ours = listed
                .into_iter()
                .filter(|backend| backend.service.as_ref() == Some(&self.0.name));
            sessions.extend(ours.map(|backend| backend.session));
        }
        let stopping = sessions.iter().map(|session| {
            let request = StopRequest {
                session: session.clone(),
                service: Some(self.0.name.clone()),
                backend: None,
                why: StopReason::default(),
            };
            self.0.control.ask(Client::stop_backend, request)
        });
        futures::future::join_all(stopping).await;
        sessions.into_iter().collect()
    }

    /// What a session of this service has lost, and its client was not told of. Empty also where the
    /// daemon does not say.
    pub async fn losses(&self, session: &SessionId) -> Vec<LossRecord> {
        let request = ServiceLossesRequest {
            service: Some(self.0.name.clone()),
            session: Some(session.clone()),
        };
        let control = &self.0.control;
        let listed = control.ask(Client::list_service_losses, request);
        let listed = listed.await.unwrap_or_default();
        listed.into_iter().map(|listed| listed.loss).collect()
    }

    /// Puts on record that something of a session of this service is lost: where `of` is given, of that
    /// server of a list.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn note_loss(
        &self,
        session: &SessionId,
        of: Option<&BackendName>,
        because: Loss,
    ) -> Result<LossRecord, SessionError> {
        let ask = || {
            let request = NoteLossRequest {
                service: self.0.name.clone(),
                epoch: self.epoch(),
                session: session.clone(),
                of: of.cloned(),
                because,
            };
            self.0.control.ask(Client::note_loss, request)
        };
        match ask().await {
            Err(refused) if self.leases_again(&refused).await => ask().await,
            noted => noted,
        }
    }

    /// The client of a session of this service was told of these losses. If the daemon can't be told,
    /// it is told once more by the next process that serves the session.
    pub async fn losses_told(&self, session: &SessionId, losses: Vec<LossId>) {
        let ask = || {
            let request = LossToldRequest {
                session: session.clone(),
                epoch: self.epoch(),
                service: Some(self.0.name.clone()),
                losses: losses.clone(),
            };
            self.0.control.ask(Client::loss_told, request)
        };
        if let Err(refused) = ask().await
            && self.leases_again(&refused).await
        {
            drop(ask().await);
        }
    }

    /// Whether this was refused since the daemon has lost its records, and the lease with them, and the
    /// name is leased again.
    async fn leases_again(&self, refused: &SessionError) -> bool {
        let is_lost = matches!(
            refused.refusal(),
            Some(Error::LeaseEnded | Error::StaleEpoch { .. })
        );
        is_lost && self.lease_again().await.is_ok()
    }

    /// Attaches to a keeper. One that can't answer is waited for; the daemon ends one that hangs.
    async fn attach_waiting(
        &self,
        session: &SessionId,
        name: Option<&BackendName>,
        keeper: KeeperName,
    ) -> Result<Backend, NoBackend> {
        let mut silence = Silence::of(keeper);
        loop {
            let until = Instant::now() + ATTACH_WAIT;
            let why = match self.attach(session, name, &mut silence, until).await {
                Ok(backend) => return Ok(backend),
                Err(why) => why,
            };
            match &why {
                DialError::Stalled(_) | DialError::Silent => {}
                DialError::Busy => tokio::time::sleep(BUSY_PAUSE).await,
                DialError::Hung => {
                    let ended = self.end_hung(session, keeper).await;
                    return Err(NoBackend::Passing(match ended {
                        Ok(()) => {
                            "the process that keeps the server hangs, and is being ended".into()
                        }
                        Err(error) => format!(
                            "the process that keeps the server hangs, and the daemon has not ended it: {error}"
                        ),
                    }));
                }
                _ => return Err(NoBackend::Passing(why.to_string())),
            }
        }
    }

    /// Has the daemon end a keeper that hangs.
    async fn end_hung(&self, session: &SessionId, keeper: KeeperName) -> Result<(), SessionError> {
        let request = StopRequest {
            session: session.clone(),
            service: Some(self.0.name.clone()),
            backend: None,
            why: StopReason::KeeperHung(keeper),
        };
        let ended = self.0.control.ask(Client::stop_backend, request);
        match ended.await {
            Err(SessionError::Refused(Error::UnknownBackend)) => Ok(()),
            ended => ended,
        }
    }

    async fn attach(
        &self,
        session: &SessionId,
        name: Option<&BackendName>,
        silence: &mut Silence,
        until: Instant,
    ) -> Result<Backend, DialError> {
        let keeper = silence.keeper();
        let address = KeeperAddress {
            directory: self.0.directory.clone(),
            keeper,
            service: self.0.name.clone(),
            session: session.clone(),
            epoch: self.epoch(),
            name: name.map(|name| name.in_list().to_owned()),
        };
        let (link, attached) = Link::open(address, self.clone(), silence, until).await?;
        Ok(Backend::over(link, keeper, &attached))
    }

    /// Asks the daemon for the keeper of a session's backend.
    async fn find(
        &self,
        session: &SessionId,
        name: Option<&BackendName>,
    ) -> Result<Option<KeeperName>, NoBackend> {
        for _ in 0..2 {
            let (session, service) = (session.clone(), Some(self.0.name.clone()));
            let request = FindRequest {
                session,
                epoch: self.epoch(),
                service,
                backend: name.cloned(),
            };
            let found = self.0.control.ask(Client::find_backend, request);
            match found.await {
                Ok(found) => return Ok(found.map(|backend| backend.keeper)),
                // The daemon has lost its records, and the lease with them.
                Err(SessionError::Refused(Error::LeaseEnded | Error::StaleEpoch { .. })) => {
                    self.lease_again().await?;
                }
                Err(SessionError::Refused(error @ Error::ServiceTaken { .. })) => {
                    return Err(NoBackend::LeaseLost(error));
                }
                Err(SessionError::Refused(Error::UnknownSession)) => {
                    return Err(NoBackend::NoSession);
                }
                Err(SessionError::Refused(Error::SessionHeld)) => {
                    return Err(NoBackend::Elsewhere);
                }
                Err(error) => return Err(NoBackend::Passing(error.to_string())),
            }
        }
        Err(NoBackend::LeaseLost(Error::LeaseEnded))
    }

    /// Leases the name again if the daemon has lost its records, and the lease with them. Otherwise
    /// it has no effect.
    ///
    /// # Errors
    /// [`NoBackend::LeaseLost`] when another process has it by now; [`NoBackend::Passing`] when the
    /// daemon did not answer.
    async fn lease_again(&self) -> Result<(), NoBackend> {
        let epoch =
            lease_name(&self.0.control, &self.0.name)
                .await
                .map_err(|error| match error {
                    NotLeased::Daemon(SessionError::Refused(
                        error @ (Error::Unavailable { .. } | Error::OutcomeUnknown { .. }),
                    )) => NoBackend::Passing(error.to_string()),
                    NotLeased::Daemon(SessionError::Refused(error)) => NoBackend::LeaseLost(error),
                    NotLeased::Taken { pid, since } => {
                        let since_ms = since
                            .duration_since(UNIX_EPOCH)
                            .map_or(0, |since| since.as_millis());
                        let since_ms = u64::try_from(since_ms).unwrap_or(u64::MAX);
                        NoBackend::LeaseLost(Error::ServiceTaken { pid, since_ms })
                    }
                    error => NoBackend::Passing(error.to_string()),
                })?;
        *self.0.epoch.lock().unwrap_or_else(PoisonError::into_inner) = epoch;
        Ok(())
    }

    /// Starts a keeper, which starts the backend.
    async fn launch(
        &self,
        session: &SessionId,
        name: Option<&BackendName>,
        command: &Command,
        until: Instant,
    ) -> Result<KeeperName, NoBackend> {
        let (service, session, command) = (self.clone(), session.clone(), command.clone());
        let backend = name.cloned();
        let started = tokio::task::spawn_blocking(move || {
            let Inner {
                name,
                binary,
                mask,
                starts_daemon,
                descriptors,
                ..
            } = &*service.0;
            let binary: &Path = binary;
            let launch = Launch {
                starts_daemon: *starts_daemon,
                descriptors: *descriptors,
                binary,
                of: BackendOf::Session {
                    session,
                    service: Some(name.clone()),
                    backend,
                    server: Some(command.digest()),
                    epoch: service.epoch(),
                },
                wait: KEEPER_WAIT,
                program: &command.program,
                inherits: None,
                environment: &command.environment,
                home: command.home.as_deref(),
            };
            launch.start(mask)
        });
        let passing = |error: &dyn std::fmt::Display| {
            NoBackend::Passing(format!("no keeper could be started: {error}"))
        };
        let mut starting = started
            .await
            .map_err(|error| passing(&error))?
            .map_err(|error| passing(&error))?;
        match starting
            .report(until, until + START_MAX)
            .await
            .map_err(|error| passing(&error))?
        {
            Report::Ready(keeper) => Ok(keeper),
            Report::NoProgram { code, sentence } => Err(NoBackend::NoProgram { code, sentence }),
            Report::NoSession(_) => Err(NoBackend::NoSession),
            Report::NoLease(sentence) | Report::Failed(sentence) => {
                Err(NoBackend::Passing(sentence))
            }
        }
    }

    /// Releases the lease, so that another process can take it. The backends go on, as they do when
    /// this process exits.
    ///
    /// # Errors
    /// When the daemon could not be told. Then the lease ends when this process exits.
    pub async fn release(self) -> Result<(), SessionError> {
        let request = ServiceLease {
            service: self.0.name.clone(),
            epoch: self.epoch(),
        };
        let released = self.0.control.ask(Client::release_service, request);
        released.await
    }
}

/// Tries again what fails for the moment.
async fn retry_until<T, F: Future<Output = Result<T, NoBackend>>>(
    until: Instant,
    attempt: impl Fn() -> F,
) -> Result<T, NoBackend> {
    loop {
        match attempt().await {
            Err(NoBackend::Passing(why)) if Instant::now() + PAUSE < until => {
                drop(why);
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

async fn lease_name(control: &Control, name: &ServiceName) -> Result<Epoch, NotLeased> {
    let request = ServeRequest {
        service: name.clone(),
        until_ms: None,
    };
    let leased = control.ask(Client::lease_service, request);
    match leased.await {
        Ok(served) => Ok(served.epoch),
        Err(SessionError::Refused(Error::ServiceTaken { pid, since_ms })) => {
            Err(NotLeased::Taken {
                pid,
                since: UNIX_EPOCH + Duration::from_millis(since_ms),
            })
        }
        Err(error) => Err(error.into()),
    }
}
