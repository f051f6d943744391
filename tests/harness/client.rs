//! A host's end of MCP, as much of it as it takes to call tools, over whatever takes lines and says
//! some.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::Server;

/// What lines go to and come from.
pub trait Pipe {
    /// Writes a line.
    fn write(&mut self, line: &str);
    /// Reads the next line.
    fn read(&mut self) -> String;
}

impl Pipe for Server {
    fn write(&mut self, line: &str) {
        Self::write(self, line);
    }

    fn read(&mut self) -> String {
        Self::read(self)
    }
}

/// A host that talks to one server. What the server says of itself is kept until it is asked for.
#[derive(Debug)]
pub struct Client<P> {
    /// Where the server is.
    pub pipe: P,
    /// The id of the last request.
    pub last: u64,
    said: VecDeque<Value>,
}

impl<P: Pipe> Client<P> {
    /// A host that has said nothing yet.
    pub fn new(pipe: P) -> Self {
        Self {
            pipe,
            last: 0,
            said: VecDeque::new(),
        }
    }

    /// A host that has initialised its server.
    pub fn connected(pipe: P) -> Self {
        let mut client = Self::new(pipe);
        client.initialize();
        client
    }

    /// A host that calls itself so, and has initialised its server.
    pub fn connected_as(name: &str, pipe: P) -> Self {
        let mut client = Self::new(pipe);
        client.initialize_as(name);
        client
    }

    /// Initialises the server. Returns its answer.
    pub fn initialize(&mut self) -> Value {
        self.initialize_as("test")
    }

    /// The same, by a host that calls itself so.
    pub fn initialize_as(&mut self, name: &str) -> Value {
        let id = self.begin_initialize(name);
        self.initialized(id)
    }

    /// Begins to initialise the server, and does not wait for the answer. Returns the id.
    pub fn begin_initialize(&mut self, name: &str) -> u64 {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"sampling": {}, "roots": {}},
            "clientInfo": {"name": name, "version": "1"},
        });
        self.request("initialize", params)
    }

    /// The answer to what was begun. The server is told that it has arrived.
    pub fn initialized(&mut self, id: u64) -> Value {
        let answer = self.answer(id);
        self.notify("notifications/initialized", json!({}));
        answer
    }

    /// Makes a request, and does not wait for the answer. Returns its id.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.pipe.write(&request.to_string());
        self.last
    }

    /// Notifies.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn notify(&mut self, method: &str, params: Value) {
        self.pipe
            .write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Calls a tool, and does not wait for the answer. Returns the id.
    #[expect(clippy::needless_pass_by_value, reason = "it is built for the call")]
    pub fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls the tool that waits at a gate, and waits until it does. Returns the id.
    pub fn begin_slow(&mut self, gate: &str) -> u64 {
        let slow = self.begin("slow", json!({"gate": gate}));
        self.said(|message| message["params"]["logger"] == "slow");
        slow
    }

    /// Waits until the server has come to this, and with it has heard everything that was said
    /// before.
    pub fn ping(&mut self) {
        let ping = self.request("ping", json!({}));
        self.answer(ping);
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        self.said(|message| message["id"] == id && message.get("method").is_none())
    }

    /// What the text of the answer to a call is.
    ///
    /// # Errors
    /// The error that it was answered with.
    ///
    /// # Panics
    /// When the answer has no text.
    pub fn text(&mut self, id: u64) -> Result<String, Value> {
        let mut answer = self.answer(id);
        if answer.get("error").is_some() {
            return Err(answer["error"].take());
        }
        Ok(answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned())
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// The error that it was answered with.
    pub fn try_call(&mut self, tool: &str, arguments: Value) -> Result<String, Value> {
        let id = self.begin(tool, arguments);
        self.text(id)
    }

    /// Calls a tool, which must not fail, and returns its text.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> String {
        self.try_call(tool, arguments)
            .unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// Has the server count, and returns how far it is.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn count(&mut self) -> u64 {
        self.call("increment", json!({})).parse().expect("a number")
    }

    /// Waits for a message that is such, which may have come already, and takes it.
    ///
    /// # Panics
    /// When none comes.
    pub fn said(&mut self, such: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.said.iter().position(&such) {
            return self.said.remove(at).unwrap_or_default();
        }
        loop {
            let line = self.pipe.read();
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            if such(&message) {
                return message;
            }
            self.said.push_back(message);
        }
    }

    /// Everything that came and was not asked for, in its order.
    pub fn rest(&mut self) -> Vec<Value> {
        self.said.drain(..).collect()
    }
}
