//! The client's end of a [`Driver`](super::drive::Driver): lines of whoever uses the server.

use std::collections::VecDeque;

use bytes::Bytes;
use mcp_sessiond_bundle::TrackedLine;
use tokio::sync::mpsc;

/// A client by two channels.
#[derive(Debug)]
pub(crate) struct Client {
    lines: mpsc::Receiver<Bytes>,
    to: mpsc::Sender<TrackedLine>,
    unsent: VecDeque<TrackedLine>,
    is_closed: bool,
    /// Whether one that says no more reads no more either.
    hangs_up: bool,
}

/// What comes of a client.
#[derive(Debug)]
pub(crate) enum FromClient {
    Line(Bytes),
    /// What was to be sent was sent.
    Nothing,
    /// It will say nothing more.
    Closed,
    /// It reads nothing any more.
    Gone,
}

impl Client {
    /// A client that still reads when it has closed its end.
    pub(crate) fn new(lines: mpsc::Receiver<Bytes>, to: mpsc::Sender<TrackedLine>) -> Self {
        Self {
            lines,
            to,
            unsent: VecDeque::new(),
            is_closed: false,
            hangs_up: false,
        }
    }

    /// A client that hangs up when it closes its end.
    pub(crate) fn hanging_up(self) -> Self {
        Self {
            hangs_up: true,
            ..self
        }
    }

    /// Will send this line.
    pub(crate) fn put(&mut self, line: TrackedLine) {
        self.unsent.push_back(line);
    }

    /// Whether all lines were sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends what is to be sent, and reads if it `reads`, until something has come of either.
    /// Cancel-safe.
    pub(crate) async fn go_on(&mut self, reads: bool) -> FromClient {
        let Self {
            lines, to, unsent, ..
        } = self;
        tokio::select! {
            biased;
            room = to.reserve(), if !unsent.is_empty() => match room {
                Ok(room) => {
                    if let Some(line) = unsent.pop_front() {
                        room.send(line);
                    }
                    FromClient::Nothing
                }
                Err(_) => {
                    unsent.clear();
                    FromClient::Gone
                }
            },
            line = lines.recv(), if reads && !self.is_closed => match line {
                Some(line) => FromClient::Line(line),
                None => {
                    self.is_closed = true;
                    if self.hangs_up { FromClient::Gone } else { FromClient::Closed }
                }
            },
            () = to.closed() => FromClient::Gone,
        }
    }
}
