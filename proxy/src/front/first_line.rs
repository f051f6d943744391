//! The host's first line, which has the client's name. It is read before anything is claimed, and
//! passed on unchanged.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use mcp_sessiond_jsonrpc::message::Line;
use mcp_sessiond_proto::ClientName;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::IgnoredAny;

use super::raw::is_raw;
use crate::lines::{CHUNK, LineBuffer, is_transient};
use crate::notices::print;

/// For fronts that start nothing before the host has said something.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a whole message may wait for the newline behind it before the user is told.
const NEWLINE_WAIT: Duration = Duration::from_secs(1);

const NO_NEWLINE: &str = "the host has sent a message without a newline behind it, so the message can't be passed on; the program that starts this \
    wrapper has to end each message with a newline";

/// What was read of the host first.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstLine {
    /// A line, or nothing in time; with the name in it, if there is one.
    Read(Option<ClientName>),
    /// Bytes that begin no line of JSON-RPC: see [`raw`](super::raw).
    Raw,
    /// Nothing: the host has closed its end.
    Closed,
}

/// Reads until the first line is there to its end, `patience` is over, or the host has closed its
/// end. What was read stays in `lines`.
pub fn read(input: &mut File, lines: &mut LineBuffer, patience: Duration) -> FirstLine {
    let began = Instant::now();
    let until = began + patience;
    let mut has_warned = false;
    let mut chunk = vec![0; CHUNK];
    loop {
        if is_raw(lines.buffered()) {
            return FirstLine::Raw;
        }
        if let Some(line) = lines.whole_line() {
            return FirstLine::Read(client_of(line));
        }
        if lines.is_too_long() {
            return FirstLine::Read(None);
        }
        let look_at = (began + NEWLINE_WAIT).min(until);
        let waits_for_newline = !has_warned && is_message(lines.buffered());
        if waits_for_newline && !is_readable(input, look_at) {
            has_warned = true;
            print(&NO_NEWLINE);
        }
        if !is_readable(input, until) {
            return FirstLine::Read(None);
        }
        match input.read(&mut chunk) {
            Ok(0) if lines.is_empty() => return FirstLine::Closed,
            // What stands behind the last newline is a line, too.
            Ok(0) => return FirstLine::Read(client_of(lines.buffered())),
            Ok(read) => lines.room().extend_from_slice(&chunk[..read]),
            Err(error) if is_transient(&error, input, PollFlags::POLLIN) => {}
            Err(_) => return FirstLine::Read(None),
        }
    }
}

/// Whether these bytes are JSON to its end.
fn is_message(bytes: &[u8]) -> bool {
    !bytes.is_empty() && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// Waits until there is something to be read, or the end. False when the time is over.
fn is_readable(input: &File, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // A part of a millisecond that is left is waited for as well.
        let patience =
            PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
        match poll(
            &mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)],
            patience,
        ) {
            Ok(0) if until <= Instant::now() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

/// `clientInfo.name` of a request: in its parameters (MCP up to 2025-11-25, `initialize`), or in
/// their `_meta` (from 2026-07-28 on, every request). None where the line is something else: a
/// batch, a notification, no JSON.
fn client_of(line: &[u8]) -> Option<ClientName> {
    let copy = OnceCell::new();
    let params = Line::of(line, &copy).message()?.params()?;
    let client = params.member("clientInfo").or_else(|| {
        let meta = params.member("_meta")?;
        meta.member("io.modelcontextprotocol/clientInfo")
    });
    let name: String = client?.member("name")?.read()?;
    Some(ClientName::cut(&name))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"claude-ai","version":"1"}}}"#;

    fn named(name: &str) -> FirstLine {
        FirstLine::Read(Some(name.parse().expect("a name")))
    }

    /// What comes of these bytes, and whether they are all still there.
    fn first(bytes: &str, ends: bool) -> (FirstLine, String) {
        let (mut host, ours) = UnixStream::pair().expect("a pair");
        host.write_all(bytes.as_bytes()).expect("written");
        if ends {
            host.shutdown(std::net::Shutdown::Write).expect("closed");
        }
        let mut lines = LineBuffer::default();
        let first = read(
            &mut OwnedFd::from(ours).into(),
            &mut lines,
            Duration::from_millis(20),
        );
        (
            first,
            String::from_utf8_lossy(lines.buffered()).into_owned(),
        )
    }

    #[test]
    fn both_eras_say_who_the_client_is() {
        let now = r#"{"id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"x y"}}}}"#;
        for (line, name) in [(INITIALIZE, "claude-ai"), (now, "x y")] {
            let text = format!("{line}\n{{}}\n");
            assert_eq!(first(&text, false), (named(name), text.clone()));
        }
        // The end counts as the end of the line.
        assert_eq!(first(INITIALIZE, true).0, named("claude-ai"));
    }

    #[test]
    fn everything_else_is_no_name() {
        let batch = format!("[{INITIALIZE}]\n");
        let lines = [
            &*batch,
            "{}\n",
            r#"{"params":{"clientInfo":{"name":7}}}"#,
            "\n",
            INITIALIZE,
            "",
        ];
        for text in lines {
            assert_eq!(first(text, false), (FirstLine::Read(None), text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_json_rpc_is_seen_without_the_end_of_its_line() {
        for text in [
            "Content-Length: 2\r\n\r\n{}",
            "PRI * HTTP/2.0\r\n\r\n",
            " \nno JSON",
        ] {
            assert_eq!(first(text, false), (FirstLine::Raw, text.to_owned()));
        }
    }

    #[test]
    fn a_host_that_closes_its_end_without_a_word_wants_nothing() {
        assert_eq!(first("", true).0, FirstLine::Closed);
    }
}
