//! The example server, and the little of MCP that it takes to call its tools.

use serde_json::{Value, json};

use crate::Server;

/// `example-server` as a host sees it.
#[derive(Debug)]
pub struct McpServer {
    /// The process.
    pub process: Server,
    calls: u64,
    initialized: bool,
}

impl McpServer {
    pub(crate) fn start(process: Server) -> Self {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let initialize =
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        process.write(&initialize.to_string());
        Self {
            process,
            calls: 0,
            initialized: false,
        }
    }

    /// Calls a tool without arguments, and returns the JSON that it answers with.
    ///
    /// # Panics
    /// When it answers with an error.
    pub fn call(&mut self, tool: &str) -> Value {
        if !self.initialized {
            self.answer(0);
            self.process.write(
                &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
            );
            self.initialized = true;
        }
        self.calls += 1;
        let params = json!({"name": tool, "arguments": {}});
        let call =
            json!({"jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params});
        self.process.write(&call.to_string());
        let answer = self.answer(self.calls);
        let text = answer["result"]["content"][0]["text"].as_str();
        serde_json::from_str(text.unwrap_or_else(|| panic!("{answer}")))
            .expect("the tools answer in JSON")
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.process.read()).expect("JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The broker session that it is in.
    ///
    /// # Panics
    /// When it does not tell.
    pub fn broker_session(&mut self) -> String {
        self.call("session")["broker_session"]
            .as_str()
            .expect("text")
            .to_owned()
    }
}
