//! Which stream a message goes to: a state machine without I/O.
//!
//! Answers and progress go to the stream of their call, a cancellation to where the request went. Anything else goes to the
//! call's stream if one call is open, else to the standalone stream if that has a reader, else to the newest open call.

use std::collections::{HashMap, HashSet};

use mcp_sessiond_client::StreamId;

/// An id, or a progress token, as the JSON text that it was sent as.
pub type Id = Box<str>;

/// A request of the client that was not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// By which its answer is known.
    pub id: Id,
    /// By which its progress is known.
    pub token: Option<Id>,
}

/// What a message of the backend is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// The answer to this call.
    Answer(&'a str),
    /// Progress of what has this token.
    Progress(&'a str),
    /// It does not want an answer to this request of its own any more.
    Cancelled(&'a str),
    /// A request of its own.
    Ask(&'a str),
    /// Any other notification.
    Other,
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The stream.
    pub stream: StreamId,
    /// Whether it is the last message of it.
    pub ends: bool,
}

/// The id of a call that is open already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request of this id is not answered yet")]
pub struct Duplicate;

#[derive(Debug)]
struct Open {
    stream: StreamId,
    calls: Vec<Call>,
    /// Whether somebody was sent an event id of it, and so can come back to it.
    resumable: bool,
}

/// The open calls of one session, and who reads.
#[derive(Debug, Default)]
pub struct Which {
    /// In the order in which they were opened.
    open: Vec<Open>,
    readers: HashSet<StreamId>,
    /// Where the backend's own requests went.
    asks: HashMap<Id, StreamId>,
    /// Whether the messages of a stream without a reader go to the standalone stream, answers excepted.
    redirect: bool,
}

/// Requests of the backend that nobody has answered, of which is remembered where they went.
const ASKS_MAX: usize = 1_024;

impl Which {
    /// Nothing is open.
    #[must_use]
    pub fn new(redirect: bool) -> Self {
        Self { redirect, ..Self::default() }
    }

    /// A POST with these calls has opened a stream, with a reader.
    ///
    /// # Errors
    /// [`Duplicate`], and nothing is different.
    pub fn open(&mut self, stream: StreamId, calls: Vec<Call>) -> Result<(), Duplicate> {
        let mut known: HashSet<&str> = self.calls().map(|call| &*call.id).collect();
        if calls.iter().any(|call| !known.insert(&call.id)) {
            return Err(Duplicate);
        }
        self.readers.insert(stream.clone());
        self.open.push(Open { stream, calls, resumable: false });
        Ok(())
    }

    /// A stream goes on that another process has opened. Somebody was sent an event id of it, or was about to be.
    pub fn goes_on(&mut self, stream: StreamId, calls: Vec<Call>) {
        self.open.push(Open { stream, calls, resumable: true });
    }

    /// A stream has a reader, or has none any more.
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

    /// All open calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.open.iter().flat_map(|open| &open.calls)
    }

    /// Whether a stream has open calls.
    #[must_use]
    pub fn is_open(&self, stream: &StreamId) -> bool {
        self.open.iter().any(|open| open.stream == *stream)
    }

    /// The client does not want the answer to this call any more. The stream that ends by this, if one does.
    pub fn cancelled(&mut self, id: &str) -> Option<StreamId> {
        let place = self.answered(id)?;
        place.ends.then_some(place.stream)
    }

    /// The client has answered a request of the backend's.
    pub fn ask_answered(&mut self, id: &str) {
        self.asks.remove(id);
    }

    /// The backend is gone: no call will be answered. The streams, and what was open on each.
    pub fn clear(&mut self) -> Vec<(StreamId, Vec<Call>)> {
        self.asks.clear();
        self.open.drain(..).map(|open| (open.stream, open.calls)).collect()
    }

    /// Where a message of the backend goes. None: nobody has asked for this answer, or wants it any more.
    pub fn place(&mut self, said: Said<'_>) -> Option<Place> {
        match said {
            Said::Answer(id) => self.answered(id),
            Said::Progress(token) => {
                let of = |open: &Open| open.calls.iter().any(|call| call.token.as_deref() == Some(token));
                let stream = self.open.iter().position(of).map(|at| self.redirected(at));
                Some(stays(stream.unwrap_or_else(|| self.anything())))
            }
            Said::Cancelled(id) => {
                let went = self.asks.remove(id).filter(|stream| {
                    // What it was asked on may have come to its end.
                    stream.as_str() == StreamId::STANDALONE || self.is_open(stream)
                });
                Some(stays(went.unwrap_or_else(|| self.anything())))
            }
            Said::Ask(id) => {
                let stream = self.anything();
                if self.asks.len() < ASKS_MAX {
                    self.asks.insert(id.into(), stream.clone());
                }
                Some(stays(stream))
            }
            Said::Other => Some(stays(self.anything())),
        }
    }

    fn answered(&mut self, id: &str) -> Option<Place> {
        let is_it = |call: &Call| *call.id == *id;
        let at = self.open.iter().position(|open| open.calls.iter().any(is_it))?;
        let open = &mut self.open[at];
        open.calls.retain(|call| !is_it(call));
        let (stream, ends) = (open.stream.clone(), open.calls.is_empty());
        if ends {
            self.open.remove(at);
        }
        Some(Place { stream, ends })
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

    /// The stream, or the standalone one where nobody could ever read it there.
    fn redirected(&self, at: usize) -> StreamId {
        let open = &self.open[at];
        let is_lost = !self.readers.contains(&open.stream) && (self.redirect || !open.resumable);
        if is_lost { StreamId::standalone() } else { open.stream.clone() }
    }
}

fn stays(stream: StreamId) -> Place {
    Place { stream, ends: false }
}

#[cfg(test)]
mod tests;
