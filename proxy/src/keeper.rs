//! The keeper: the small process that holds one backend's pipes, so that no other process has to
//! stay up for it.
//!
//! - [`mcp_sessiond_relay`]: what becomes of each line: a state machine that does no I/O.
//! - [`hold`]: the loop that carries lines between the backend and the front, and tells the relay
//!   what happens.
//! - [`backend`], [`children`]: the child process, its group, and how it is taken down.
//!   [`stderr_ring`]: the end of its standard error. `error_line`: which line of that says why it
//!   has ended.
//! - [`requests`]: requests on its socket. [`front_connection`]: the attached front. `sharing`: the fronts of
//!   several hosts that share the backend. [`dial`]: the client's side of the socket.
//! - [`silence`]: how long a keeper that does not answer is waited for.
//! - [`exits`]: the processes whose exits matter. [`program_change`]: whether the program has
//!   changed; `sources`: whether a module of its script has. [`launch`]: how a keeper starts.
//!
//! **Architecture Invariant:** a front gets the backend only if the daemon says that it holds the
//! lease, or, while the daemon is away, if no other process has attached under its epoch or a newer
//! one. Where hosts share the backend, the keeper itself holds the lease, so there is one keeper of
//! it, and each process of the user may join.

pub mod backend;
pub mod children;
pub mod dial;
pub mod dial_error;
mod error_line;
pub mod exits;
pub mod front_connection;
pub mod hold;
pub mod launch;
pub mod program_change;
pub mod requests;
pub(crate) mod sharing;
pub mod silence;
mod sources;
pub mod spare;
pub mod stderr_ring;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{Control, Options, SessionError, Start};
use mcp_sessiond_process::executable;
use mcp_sessiond_process::signals::not_ignored;
use mcp_sessiond_process::socket::Listener;
use mcp_sessiond_process::{ListenerLock, PinnedProcess, ProcessId, StartTime, runtime};
use mcp_sessiond_proto::backends::{EndingRequest, KEEPER_VERSION, KeepRequest, Kept};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::services::FindRequest;
use mcp_sessiond_proto::{
    BackendName, ClaimRequest, Claimed, Epoch, Error, KeeperName, Label, Loss, Named, ServiceName,
    SessionId, paths,
};
use nix::sys::signal::Signal;
use signal_hook_tokio::Signals;
use tokio::net::UnixListener;

use children::Children;
use exits::ExitWatcher;
use hold::Keeper;
use launch::{BackendOf, Report, keeper_of_key};
use requests::KeeperContext;
use sharing::{Former, Sharing};
use spare::Spare;

use crate::memory::forbid_core_dumps;
use crate::program::Program;
use crate::signals::{GivenMask, survive_file_limit};

/// How long the daemon may take to say whether a front holds the session. A daemon that is
/// restarted takes less.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

/// How long the daemon may take to be told that there is no such program. The front waits meanwhile.
const TOLD_WAIT: Duration = Duration::from_secs(1);

/// What a keeper is started for.
#[derive(Debug)]
pub struct Errand {
    /// Whose backend it holds.
    pub of: BackendOf,
    /// What is run.
    pub program: Program,
    /// How long it waits for its first front. By then the front that has started it has given up.
    pub wait: Duration,
    /// Whether it starts a daemon where none runs.
    pub starts_daemon: bool,
}

/// The newest version of the protocol that this build speaks on keepers' sockets.
pub fn version() -> u16 {
    mcp_sessiond_process::fault::protocol_version().unwrap_or(KEEPER_VERSION)
}

/// Registers, starts the backend, reports, and keeps it.
pub fn run(args: Errand) -> ExitCode {
    let spare = Spare::take();
    // Out of the front's session, so that no signal to its group or from its terminal comes here.
    let _ = nix::unistd::setsid();
    survive_file_limit();
    // A host may have blocked them.
    let mask = GivenMask::unblock(&[Signal::SIGCHLD, Signal::SIGTERM]);
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(error) => {
            Report::Failed(error.to_string()).write();
            return ExitCode::from(70);
        }
    };
    let ended = runtime.block_on(start(args, mask, spare));
    // Don't wait for tasks that are left.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(report) => {
            report.write();
            ExitCode::from(70)
        }
    }
}

/// Makes orphans of the backend our children, so that none of them can outlive us unseen. Call it
/// only after the daemon runs: a daemon that we have started must not become our child.
fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

async fn start(args: Errand, mask: GivenMask, spare: Spare) -> Result<(), Report> {
    let Errand {
        of,
        program,
        wait,
        starts_daemon,
    } = args;
    let failed = |error: &dyn std::fmt::Display| Report::Failed(error.to_string());
    let directory = paths::directory().map_err(|error| failed(&error))?;
    let start = match of {
        BackendOf::Session { .. } if starts_daemon => Start::Auto {
            binary: executable::own(),
        },
        // That of hosts would have no variable but those that every host has.
        BackendOf::Session { .. } | BackendOf::Hosts { .. } => Start::Never,
    };
    let control = Control::new(Options::default().start(start));
    let Tenure {
        session,
        service,
        backend,
        server,
        epoch,
        keeper,
        shared,
    } = Tenure::of(of, &control, &program).await?;
    // Not before the session was claimed: the daemon reads the claimer's environment then.
    forbid_core_dumps();
    let request = KeepRequest {
        session: session.clone(),
        epoch,
        keeper,
        program: program.display_name(),
        service: service.clone(),
        backend: backend.clone(),
        server: server.clone(),
    };
    let mut kept = register(&control, request).await?;
    if let Some(shared) = &shared {
        kept.closed_linger_ms = shared.linger_ms;
    }
    adopt_orphans();
    let owner = watch_owner(&kept).map_err(|error| failed(&error))?;
    // Before the backend is started, so that its end can't be missed. SIGCHLD even if the host
    // ignores it, and of those that end a program SIGTERM only: a backend inherits the signals that
    // the host has ignored, and a keeper dies of the others.
    let mut awaited = not_ignored(&[Signal::SIGTERM]);
    awaited.push(Signal::SIGCHLD as i32);
    let signals = Signals::new(awaited).map_err(|error| failed(&error))?;
    let check = Options::default()
        .start(Start::Never)
        .timeout(CHECK_PATIENCE);
    let known_by = ListenerLock::take(&paths::keeper_locks(&directory), keeper.0)
        .map_err(|error| failed(&error))?;
    let context = KeeperContext {
        session,
        service,
        key: shared.as_ref().map(|shared| shared.key.clone()),
        of: backend,
        server,
        keeper,
        control: Control::new(check),
        children: Arc::new(Children::new(known_by, &directory)),
    };
    let quiet = Control::new(Options::default().start(Start::Never));
    let listener = Listener::bind(&paths::keeper_socket(&directory, keeper))
        .map_err(|error| failed(&error))?;
    let placed = listener.try_clone().map_err(|error| failed(&error))?;
    let listener = UnixListener::from_std(listener.into()).map_err(|error| failed(&error))?;
    let nothing_started = EndingRequest {
        session: context.session.clone(),
        keeper,
        why: None,
    };
    // A front that has given up runs the server without a keeper by now.
    let is_awaited = launch::is_awaited();
    let started = if is_awaited {
        Keeper::start(context, epoch, kept, quiet, program.clone(), mask, wait)
    } else {
        Err(io::ErrorKind::TimedOut.into())
    };
    let holder = match started {
        Ok(holder) => holder,
        Err(error) => {
            placed.unlink();
            // Else the end of this process would count as the loss of a server.
            let told = control.ask(Client::backend_ending, nothing_started.clone());
            drop(tokio::time::timeout(TOLD_WAIT, told).await);
            if !is_awaited {
                return Err(failed(
                    &"the process that started it no longer waits for it",
                ));
            }
            let (code, sentence) = program.not_run(&error);
            return Err(Report::NoProgram { code, sentence });
        }
    };
    Report::Ready(keeper).write();
    launch::close_report_pipe().map_err(|error| failed(&error))?;
    let holder = match shared {
        Some(shared) => holder.shared(Sharing::new(shared.former)),
        None => holder,
    };
    // The report is sent; later failures show when the front's connection ends.
    holder.hold(listener, &placed, owner, signals, spare).await;
    Ok(())
}

/// By which right a keeper holds its backend.
struct Tenure {
    session: SessionId,
    service: Option<ServiceName>,
    backend: Option<BackendName>,
    server: Option<ServerDigest>,
    epoch: Epoch,
    keeper: KeeperName,
    shared: Option<SharedTenure>,
}

/// What a keeper has to know of a backend that hosts share.
struct SharedTenure {
    key: String,
    linger_ms: u64,
    /// Why there is no former backend any more.
    former: Option<Former>,
}

impl Tenure {
    async fn of(of: BackendOf, control: &Control, program: &Program) -> Result<Self, Report> {
        let failed = |error: &dyn std::fmt::Display| Report::Failed(error.to_string());
        match of {
            BackendOf::Session {
                session,
                service,
                backend,
                server,
                epoch,
            } => Ok(Self {
                session,
                service,
                backend,
                server,
                epoch,
                keeper: KeeperName(getrandom::u32().map_err(|error| failed(&error))?),
                shared: None,
            }),
            BackendOf::Hosts { key, linger_ms } => {
                let keeper = keeper_of_key(&key).ok_or_else(|| failed(&"the key is too short"))?;
                let claimed = claim_shared(control, &key, program).await?;
                let own = claimed.lost.iter().find(|loss| loss.of.is_none());
                let because = claimed.because.or(own.map(|loss| loss.because));
                let former = because.and_then(|because| match because {
                    Loss::Stopped => Some(Former::Ended(because.sentence().to_owned())),
                    because if because.is_wanted() => None,
                    because => Some(Former::Lost(
                        because.sentence().to_owned(),
                        own.map(|loss| loss.id),
                    )),
                });
                Ok(Self {
                    session: claimed.session,
                    service: None,
                    backend: None,
                    server: None,
                    epoch: claimed.epoch,
                    keeper,
                    shared: Some(SharedTenure {
                        key,
                        linger_ms,
                        former,
                    }),
                })
            }
        }
    }
}

/// Claims the session of a backend that hosts share, and waits until a former one is gone.
async fn claim_shared(control: &Control, key: &str, program: &Program) -> Result<Claimed, Report> {
    let name = format!("shared {}", key.get(..16).unwrap_or(key));
    let name: Label = name
        .parse()
        .map_err(|error| Report::Failed(format!("{name}: {error}")))?;
    let claim = ClaimRequest {
        // Not what the words of the command stand for: a secret among them may have been renewed.
        named: Some(Named {
            name,
            command: key.to_owned(),
            take: false,
            own: false,
        }),
        program: Some(program.display_name()),
        confirms_loss: true,
        ..ClaimRequest::default()
    };
    let claimed = control.claim(claim).await.map_err(|error| match error {
        SessionError::Refused(Error::NameTaken { sentence }) => Report::NoLease(sentence),
        error => Report::Failed(error.to_string()),
    })?;
    let request = FindRequest {
        session: claimed.session.clone(),
        epoch: claimed.epoch,
        service: None,
        backend: None,
    };
    match control.ask(Client::find_backend, request).await {
        Ok(None) => Ok(claimed),
        // The records were lost, and its lease with them.
        Ok(Some(found)) => Err(Report::NoLease(format!(
            "process {} keeps this server",
            found.keeper_pid
        ))),
        Err(error) => Err(Report::Failed(error.to_string())),
    }
}

async fn register(control: &Control, request: KeepRequest) -> Result<Kept, Report> {
    let is_services = request.service.is_some();
    let kept = control.ask(Client::keep_backend, request);
    let kept = kept.await;
    control.hang_up();
    kept.map_err(|error| match error {
        SessionError::Refused(error @ Error::UnknownSession) if is_services => {
            Report::NoSession(error.to_string())
        }
        SessionError::Refused(
            error @ (Error::StaleEpoch { .. }
            | Error::LeaseEnded
            | Error::ServiceTaken { .. }
            | Error::UnknownSession
            | Error::SessionTerminated),
        ) => Report::NoLease(error.to_string()),
        error => Report::Failed(error.to_string()),
    })
}

/// Watches the session's host, where it has one.
fn watch_owner(kept: &Kept) -> io::Result<ExitWatcher> {
    let Some(owner) = &kept.owner else {
        return ExitWatcher::new(None);
    };
    let owner = ProcessId {
        pid: owner.pid,
        start: StartTime(owner.start),
        inode: owner.inode,
    };
    ExitWatcher::new(Some(
        PinnedProcess::reopen(&owner)?.ok_or_else(|| io::Error::other("the host has exited"))?,
    ))
}
