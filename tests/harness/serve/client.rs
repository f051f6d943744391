//! An HTTP client that sends what a test wants to send.

use std::io::{BufReader, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::reply::Reply;
use crate::PATIENCE;

/// A client over HTTP: each request has a connection of its own.
#[derive(Debug, Clone)]
pub struct HttpClient {
    /// Where it connects to: `127.0.0.1:PORT`, or the path of a socket.
    pub at: String,
    /// Where its requests go.
    pub path: String,
    /// Additional headers of each request.
    pub headers: Vec<(String, String)>,
    /// The id of the last request.
    pub last: u64,
}

/// A request whose answer was not read.
#[derive(Debug)]
pub struct Unanswered(TcpStream);

impl Unanswered {
    /// Closes the connection.
    pub fn hang_up(self) {
        drop(self.0);
    }
}

impl HttpClient {
    /// Sends a request, and reads the head of the answer.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn ask(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.ask_at(method, &self.path, headers, body)
    }

    /// As [`HttpClient::ask`], at another path.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn ask_at(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send(&self.request_text(method, path, headers, body))
    }

    fn request_text(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let mut all: Vec<(&str, &str)> = vec![
            (
                "Host",
                if self.at.starts_with('/') {
                    "localhost"
                } else {
                    &self.at
                },
            ),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        let own = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            all.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            all.push((name, value));
        }
        // An empty header is left out.
        let lines = all.iter().filter(|(_, value)| !value.is_empty());
        let lines: String = lines
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        format!("{method} {path} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n{body}")
    }

    /// Sends a request to which no answer is expected yet.
    ///
    /// # Panics
    /// When it can't be sent.
    #[must_use]
    pub fn unanswered(&mut self, method: &str, params: &Value) -> Unanswered {
        self.last += 1;
        let body = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
            .to_string();
        self.unread(&[], &body)
    }

    /// Posts this with these headers, and reads no answer.
    ///
    /// # Panics
    /// When it can't be sent.
    #[must_use]
    pub fn unread(&self, headers: &[(&str, &str)], body: &str) -> Unanswered {
        let mut stream = TcpStream::connect(&self.at).expect("it listens");
        stream
            .write_all(self.request_text("POST", "/mcp", headers, body).as_bytes())
            .expect("sent");
        Unanswered(stream)
    }

    /// Sends bytes, and reads the head of the answer.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn send(&self, bytes: &str) -> Reply {
        let (reader, cut): (Box<dyn Read + Send>, Box<dyn Fn() + Send>) =
            if self.at.starts_with('/') {
                let mut stream = UnixStream::connect(&self.at).expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                drop(stream.write_all(bytes.as_bytes()));
                let other = stream.try_clone().expect("a descriptor");
                (
                    Box::new(stream),
                    Box::new(move || drop(other.shutdown(Shutdown::Both))),
                )
            } else {
                let mut stream = TcpStream::connect(&self.at).expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                drop(stream.write_all(bytes.as_bytes()));
                let other = stream.try_clone().expect("a descriptor");
                (
                    Box::new(stream),
                    Box::new(move || drop(other.shutdown(Shutdown::Both))),
                )
            };
        Reply::read(BufReader::new(reader), cut)
    }

    /// Begins a session. Returns the result.
    ///
    /// # Panics
    /// When it is refused.
    pub fn initialize(&mut self, version: &str) -> Value {
        let reply = self.begin(version, &[]);
        self.begun(version, reply)
    }

    /// As [`HttpClient::initialize`]; tells the server what to answer.
    ///
    /// # Panics
    /// When it is refused.
    pub fn initialize_saying(&mut self, version: &str, answer: &str) -> Value {
        let info = json!({"name": "test", "version": "1"});
        let mut params =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        params["say"] = base64(answer).into();
        let reply = self.request("initialize", &params);
        self.begun(version, reply)
    }

    /// Takes up the session that this answer to `initialize` has begun. Returns the result.
    ///
    /// # Panics
    /// When it is refused.
    pub fn begun(&mut self, version: &str, mut reply: Reply) -> Value {
        reply.must_be(200);
        let session = reply
            .header("mcp-session-id")
            .expect("a session")
            .to_owned();
        self.headers.push(("Mcp-Session-Id".into(), session));
        if version > "2025-03-26" {
            self.headers
                .push(("MCP-Protocol-Version".into(), version.into()));
        }
        // Some servers answer `initialize` by a stream.
        let is_stream = reply.header("content-type") == Some("text/event-stream");
        let answer = if is_stream {
            reply.answer()
        } else {
            reply.message()
        };
        assert_eq!(answer["id"], self.last, "{answer}");
        self.notify("notifications/initialized", &json!({}));
        answer["result"].clone()
    }

    /// Sends `initialize`.
    pub fn begin(&mut self, version: &str, headers: &[(&str, &str)]) -> Reply {
        let info = json!({"name": "test", "version": "1"});
        let capabilities = json!({"sampling": {}});
        let params =
            json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
        self.last += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.last, "method": "initialize", "params": params});
        self.ask("POST", headers, &message.to_string())
    }

    /// Its session.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn session(&self) -> &str {
        let named = self
            .headers
            .iter()
            .find(|(name, _)| name == "Mcp-Session-Id");
        &named.expect("a session").1
    }

    /// Posts a message.
    #[must_use]
    pub fn post(&self, message: &Value) -> Reply {
        self.ask("POST", &[], &message.to_string())
    }

    /// Posts a notification, which `serve` must accept.
    ///
    /// # Panics
    /// When `serve` refuses it.
    pub fn notify(&self, method: &str, params: &Value) {
        let mut reply = self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        reply.must_be(202);
    }

    /// Posts a request. Its id is `last`.
    pub fn request(&mut self, method: &str, params: &Value) -> Reply {
        self.last += 1;
        self.post(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Reply {
        let meta = json!({"progressToken": self.last + 1});
        self.request(
            "tools/call",
            &json!({"name": tool, "arguments": arguments, "_meta": meta}),
        )
    }

    /// Posts a request of MCP 2026-07-28, with these parameters beside `_meta`, and these headers
    /// beside those that it needs.
    pub fn modern_with(&mut self, method: &str, params: &Value, headers: &[(&str, &str)]) -> Reply {
        self.last += 1;
        let mut params = params.clone();
        let meta = [
            ("protocolVersion", json!("2026-07-28")),
            ("clientCapabilities", json!({})),
        ];
        for (key, value) in meta {
            params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
        }
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let message =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        let own = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
            ("Mcp-Name", &name),
        ];
        self.ask("POST", &[&own[..], headers].concat(), &message.to_string())
    }

    /// Posts a request of MCP 2026-07-28.
    pub fn modern(&mut self, method: &str, params: &Value) -> Reply {
        self.modern_with(method, params, &[])
    }

    /// Calls a tool by MCP 2026-07-28, and returns the text of the answer.
    ///
    /// # Panics
    /// When it fails.
    pub fn modern_text(&mut self, tool: &str) -> String {
        let mut reply = self.modern("tools/call", &json!({"name": tool}));
        reply.must_be(200);
        let answer = reply.message();
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    /// Calls a tool, and returns the text of the answer.
    ///
    /// # Panics
    /// When it fails.
    pub fn text(&mut self, tool: &str, arguments: &Value) -> String {
        let mut reply = self.call(tool, arguments);
        reply.must_be(200);
        let answer = reply.answer();
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    /// Reads the standalone stream.
    #[must_use]
    pub fn listen(&self) -> Reply {
        self.ask("GET", &[], "")
    }

    /// Resumes a stream after this event.
    #[must_use]
    pub fn resume(&self, event: &str) -> Reply {
        self.ask("GET", &[("Last-Event-ID", event)], "")
    }
}

/// The text in Base64.
#[must_use]
pub fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let bits = chunk
            .iter()
            .chain([&0; 2])
            .take(3)
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        let letter = |nth: usize| char::from(LETTERS[bits >> (18 - 6 * nth) & 63]);
        (0..4)
            .map(|nth| if nth <= chunk.len() { letter(nth) } else { '=' })
            .collect::<String>()
    };
    text.as_bytes().chunks(3).map(encode).collect()
}
