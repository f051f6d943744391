//! What is kept: the daemon knows which servers there are; how each is, its keeper says. Keepers
//! that the daemon does not know, or all of them where none answers, are found by their sockets.

pub(crate) mod alike;
pub(crate) mod listing;
mod not_running;
mod parts;
pub(crate) mod selection;
mod served;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mcp_sessiond_client::CallError;
use mcp_sessiond_client::{ConnectError, Connection, Directory, SessionId};
use mcp_sessiond_daemon::config::{KnownHost, known_host};
use mcp_sessiond_daemon::keepers;
use mcp_sessiond_process::{self as process, PinnedProcess};
use mcp_sessiond_proto::backends::{
    Backend, BackendState, BackendStatus, KeeperReply, KeeperRequest,
};
use mcp_sessiond_proto::debug::{HostInfo, Page};
use mcp_sessiond_proto::services::{ServiceLoss, ServiceLossesRequest};
use mcp_sessiond_proto::time::now_ms;
use mcp_sessiond_proto::{BackendName, KeeperName, Loss, LossRecord, ServiceName, paths};
use mcp_sessiond_proxy::keeper::dial::{DialError, Dialled, dial, keeper_of};
use mcp_sessiond_proxy::program::display_name;
pub(crate) use not_running::NotRunning;
use parts::Trouble;
pub(crate) use parts::Unready;
use serde::Serialize;

use crate::calls::{ANSWER_TIMEOUT, Failure, all_pages, reach};
use crate::hosts::Host;
use crate::hosts::names::EntryNames;
use crate::ui::table::duration;

/// A backend as the daemon knows it, and as its keeper does.
#[derive(Debug, Serialize)]
pub(crate) struct BackendReport {
    #[serde(flatten)]
    pub(crate) backend: Backend,
    /// Absent: the keeper did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<BackendStatus>,
    /// Why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Nobody listens on its socket any more.
    #[serde(skip)]
    is_leaving: bool,
}

/// A kept server, whoever knows of it.
#[derive(Debug, Serialize)]
pub(crate) struct Server {
    /// What its user calls it: the name of its entry, or the one that its session was given; else
    /// the words of `program`.
    pub(crate) server: String,
    /// Its program, and the package or script that it runs. None: its keeper is gone.
    pub(crate) program: Option<String>,
    /// Its command line, which may have secrets in it, and is shown to nobody.
    #[serde(skip)]
    pub(crate) command: Vec<String>,
    /// The directory that it was started in.
    pub(crate) directory: Option<PathBuf>,
    /// Its session; none where nobody says.
    pub(crate) session: Option<SessionId>,
    /// The service that the session belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<ServiceName>,
    /// Its name, where the session has several servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<BackendName>,
    /// The pid of its host.
    pub(crate) host: Option<u32>,
    /// What people call its host; where that is not known, the name of its executable.
    pub(crate) host_name: Option<String>,
    /// Its own pid; none while it does not run.
    pub(crate) pid: Option<u32>,
    /// The name of its keeper.
    pub(crate) keeper: KeeperName,
    /// The pid of its keeper.
    pub(crate) keeper_pid: Option<u32>,
    /// The pid of the wrapper that has it.
    #[serde(skip)]
    pub(crate) front: Option<u32>,
    /// What it is doing.
    pub(crate) state: State,
    /// How many hosts share it, where it is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<usize>,
    /// How many of its notifications none of these was told, since it can't be known whom they
    /// concern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<u64>,
    /// How long it has been running, in ms.
    pub(crate) age_ms: Option<u64>,
    /// How long its host has been there, or away, in ms.
    pub(crate) since_ms: Option<u64>,
    /// How often it was started again.
    pub(crate) restarts: Option<u32>,
    /// Its memory, with all that it has started, in bytes.
    pub(crate) memory: Option<u64>,
    /// Why it ended the last time.
    pub(crate) last_error: Option<String>,
    /// Whether the daemon knows it.
    pub(crate) known: bool,
    /// Why its keeper does not say how it is.
    pub(crate) failure: Option<String>,
    /// Why it can't be used, where it is one of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<Trouble>,
}

/// What a kept server is doing, in the words of people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// A host is there.
    InUse,
    /// Its host has gone away, and may come back.
    Waiting,
    /// It is being started.
    Starting,
    /// It has ended by itself, and is started again when it is needed.
    Ended,
    /// It is being taken down.
    Stopping,
    /// Its keeper does not say.
    Silent,
}

/// All of them, and why the daemon could not be asked for them.
pub(crate) struct Inventory {
    pub(crate) directory: Directory,
    pub(crate) connection: Option<Connection>,
    pub(crate) failure: Option<Failure>,
    /// In order of their words.
    pub(crate) servers: Vec<Server>,
    /// Those of lists that are not ready, and that no keeper holds.
    pub(crate) unready: Vec<Unready>,
    /// Those that do not run, while their hosts are connected.
    pub(crate) not_running: Vec<NotRunning>,
    /// What is kept no more, and was told to no server yet.
    pub(crate) losses: Vec<LostServer>,
}

/// What a host has lost, or a session of `serve`.
#[derive(Debug, Serialize)]
pub(crate) struct LostServer {
    /// The pid of the host; none for what the user has named, and for what `serve` serves.
    pub(crate) host: Option<u32>,
    /// Its name; that of the service for what `serve` serves.
    pub(crate) host_name: String,
    /// The session of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionId>,
    /// The member of a list of servers that it is. None: the server has no name there.
    pub(crate) of: Option<BackendName>,
    /// Why it is lost.
    pub(crate) because: Loss,
    /// Since when, in ms since the Unix epoch.
    pub(crate) at_ms: u64,
}

impl Inventory {
    /// Asks the daemon, and every keeper.
    ///
    /// # Errors
    /// When there is no runtime directory that could be looked into.
    pub(crate) async fn read() -> Result<Self, Failure> {
        Self::read_with(&mut EntryNames::default()).await
    }

    /// The same, for whoever asks often: what was read of hosts' files before counts as long as they
    /// were not changed.
    ///
    /// # Errors
    /// When there is no runtime directory that could be looked into.
    pub(crate) async fn read_with(names: &mut EntryNames) -> Result<Self, Failure> {
        let directory = Directory::of_user()?;
        let listening = keepers::listening(directory.path());
        let answer = match reach(&directory).await {
            Ok((connection, _)) => backends(&connection, &directory, None)
                .await
                .map(|seen| (connection, seen)),
            Err(failure) => Err(failure),
        };
        let (connection, failure, seen) = match answer {
            Ok((connection, seen)) => (Some(connection), None, seen),
            Err(failure) => (None, Some(failure), Vec::new()),
        };
        // What is not said is no reason to hide the servers.
        let (hosts, of_services, parts) = match &connection {
            Some(connection) => (
                connection
                    .list_hosts(ANSWER_TIMEOUT)
                    .await
                    .unwrap_or_default(),
                service_losses(connection).await.unwrap_or_default(),
                parts::read(connection).await.unwrap_or_default(),
            ),
            None => (Vec::new(), Vec::new(), Vec::new()),
        };
        let known: HashSet<KeeperName> = seen.iter().map(|seen| seen.backend.keeper).collect();
        let unknown = listening.into_iter().filter(|name| !known.contains(name));
        let mut servers: Vec<Server> = seen.into_iter().map(Server::of_backend).collect();
        // Nobody is asked in a directory where somebody else could listen.
        match directory.check() {
            Ok(()) => {
                let orphan = |name| Server::orphan(directory.path(), name);
                servers.extend(in_parallel(unknown.collect(), orphan).into_iter().flatten());
            }
            Err(ConnectError::NotRunning { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        servers
            .iter_mut()
            .for_each(|server| server.look_at_processes(names));
        let unready = parts::assign(parts, &mut servers, &hosts);
        let not_running = match &connection {
            Some(connection) => {
                let listed = (&servers[..], &unready[..]);
                not_running::read(connection, &directory, listed, &hosts, names).await
            }
            None => Vec::new(),
        };
        let order = |server: &Server| (server.server.clone(), server.host, server.keeper);
        servers.sort_by_key(order);
        Ok(Self {
            directory,
            connection,
            failure,
            servers,
            unready,
            not_running,
            losses: losses_of(hosts, of_services),
        })
    }

    /// Whether there is no daemon, which is no failure where nothing needs one.
    pub(crate) fn has_no_daemon(&self) -> bool {
        matches!(
            self.failure,
            Some(Failure::Connect(ConnectError::NotRunning { .. }))
        )
    }
}

/// What the daemon has to tell of losses. What a host or the user has ended on purpose is none.
pub(crate) async fn losses(connection: &Connection) -> Result<Vec<LostServer>, CallError> {
    let hosts = connection.list_hosts(ANSWER_TIMEOUT).await?;
    Ok(losses_of(hosts, service_losses(connection).await?))
}

async fn service_losses(connection: &Connection) -> Result<Vec<ServiceLoss>, CallError> {
    let all = ServiceLossesRequest::default();
    connection.list_service_losses(ANSWER_TIMEOUT, all).await
}

/// What people call a host; where that is not known, the name of its executable.
fn host_title_of(host: &HostInfo) -> String {
    known_of(host).map_or_else(|| host.name.clone(), |known| known.title().to_owned())
}

/// The row of a host.
fn known_of(host: &HostInfo) -> Option<&'static KnownHost> {
    let found = PinnedProcess::open(host.pid).ok()?;
    known_host(&process::command_line(&found).ok()?)
}

fn losses_of(hosts: Vec<HostInfo>, of_services: Vec<ServiceLoss>) -> Vec<LostServer> {
    let of = |host: HostInfo| {
        let HostInfo {
            pid, name, losses, ..
        } = host;
        let lost = move |loss: LossRecord| LostServer {
            host: (pid != 0).then_some(pid),
            host_name: name.clone(),
            session: None,
            of: loss.of,
            because: loss.because,
            at_ms: loss.at_ms,
        };
        losses.into_iter().map(lost)
    };
    let of_service = |ServiceLoss {
                          service,
                          session,
                          loss,
                      }| LostServer {
        host: None,
        host_name: service.to_string(),
        session: Some(session),
        of: loss.of,
        because: loss.because,
        at_ms: loss.at_ms,
    };
    let all = hosts.into_iter().flat_map(of);
    let all = all.chain(of_services.into_iter().map(of_service));
    all.filter(|loss| !loss.because.is_wanted()).collect()
}

impl LostServer {
    /// In a sentence.
    pub(crate) fn sentence(&self) -> String {
        let (name, why) = (&self.host_name, self.because.sentence());
        let ago = duration(now_ms().saturating_sub(self.at_ms));
        let of = self.of.as_ref().map(BackendName::in_list);
        if let Some(session) = &self.session {
            let what = of.map_or_else(|| "The server".to_owned(), |of| format!("The server {of}"));
            return format!("{what} of session {session} of {name} was lost {ago} ago: {why}");
        }
        let what = match (of, self.host) {
            (Some(of), Some(pid)) => format!("The server {of} of {name} {pid}"),
            (Some(of), None) => format!("The server {of}"),
            (None, Some(pid)) => format!("A server of {name} {pid}"),
            (None, None) => "A server that you have named".to_owned(),
        };
        format!("{what} was lost {ago} ago: {why}")
    }
}

impl Server {
    fn of_backend(seen: BackendReport) -> Self {
        let BackendReport {
            backend,
            status,
            failure,
            is_leaving,
        } = seen;
        let Backend {
            session,
            keeper,
            keeper_pid,
            host,
            service,
            backend,
            program,
            pid,
        } = backend;
        let silent = match (is_leaving, pid) {
            (false, _) => State::Silent,
            (true, Some(_)) => State::Stopping,
            // It has registered, and is about to listen.
            (true, None) => State::Starting,
        };
        let host_name = status.as_ref().and_then(|status| status.host_name.clone());
        Self {
            server: program,
            program: None,
            command: Vec::new(),
            session: Some(session),
            service,
            backend,
            // What the user has named has none.
            host: (host != 0).then_some(host),
            host_name: (host != 0).then(|| host_name.unwrap_or_else(|| process::name_of(host))),
            // The daemon knows which one was started last, and not that it has ended.
            pid: status.as_ref().map_or(pid, |status| status.pid),
            keeper_pid: Some(keeper_pid),
            known: true,
            failure: failure.filter(|_| !is_leaving),
            ..Self::of_status(keeper, silent, status.as_ref())
        }
    }

    /// One that the daemon does not know; none if nobody listens there any more.
    fn orphan(directory: &Path, keeper: KeeperName) -> Option<Self> {
        let (status, failure, is_leaving) = keeper_status(&paths::keeper_socket(directory, keeper));
        if is_leaving {
            return None;
        }
        let pid = keeper_of(directory, keeper)
            .ok()
            .map(|keeper| keeper.id().pid);
        Some(Self {
            keeper_pid: pid,
            failure,
            ..Self::of_status(keeper, State::Silent, status.as_ref())
        })
    }

    /// What its keeper says.
    fn of_status(keeper: KeeperName, silent: State, status: Option<&BackendStatus>) -> Self {
        let pid = status.and_then(|status| status.pid);
        let program = status.map(|status| status.program.clone());
        let shared = status.and_then(|status| status.shared);
        Self {
            // A keeper that hangs does not say.
            server: program
                .or_else(|| pid.map(process::name_of))
                .unwrap_or_else(|| "?".to_owned()),
            program: None,
            command: Vec::new(),
            directory: status
                .and_then(|status| status.directory.clone())
                .map(PathBuf::from),
            session: status.map(|status| status.session.clone()),
            service: None,
            backend: None,
            host: status.and_then(|status| status.host),
            host_name: status.and_then(|status| status.host_name.clone()),
            pid,
            keeper,
            keeper_pid: status.map(|status| status.keeper_pid),
            front: status.and_then(|status| status.front),
            state: status.map_or(silent, State::of),
            hosts: shared.map(|shared| shared.hosts),
            withheld: shared.map(|shared| shared.withheld),
            age_ms: status.and_then(|status| status.pid.map(|_| status.age_ms)),
            since_ms: status.map(|status| status.since_ms),
            restarts: status.map(|status| status.restarts),
            memory: status.map(|status| status.backend_bytes),
            last_error: status.and_then(|status| status.last_error.clone()),
            known: false,
            failure: None,
            trouble: None,
        }
    }

    /// Notes what its keeper and its host are running, which the kernel says.
    fn look_at_processes(&mut self, names: &mut EntryNames) {
        let open = |pid: Option<u32>| PinnedProcess::open(pid?).ok();
        let keeper = open(self.keeper_pid);
        let command = keeper.as_ref().and_then(command_of).unwrap_or_default();
        if let Some((program, arguments)) = command.split_first() {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            self.program = Some(display_name::of(program.as_ref(), &arguments));
            self.command.clone_from(&command);
        }
        let host = open(self.host).and_then(|host| process::command_line(&host).ok());
        let Some(known) = host.as_ref().and_then(known_host) else {
            return;
        };
        self.host_name = Some(known.title().to_owned());
        // A server that has a name of its own keeps it.
        let is_unnamed = self.program.as_deref() == Some(&*self.server);
        if let Some(host) = Host::of(known).filter(|_| is_unnamed)
            && let Some(name) = names.of(host, &command, self.directory.as_deref())
        {
            self.server = name;
        }
    }

    /// What is wrong with it, and what to do.
    pub(crate) fn fault(&self, daemon_answers: bool) -> Option<(String, String)> {
        let called = self.display_name();
        let keeper = self.keeper_pid.unwrap_or_default();
        let end = format!("`mcp-sessiond stop {keeper}` ends it");
        if let Some(failure) = &self.failure {
            return Some((format!("{called}: {failure}"), end));
        }
        if let Some(fault) = self
            .trouble
            .as_ref()
            .and_then(|trouble| trouble.fault(&called))
        {
            return Some(fault);
        }
        if let (State::Ended, Some(why)) = (self.state, &self.last_error) {
            let again = format!(
                "it is started again by its host's next message, or by `mcp-sessiond restart {keeper}`"
            );
            return Some((format!("{called} has ended ({why})"), again));
        }
        let what = || {
            format!(
                "{called} is not known to the daemon; its host starts another one when it reconnects"
            )
        };
        (daemon_answers && !self.known).then(|| (what(), end))
    }

    /// Whether it belongs to the user: it has a name, or is shared.
    pub(crate) fn is_users(&self) -> bool {
        self.known && self.host.is_none() && self.service.is_none()
    }

    /// What people call it.
    pub(crate) fn display_name(&self) -> String {
        match (&self.host_name, self.host, &self.service) {
            (Some(name), Some(pid), _) => format!("{} of {name} {pid}", self.server),
            (None, Some(pid), _) => format!("{} of process {pid}", self.server),
            (_, None, Some(service)) => format!("{} of {service}", self.server),
            (_, None, None) => format!(
                "{} (keeper {})",
                self.server,
                self.keeper_pid.unwrap_or_default()
            ),
        }
    }
}

/// The command that a keeper runs: what stands behind its own options.
fn command_of(keeper: &PinnedProcess) -> Option<Vec<String>> {
    let arguments = process::arguments_of(keeper).ok().flatten()?;
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let mut words = arguments.iter().map(text);
    (words.by_ref().nth(1)? == "keep").then_some(())?;
    let command: Vec<String> = words.skip_while(|word| word != "--").skip(1).collect();
    (!command.is_empty()).then_some(command)
}

impl State {
    fn of(status: &BackendStatus) -> Self {
        let is_used =
            status.front.is_some() || status.shared.is_some_and(|shared| shared.hosts > 0);
        match status.state {
            BackendState::Stopping => Self::Stopping,
            BackendState::Restarting if status.pid.is_none() && status.last_error.is_some() => {
                Self::Ended
            }
            BackendState::Restarting | BackendState::Initializing => Self::Starting,
            BackendState::Started | BackendState::Ready if is_used => Self::InUse,
            BackendState::Started | BackendState::Ready => Self::Waiting,
        }
    }

    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Ended => "ended",
            Self::Stopping => "stopping",
            Self::Silent => "silent",
        }
    }
}

/// Every backend that the daemon knows, or those of one session.
pub(crate) async fn backends(
    connection: &Connection,
    directory: &Directory,
    of: Option<&SessionId>,
) -> Result<Vec<BackendReport>, Failure> {
    let page = |after| connection.list_backends(ANSWER_TIMEOUT, Page { after });
    let backends = all_pages(page, |backend| &backend.session).await?;
    let wanted: Vec<Backend> = backends
        .into_iter()
        .filter(|backend| of.is_none_or(|of| backend.session == *of))
        .collect();
    Ok(in_parallel(wanted, |backend| {
        let (status, failure, is_leaving) =
            keeper_status(&paths::keeper_socket(directory.path(), backend.keeper));
        BackendReport {
            backend,
            status,
            failure,
            is_leaving,
        }
    }))
}

/// Does this for each, some at a time: a keeper that hangs takes its seconds, and the others do not
/// wait for it.
fn in_parallel<T: Send, U: Send>(all: Vec<T>, work: impl Fn(T) -> U + Sync) -> Vec<U> {
    const AT_A_TIME: usize = 16;
    let mut done = Vec::new();
    let mut left = all.into_iter().peekable();
    while left.peek().is_some() {
        let some: Vec<T> = left.by_ref().take(AT_A_TIME).collect();
        std::thread::scope(|scope| {
            let working: Vec<_> = some
                .into_iter()
                .map(|one| scope.spawn(|| work(one)))
                .collect();
            done.extend(working.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    done
}

/// How a keeper's backend is; else why it does not say, and whether it does not listen yet or ends.
pub(crate) fn keeper_status(socket: &Path) -> (Option<BackendStatus>, Option<String>, bool) {
    match dial(socket, &KeeperRequest::Status {}) {
        Ok(Dialled {
            reply: KeeperReply::Status(status),
            ..
        }) => (Some(*status), None, false),
        Ok(_) => (None, Some(DialError::Answer.to_string()), false),
        Err(error) => (None, Some(error.to_string()), error.is_end()),
    }
}
