//! A keeper under the control of a test.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{Host, Instance, Loaded, PATIENCE, World, gone, until};

/// The program `keeper`, which an instance has started. It ends with the test.
#[derive(Debug)]
pub struct Keeper {
    /// Its pid.
    pub pid: u32,
    /// Its name, which no other keeper of this test has.
    pub name: String,
    control: BufReader<UnixStream>,
}

impl World {
    /// A keeper that is registered; before it, the instance of this host that has started it and
    /// holds the session, and what that one has loaded.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn keeper(&self, host: &Host) -> (Instance, Loaded, Keeper) {
        let (mut holder, of) = host.loaded(&[]);
        let keeper = Keeper::below(self, &mut holder).registered(&of);
        (holder, of, keeper)
    }
}

impl Keeper {
    /// Has an instance start one, which then waits for commands.
    #[must_use]
    pub fn below(world: &World, instance: &mut Instance) -> Self {
        Self::started(world, instance, "exec \"$0\" \"$1\"")
    }

    /// The same, which takes no notice of SIGTERM.
    #[must_use]
    pub fn deaf_below(world: &World, instance: &mut Instance) -> Self {
        Self::started(world, instance, "trap '' TERM; exec \"$0\" \"$1\"")
    }

    /// The same, which leads no session of processes.
    #[must_use]
    pub fn member_below(world: &World, instance: &mut Instance) -> Self {
        Self::started(world, instance, "exec \"$0\" \"$1\" --member")
    }

    fn started(world: &World, instance: &mut Instance, script: &str) -> Self {
        let name = format!("{:08x}", fastrand::u32(..));
        let socket = world.root().join(&name);
        let path = socket.to_str().expect("UTF-8");
        let pid = instance.spawn(&["sh", "-c", script, world.binaries.keeper, path]);
        // A socket's file is there before anybody listens, and nothing tells of either.
        let control = until("the keeper listens", || UnixStream::connect(&socket).ok());
        control.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self {
            pid,
            name,
            control: BufReader::new(control),
        }
    }

    fn ask(&mut self, command: &str) -> Value {
        self.control
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())
            .expect("the keeper listens");
        let mut line = String::new();
        self.control
            .read_line(&mut line)
            .expect("the keeper answers");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    /// Has it call the daemon, in JSON-RPC.
    ///
    /// # Errors
    /// The error that the daemon answered with.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let mut answer = self.ask(&format!("call {method} {params}"));
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Has it register for a session.
    ///
    /// # Errors
    /// The error that the daemon answered with.
    pub fn register(&mut self, of: &Loaded) -> Result<Value, Value> {
        self.register_as(of, None)
    }

    /// The same, for the session's backend of this name.
    ///
    /// # Errors
    /// The error that the daemon answered with.
    pub fn register_as(&mut self, of: &Loaded, backend: Option<&str>) -> Result<Value, Value> {
        let epoch = of.epoch.unwrap_or_default().to_string();
        let mut params = json!({"session": of.session(), "epoch": epoch, "keeper": self.name, "program": "server"});
        if let Some(backend) = backend {
            params["backend"] = backend.into();
        }
        self.call("keep_backend", params)
    }

    /// The same, for a session whose holder it is below.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn registered(mut self, of: &Loaded) -> Self {
        self.register(of).expect("below the holder");
        self
    }

    /// Has it start a backend that ends for nothing but SIGKILL. Returns its pid.
    pub fn start_backend(&mut self) -> u32 {
        let pid = self.ask("backend")["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok());
        pid.expect("a pid")
    }

    /// The same, and has it tell the daemon.
    pub fn start_and_tell(&mut self, of: &Loaded) -> u32 {
        let pid = self.start_backend();
        let params = json!({"session": of.session(), "keeper": self.name, "pid": pid});
        self.call("backend_started", params)
            .expect("it is its keeper");
        pid
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGKILL);
        gone(self.pid);
    }
}
