//! An HTTP client that shows status, headers and events as they were sent.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::PATIENCE;

/// A client over HTTP: each request has a connection of its own.
#[derive(Debug, Clone)]
pub struct HttpClient {
    /// Where it connects to: `127.0.0.1:PORT`, or the path of a socket.
    pub at: String,
    /// Additional headers of each request.
    pub headers: Vec<(String, String)>,
    /// The id of the last request.
    pub last: u64,
}

/// The answer to a request. Its body is read on demand.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, by lower-case names.
    pub headers: Vec<(String, String)>,
    body: BufReader<Box<dyn Read + Send>>,
    is_chunked: bool,
    /// Hangs up.
    pub cut: Box<dyn Fn() + Send>,
    text: Vec<u8>,
    is_whole: bool,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Reply({}, {:?})", self.status, self.headers)
    }
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

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// Its name.
    pub event: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// After how many milliseconds to reconnect.
    pub retry: Option<u64>,
    /// Its data, unparsed.
    pub data: String,
}

impl SseEvent {
    /// Its message.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl HttpClient {
    /// Sends a request, and reads the head of the answer.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn ask(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.ask_at(method, "/mcp", headers, body)
    }

    /// As [`HttpClient::ask`], at another path.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn ask_at(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut all: Vec<(&str, &str)> = vec![
            ("Host", if self.at.starts_with('/') { "localhost" } else { &self.at }),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            all.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            all.push((name, value));
        }
        // An empty header is left out.
        let lines = all.iter().filter(|(_, value)| !value.is_empty());
        let lines: String = lines.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        self.send(&format!("{method} {path} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n{body}"))
    }

    /// Sends a request to which no answer is expected yet.
    ///
    /// # Panics
    /// When it can't be sent.
    #[must_use]
    pub fn unanswered(&mut self, method: &str, params: &Value) -> Unanswered {
        self.last += 1;
        let body = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}).to_string();
        let mut stream = TcpStream::connect(&self.at).expect("it listens");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAccept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.at,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
        Unanswered(stream)
    }

    /// Sends bytes, and reads the head of the answer.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn send(&self, bytes: &str) -> Reply {
        let (reader, cut): (Box<dyn Read + Send>, Box<dyn Fn() + Send>) = if self.at.starts_with('/') {
            let mut stream = UnixStream::connect(&self.at).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            drop(stream.write_all(bytes.as_bytes()));
            let other = stream.try_clone().expect("a descriptor");
            (Box::new(stream), Box::new(move || drop(other.shutdown(Shutdown::Both))))
        } else {
            let mut stream = TcpStream::connect(&self.at).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            drop(stream.write_all(bytes.as_bytes()));
            let other = stream.try_clone().expect("a descriptor");
            (Box::new(stream), Box::new(move || drop(other.shutdown(Shutdown::Both))))
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
        let mut params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        params["say"] = base64(answer).into();
        let reply = self.request("initialize", &params);
        self.begun(version, reply)
    }

    fn begun(&mut self, version: &str, mut reply: Reply) -> Value {
        reply.must_be(200);
        let session = reply.header("mcp-session-id").expect("a session").to_owned();
        self.headers.push(("Mcp-Session-Id".into(), session));
        if version > "2025-03-26" {
            self.headers.push(("MCP-Protocol-Version".into(), version.into()));
        }
        let answer = reply.message();
        assert_eq!(answer["id"], self.last, "{answer}");
        self.notify("notifications/initialized", &json!({}));
        answer["result"].clone()
    }

    /// Sends `initialize`.
    pub fn begin(&mut self, version: &str, headers: &[(&str, &str)]) -> Reply {
        let info = json!({"name": "test", "version": "1"});
        let capabilities = json!({"sampling": {}});
        let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
        self.last += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": "initialize", "params": params});
        self.ask("POST", headers, &message.to_string())
    }

    /// Its session.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn session(&self) -> &str {
        let named = self.headers.iter().find(|(name, _)| name == "Mcp-Session-Id");
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
        self.request("tools/call", &json!({"name": tool, "arguments": arguments, "_meta": meta}))
    }

    /// Posts a request of MCP 2026-07-28, with these parameters beside `_meta`, and these headers beside those that it needs.
    pub fn modern_with(&mut self, method: &str, params: &Value, headers: &[(&str, &str)]) -> Reply {
        self.last += 1;
        let mut params = params.clone();
        let meta = [("protocolVersion", json!("2026-07-28")), ("clientCapabilities", json!({}))];
        for (key, value) in meta {
            params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
        }
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        let own = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", &name)];
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
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Calls a tool, and returns the text of the answer.
    ///
    /// # Panics
    /// When it fails.
    pub fn text(&mut self, tool: &str, arguments: &Value) -> String {
        let mut reply = self.call(tool, arguments);
        reply.must_be(200);
        let answer = reply.answer();
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
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

impl Reply {
    fn read(mut body: BufReader<Box<dyn Read + Send>>, cut: Box<dyn Fn() + Send>) -> Self {
        let mut line = String::new();
        body.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            body.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let is_chunked =
            headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Self { status, headers, body, is_chunked, cut, text: Vec::new(), is_whole: false }
    }

    /// Asserts its status.
    ///
    /// # Panics
    /// When it is another one.
    #[track_caller]
    pub fn must_be(&mut self, status: u16) {
        if self.status != status {
            panic!("{self:?} {}", self.text());
        }
    }

    /// A header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reads more of the body. False: there is no more.
    fn more(&mut self) -> bool {
        if self.is_whole {
            return false;
        }
        let length = if self.is_chunked {
            let mut line = String::new();
            if self.body.read_line(&mut line).unwrap_or(0) == 0 {
                self.is_whole = true;
                return false;
            }
            usize::from_str_radix(line.trim_end(), 16).expect("a length")
        } else {
            let length = self.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            length - self.text.len().min(length)
        };
        let start = self.text.len();
        self.text.resize(start + length, 0);
        if self.body.read_exact(&mut self.text[start..]).is_err() {
            // The connection broke.
            self.text.truncate(start);
            self.is_whole = true;
            return false;
        }
        if self.is_chunked {
            let mut line = String::new();
            let _ = self.body.read_line(&mut line);
        }
        self.is_whole = length == 0;
        length > 0
    }

    /// The whole body.
    pub fn text(&mut self) -> String {
        while self.more() {}
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// The whole body, as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn message(&mut self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// The next event; none at the end. Skips comments.
    ///
    /// # Panics
    /// When it is no stream of events.
    pub fn event(&mut self) -> Option<SseEvent> {
        if self.header("content-type") != Some("text/event-stream") {
            panic!("{self:?} {}", self.text());
        }
        loop {
            if let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("UTF-8");
                if let Some(event) = event(&block) {
                    return Some(event);
                }
            } else if !self.more() {
                return None;
            }
        }
    }

    /// The next line of the body, unparsed.
    ///
    /// # Panics
    /// When there is none.
    pub fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                if line != b"\n" {
                    return String::from_utf8(line).expect("UTF-8");
                }
            } else {
                assert!(self.more(), "a line");
            }
        }
    }

    /// The next event that has a message.
    ///
    /// # Panics
    /// When there is none.
    pub fn said(&mut self) -> SseEvent {
        loop {
            let event = self.event().expect("an event");
            if !event.data.is_empty() {
                return event;
            }
        }
    }

    /// The last message of the stream, which is the answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self) -> Value {
        let mut last = None;
        while let Some(event) = self.event() {
            last = Some(event).filter(|event| !event.data.is_empty()).or(last);
        }
        last.expect("an answer").message()
    }

    /// Hangs up.
    pub fn hang_up(self) {
        (self.cut)();
    }
}

/// The text in Base64.
#[must_use]
pub fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let bits =
            chunk.iter().chain([&0; 2]).take(3).fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        let letter = |nth: usize| char::from(LETTERS[bits >> (18 - 6 * nth) & 63]);
        (0..4).map(|nth| if nth <= chunk.len() { letter(nth) } else { '=' }).collect::<String>()
    };
    text.as_bytes().chunks(3).map(encode).collect()
}

fn event(block: &str) -> Option<SseEvent> {
    let mut event = SseEvent::default();
    let mut is_one = false;
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        is_one = true;
        match name {
            "event" => event.event = Some(value.into()),
            "id" => event.id = Some(value.into()),
            "retry" => event.retry = value.parse().ok(),
            "data" => event.data = value.into(),
            _ => panic!("{line:?}"),
        }
    }
    is_one.then_some(event)
}
