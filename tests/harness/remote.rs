//! A process that is connected to a remote server: `remote`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::{Log, World};

/// A process that is connected to a remote server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Connected {
    child: Child,
    input: Option<ChildStdin>,
    /// What it has said: `{"number", "line"}` for each message of the server.
    pub said: Log,
    /// Lines of that which were looked at.
    seen: usize,
}

impl World {
    /// `remote` with these arguments and variables.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn remote(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Connected {
        let mut command = self.command(self.binaries.remote);
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("remote");
        let said = Log::default();
        Log::follow(
            child.stdout.take().expect("piped"),
            "null",
            vec![said.clone()],
        );
        Connected {
            input: child.stdin.take(),
            child,
            said,
            seen: 0,
        }
    }

    /// `remote`, connected to `url`, with what a former one has kept in `file`. Returns what it
    /// knows of the handshake, too.
    #[must_use]
    pub fn connected(&self, url: &str, file: &Path) -> (Connected, Value) {
        let mut connected = self.remote(&["test", url, file.to_str().expect("UTF-8")], &[]);
        let handshake = connected.said_next()["handshake"].clone();
        (connected, handshake)
    }
}

impl Connected {
    /// The next line that it says.
    ///
    /// # Panics
    /// When there is none.
    pub fn said_next(&mut self) -> Value {
        let line = self.said.wait_from(self.seen, &[""]);
        self.seen += 1;
        serde_json::from_str(&line).expect("JSON")
    }

    /// The next message of the server that fits, and its number. Others before it are passed over.
    pub fn message(&mut self, mut fits: impl FnMut(&Value) -> bool) -> (u64, Value) {
        loop {
            let said = self.said_next();
            assert!(!said.is_null(), "it has ended:\n{}", self.said.text());
            if let Some(number) = said["number"].as_u64().filter(|_| fits(&said["line"])) {
                return (number, said["line"].clone());
            }
        }
    }

    /// The answer to a call, and its number.
    pub fn answer(&mut self, id: u64) -> (u64, Value) {
        self.message(|line| line["id"] == id && line["method"].is_null())
    }

    /// Says a line.
    ///
    /// # Panics
    /// When it does not read any more.
    pub fn line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .expect("it reads");
    }

    /// Says a message to the server.
    pub fn say(&mut self, message: &Value) {
        self.line(&message.to_string());
    }

    /// Initialises the session, and returns the answer.
    pub fn initialize(&mut self) -> Value {
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": client});
        self.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        let answer = self.answer(0).1;
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    /// Begins to call a tool.
    pub fn begin(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Calls a tool, and returns the text that it answers.
    ///
    /// # Panics
    /// When it answers none.
    pub fn text(&mut self, id: u64, tool: &str, arguments: &Value) -> String {
        self.begin(id, tool, arguments);
        let answer = self.answer(id).1;
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text in {answer}"))
            .to_owned()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Closes its input, and waits until it is gone.
    pub fn close(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A GET by plain HTTP, without following redirects: the status, the place that it redirects to,
/// and the body.
///
/// # Panics
/// When nobody answers.
#[must_use]
pub fn get(url: &str) -> (u16, Option<String>, String) {
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("http://HOST/PATH");
    let mut stream = TcpStream::connect(host).expect("somebody listens");
    let head = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let location = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("location")
            .then(|| value.to_owned())
    });
    (status, location, body.to_owned())
}
