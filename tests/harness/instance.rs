//! A server that does nothing but use the client library.

use serde_json::Value;

use crate::Server;

/// The program `instance`, under the control of a test.
#[derive(Debug)]
pub struct Instance(pub Server);

/// The answer to a command: what it brought, and where the instance stands after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The token, where there is one.
    pub token: Option<String>,
    /// The session, where resume works.
    pub session: Option<String>,
    /// The number of the lease.
    pub epoch: Option<u64>,
    /// How it came to this session.
    pub outcome: Option<String>,
    /// Why resume is disabled.
    pub disabled: Option<String>,
    /// Whether the token was stored, after a store.
    pub done: bool,
}

impl Loaded {
    /// The session.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn session(&self) -> String {
        self.session
            .clone()
            .unwrap_or_else(|| panic!("no session: {self:?}"))
    }

    /// Asserts that this is what a first run gets: a session, and no token.
    ///
    /// # Panics
    /// When it is not.
    pub fn assert_fresh(&self) -> &Self {
        assert!(self.token.is_none(), "{self:?}");
        assert!(
            self.outcome
                .as_deref()
                .is_some_and(|outcome| outcome.starts_with("fresh")),
            "{self:?}"
        );
        self
    }

    /// Asserts that this is a session that there was before, with the token that it has.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn assert_resumed(&self, session: &str, token: Option<&str>) -> &Self {
        assert_eq!(
            (self.session().as_str(), self.token.as_deref()),
            (session, token),
            "{self:?}"
        );
        self
    }
}

impl Instance {
    /// Gives it a command, and does not wait for the answer.
    pub fn begin(&self, command: &str) {
        self.0.write(command);
    }

    /// The answer to the oldest command that was not answered yet.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self) -> Loaded {
        let answer = self.line();
        let text = |name: &str| answer[name].as_str().map(str::to_owned);
        Loaded {
            token: text("token"),
            session: text("session"),
            epoch: answer["epoch"].as_u64(),
            outcome: text("outcome"),
            disabled: text("disabled"),
            done: answer["done"].as_bool().unwrap_or_default(),
        }
    }

    fn line(&mut self) -> Value {
        let line = self.0.read();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    fn ask(&mut self, command: &str) -> Loaded {
        self.begin(command);
        self.answer()
    }

    /// Loads.
    pub fn load(&mut self) -> Loaded {
        self.ask("load")
    }

    /// Stores a token that has to be accepted.
    ///
    /// # Panics
    /// When it is not.
    pub fn store(&mut self, token: &str) -> Loaded {
        let stored = self.try_store(token);
        assert!(stored.done, "{token:?} was not stored: {stored:?}");
        stored
    }

    /// Loads what a first run gets, and stores a token. Returns the session and the lease, which
    /// stay.
    ///
    /// # Panics
    /// When it does not get that, or the token is not accepted.
    pub fn first_run(&mut self, token: &str) -> Loaded {
        let loaded = self.load();
        loaded.assert_fresh();
        let stored = self.store(token);
        assert_eq!(
            (&stored.session, stored.epoch),
            (&loaded.session, loaded.epoch)
        );
        stored
    }

    /// Stores a token that may be refused.
    pub fn try_store(&mut self, token: &str) -> Loaded {
        self.ask(&format!("store {token}"))
    }

    /// Rejects the token.
    pub fn reject(&mut self) -> Loaded {
        self.ask("reject")
    }

    /// Releases the session.
    pub fn release(&mut self) -> Loaded {
        self.ask("release")
    }

    /// Has it call the daemon on a connection of its own, in JSON-RPC.
    ///
    /// # Errors
    /// The error that the daemon answered with.
    ///
    /// # Panics
    /// When there is no answer.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.begin(&format!("call {method} {params}"));
        let mut answer = self.line();
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Has it start a child, and returns that one's pid.
    ///
    /// # Panics
    /// When it can't.
    pub fn spawn(&mut self, arguments: &[&str]) -> u32 {
        self.begin(&format!("spawn {}", Value::from(arguments)));
        let answer = self.line();
        answer["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok())
            .unwrap_or_else(|| panic!("{answer}"))
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill();
    }
}
