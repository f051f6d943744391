//! `mcp-sessiond serve` as a child process, and another server over HTTP that is started and ended
//! like it.

mod client;
pub mod many_sessions;
mod reply;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use client::{HttpClient, base64};
pub use reply::{Reply, SseEvent};

use crate::process::{exit_of, kib};
use crate::{Log, World};

/// Where a server listens that is to find a port itself.
const FREE_PORT: &str = "127.0.0.1:0";

/// A `serve` process, or an `http-server`, which is killed when this is dropped.
#[derive(Debug)]
pub struct Serve {
    child: Child,
    /// The command that started it.
    command: Command,
    /// Where it listens: `127.0.0.1:PORT`, or the path of a socket.
    pub at: String,
    /// What it writes to its standard error.
    pub errors: Log,
}

impl World {
    /// Starts `serve` with these options in front of this server, at a free port. Without a server
    /// the options say where it is.
    #[must_use]
    pub fn serve(&self, options: &[&str], server: &[String]) -> Serve {
        self.serve_at(FREE_PORT, options, server)
    }

    /// As [`World::serve`], started with this soft limit of descriptors.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn serve_limited(&self, descriptors: u64, server: &[String]) -> Serve {
        let serve = self.sessiond(&["serve", "--listen", FREE_PORT, "--no-start", "--"]);
        let mut command = self.command("sh");
        command.args([
            "-c",
            &format!("ulimit -S -n {descriptors}; exec \"$0\" \"$@\""),
        ]);
        command
            .arg(serve.get_program())
            .args(serve.get_args())
            .args(server);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, at, errors) = launch(&mut command);
        Serve {
            child,
            command,
            at,
            errors,
        }
    }

    /// As [`World::serve`], listening at `listen`.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn serve_at(&self, listen: &str, options: &[&str], server: &[String]) -> Serve {
        self.serve_by(
            &[&["--listen", listen, "--no-start"], options].concat(),
            server,
        )
    }

    /// As [`World::serve`], but it starts a daemon where none runs.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn serve_with_daemon(&self, options: &[&str], server: &[String]) -> Serve {
        self.serve_by(&[&["--listen", FREE_PORT], options].concat(), server)
    }

    fn serve_by(&self, options: &[&str], server: &[String]) -> Serve {
        let mut command = self.sessiond(&[&["serve"], options].concat());
        if !server.is_empty() {
            command.arg("--").args(server);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, at, errors) = launch(&mut command);
        Serve {
            child,
            command,
            at,
            errors,
        }
    }
}

impl World {
    /// Starts `http-server`, the example of the client library, at a free port, with these
    /// variables on top.
    #[must_use]
    pub fn http_server(&self, variables: &[(&str, &str)]) -> Serve {
        self.own_server(self.binaries.http_server, variables)
    }

    /// Starts `durable-server`, in the same way.
    #[must_use]
    pub fn durable_server(&self, variables: &[(&str, &str)]) -> Serve {
        self.own_server(self.binaries.durable_server, variables)
    }

    /// Starts `tasks-server`, in the same way.
    #[must_use]
    pub fn tasks_server(&self, variables: &[(&str, &str)]) -> Serve {
        self.own_server(self.binaries.tasks_server, variables)
    }

    fn own_server(&self, program: &str, variables: &[(&str, &str)]) -> Serve {
        let mut command = self.command(program);
        command.arg(FREE_PORT).envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, at, errors) = launch(&mut command);
        Serve {
            child,
            command,
            at,
            errors,
        }
    }
}

fn launch(command: &mut Command) -> (Child, String, Log) {
    let mut child = command.spawn().expect("serve");
    let errors = Log::default();
    Log::follow(
        child.stderr.take().expect("piped"),
        "-- end of serve --",
        vec![errors.clone()],
    );
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("a line");
    let at = line
        .trim_end()
        .strip_prefix("listening at ")
        .unwrap_or_else(|| {
            errors.wait("-- end of serve --");
            panic!("it does not listen: {line:?}\n{}", errors.text())
        });
    let at = at
        .strip_prefix("http://")
        .and_then(|at| at.strip_suffix("/mcp"))
        .unwrap_or(at);
    let at = at
        .strip_prefix("unix:")
        .and_then(|at| at.split_once(" ("))
        .map_or(at, |(path, _)| path);
    (child, at.to_owned(), errors)
}

impl Serve {
    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it holds in memory (VmRSS), in KiB.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        kib(self.pid(), "VmRSS:")
    }

    /// Its address, for a client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.at)
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Panics
    /// When it does not.
    pub fn stop(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("it is our child");
        exit_of(&mut self.child)
    }

    /// Starts another one like it, which listens at the same place.
    pub fn start_again(&mut self) {
        let mut command = Command::new(self.command.get_program());
        for argument in self.command.get_args() {
            let is_place = argument.as_encoded_bytes().ends_with(b":0");
            command.arg(if is_place { self.at.as_ref() } else { argument });
        }
        let variables = self
            .command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        command
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (self.child, self.at, self.errors) = launch(&mut command);
    }

    /// A client that has no session yet.
    #[must_use]
    pub fn client(&self) -> HttpClient {
        HttpClient {
            at: self.at.clone(),
            path: "/mcp".to_owned(),
            headers: Vec::new(),
            last: 0,
        }
    }

    /// A client that has begun a session at this path, with MCP 2025-11-25.
    #[must_use]
    pub fn connected_at(&self, path: &str) -> HttpClient {
        let mut client = HttpClient {
            path: path.to_owned(),
            ..self.client()
        };
        client.initialize("2025-11-25");
        client
    }

    /// A client that has begun a session, of this version of MCP.
    #[must_use]
    pub fn connected(&self, version: &str) -> HttpClient {
        let mut client = self.client();
        client.initialize(version);
        client
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "serve's standard error:\n{}",
                self.errors.text()
            );
        }
    }
}
