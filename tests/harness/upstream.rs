//! A server that speaks Streamable HTTP itself, as a child process.

use std::process::{Child, Command, Stdio};

use crate::{Log, OwnPort, World};

/// The server, which is killed when this is dropped.
#[derive(Debug)]
pub struct Upstream {
    child: Child,
    command: Command,
    /// Where it listens.
    pub url: String,
    /// What it says on its standard output.
    pub told: Log,
    _port: OwnPort,
}

impl World {
    /// A server that takes a port as its argument, and then these options.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn upstream(&self, program: &[String], options: &[&str]) -> Upstream {
        let port = OwnPort::take();
        let mut command = self.command(&program[0]);
        command
            .args(&program[1..])
            .arg(port.number.to_string())
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let (child, url, told) = launch(&mut command);
        Upstream {
            child,
            command,
            url,
            told,
            _port: port,
        }
    }
}

fn launch(command: &mut Command) -> (Child, String, Log) {
    let mut child = command.spawn().expect("a server");
    let told = Log::default();
    Log::follow(
        child.stdout.take().expect("piped"),
        "-- end of the server --",
        vec![told.clone()],
    );
    let line = told.wait("listening at ");
    let url = line
        .split("listening at ")
        .last()
        .expect("an address")
        .trim()
        .to_owned();
    (child, url, told)
}

impl Upstream {
    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, at the same place, where it remembers nothing.
    pub fn start_again(&mut self) {
        (self.child, _, self.told) = launch(&mut self.command);
    }

    /// How many sessions were begun with it since it was started.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.told.lines("initialize").len()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.kill();
    }
}
