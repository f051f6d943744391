//! The answer to a request over HTTP, whose body is read on demand.

use std::io::{BufRead as _, BufReader, Read};

use serde_json::Value;

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

impl Reply {
    pub(super) fn read(
        mut body: BufReader<Box<dyn Read + Send>>,
        cut: Box<dyn Fn() + Send>,
    ) -> Self {
        let mut line = String::new();
        body.read_line(&mut line).expect("a status line");
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            body.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let is_chunked = headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Self {
            status,
            headers,
            body,
            is_chunked,
            cut,
            text: Vec::new(),
            is_whole: false,
        }
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
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
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
            let length = self
                .header("content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0);
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

fn event(block: &str) -> Option<SseEvent> {
    let mut event = SseEvent::default();
    let mut is_one = false;
    for line in block
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(':'))
    {
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
