//! A machine, as far as the user service can tell: a world, and a user manager of its own.

use std::fs::{File, create_dir_all, read_dir, read_to_string, write};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use mcp_sessiond_tests::{World, until};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::Value;

use crate::{fixture, needs_root, world};

pub(super) const SERVICE: &str = "mcp-sessiond.service";
pub(super) const SOCKET: &str = "mcp-sessiond.socket";

/// Starts a manager of its own below the one that runs, where `user-systemd` is not there, and ends
/// it with its standard input. The first line of output is its runtime directory.
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

/// Held while there is a user manager: two of them would share their control groups.
pub(super) fn alone() -> File {
    let lock = std::env::temp_dir().join(format!("mcps-systemd-{}.lock", nix::unistd::getuid()));
    let alone = File::create(lock).expect("a lock file");
    alone.lock().expect("locked");
    alone
}

/// A user manager. It ends with this.
pub(super) struct Manager {
    child: Child,
    runtime: PathBuf,
    _alone: File,
}

impl Manager {
    fn start(world: &World) -> Self {
        let alone = alone();
        let script = std::env::var_os("USER_SYSTEMD").map(PathBuf::from);
        let script = script.unwrap_or_else(|| fixture("../../shared/user-systemd").into());
        let mut command = if script.is_file() {
            let mut command = Command::new(script);
            command.args(["sh", "-c", "echo \"$XDG_RUNTIME_DIR\"; cat >/dev/null"]);
            command
        } else {
            let running = Command::new("systemctl")
                .args(["--user", "show", "--property=Version"])
                .output();
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
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("user-systemd");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("a line");
        let runtime = PathBuf::from(line.trim_end());
        assert!(runtime.is_absolute(), "user-systemd said {line:?}");
        let manager = Self {
            child,
            runtime,
            _alone: alone,
        };
        // `systemctl --wait` fails as long as there is nobody to ask.
        until("the user manager answers", || {
            let state = manager
                .command("systemctl")
                .args(["--user", "is-system-running"])
                .output()
                .ok()?;
            let state = String::from_utf8_lossy(&state.stdout).trim_end().to_owned();
            ["running", "degraded"]
                .contains(&state.as_str())
                .then_some(())
        });
        manager
    }

    pub(super) fn command(&self, program: &str) -> Command {
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
pub(super) fn config(world: &World) -> PathBuf {
    world.root().join("c")
}

pub(super) fn units(world: &World) -> PathBuf {
    config(world).join("systemd/user")
}

/// A world with a user manager. The manager goes first.
pub(super) struct Machine {
    pub(super) manager: Manager,
    pub(super) world: World,
}

impl Machine {
    pub(super) fn new() -> Self {
        let world = world("");
        Self {
            manager: Manager::start(&world),
            world,
        }
    }

    /// One with the service installed, and these lines on top in its `[Service]`.
    pub(super) fn installed(lines: &str) -> Self {
        let machine = Self::new();
        // There is no journal.
        let log = machine.world.root().join("log");
        let over = units(&machine.world).join(format!("{SERVICE}.d/test.conf"));
        create_dir_all(over.parent().expect("a directory")).expect("a directory");
        write(
            over,
            format!(
                "[Service]\nStandardError=append:{}\n{lines}\n",
                log.display()
            ),
        )
        .expect("written");
        machine.install();
        machine
    }

    /// `mcp-sessiond`, within reach of the manager.
    pub(super) fn sessiond(&self, arguments: &[&str]) -> Output {
        self.run(self.world.binaries.daemon, arguments)
    }

    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.manager.command(program);
        command
            .args(arguments)
            .envs(self.world.environment())
            .env("XDG_CONFIG_HOME", config(&self.world));
        command.output().expect("it runs")
    }

    pub(super) fn install(&self) -> String {
        succeeded(&self.sessiond(&["install"]))
    }

    pub(super) fn systemctl(&self, arguments: &[&str]) -> String {
        succeeded(&self.run("systemctl", &[&["--user"], arguments].concat()))
    }

    pub(super) fn property(&self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", unit, "--value", "--property", name])
            .trim_end()
            .to_owned()
    }

    /// What the daemon says of itself. It is started by that where it does not run.
    pub(super) fn about(&self) -> Value {
        self.world.about()
    }

    pub(super) fn log(&self) -> String {
        read_to_string(self.world.root().join("log")).unwrap_or_default()
    }

    /// Whether it is the service that serves, without having failed.
    pub(super) fn assert_served_by_systemd(&self) {
        let about = self.about();
        assert_eq!(about["started_by"], "systemd", "{about}\n{}", self.log());
        assert_eq!(self.property(SERVICE, "MainPID"), about["pid"].to_string());
        assert_eq!(self.property(SOCKET, "ActiveState"), "active");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let output = self.run(
                "systemctl",
                &["--user", "status", "--no-pager", "--full", SERVICE, SOCKET],
            );
            let status = String::from_utf8_lossy(&output.stdout);
            let _ = writeln!(
                std::io::stderr(),
                "{status}\nthe service's log:\n{}",
                self.log()
            );
        }
    }
}

pub(super) fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file and link below a directory.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = read_dir(directory).into_iter().flatten().flatten();
    let below = |path: PathBuf| {
        if path.is_dir() && !path.is_symlink() {
            files(&path)
        } else {
            vec![path]
        }
    };
    entries.flat_map(|entry| below(entry.path())).collect()
}

/// Whether there is a process of this pid, and be it a zombie.
pub(super) fn is_there(pid: u32) -> bool {
    kill(Pid::from_raw(pid.cast_signed()), None).is_ok()
}

/// What the user does on a machine whose units are those of a package: the standard output.
/// `machine` makes it, in a mount namespace.
pub(super) fn packaged(world: &World, machine: &str, script: &str) -> String {
    needs_root("for a mount namespace of its own");
    let units = world.root().join("units");
    create_dir_all(&units).expect("a directory");
    for unit in [SERVICE, SOCKET] {
        let text = read_to_string(fixture(&format!("../systemd/{unit}"))).expect("a unit");
        let place = format!("ExecStart={}", world.binaries.daemon);
        write(
            units.join(unit),
            text.replace("ExecStart=%h/.cargo/bin/mcp-sessiond", &place),
        )
        .expect("written");
    }
    let _alone = alone();
    let executables = world.root().join("bin");
    create_dir_all(&executables).expect("a directory");
    symlink(world.binaries.daemon, executables.join("mcp-sessiond")).expect("linked");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "bash", "-c", &format!("{machine}{script}")])
        .env_clear();
    command.env("HOME", world.root()).env("UNITS", &units);
    command.env("PATH", format!("{}:/usr/bin:/bin", executables.display()));
    succeeded(&command.output().expect("it runs"))
}
