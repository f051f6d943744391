//! curl as a client of `serve`: each command and what came of it is shown.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::display::line;

/// What every request says.
const HEADERS: [&str; 3] = [
    "Accept: application/json, text/event-stream",
    "Content-Type: application/json",
    "MCP-Protocol-Version: 2025-11-25",
];

/// A client, and what it knows of its session.
pub(super) struct Curl {
    socket: PathBuf,
    /// The session, once there is one.
    pub(super) session: Option<String>,
    /// Nothing is shown.
    quiet: bool,
}

impl Curl {
    /// Makes sure that there is a curl.
    pub(super) fn of(socket: PathBuf, quiet: bool) -> io::Result<Self> {
        match Command::new("curl")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
        {
            Ok(_) => Ok(Self {
                socket,
                session: None,
                quiet,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
                error.kind(),
                "this needs the program curl, which is not in PATH; install the package `curl`, then try again",
            )),
            Err(error) => Err(error),
        }
    }

    /// Sends a message.
    pub(super) fn post(&self, message: &Value) -> io::Result<Answer> {
        self.run(&[], &["-d", &message.to_string()])
    }

    /// Asks for what came after this event.
    pub(super) fn resume(&self, event: &str) -> io::Result<Answer> {
        self.run(&[&format!("Last-Event-ID: {event}")], &[])
    }

    fn run(&self, headers: &[&str], more: &[&str]) -> io::Result<Answer> {
        let session = self
            .session
            .as_ref()
            .map(|session| format!("Mcp-Session-Id: {session}"));
        let headers = HEADERS
            .into_iter()
            .chain(session.as_deref())
            .chain(headers.iter().copied());
        let mut command = Command::new("curl");
        command
            .args(["-sSiN", "--unix-socket"])
            .arg(&self.socket)
            .arg("http://localhost/mcp");
        command
            .args(headers.flat_map(|header| ["-H", header]))
            .args(more);
        if !self.quiet {
            show(&command)?;
        }
        // A proxy has no business here.
        command
            .env("no_proxy", "*")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn()?;
        let output = process
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("curl without a pipe"))?;
        Answer {
            process,
            lines: BufReader::new(output),
            quiet: self.quiet,
            status: 0,
            session: None,
        }
        .head()
    }
}

/// Prints a command so that a shell would take it.
fn show(command: &Command) -> io::Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let plain = word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte));
        if plain {
            word.into_owned()
        } else {
            format!("'{word}'")
        }
    });
    line(&format!("$ {}", quoted.collect::<Vec<_>>().join(" ")))
}

/// A message of a stream.
pub(super) struct Event {
    /// What to resume after.
    pub(super) id: Option<String>,
    /// None: the event only has an id.
    pub(super) message: Option<Value>,
}

/// What curl prints. curl is killed when this is dropped.
pub(super) struct Answer {
    process: Child,
    lines: BufReader<ChildStdout>,
    quiet: bool,
    /// The status of HTTP.
    pub(super) status: u16,
    /// The session that the answer names.
    pub(super) session: Option<String>,
}

impl Answer {
    /// Reads the head. Of its headers only the session's is shown.
    fn head(mut self) -> io::Result<Self> {
        while let Some(line) = self.read()?.filter(|line| !line.is_empty()) {
            let is_session = line.to_ascii_lowercase().starts_with("mcp-session-id: ");
            if self.status == 0 || is_session {
                self.show(&line)?;
            }
            if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
                self.status = status
                    .split(' ')
                    .next()
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0);
            } else if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("mcp-session-id")
            {
                self.session = Some(value.to_owned());
            }
        }
        Ok(self)
    }

    /// The next event. None: the stream has ended, or its connection has.
    pub(super) fn event(&mut self) -> io::Result<Option<Event>> {
        let mut event = Event {
            id: None,
            message: None,
        };
        while let Some(line) = self.line()? {
            if line.is_empty() && (event.id.is_some() || event.message.is_some()) {
                return Ok(Some(event));
            } else if let Some(id) = line.strip_prefix("id: ") {
                event.id = Some(id.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.message = Some(serde_json::from_str(data)?);
            }
        }
        Ok(None)
    }

    /// Everything that is left, as curl has printed it.
    pub(super) fn rest(mut self) -> io::Result<()> {
        while self.line()?.is_some() {}
        Ok(())
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        let text = self.read()?;
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            self.show(text)?;
        }
        Ok(text)
    }

    fn read(&mut self) -> io::Result<Option<String>> {
        let mut text = String::new();
        let is_there = self.lines.read_line(&mut text)? > 0;
        Ok(is_there.then(|| text.trim_end().to_owned()))
    }

    fn show(&self, text: &str) -> io::Result<()> {
        if self.quiet {
            Ok(())
        } else {
            line(&format!("    {text}"))
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
