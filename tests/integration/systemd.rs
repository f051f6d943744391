//! The user service, under a user manager of systemd's that is real and private.

mod install;

use std::fs::{File, create_dir_all, read_dir, read_to_string, rename, write};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use mcp_sessiond_tests::{Instance, World, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{BINARIES, fixture, world, wrap};

const SERVICE: &str = "mcp-sessiond.service";
const SOCKET: &str = "mcp-sessiond.socket";

/// Starts a manager of its own below the one that runs, where `user-systemd` is not there, and ends it with its
/// standard input. The first line of output is its runtime directory.
const BELOW_ANOTHER: &str = r#"
runtime=$(mktemp -d /tmp/mcps-systemd.XXXXXX)
systemd-run --user --scope --quiet --property=Delegate=yes \
  env XDG_RUNTIME_DIR="$runtime" DBUS_SESSION_BUS_ADDRESS="unix:path=$runtime/bus" \
  /usr/lib/systemd/systemd --user >/dev/null 2>&1 &
echo "$runtime"
cat >/dev/null
XDG_RUNTIME_DIR=$runtime DBUS_SESSION_BUS_ADDRESS= systemctl --user exit
wait
rm -rf "$runtime"
"#;

/// A user manager. It ends with this.
struct Manager {
    child: Child,
    runtime: PathBuf,
    /// Two of them would share their control groups, so there is one at a time on the whole machine.
    _alone: File,
}

impl Manager {
    fn start(world: &World) -> Self {
        let alone =
            File::create(std::env::temp_dir().join(format!("mcps-systemd-{}.lock", nix::unistd::getuid())))
                .expect("a lock file");
        alone.lock().expect("locked");
        let script = std::env::var_os("USER_SYSTEMD").map(PathBuf::from);
        let script = script.unwrap_or_else(|| fixture("../../shared/user-systemd").into());
        let mut command = if script.is_file() {
            let mut command = Command::new(script);
            command.args(["sh", "-c", "echo \"$XDG_RUNTIME_DIR\"; cat >/dev/null"]);
            command
        } else {
            let running = Command::new("systemctl").args(["--user", "show", "--property=Version"]).output();
            assert!(
                running.is_ok_and(|output| output.status.success()),
                "these tests need a systemd user manager: there is no {}, and `systemctl --user` reaches none; \
                 log in as a user of a machine that runs systemd, or `loginctl enable-linger`",
                script.display()
            );
            let mut command = Command::new("sh");
            command.args(["-c", BELOW_ANOTHER]);
            command
        };
        // What the units say must do without what we say.
        command
            .envs(world.environment())
            .env_remove("MCP_SESSIOND_DIR")
            .env("XDG_CONFIG_HOME", config(world));
        create_dir_all(config(world)).expect("a directory");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("user-systemd");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let runtime = PathBuf::from(line.trim_end());
        assert!(runtime.is_absolute(), "user-systemd said {line:?}");
        let manager = Self { child, runtime, _alone: alone };
        until("the user manager answers", || {
            let state = manager.command("systemctl").args(["--user", "is-system-running"]).output().ok()?;
            let state = String::from_utf8_lossy(&state.stdout).trim_end().to_owned();
            ["running", "degraded"].contains(&state.as_str()).then_some(())
        });
        manager
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Where the user's configuration is.
fn config(world: &World) -> PathBuf {
    world.root().join("c")
}

fn units(world: &World) -> PathBuf {
    config(world).join("systemd/user")
}

/// A world with a user manager. The manager goes first.
struct Machine {
    manager: Manager,
    world: World,
}

impl Machine {
    fn new() -> Self {
        let world = world("");
        Self { manager: Manager::start(&world), world }
    }

    /// One with the service installed, and these lines on top in its `[Service]`.
    fn installed(lines: &str) -> Self {
        let machine = Self::new();
        // There is no journal.
        let log = machine.world.root().join("log");
        let over = units(&machine.world).join(format!("{SERVICE}.d/test.conf"));
        create_dir_all(over.parent().expect("a directory")).expect("a directory");
        write(over, format!("[Service]\nStandardError=append:{}\n{lines}\n", log.display()))
            .expect("written");
        machine.install();
        machine
    }

    /// `mcp-sessiond`, within reach of the manager.
    fn sessiond(&self, arguments: &[&str]) -> Output {
        self.run(self.world.binaries.daemon, arguments)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.manager.command(program);
        command.args(arguments).envs(self.world.environment()).env("XDG_CONFIG_HOME", config(&self.world));
        command.output().expect("it runs")
    }

    fn install(&self) -> String {
        succeeded(&self.sessiond(&["install"]))
    }

    fn systemctl(&self, arguments: &[&str]) -> String {
        succeeded(&self.run("systemctl", &[&["--user"], arguments].concat()))
    }

    fn property(&self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", unit, "--value", "--property", name]).trim_end().to_owned()
    }

    /// What the daemon says of itself. It is started by that where it does not run.
    fn about(&self) -> Value {
        self.world.peer().call("about", json!({})).expect("the daemon about itself")
    }

    fn log(&self) -> String {
        read_to_string(self.world.root().join("log")).unwrap_or_default()
    }

    /// Whether it is the service that serves, without having failed.
    fn assert_served_by_systemd(&self) {
        let about = self.about();
        assert_eq!(about["started_by"], "systemd", "{about}\n{}", self.log());
        assert_eq!(self.property(SERVICE, "MainPID"), about["pid"].to_string());
        assert_eq!(self.property(SOCKET, "ActiveState"), "active");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let output =
                self.run("systemctl", &["--user", "status", "--no-pager", "--full", SERVICE, SOCKET]);
            let status = String::from_utf8_lossy(&output.stdout);
            let _ = writeln!(std::io::stderr(), "{status}\nthe service's log:\n{}", self.log());
        }
    }
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file and link below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = read_dir(directory).into_iter().flatten().flatten();
    let below = |path: PathBuf| if path.is_dir() && !path.is_symlink() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.path())).collect()
}

fn pid(about: &Value) -> Pid {
    Pid::from_raw(about["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid"))
}

/// An instance, and what it must have kept whatever becomes of the daemon.
struct Kept {
    instance: Instance,
    session: String,
    epoch: Option<u64>,
}

impl Kept {
    fn store(mut instance: Instance, token: &str) -> Self {
        instance.load().assert_fresh();
        let stored = instance.store(token);
        Self { session: stored.session(), epoch: stored.epoch, instance }
    }

    fn assert_kept(&mut self, token: &str) {
        let loaded = self.instance.load();
        assert_eq!((loaded.token.as_deref(), loaded.session()), (Some(token), self.session.clone()));
        assert_eq!(loaded.epoch, self.epoch, "the lease is the same");
    }
}

#[test]
fn the_first_connection_starts_the_daemon() {
    let machine = Machine::installed("");
    assert_eq!(machine.property(SOCKET, "ActiveState"), "active");
    assert_eq!(machine.property(SERVICE, "ActiveState"), "inactive");
    let host = machine.world.host();
    let mut kept = Kept::store(host.instance(&[]), "one");
    machine.assert_served_by_systemd();
    assert_eq!(machine.property(SERVICE, "ActiveState"), "active");
    kept.instance.kill();
    assert_eq!(host.instance(&[]).load().token.as_deref(), Some("one"));
}

#[test]
fn a_restart_keeps_leases_and_tokens() {
    let machine = Machine::installed("");
    let host = machine.world.host();
    let mut kept = Kept::store(host.instance(&[]), "one");
    let former = machine.about();
    machine.systemctl(&["restart", SERVICE]);
    kept.assert_kept("one");
    machine.assert_served_by_systemd();
    assert_ne!(pid(&machine.about()), pid(&former));
    // Stopped, it comes back with whoever needs it.
    machine.systemctl(&["stop", SERVICE]);
    kept.assert_kept("one");
    machine.assert_served_by_systemd();
    assert_eq!(machine.property(SERVICE, "NRestarts"), "0", "{}", machine.log());
}

/// A server that is kept does not notice any of it, nor does the call that it is busy with.
#[test]
fn a_restart_is_not_noticed_by_a_server_that_is_kept() {
    let machine = Machine::installed("");
    let world = &machine.world;
    let mut client = wrap::connect(world, &wrap::counter(world));
    machine.assert_served_by_systemd();
    let backend = world.backend();
    for (round, verb) in ["restart", "stop"].into_iter().enumerate() {
        let gate = wrap::gate(world, verb);
        let before = client.count();
        let slow = client.begin("slow", json!({"gate": gate}));
        client.said(|message| message["params"]["logger"] == "slow");
        let former = machine.about();
        machine.systemctl(&[verb, SERVICE]);
        wrap::open(&gate);
        assert_eq!(client.text(slow), Ok((before + 1).to_string()));
        assert_ne!(pid(&machine.about()), pid(&former));
        drop(client);
        client = wrap::connect(world, &wrap::counter(world));
        assert_eq!(client.count(), before + 2, "round {round}");
        assert_eq!(world.backend().keeper, backend.keeper);
    }
    machine.assert_served_by_systemd();
}

#[test]
fn killed_again_and_again_it_comes_back() {
    let machine = Machine::installed("");
    let host = machine.world.host();
    let mut kept = Kept::store(host.instance(&[]), "one");
    // More often than any start limit of systemd's allows by default.
    for _ in 0..12 {
        kill(pid(&machine.about()), Signal::SIGKILL).expect("it runs");
        kept.assert_kept("one");
    }
    machine.assert_served_by_systemd();
}

#[test]
fn a_daemon_that_hangs_is_replaced() {
    let machine = Machine::installed("WatchdogSec=2");
    let host = machine.world.host();
    let mut kept = Kept::store(host.instance(&[]), "one");
    let fed = || machine.property(SERVICE, "WatchdogTimestampMonotonic");
    for _ in 0..3 {
        let last = fed();
        until("the watchdog is fed", || (fed() != last).then_some(()));
    }
    assert_eq!(machine.property(SERVICE, "NRestarts"), "0");
    kill(pid(&machine.about()), Signal::SIGSTOP).expect("it runs");
    until("it is started again", || (machine.property(SERVICE, "NRestarts") == "1").then_some(()));
    kept.assert_kept("one");
}

#[test]
fn reload_says_what_has_changed() {
    let machine = Machine::installed("");
    machine.about();
    machine.world.configure("claim_wait_ms = 1234");
    machine.systemctl(&["reload", SERVICE]);
    until("a line about it", || {
        machine.log().contains("reloaded the configuration; claim_wait_ms").then_some(())
    });
    machine.systemctl(&["reload", SERVICE]);
    until("a line about it", || machine.log().contains("nothing has changed").then_some(()));
    assert_eq!(machine.property(SERVICE, "ActiveState"), "active");
}

#[test]
fn the_socket_takes_over_from_a_daemon_that_has_bound_its_own() {
    let machine = Machine::new();
    let mut daemon = machine.world.daemon();
    let host = machine.world.host();
    let arguments = |n: usize| n.to_string();
    let mut kept: Vec<Kept> =
        (0..8).map(|n| Kept::store(host.instance(&[&arguments(n)]), &arguments(n))).collect();
    // From here on the path is another's, and the daemon has yet to notice. Nobody waits for that.
    machine.install();
    let mut late: Vec<Instance> = (8..12).map(|n| host.instance(&[&arguments(n)])).collect();
    late.iter().for_each(|instance| instance.begin("load"));
    for (n, kept) in kept.iter_mut().enumerate() {
        kept.instance.store(&format!("{n} again"));
    }
    for instance in &mut late {
        instance.answer().assert_fresh();
    }
    assert!(daemon.wait().success(), "it exits in good order");
    for (n, kept) in kept.iter_mut().enumerate() {
        kept.assert_kept(&format!("{n} again"));
    }
    machine.assert_served_by_systemd();
    assert_eq!(machine.property(SERVICE, "NRestarts"), "0", "{}", machine.log());
}

#[test]
fn a_replaced_directory_gets_a_new_daemon() {
    let machine = Machine::installed("");
    let host = machine.world.host();
    let mut kept = Kept::store(host.instance(&[]), "one");
    let former = machine.about();
    // As after a logout and a login: another directory of the same name. systemd listens on in the former one.
    rename(machine.world.directory(), machine.world.root().join("former")).expect("renamed");
    until("the former daemon is gone", || kill(pid(&former), None).is_err().then_some(()));
    let stored = kept.instance.store("two");
    assert_ne!(stored.session(), kept.session, "there is nothing of the former directory in the new one");
    machine.assert_served_by_systemd();
    // It has bound a socket of its own, and is found there after its next end too.
    kill(pid(&machine.about()), Signal::SIGKILL).expect("it runs");
    assert_eq!(kept.instance.load().token.as_deref(), Some("two"));
    // Once systemd listens where it should, all is as it was.
    machine.systemctl(&["restart", SOCKET]);
    assert_eq!(kept.instance.load().token.as_deref(), Some("two"));
    machine.assert_served_by_systemd();
}

#[test]
fn a_daemon_by_hand_leaves_the_socket_to_systemd() {
    let machine = Machine::installed("");
    let refused = machine.sessiond(&["run"]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("systemctl --user stop mcp-sessiond.socket"), "{said}");
    machine.assert_served_by_systemd();
}

#[test]
fn a_wrong_configuration_fails_fast_and_heals() {
    let machine = Machine::installed("");
    machine.world.configure("nonsense = 1");
    // Whoever comes is turned away, and not left to wait.
    let mut stream =
        std::os::unix::net::UnixStream::connect(machine.world.socket()).expect("systemd listens");
    stream.set_read_timeout(Some(mcp_sessiond_tests::PATIENCE)).expect("a timeout");
    let answer = stream.read(&mut [0; 1]);
    assert!(
        answer.as_ref().map_or_else(|error| error.kind() != std::io::ErrorKind::WouldBlock, |n| *n == 0),
        "{answer:?}"
    );
    until("the service has failed", || (machine.property(SERVICE, "ActiveState") == "failed").then_some(()));
    assert!(machine.log().contains("nonsense"), "{}", machine.log());
    machine.world.configure("");
    // As a client does. For two seconds systemd still counts, and fails the socket unit again; the daemon has it.
    machine.systemctl(&["start", SERVICE]);
    assert_eq!(machine.about()["started_by"], "systemd");
}
