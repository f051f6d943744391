//! What a host gets while its server can't be started: hosts show an error that answers their
//! `initialize`, and few of them show standard error. So the front stays, answers each request
//! with the reason, and tries again at the next `initialize`. Until then a note says so where
//! `status` looks.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::{Oversized, answers, message};
use mcp_sessiond_relay::is_initialize;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::lines::{CHUNK, Line, LineBuffer, is_transient, read_into};
use crate::notices::{FailedNote, note_failed, print};

/// Why a server can't be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    /// The exit code of a front that gives up: of sysexits.h, or a shell's for a command that can't
    /// be run.
    pub code: u8,
    /// What happened, why, and what to do.
    pub sentence: String,
}

/// What a front does after an attempt that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It tries again.
    Again,
    /// It exits with the code of the error: the host is gone or has closed its end, or a person
    /// waits at a terminal.
    Exit,
}

/// The attempts of one front so far.
#[derive(Debug, Default)]
pub struct FailedStart {
    /// What people call the server. None: nothing is noted.
    server: Option<String>,
    /// What was printed last: an attempt that fails for the same reason prints nothing.
    printed: String,
    /// What was read of the host.
    lines: LineBuffer,
    /// Whether the last attempt was made because the host had something to say.
    was_asked: bool,
}

impl FailedStart {
    /// Those of a server that people call so.
    pub fn of(server: String) -> Self {
        Self {
            server: Some(server),
            ..Self::default()
        }
    }

    /// Answers what the host asks until it sends another `initialize`, which stays in `lines`. The
    /// attempt was made for the line that is in `lines` now, if there is one.
    pub fn answer(&mut self, error: &StartError, input: &mut File, lines: &mut LineBuffer) -> Next {
        self.print(error);
        if input.is_terminal() {
            return Next::Exit;
        }
        let _noted = self.note(error);
        let mut is_tried = lines.whole_line().is_some();
        let mut chunk = vec![0; CHUNK];
        loop {
            while let Some(line) = lines.whole_line() {
                if !std::mem::take(&mut is_tried) && is_initialize(line) {
                    return Next::Again;
                }
                if let Some(line) = lines.next_line() {
                    answer_line(line, error);
                }
            }
            // Bytes of a line that is too long to be kept.
            if let Some(line) = lines.next_line() {
                answer_line(line, error);
            }
            if !read_into(input, &mut chunk, lines) {
                lines
                    .last_line()
                    .into_iter()
                    .for_each(|line| answer_line(line, error));
                return Next::Exit;
            }
        }
    }

    /// Answers what the host has asked, and waits until it says more, which stays unread: what
    /// runs in place of this front reads it. For attempts that read nothing of the host.
    ///
    /// # Errors
    /// When standard input can't be used.
    pub fn answer_on_stdin(&mut self, error: &StartError) -> io::Result<Next> {
        let mut input: File = io::stdin().as_fd().try_clone_to_owned()?.into();
        self.print(error);
        if input.is_terminal() {
            return Ok(Next::Exit);
        }
        let _noted = self.note(error);
        let mut chunk = vec![0; CHUNK];
        // The first attempt was made before the host had said anything.
        let mut is_read = !std::mem::replace(&mut self.was_asked, true);
        loop {
            if is_read && self.lines.is_empty() {
                return Ok(match wait_for(&input) {
                    true => Next::Again,
                    false => Next::Exit,
                });
            }
            if !read_into(&mut input, &mut chunk, &mut self.lines) {
                let last = self.lines.last_line();
                last.into_iter().for_each(|line| answer_line(line, error));
                return Ok(Next::Exit);
            }
            is_read = true;
            while let Some(line) = self.lines.next_line() {
                answer_line(line, error);
            }
        }
    }

    /// Notes the reason until the next attempt.
    fn note(&self, error: &StartError) -> Option<FailedNote> {
        note_failed(self.server.clone()?, &error.sentence)
    }

    /// Prints the reason, unless it was printed already.
    fn print(&mut self, error: &StartError) {
        if self.printed != error.sentence {
            print(&error.sentence);
            self.printed.clone_from(&error.sentence);
        }
    }
}

/// The exit code of a front that has given up.
impl From<&StartError> for ExitCode {
    fn from(error: &StartError) -> Self {
        Self::from(error.code)
    }
}

/// Answers each request of a line.
fn answer_line(line: Line, error: &StartError) {
    match line {
        Line::Whole(line) => write(&answers(&line, &error.sentence)),
        Line::Oversized { head, tail } => {
            if let Oversized::Refused(answer) = Oversized::of_host(&head, &tail) {
                write(&[&answer[..], b"\n"].concat());
            }
        }
    }
}

/// An answer to each request of a line, a line each.
fn answers(line: &Bytes, why: &str) -> Vec<u8> {
    let mut all = Vec::new();
    let copy = OnceCell::new();
    for (id, method) in message::Line::of(line, &copy).requests() {
        let answer = match method {
            // The host goes on with `initialize`.
            "server/discover" => answers::no_method(id, why),
            "initialize" => answers::failed(id, why),
            _ => answers::not_sent(id, &format!("{why}; this call was not sent")),
        };
        all.extend_from_slice(&answer);
        all.push(b'\n');
    }
    all
}

/// Writes to the host. One that has closed its end gets nothing; the end of its input follows.
fn write(text: &[u8]) {
    let Ok(output) = io::stdout().as_fd().try_clone_to_owned() else {
        return;
    };
    let mut output = File::from(output);
    let mut left = text;
    while !left.is_empty() {
        match output.write(left) {
            Ok(written @ 1..) => left = &left[written..],
            Err(error) if is_transient(&error, &output, PollFlags::POLLOUT) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Waits until the host has said more. False: it has closed its end.
fn wait_for(input: &File) -> bool {
    loop {
        let mut awaited = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut awaited, PollTimeout::NONE) {
            Ok(0) | Err(Errno::EINTR) => {}
            // What was said before the end is there to be read, too.
            Ok(_) => {
                let events = awaited[0].revents().unwrap_or(PollFlags::POLLIN);
                return events.contains(PollFlags::POLLIN);
            }
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &'static str) -> Vec<serde_json::Value> {
        let answers = answers(&Bytes::from(line), "x can't be run");
        let lines = answers.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn each_request_gets_the_reason_and_nothing_else_does() {
        let answers = answered(r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}"#);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["id"], "a");
        assert_eq!(answers[0]["error"]["message"], "x can't be run");
        assert_eq!(answers[0]["error"]["code"], -32000);
        let probe = answered(r#"{"jsonrpc":"2.0","id":0,"method":"server/discover"}"#);
        assert_eq!(probe[0]["error"]["code"], -32601);
        assert_eq!(probe[0]["error"]["message"], "x can't be run");
        let batch = answered(
            r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
        );
        assert_eq!(batch.len(), 2);
        assert_eq!(batch[1]["id"], 2);
        assert_eq!(batch[1]["error"]["data"]["outcome"], "not_sent");
        for silent in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "",
        ] {
            assert_eq!(answered(silent).len(), 0, "{silent}");
        }
    }

    #[test]
    fn an_attempt_is_made_again_at_the_next_initialize_which_stays() {
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let (input, mut host) = io::pipe().expect("a pipe");
        let mut input = File::from(std::os::fd::OwnedFd::from(input));
        let mut lines = LineBuffer::default();
        let mut failed = FailedStart::default();
        let error = StartError {
            code: 127,
            sentence: String::new(),
        };
        // Nothing was read before the first attempt.
        writeln!(
            host,
            "{{\"jsonrpc\":\"2.0\",\"method\":\"n\"}}\n{initialize}"
        )
        .expect("written");
        assert_eq!(failed.answer(&error, &mut input, &mut lines), Next::Again);
        assert_eq!(lines.whole_line(), Some(initialize.as_bytes()));
        // The second attempt was for that line.
        write!(host, "{initialize}\n{initialize}").expect("written");
        assert_eq!(failed.answer(&error, &mut input, &mut lines), Next::Again);
        drop(host);
        assert_eq!(failed.answer(&error, &mut input, &mut lines), Next::Exit);
        assert!(lines.is_empty());
    }
}
