//! The official TypeScript client as a host that loses its servers and finds them again:
//! `tests/node/reconnect.mjs`.

use std::io::Write as _;
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::{Log, World};

/// The program, which is a host as the daemon sees it.
#[derive(Debug)]
pub struct NodeHost {
    child: Child,
    orders: ChildStdin,
    /// Orders that were given.
    last: u64,
    /// Everything that it tells: answers and events.
    pub told: Log,
    /// What its servers get beside the SDK's own environment.
    environment: Value,
}

impl World {
    /// A host that runs the official client.
    #[must_use]
    pub fn node_host(&self) -> NodeHost {
        let environment = self.environment();
        let variables = environment
            .iter()
            .map(|(name, path)| ((*name).to_owned(), json!(path)));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/node/reconnect.mjs");
        let mut command = self.command("node");
        command
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("node");
        let told = Log::default();
        Log::follow(
            child.stdout.take().expect("piped"),
            "-- end of node --",
            vec![told.clone()],
        );
        let orders = child.stdin.take().expect("piped");
        NodeHost {
            child,
            orders,
            last: 0,
            told,
            environment: Value::Object(variables.collect()),
        }
    }
}

impl NodeHost {
    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order, and does not wait. Returns its id.
    ///
    /// # Panics
    /// When it takes none.
    pub fn begin(&mut self, mut order: Value) -> u64 {
        self.last += 1;
        order["id"] = self.last.into();
        self.orders
            .write_all(format!("{order}\n").as_bytes())
            .expect("node takes orders");
        self.last
    }

    /// What became of an order.
    ///
    /// # Errors
    /// Its error.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn answer(&self, id: u64) -> Result<Value, Value> {
        let line = self.told.wait(&format!("{{\"id\":{id},"));
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["ok"].take()),
        }
    }

    /// Gives an order that must succeed.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn order(&mut self, order: Value) -> Value {
        let shown = order.to_string();
        let id = self.begin(order);
        self.answer(id)
            .unwrap_or_else(|error| panic!("{shown}: {error}\n{}", self.told.text()))
    }

    /// Starts a server, and connects. Returns the pid of what was started.
    #[track_caller]
    pub fn connect(&mut self, name: &str, command: &[String]) -> u32 {
        self.connect_with(name, command, &json!({}))["pid"]
            .as_u64()
            .and_then(|pid| pid.try_into().ok())
            .expect("a pid")
    }

    /// The same, with more in the order. Returns all that is told.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn connect_with(&mut self, name: &str, command: &[String], more: &Value) -> Value {
        let mut order =
            json!({"do": "connect", "as": name, "command": command, "env": self.environment});
        for (key, value) in more.as_object().into_iter().flatten() {
            match value.as_object().filter(|_| key == "env") {
                Some(variables) => {
                    for (name, value) in variables {
                        order["env"][name] = value.clone();
                    }
                }
                None => order[key] = value.clone(),
            }
        }
        self.order(order)
    }

    /// Calls a tool, and does not wait.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn begin_call(&mut self, name: &str, tool: &str, arguments: Value) -> u64 {
        self.begin(json!({"do": "call", "as": name, "tool": tool, "arguments": arguments}))
    }

    /// Calls the tool that waits at a gate, and waits until it does. Returns the id.
    pub fn begin_slow(&mut self, name: &str, gate: &str) -> u64 {
        let call = self.begin_call(name, "slow", json!({"gate": gate}));
        self.told.wait(&format!("begun {gate}"));
        call
    }

    /// What the text of the answer to a call is.
    ///
    /// # Errors
    /// Its error.
    pub fn text(&self, id: u64) -> Result<String, Value> {
        let answer = self.answer(id)?;
        Ok(answer["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned())
    }

    /// Calls a tool, which must not fail.
    ///
    /// # Panics
    /// When it does.
    #[track_caller]
    pub fn call(&mut self, name: &str, tool: &str, arguments: Value) -> String {
        let id = self.begin_call(name, tool, arguments);
        self.text(id)
            .unwrap_or_else(|error| panic!("{tool}: {error}\n{}", self.told.text()))
    }

    /// Has a server count, and returns how far it is.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn count(&mut self, name: &str) -> u64 {
        self.call(name, "increment", json!({}))
            .parse()
            .expect("a number")
    }

    /// Sends a signal to what was started, and waits until it is gone.
    pub fn end(&mut self, name: &str, signal: &str) {
        let before = self.told.len();
        self.order(json!({"do": "kill_front", "as": name, "signal": signal}));
        self.told.wait_from(
            before,
            &[&format!("{{\"event\":\"exited\",\"as\":\"{name}\"")],
        );
    }

    /// Closes a connection as a host does.
    pub fn close(&mut self, name: &str) {
        self.order(json!({"do": "close", "as": name}));
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for NodeHost {
    fn drop(&mut self) {
        self.kill();
    }
}
