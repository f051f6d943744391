//! The program `serving`, which leases a service and does what a test tells it.

use serde_json::{Value, json};

use crate::{Front, World};

/// The program `serving`.
#[derive(Debug)]
pub struct Serving {
    /// The process.
    pub process: Front,
    /// Lines that it said and that the test has not asked for yet.
    said: Vec<Value>,
}

impl World {
    /// Starts a process that leases this name.
    #[must_use]
    pub fn serving(&self, name: &str) -> Serving {
        let words = [self.binaries.serving.to_owned(), name.to_owned()];
        Serving {
            process: self.front(&words),
            said: Vec::new(),
        }
    }

    /// Makes a session of a service.
    ///
    /// # Panics
    /// When the daemon refuses.
    pub fn create(&self, service: &str, session: &str) {
        self.peer()
            .call(
                "create_session",
                json!({"service": service, "session": session}),
            )
            .expect("a session");
    }

    /// Ends a session of a service.
    ///
    /// # Panics
    /// When the daemon refuses.
    pub fn terminate(&self, service: &str, session: &str) {
        let of = json!({"service": service, "session": session});
        self.peer()
            .call("terminate_session", of)
            .expect("there is one");
    }
}

impl Serving {
    /// Gives it a command.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn tell(&mut self, command: Value) {
        self.process.send(format!("{command}\n").as_bytes());
    }

    /// Waits for its next line with this key; other lines stay for later.
    ///
    /// # Panics
    /// When it says none.
    pub fn wait(&mut self, key: &str) -> Value {
        if let Some(at) = self.said.iter().position(|said| said.get(key).is_some()) {
            return self.said.remove(at);
        }
        loop {
            let line = self.process.line();
            let line = line.unwrap_or_else(|| panic!("it ended:\n{}", self.process.errors.text()));
            let said: Value = serde_json::from_slice(&line).expect("JSON");
            if said.get(key).is_some() {
                return said;
            }
            self.said.push(said);
        }
    }

    /// Waits until it has the lease, and returns the epoch.
    ///
    /// # Panics
    /// When it does not.
    pub fn leased(&mut self) -> u64 {
        self.wait("leased")["leased"].as_u64().expect("an epoch")
    }

    /// Has it attach to the backend of a session.
    pub fn attach(&mut self, session: &str, command: &[String]) -> Value {
        self.tell(json!({"backend": session, "command": command}));
        self.wait("attached")
    }

    /// Has it send a line, and waits until the keeper has taken the line.
    pub fn send(&mut self, session: &str, line: &str) {
        self.tell(json!({"send": session, "line": line}));
        assert_eq!(self.wait("taken")["line"], line);
    }

    /// The next line of a backend, and its number.
    pub fn line(&mut self) -> (u64, String) {
        let said = self.wait("number");
        (
            said["number"].as_u64().expect("a number"),
            said["line"].as_str().expect("text").to_owned(),
        )
    }

    /// The calls that the keeper knows.
    pub fn calls(&mut self, session: &str) -> Value {
        self.tell(json!({"calls": session}));
        self.wait("calls")["calls"].take()
    }
}
