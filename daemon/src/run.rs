//! The daemon's life: configuration, lock, socket, readiness, and an orderly end.

mod detach;
mod signals;
mod socket;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_process::directory::{Directory, DirectoryError, Lock};
use mcp_sessiond_process::socket as sockets;
use mcp_sessiond_process::{ListenerLock, core_files, descriptors, priority, runtime};
use mcp_sessiond_proto::debug::About;
use mcp_sessiond_proto::{PROTOCOL_VERSION, paths};
use sd_notify::NotifyState;
use tokio::sync::{mpsc, watch as channel};

use crate::config::{self, ConfigError, Loaded};
use crate::contents::{Bounds, Clock, Contents};
use crate::counters::Meters;
use crate::engine::{Engine, StartError};
use crate::exporter;
use crate::fleet::Fleet;
use crate::logging::{self, Logging};
use crate::parts::Parts;
use crate::reaper::Reaper;
use crate::rpc::{self, Daemon};
use crate::storage;
use crate::terminator::{Terminator, end_orphans};
use crate::wills::Wills;
use signals::{Signal, Signals};
use socket::Origin;
use watch::SocketWatch;

pub use detach::launch;

/// How long closing the databases may take: their logs have to be moved into them.
const CLOSE: Duration = Duration::from_secs(2);

/// How long the start waits until what it has found is on record.
const RECORDED_WAIT: Duration = Duration::from_secs(1);

/// How a daemon is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The configuration file, in place of the usual one.
    pub config: Option<PathBuf>,
    /// `NAME=VALUE`, stronger than environment and file.
    pub set: Vec<String>,
    /// Started by a client: exits when nothing needs it, and reports readiness on standard output.
    pub detached: bool,
}

/// What is fatal to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no usable runtime directory.
    #[error(transparent)]
    Path(#[from] paths::DirectoryError),
    /// The runtime directory is not ours alone, or another daemon has it.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// What a former daemon left can't be continued.
    #[error(transparent)]
    Start(#[from] StartError),
    /// There is no socket.
    #[error("{path}: {error}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A service manager has the socket, and will start the daemon.
    #[error(
        "a service manager listens on {0}, and starts the daemon by itself; to run one by hand, stop its socket first, for example by `systemctl --user stop mcp-sessiond.socket`"
    )]
    Served(PathBuf),
    /// The operating system refused something without which there is no daemon.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

impl Fatal {
    /// The exit code: 64 for what the user must correct, 75 for another daemon, 70 for the rest
    /// (sysexits.h).
    pub fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Path(_) => 64,
            Self::Directory(DirectoryError::Locked(_)) | Self::Served(_) => 75,
            _ => 70,
        }
    }
}

/// Runs the daemon until it is told to stop, or nothing needs it.
pub fn run(options: &Options) -> ExitCode {
    signals::let_in();
    let load = if options.detached {
        load_for_client
    } else {
        load
    };
    let outcome = load(options).map_err(Fatal::from).and_then(|loaded| {
        let logging = Logging::start(loaded.config.log);
        if let Some(fault) = &loaded.fault {
            tracing::error!(error = %fault.sentence, "the configuration is wrong; settings that can't be read have their defaults");
        }
        if let Some(path) = std::env::var_os(config::FILE_VARIABLE).filter(|path| !Path::new(path).exists()) {
            tracing::warn!(path = %path.display(), "there is no file where {} says", config::FILE_VARIABLE);
        }
        prepare_process();
        if options.detached {
            if let Err(error) = priority::reset() {
                tracing::info!(%error, "could not get the usual priority; the daemon has that of the program that started it");
            }
            // Fails only for who leads a process group, which the process behind --on-demand does
            // not.
            let _ = nix::unistd::setsid();
        }
        mcp_sessiond_process::sys::share_one_heap();
        let runtime = runtime::current_thread()?;
        let ended = runtime.block_on(live(options, loaded, &logging));
        // What is detached has had the time to drain.
        runtime.shutdown_timeout(Duration::from_millis(100));
        ended
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            let priority = if logging::is_journal() {
                logging::priority(tracing::Level::ERROR)
            } else {
                ""
            };
            let _ = writeln!(std::io::stderr(), "{priority}mcp-sessiond: {fatal}");
            ExitCode::from(fatal.code())
        }
    }
}

fn load(options: &Options) -> Result<Loaded, ConfigError> {
    // The usual file need not be there; one that was named must be.
    if let Some(named) = &options.config
        && let Err(error) = std::fs::metadata(named)
    {
        return Err(ConfigError::Unreadable {
            path: named.clone(),
            error,
        });
    }
    let path = options.config.clone().or_else(config::usual_path);
    config::load(path.as_deref(), &options.set)
}

/// The same for a daemon that a client starts, where a host waits for its server: logs what is
/// wrong with the file, and uses what can be read of it.
fn load_for_client(options: &Options) -> Result<Loaded, ConfigError> {
    load(options).or_else(|error| {
        let path = options.config.clone().or_else(config::usual_path);
        config::load_readable(path.as_deref(), &options.set, error)
    })
}

/// No core files, since there are tokens in memory; and as many descriptors as may be had, one for
/// each process and connection.
fn prepare_process() {
    core_files::never_dump();
    descriptors::raise();
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
}

async fn live(options: &Options, loaded: Loaded, logging: &Logging) -> Result<(), Fatal> {
    let mut signals = Signals::listen()?;
    let place = paths::directory()?;
    let path = paths::socket(&place);
    let origin = socket::origin(options.detached, &path)?;
    let (directory, lock, origin) = take(&place, origin, &mut signals).await?;
    // Without it a keeper whose server has started this daemon would end it with the server.
    let _known_by = ListenerLock::take(&paths::daemon_lock(&place), paths::DAEMON_BYTE)
        .inspect_err(|error| tracing::warn!(%error, "the daemon could not lock `daemon.lock`"));
    if options.detached {
        logging.put_aside(log_path(directory.path()));
    }
    let meters = Arc::<Meters>::default();
    let url = match &loaded.fault {
        Some(fault) if fault.hides_storage => Err(fault.sentence.clone()),
        _ => Ok(loaded.config.storage.url.as_str()),
    };
    let durability = loaded.config.storage.durability;
    let store = storage::open(url, durability, directory.path(), meters.clone()).await;
    let bounds = Bounds::of(&loaded.config);
    // It was looked at when the configuration was read.
    let scraped = loaded.config.metrics.bound().ok().flatten();
    let contents = Arc::new(Contents::new(
        store,
        Arc::new(Clock::system()),
        bounds,
        meters.clone(),
    ));
    let (dropped, incoming) = mpsc::unbounded_channel();
    let (charges, charged) = mpsc::unbounded_channel();
    let engine = Arc::new(Engine::start(
        &directory,
        loaded,
        meters.clone(),
        dropped,
        charges,
    )?);
    let wills = Arc::new(Wills::new(engine.clone(), contents.clone())?);
    let told = (Arc::downgrade(&engine), Arc::downgrade(&wills));
    contents.on_end(move |place| {
        if let (Some(engine), Some(wills)) = (told.0.upgrade(), told.1.upgrade()) {
            engine.forget(place);
            wills.ended(place);
        }
    });
    // Before any client gets an answer.
    end_orphans(&engine).await;
    let reaper = tokio::spawn(Reaper::new(engine.clone(), contents.clone(), incoming).run());
    let executor = tokio::spawn(wills.clone().run());
    let fleet = Arc::new(Fleet::new(engine.clone(), contents.clone(), wills.clone()));
    let member = tokio::spawn(fleet.clone().run());
    let terminator = tokio::spawn(Terminator::new(engine.clone(), charged).run());
    let started_by = origin.name();
    let ours = matches!(origin, Origin::OwnSocket { .. });
    let listener = origin.listener(&path).map_err(|error| Fatal::Socket {
        path: path.clone(),
        error,
    })?;
    let placed = listener.try_clone()?;
    let mut place = SocketWatch::new(directory.clone(), listener.try_clone()?);
    let about = about(&directory, started_by);
    let daemon = Arc::new(Daemon {
        engine,
        contents,
        wills,
        fleet,
        parts: Parts::default(),
        meters,
        connections: Arc::default(),
        about,
    });
    let (drain, draining) = channel::channel(false);
    let mut serving = tokio::spawn(rpc::serve(listener, daemon.clone(), draining));
    let mut exits = {
        let daemon = daemon.clone();
        tokio::spawn(async move { daemon.engine.run().await })
    };
    let scraped = scraped.map(|address| tokio::spawn(exporter::serve(address, daemon.clone())));
    // That earlier records were lost is on record before anybody hears that this daemon runs: it may
    // be killed at once. A disk that is full keeps nobody waiting.
    let _ = tokio::time::timeout(RECORDED_WAIT, daemon.engine.recorded()).await;
    report_ready(options.detached)?;
    tracing::info!(directory = %directory.path().display(), started_by, "ready");
    let end = tokio::select! {
        ended = &mut serving => Err(ended.map_err(std::io::Error::other).and_then(|served| served).err()),
        ended = &mut exits => Err(ended.map_err(std::io::Error::other).and_then(|watched| watched).err()),
        why = until_stopped(options, &daemon, &mut place, &mut signals, logging) => Ok(why),
    };
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    match &end {
        Ok(why) => tracing::info!(why, "stopping"),
        Err(error) => tracing::error!(?error, "the socket, or the watch over processes, failed"),
    }
    if ours {
        placed.unlink();
    }
    daemon.contents.close();
    let _ = drain.send(true);
    let patience = Duration::from_millis(daemon.engine.settings().loaded.config.drain_ms);
    if end.is_ok() && tokio::time::timeout(patience, serving).await.is_err() {
        tracing::warn!("calls were still under way when the time to drain was over");
    }
    if let Some(scraped) = scraped {
        scraped.abort();
    }
    exits.abort();
    reaper.abort();
    terminator.abort();
    executor.abort();
    member.abort();
    let closing = async {
        daemon.engine.close_records().await;
        daemon.contents.store().close().await;
    };
    if tokio::time::timeout(CLOSE, closing).await.is_err() {
        tracing::warn!(
            "the databases could not be closed in time; the next daemon goes on with them as they are"
        );
    }
    // Held until this process has exited, and with it every thread that could still write.
    std::mem::forget(lock);
    match end {
        Err(Some(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Takes the directory for this daemon alone.
async fn take(
    place: &Path,
    mut origin: Origin,
    signals: &mut Signals,
) -> Result<(Arc<Directory>, Lock, Origin), Fatal> {
    let path = paths::socket(place);
    loop {
        let directory = Arc::new(Directory::open(place)?);
        origin = origin.settle(&path);
        let lock = match &origin {
            Origin::Activated { .. } => {
                // The daemon that holds it sees that its path is gone, and gives it up.
                let waiting = directory.clone();
                let locked = tokio::task::spawn_blocking(move || waiting.wait_for_lock());
                tokio::select! {
                    locked = locked => locked.map_err(std::io::Error::other)??,
                    () = signals.stop() => std::process::exit(0),
                }
            }
            Origin::OwnSocket { .. } => {
                let lock = directory.try_lock()?;
                // Binding would take it away from a service manager, which would never learn of it.
                if sockets::is_served(&path) {
                    return Err(Fatal::Served(path));
                }
                lock
            }
        };
        // Meanwhile the directory may have been replaced, so that the lock is worthless, or the
        // socket.
        if directory.is_in_place() && origin.is_in_place(&path) {
            return Ok((directory, lock, origin));
        }
    }
}

/// Returns why the daemon has to stop. Meanwhile it answers SIGHUP and the watchdog.
async fn until_stopped(
    options: &Options,
    daemon: &Daemon,
    place: &mut SocketWatch,
    signals: &mut Signals,
    logging: &Logging,
) -> &'static str {
    let watchdog = sd_notify::watchdog_enabled();
    // Twice as often as systemd asks, as sd_watchdog_enabled(3) recommends.
    let mut watchdog_tick =
        tokio::time::interval(watchdog.map_or(Duration::from_secs(3600), |period| period / 2));
    let mut unneeded = pin!(watch::nothing_needs(daemon));
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Stop => return "asked to",
                Signal::Reload => reload(options, daemon, logging),
            },
            _ = watchdog_tick.tick(), if watchdog.is_some() => {
                // A daemon that can't lock its registry is stuck.
                daemon.engine.look(|_| ());
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            }
            () = place.changed() => {
                if let Some(why) = place.look(daemon) {
                    return why;
                }
            }
            () = daemon.engine.records_ended() => return "the thread that writes sessions.db has ended",
            () = &mut unneeded, if options.detached => return "no host, lease, keeper or connection is left",
        }
    }
}

fn reload(options: &Options, daemon: &Daemon, logging: &Logging) {
    let _ = sd_notify::notify(&[
        NotifyState::Reloading,
        NotifyState::monotonic_usec_now().unwrap_or(NotifyState::Reloading),
    ]);
    match load(options) {
        Ok(loaded) => {
            let former = daemon.engine.settings().loaded.clone();
            let loaded = loaded.after(&former, daemon.contents.store().is_open());
            let changes = former.changes(&loaded);
            logging.set(loaded.config.log);
            daemon.contents.set_bounds(Bounds::of(&loaded.config));
            daemon.contents.store().want(&loaded.config.storage.url);
            daemon.engine.configure(loaded);
            if changes.is_empty() {
                tracing::info!("reloaded the configuration; nothing has changed");
            }
            for change in changes {
                tracing::info!("reloaded the configuration; {change}");
            }
        }
        Err(error) => {
            // A line of the log is one line.
            let error = error.to_string().replace('\n', " ");
            tracing::error!(%error, "kept the previous configuration, since the new one is wrong");
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

fn about(directory: &Directory, started_by: &str) -> About {
    let executable = std::env::current_exe().unwrap_or_default();
    About {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        protocol: PROTOCOL_VERSION,
        started_by: started_by.into(),
        uptime_ms: 0,
        directory: directory.path().display().to_string(),
        executable: executable.display().to_string(),
        peers: match mcp_sessiond_process::peers_are_known() {
            Ok(true) if cfg!(target_os = "macos") => "LOCAL_PEERTOKEN",
            Ok(true) => "SO_PEERPIDFD",
            Ok(false) => "challenge",
            Err(_) => "",
        }
        .into(),
        storage: String::new(),
        storage_failure: None,
        faults: Vec::new(),
        advice: Vec::new(),
    }
}

fn report_ready(detached: bool) -> std::io::Result<()> {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    if detached {
        detach::report_ready()
    } else {
        Ok(())
    }
}

/// The directory in which the daemon would run, and its log when it was started on demand.
pub fn log_path(directory: &Path) -> PathBuf {
    directory.join("daemon.log")
}
