//! A directory, and the daemon of `MCP_SESSIOND_BIN` in it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

/// A runtime directory of its own.
pub(crate) struct World(TempDir);

impl World {
    pub(crate) fn new() -> Self {
        // A socket's path has 103 bytes, so the name is short.
        Self(
            tempfile::Builder::new()
                .prefix("mcps-")
                .tempdir_in("/tmp")
                .expect("a directory"),
        )
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.0.path().join("d")
    }

    /// A daemon that is ready.
    pub(crate) fn daemon(&self) -> Daemon {
        let executable = std::env::var_os("MCP_SESSIOND_BIN")
            .expect("MCP_SESSIOND_BIN, the daemon's executable");
        let mut command = Command::new(executable);
        command.arg("run").env("MCP_SESSIOND_DIR", self.directory());
        // No settings of the user's.
        command.env("MCP_SESSIOND_CONFIG", self.0.path().join("config.toml"));
        std::fs::write(self.0.path().join("config.toml"), "").expect("a configuration");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = started(&mut command);
        Daemon { child, command }
    }
}

/// A daemon in the foreground. It is killed when this is dropped.
pub(crate) struct Daemon {
    child: Child,
    command: Command,
}

impl Daemon {
    /// Kills it, as the kernel does when memory runs out, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Kills it, and starts another one, which is ready when this returns.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = started(&mut self.command);
    }
}

fn started(command: &mut Command) -> Child {
    let mut child = command.spawn().expect("the daemon");
    let mut log = BufReader::new(child.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let is_ready = log.any(|line| line.contains(" ready "));
    assert!(is_ready, "the daemon has ended: {:?}", child.wait());
    // It may write more, which nobody reads.
    thread::spawn(move || log.for_each(drop));
    child
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
