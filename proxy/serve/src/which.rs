//! Which stream a message of the server goes to: a state machine without I/O.
//!
//! Answers and progress go to the stream of their call, and nowhere else. A cancellation goes to
//! the stream that the cancelled request went to. Any other message goes to the call's stream if
//! exactly one call is open; else to the standalone stream if somebody reads it; else to the newest
//! open call.

use std::collections::{HashMap, HashSet};

use mcp_sessiond_client::StreamId;

/// The id of a JSON-RPC request, or a progress token, as the JSON text that it was sent as.
pub type Id = Box<str>;

/// What a message of the server is, as far as its place depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The answer to a call, which the client knows by this id.
    Answer(StreamId, Id),
    /// Progress of a call of this stream.
    Progress(StreamId),
    /// The server cancels this request of its own.
    Cancelled(Id),
    /// A request of the server's own.
    Ask(Id),
    /// Any other notification.
    Other,
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The stream.
    pub stream: StreamId,
    /// Whether it is the last message of the stream.
    pub ends: bool,
}

#[derive(Debug)]
struct Open {
    stream: StreamId,
    /// The calls that are not answered.
    calls: Vec<Id>,
    /// Whether a client was sent an event id of it, and so can resume it.
    resumable: bool,
}

/// The open calls of one session, and which streams have a reader.
#[derive(Debug, Default)]
pub struct Which {
    /// In the order in which they were opened.
    open: Vec<Open>,
    readers: HashSet<StreamId>,
    /// The streams that the server's own requests went to.
    asks: HashMap<Id, StreamId>,
    /// Whether the messages of a stream without a reader go to the standalone stream, answers
    /// excepted.
    redirect: bool,
}

/// Unanswered requests of the server of which the stream is remembered. Cancellations of further
/// ones go where any other notification goes.
const ASKS_MAX: usize = 1_024;

impl Which {
    /// With no open call.
    #[must_use]
    pub fn new(redirect: bool) -> Self {
        Self {
            redirect,
            ..Self::default()
        }
    }

    /// A POST with these calls has opened a stream, and its client reads it.
    pub fn open(&mut self, stream: StreamId, calls: Vec<Id>) {
        self.readers.insert(stream.clone());
        self.open.push(Open {
            stream,
            calls,
            resumable: false,
        });
    }

    /// A stream that another process has opened has these calls open. Its client may have an event
    /// id of it.
    pub fn goes_on(&mut self, stream: StreamId, calls: Vec<Id>) {
        self.open.push(Open {
            stream,
            calls,
            resumable: true,
        });
    }

    /// A stream has a reader now, or has none any more.
    pub fn reader(&mut self, stream: &StreamId, is_there: bool) {
        if is_there {
            self.readers.insert(stream.clone());
        } else {
            self.readers.remove(stream);
        }
    }

    /// A reader of the stream was sent an event id.
    pub fn resumable(&mut self, stream: &StreamId) {
        if let Some(open) = self.open.iter_mut().find(|open| open.stream == *stream) {
            open.resumable = true;
        }
    }

    /// Whether no call is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// The streams with open calls, and how many each has.
    pub fn open_calls(&self) -> impl Iterator<Item = (StreamId, usize)> {
        self.open
            .iter()
            .map(|open| (open.stream.clone(), open.calls.len()))
    }

    /// Whether a stream has open calls.
    #[must_use]
    pub fn is_open(&self, stream: &StreamId) -> bool {
        self.open.iter().any(|open| open.stream == *stream)
    }

    /// The stream of the newest open call that the client knows by this id: a client that was
    /// restarted may use an id again.
    #[must_use]
    pub fn stream_of(&self, id: &str) -> Option<&StreamId> {
        let of = |open: &&Open| open.calls.iter().any(|call| **call == *id);
        self.open.iter().rev().find(of).map(|open| &open.stream)
    }

    /// A call is not to be answered any more: the client has cancelled it, or the server was never
    /// sent it. None: it was answered before. Else whether the stream ends by this.
    pub fn dropped(&mut self, stream: &StreamId, id: &str) -> Option<bool> {
        self.answered(stream, id).map(|place| place.ends)
    }

    /// The client has answered a request of the server.
    pub fn ask_answered(&mut self, id: &str) {
        self.asks.remove(id);
    }

    /// The server is gone: no call will be answered. Returns the streams, and which calls were open
    /// on each.
    pub fn clear(&mut self) -> Vec<(StreamId, Vec<Id>)> {
        self.asks.clear();
        self.open
            .drain(..)
            .map(|open| (open.stream, open.calls))
            .collect()
    }

    /// Where a message of the server goes. None: it is about a call that is not open.
    pub fn place(&mut self, said: &Said) -> Option<Place> {
        match said {
            Said::Answer(stream, id) => self.answered(stream, id),
            Said::Progress(stream) => {
                // Elsewhere its token might be taken for that of another call.
                self.is_open(stream).then(|| stays(stream.clone()))
            }
            Said::Cancelled(id) => {
                let went = self.asks.remove(id).filter(|stream| {
                    // That stream may have ended since.
                    stream.as_str() == StreamId::STANDALONE || self.is_open(stream)
                });
                Some(stays(went.unwrap_or_else(|| self.anything())))
            }
            Said::Ask(id) => {
                let stream = self.anything();
                if self.asks.len() < ASKS_MAX {
                    self.asks.insert(id.clone(), stream.clone());
                }
                Some(stays(stream))
            }
            Said::Other => Some(stays(self.anything())),
        }
    }

    fn answered(&mut self, stream: &StreamId, id: &str) -> Option<Place> {
        let at = self.open.iter().position(|open| open.stream == *stream)?;
        let open = &mut self.open[at];
        let call = open.calls.iter().position(|call| **call == *id)?;
        open.calls.remove(call);
        let ends = open.calls.is_empty();
        if ends {
            self.open.remove(at);
        }
        Some(Place {
            stream: stream.clone(),
            ends,
        })
    }

    fn anything(&self) -> StreamId {
        let standalone = StreamId::standalone();
        match self.open.len() {
            0 => standalone,
            1 if self.open[0].calls.len() == 1 => self.redirected(0),
            _ if self.readers.contains(&standalone) => standalone,
            count => self.redirected(count - 1),
        }
    }

    /// The stream; or the standalone one, if no client could ever read the message there.
    fn redirected(&self, at: usize) -> StreamId {
        let open = &self.open[at];
        let is_lost = !self.readers.contains(&open.stream) && (self.redirect || !open.resumable);
        if is_lost {
            StreamId::standalone()
        } else {
            open.stream.clone()
        }
    }
}

fn stays(stream: StreamId) -> Place {
    Place {
        stream,
        ends: false,
    }
}

#[cfg(test)]
mod tests;
