//! What the tests look at of a kept server: its keeper, how it is, and what runs of it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use mcp_sessiond_proto::backends::{BackendStatus, KeeperReply, KeeperRequest};
use mcp_sessiond_proto::{KeeperName, paths};
use mcp_sessiond_proxy::keeper::dial::dial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::{Front, PATIENCE, World, gone, until, until_removed};

/// A backend that the daemon knew of when it was asked.
#[derive(Debug, Clone)]
pub struct Backend {
    /// The pid of its keeper.
    pub keeper: u32,
    /// Its session.
    pub session: String,
    socket: PathBuf,
}

impl World {
    /// The backends that the daemon knows of.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn backends(&self) -> Vec<Backend> {
        let listed = self.listed("list_backends");
        listed
            .iter()
            .map(|known| Backend::of(&self.directory(), known))
            .collect()
    }

    /// The only backend there is.
    ///
    /// # Panics
    /// When there are more, or none.
    #[must_use]
    pub fn backend(&self) -> Backend {
        let backends = self.backends();
        assert_eq!(backends.len(), 1, "{backends:?}");
        backends[0].clone()
    }

    /// Processes whose command line names this world's directory: fronts, keepers and servers that
    /// were given it, whoever started them.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let root = self.root().to_str().expect("UTF-8").as_bytes();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let names_it = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(root.len()).any(|window| window == root)
        };
        pids.filter(|pid| *pid != std::process::id())
            .filter(names_it)
            .collect()
    }

    /// Waits until none of these processes is left.
    pub fn nothing_left(&self) {
        let deadline = Instant::now() + PATIENCE;
        while let Some(left) = self.processes().first() {
            assert!(
                Instant::now() < deadline,
                "there are still processes of the world: {:?}",
                self.processes()
            );
            gone(*left);
        }
    }

    /// Waits until the daemon knows of so many backends.
    pub fn wait_backends(&self, count: usize) {
        self.until_recorded(&format!("{count} backends"), || {
            (self.backends().len() == count).then_some(())
        });
    }
}

impl Backend {
    fn of(directory: &Path, known: &Value) -> Self {
        let name: KeeperName = known["keeper"]
            .as_str()
            .and_then(|name| name.parse().ok())
            .expect("a name");
        Self {
            keeper: known["keeper_pid"]
                .as_u64()
                .and_then(|pid| u32::try_from(pid).ok())
                .expect("a pid"),
            session: known["session"].as_str().expect("text").to_owned(),
            socket: paths::keeper_socket(directory, name),
        }
    }

    /// Its keeper's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How it is, as its keeper says.
    ///
    /// # Panics
    /// When the keeper does not say.
    #[must_use]
    pub fn status(&self) -> BackendStatus {
        let asked = dial(&self.socket, &KeeperRequest::Status {}).expect("the keeper");
        let KeeperReply::Status(status) = asked.reply else {
            panic!("{:?}", asked.reply)
        };
        *status
    }

    /// Waits until it is such. Returns how it is then. A keeper tells nobody of itself unasked, and
    /// listens a moment after it has registered.
    pub fn wait(&self, what: &str, such: impl Fn(&BackendStatus) -> bool) -> BackendStatus {
        until("the keeper to listen", || {
            self.socket.exists().then_some(())
        });
        until(what, || Some(self.status()).filter(&such))
    }

    /// Waits until its keeper has seen that nobody is attached.
    pub fn wait_alone(&self) -> BackendStatus {
        self.wait("the keeper has lost its front", |status| {
            status.front.is_none()
        })
    }

    /// Kills a front that is attached to it, and waits until the keeper has seen it. Returns how it
    /// is then.
    pub fn cut_off(&self, front: &mut Front) -> BackendStatus {
        front.kill();
        self.wait_alone()
    }

    /// The pid of the server.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.status().pid.expect("a server")
    }

    /// Kills the keeper, and waits until it is gone.
    pub fn kill_keeper(&self) {
        let _ = kill(Pid::from_raw(self.keeper.cast_signed()), Signal::SIGKILL);
        gone(self.keeper);
    }

    /// Waits until nobody can attach to it any more.
    pub fn closed(&self) {
        let directory = self.socket.parent().expect("a directory");
        until_removed(directory, "its socket is gone", || {
            (!self.socket.exists()).then_some(())
        });
    }

    /// Waits until the keeper is gone, and its socket.
    pub fn ended(&self) {
        gone(self.keeper);
        self.closed();
    }
}
