//! A directory, and everything that runs in it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mcp_sessiond_proto::hello::Codec;
use mcp_sessiond_proxy::keeper::dial::keeper_of;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Daemon, Host, Instance, Log, Peer, copy_program, gone, until, until_written};

/// Where the helpers are: only the test binary itself is told, when it is compiled.
#[derive(Debug)]
pub struct Binaries {
    /// `sessiond-under-test`.
    pub daemon: &'static str,
    /// `broker`.
    pub broker: &'static str,
    /// `connecting`.
    pub connecting: &'static str,
    /// `holding`.
    pub holding: &'static str,
    /// `host`.
    pub host: &'static str,
    /// `instance`.
    pub instance: &'static str,
    /// `keeper`.
    pub keeper: &'static str,
    /// `remote`.
    pub remote: &'static str,
    /// `serving`.
    pub serving: &'static str,
    /// `stranger`.
    pub stranger: &'static str,
    /// `counter`.
    pub counter: &'static str,
    /// `shared-server`.
    pub shared_server: &'static str,
    /// `raw`.
    pub raw: &'static str,
    /// `rooted`.
    pub rooted: &'static str,
    /// `scripted-lists`.
    pub scripted_lists: &'static str,
    /// `tempers`.
    pub tempers: &'static str,
    /// `tiny`.
    pub tiny: &'static str,
    /// `recording`.
    pub recording: &'static str,
    /// `example-server`.
    pub example_server: &'static str,
    /// `event-service`.
    pub event_service: &'static str,
    /// `http-server`.
    pub http_server: &'static str,
    /// `durable-server`.
    pub durable_server: &'static str,
    /// `tasks-server`.
    pub tasks_server: &'static str,
    /// `durable-example`.
    pub durable_example: &'static str,
    /// `tasks-example`.
    pub tasks_example: &'static str,
}

/// The [`Binaries`] of the test or benchmark that says this: Cargo tells no library where they are.
#[macro_export]
macro_rules! binaries {
    () => {
        $crate::Binaries {
            daemon: env!("CARGO_BIN_EXE_sessiond-under-test"),
            broker: env!("CARGO_BIN_EXE_broker"),
            connecting: env!("CARGO_BIN_EXE_connecting"),
            holding: env!("CARGO_BIN_EXE_holding"),
            host: env!("CARGO_BIN_EXE_host"),
            instance: env!("CARGO_BIN_EXE_instance"),
            keeper: env!("CARGO_BIN_EXE_keeper"),
            remote: env!("CARGO_BIN_EXE_remote"),
            serving: env!("CARGO_BIN_EXE_serving"),
            stranger: env!("CARGO_BIN_EXE_stranger"),
            counter: env!("CARGO_BIN_EXE_counter"),
            shared_server: env!("CARGO_BIN_EXE_shared-server"),
            raw: env!("CARGO_BIN_EXE_raw"),
            rooted: env!("CARGO_BIN_EXE_rooted"),
            scripted_lists: env!("CARGO_BIN_EXE_scripted-lists"),
            tempers: env!("CARGO_BIN_EXE_tempers"),
            tiny: env!("CARGO_BIN_EXE_tiny"),
            recording: env!("CARGO_BIN_EXE_recording"),
            example_server: env!("CARGO_BIN_EXE_example-server"),
            event_service: env!("CARGO_BIN_EXE_event-service"),
            http_server: env!("CARGO_BIN_EXE_http-server"),
            durable_server: env!("CARGO_BIN_EXE_durable-server"),
            tasks_server: env!("CARGO_BIN_EXE_tasks-server"),
            durable_example: env!("CARGO_BIN_EXE_durable-example"),
            tasks_example: env!("CARGO_BIN_EXE_tasks-example"),
        }
    };
}

/// Most tests are about what becomes of a server that is resumed, and reconnect by closing. Nobody
/// has ever seen such a host, so their worlds have a row for it.
const RECONNECTING: &str = r#"[{ executable = "*", resume = "always" }]"#;

/// A private directory with a runtime directory in it, a configuration, and the daemon's log.
#[derive(Debug)]
pub struct World {
    root: TempDir,
    /// The rows of hosts, as the setting `hosts` has them.
    hosts: String,
    /// The helpers.
    pub binaries: &'static Binaries,
    /// What the daemons of this world wrote, one after the other.
    pub log: Log,
}

/// Settings that hold where the configuration has no other value: name there, variable, value.
const USUAL: [(&str, &str, &str); 5] = [
    // Most tests call again after a loss, and read of it on standard error.
    ("tell = ", "MCP_SESSIOND_WRAP_TELL", "log"),
    // A machine that is busy with tests is slower than a host's; nothing here is about these but what
    // sets them.
    (
        "first_line_wait_ms",
        "MCP_SESSIOND_WRAP_FIRST_LINE_WAIT_MS",
        "5000",
    ),
    (
        "keeper_wait_ms",
        "MCP_SESSIOND_WRAP_KEEPER_WAIT_MS",
        "10000",
    ),
    (
        "init_timeout_ms",
        "MCP_SESSIOND_BUNDLE_INIT_TIMEOUT_MS",
        "120000",
    ),
    (
        "ready_wait_ms",
        "MCP_SESSIOND_BUNDLE_READY_WAIT_MS",
        "30000",
    ),
];

impl World {
    /// A world with the default configuration.
    ///
    /// # Panics
    /// When there can be no directory.
    #[must_use]
    pub fn new(binaries: &'static Binaries) -> Self {
        // `/dev/shm`: every daemon has a redo log, as in most users' runtime directories.
        let parent = std::env::var_os("MCP_SESSIOND_TEST_DIR").unwrap_or_else(|| "/tmp".into());
        Self::within(binaries, Path::new(&parent))
    }

    /// A world in a directory of one's choice.
    ///
    /// # Panics
    /// When there can be no directory.
    #[must_use]
    pub fn within(binaries: &'static Binaries, parent: &Path) -> Self {
        // A socket's path has 103 bytes, so the name is short.
        let mode = std::fs::Permissions::from_mode(0o700);
        let root = tempfile::Builder::new()
            .prefix("mcps-")
            .permissions(mode)
            .tempdir_in(parent);
        let root = root.expect("a directory");
        // Whoever runs the tests below `nohup`, or in the background of a script, has ignored them.
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mcp_sessiond_process::sys::stop_ignoring(signal);
        }
        Self {
            root,
            hosts: RECONNECTING.to_owned(),
            binaries,
            log: Log::default(),
        }
    }

    /// The same world with these rows of hosts, in TOML. With `[]` only the built-in table counts,
    /// which has neither the tests nor their helpers.
    #[must_use]
    pub fn with_hosts(mut self, rows: &str) -> Self {
        rows.clone_into(&mut self.hosts);
        self
    }

    /// The directory that everything is in.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The runtime directory. The daemon makes it.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.root().join("d")
    }

    /// Removes the daemon's records of sessions and leases, and what SQLite would mend them from.
    /// No daemon may run.
    pub fn lose_records(&self) {
        for file in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
            let _ = std::fs::remove_file(self.directory().join(file));
        }
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        mcp_sessiond_proto::paths::socket(&self.directory())
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.root().join("config.toml")
    }

    /// Writes the configuration file, for daemons from now on and for the next SIGHUP.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn configure(&self, text: &str) -> &Self {
        std::fs::write(self.config(), text).expect("configuration");
        self
    }

    /// The variables that keep everything within this world.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let settings = std::fs::read_to_string(self.config()).unwrap_or_default();
        let usual = USUAL
            .into_iter()
            .filter(|(setting, ..)| !settings.contains(setting))
            .map(|(_, variable, value)| (variable, value.into()));
        let own = [
            ("MCP_SESSIOND_HOSTS", self.hosts.clone().into()),
            ("MCP_SESSIOND_DIR", self.directory()),
            ("MCP_SESSIOND_CONFIG", self.config()),
            ("MCP_SESSIOND_BIN", self.binaries.daemon.into()),
        ];
        own.into_iter().chain(usual).collect()
    }

    /// A command in this world.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment()).stdin(Stdio::null());
        command
    }

    /// `mcp-sessiond` with these arguments.
    #[must_use]
    pub fn sessiond(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.binaries.daemon);
        command.args(arguments);
        command
    }

    /// A daemon that is ready.
    #[must_use]
    pub fn daemon(&self) -> Daemon {
        let daemon = self.start(&[]);
        daemon.ready();
        daemon
    }

    /// A daemon that was just started, with these variables on top.
    ///
    /// It leads a session of its own, as a daemon does that a client has started. Linux shares the
    /// processors among sessions first, and among the processes of a session then
    /// (`kernel.sched_autogroup_enabled`). Every keeper leads a session. In the session of the
    /// test, the daemon would be one of all hosts and fronts that have to share the part of one
    /// keeper: with 200 servers starting at once, it got less than a hundredth of a processor.
    #[must_use]
    pub fn start(&self, variables: &[(&str, &str)]) -> Daemon {
        let mut command = if cfg!(target_os = "linux") {
            // It becomes the program, with the same pid.
            let mut command = self.command("setsid");
            command.args([self.binaries.daemon, "run"]);
            command
        } else {
            self.sessiond(&["run"])
        };
        command.envs(variables.iter().copied());
        self.spawn(command)
    }

    /// A daemon that was just started by this command.
    #[must_use]
    pub fn spawn(&self, command: Command) -> Daemon {
        Daemon::spawn(command, self.log.clone())
    }

    /// A host: a process that starts servers.
    #[must_use]
    pub fn host(&self) -> Host {
        Host::spawn(self.command(self.binaries.host), self.binaries)
    }

    /// A host whose executable has this name: what is known of hosts is known by that.
    ///
    /// # Panics
    /// When the executable can't be copied.
    #[must_use]
    pub fn host_called(&self, name: &str) -> Host {
        let program = self.root().join(name);
        copy_program(self.binaries.host, &program);
        Host::spawn(self.command(program), self.binaries)
    }

    /// An instance of this host whose claim waits for the end of another one's lease.
    ///
    /// # Panics
    /// When it does not wait, or does not do so alone.
    #[must_use]
    pub fn waiting(&self, host: &Host) -> Instance {
        let instance = host.instance(&[]);
        instance.begin("load");
        self.wait_stat("claims_waiting", 1);
        instance
    }

    /// A connection of this process to the daemon, in JSON-RPC.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer_in(Codec::JsonRpc)
    }

    /// A connection of this process to the daemon.
    #[must_use]
    pub fn peer_in(&self, codec: Codec) -> Peer {
        let mut peer = Peer::connect(&self.socket());
        peer.greet(codec);
        peer
    }

    /// A counter of `stats`.
    ///
    /// # Panics
    /// When there is no such counter.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let stats = self.peer().call("stats", json!({})).expect("stats");
        let counters = stats["counters"].as_array().expect("counters");
        let found = counters.iter().find(|counter| counter["name"] == name);
        let value = found.and_then(|counter| counter["value"].as_str()?.parse().ok());
        value.unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    }

    /// Waits until a counter of `stats` is so. The daemon tells nobody of its counters
    /// unasked.
    pub fn wait_stat(&self, name: &str, value: u64) {
        until(&format!("{name} is {value}"), || {
            (self.stat(name) == value).then_some(())
        });
    }

    /// Waits until the daemon has heard that every loss was told: a front says so behind the line, and
    /// one that ends before is followed by one that tells it again. The daemon tells nobody unasked.
    pub fn until_told(&self) {
        until("every loss was told", || {
            let hosts = self.listed("list_hosts");
            let all_told = hosts.iter().all(|host| host.get("losses").is_none());
            all_told.then_some(())
        });
    }

    /// Looks until something is there that the daemon knows by heart and has on record, such as its
    /// hosts' sessions and their keepers, each time that it has written its records: it knows
    /// before it writes.
    pub fn until_recorded<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        until_written(&self.directory().join("sessions.db-wal"), what, look)
    }

    /// What the daemon says of itself.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn about(&self) -> Value {
        self.peer()
            .call("about", json!({}))
            .expect("the daemon about itself")
    }

    /// The pid of the daemon, whoever has started it.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn daemon_pid(&self) -> u32 {
        self.about()["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok())
            .expect("a pid")
    }

    /// What the daemon answers to a method that lists, such as `list_backends`.
    ///
    /// # Panics
    /// When it is no list.
    #[must_use]
    pub fn listed(&self, method: &str) -> Vec<Value> {
        let listed = self.peer().call(method, json!({})).expect(method);
        listed.as_array().expect("a list").clone()
    }

    /// What the daemon knows of sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<Value> {
        self.listed("list_sessions")
    }

    /// The token file of a session.
    ///
    /// # Panics
    /// When the session has none.
    #[must_use]
    pub fn token_file(&self, session: &str) -> PathBuf {
        let sessions = self.sessions();
        let found = sessions.iter().find(|known| known["session"] == session);
        let name = found.and_then(|session| session["token_file"].as_str());
        let name = name.unwrap_or_else(|| panic!("no token file of {session} in {sessions:?}"));
        self.directory().join("tokens").join(name)
    }

    /// The names of all token files.
    #[must_use]
    pub fn token_files(&self) -> Vec<String> {
        let listed = std::fs::read_dir(self.directory().join("tokens"))
            .into_iter()
            .flatten()
            .flatten();
        listed
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

impl World {
    /// Kills the daemon, whoever has started it, and waits until it is gone: one that was started
    /// on demand is nobody's child.
    pub fn kill_any_daemon(&self) {
        if let Some(pid) = self.signal_daemon() {
            gone(pid.as_raw().cast_unsigned());
        }
    }

    fn signal_daemon(&self) -> Option<Pid> {
        let pid = Peer::pid_of_daemon(&mut UnixStream::connect(self.socket()).ok()?)?;
        kill(pid, Signal::SIGKILL).ok().map(|()| pid)
    }
}

impl World {
    /// Ends the keepers of this world, with their servers: nobody comes back for these. They are not
    /// waited for.
    fn end_keepers(&self) {
        let directory = self.directory();
        let sockets = std::fs::read_dir(directory.join("keepers"));
        let names = sockets.into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for keeper in names.filter_map(|name| keeper_of(&directory, name).ok()) {
            let pid = Pid::from_raw(keeper.id().pid.cast_signed());
            let _ = kill(pid, Signal::SIGTERM);
            // A test may have stopped it.
            let _ = kill(pid, Signal::SIGCONT);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.signal_daemon();
        self.end_keepers();
        if std::thread::panicking() {
            let detached =
                std::fs::read_to_string(self.directory().join("daemon.log")).unwrap_or_default();
            let _ = writeln!(
                std::io::stderr(),
                "the daemon's log:\n{}\n{detached}",
                self.log.text()
            );
        }
    }
}
