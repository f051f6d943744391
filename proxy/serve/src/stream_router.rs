//! Which stream a message of the server goes to: a state machine without I/O.
//!
//! Answers and progress go to the stream of their call, and nowhere else. A cancellation goes to
//! the stream that the cancelled request went to. Any other message goes to the stream on which a
//! server that has streams has said it. A server on stdio can't say it: its message goes to the
//! call's stream if exactly one call is open; a question goes to the newest open call; else it goes
//! to the standalone stream if somebody reads it, and otherwise to the newest open call.

use std::collections::{HashMap, HashSet};

use mcp_sessiond_client::{EventId, StreamId};

use crate::messages::{Id, ServerMessage};

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The stream.
    pub stream: StreamId,
    /// Whether it is the last message of the stream.
    pub ends: bool,
}

#[derive(Debug)]
struct OpenStream {
    stream: StreamId,
    /// The calls that are not answered.
    calls: Vec<Id>,
    /// Whether a client was sent an event id of it, and so can resume it.
    resumable: bool,
}

/// The open calls of one session, and which streams have a reader.
#[derive(Debug, Default)]
pub struct StreamRouter {
    /// In the order in which they were opened.
    open: Vec<OpenStream>,
    readers: HashSet<StreamId>,
    /// The streams that the server's own requests went to.
    requests: HashMap<Id, StreamId>,
    /// Requests of the server's that are too large to be kept, by the event that is kept in their
    /// place.
    unkept: HashMap<EventId, Id>,
    /// Whether the messages of a stream without a reader go to the standalone stream, answers
    /// excepted.
    redirect: bool,
}

/// Unanswered requests of the server of which the stream is remembered. Cancellations of further
/// ones go where any other notification goes.
const REQUESTS_MAX: usize = 1_024;

impl StreamRouter {
    /// With no open call.
    pub fn new(redirect: bool) -> Self {
        Self {
            redirect,
            ..Self::default()
        }
    }

    /// A POST with these calls has opened a stream, and its client reads it.
    pub fn open(&mut self, stream: StreamId, calls: Vec<Id>) {
        self.readers.insert(stream.clone());
        self.open.push(OpenStream {
            stream,
            calls,
            resumable: false,
        });
    }

    /// A stream that another process has opened has these calls open. Its client may have an event
    /// id of it.
    pub fn reopen(&mut self, stream: StreamId, calls: Vec<Id>) {
        self.open.push(OpenStream {
            stream,
            calls,
            resumable: true,
        });
    }

    /// A stream has a reader now, or has none any more.
    pub fn set_reader(&mut self, stream: &StreamId, is_there: bool) {
        if is_there {
            self.readers.insert(stream.clone());
        } else {
            self.readers.remove(stream);
        }
    }

    /// A reader of the stream was sent an event id.
    pub fn set_resumable(&mut self, stream: &StreamId) {
        if let Some(open) = self.open.iter_mut().find(|open| open.stream == *stream) {
            open.resumable = true;
        }
    }

    /// Whether no call is open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether a request of the server's waits for the client's answer.
    pub fn has_question(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The streams with open calls, and how many each has.
    pub fn open_calls(&self) -> impl Iterator<Item = (StreamId, usize)> {
        self.open
            .iter()
            .map(|open| (open.stream.clone(), open.calls.len()))
    }

    /// Whether a stream has open calls.
    pub fn is_open(&self, stream: &StreamId) -> bool {
        self.open.iter().any(|open| open.stream == *stream)
    }

    /// The stream of the newest open call that the client knows by this id: a client that was
    /// restarted may use an id again.
    pub fn stream_of(&self, id: &str) -> Option<&StreamId> {
        let of = |open: &&OpenStream| open.calls.iter().any(|call| **call == *id);
        self.open.iter().rev().find(of).map(|open| &open.stream)
    }

    /// A call is not to be answered any more: the client has cancelled it, or the server was never
    /// sent it. None: it was answered before. Else whether the stream ends by this.
    pub fn drop_call(&mut self, stream: &StreamId, id: &str) -> Option<bool> {
        self.close_call(stream, id).map(|to| to.ends)
    }

    /// The client has answered a request of the server.
    pub fn request_answered(&mut self, id: &str) {
        self.requests.remove(id);
        self.unkept.retain(|_, request| **request != *id);
    }

    /// A reader is sent a request of the server's, of which another event is kept.
    pub fn request_unkept(&mut self, event: EventId, id: Id) {
        self.unkept.insert(event, id);
    }

    /// A reader was sent the event that is kept in the place of a request. Returns the request, if
    /// it was not answered: no reader got it.
    pub fn lost_request(&mut self, event: &EventId) -> Option<Id> {
        let id = self.unkept.remove(event)?;
        self.requests.remove(&id);
        Some(id)
    }

    /// The server is gone: no call will be answered. Returns the streams, and which calls were open
    /// on each.
    pub fn clear(&mut self) -> Vec<(StreamId, Vec<Id>)> {
        self.requests.clear();
        self.unkept.clear();
        self.open
            .drain(..)
            .map(|open| (open.stream, open.calls))
            .collect()
    }

    /// Where a message of the server goes. None: it is about a call that is not open. `said_on`: the
    /// stream on which the server has said it, where it has streams.
    pub fn route(
        &mut self,
        message: &ServerMessage,
        said_on: Option<&StreamId>,
    ) -> Option<Destination> {
        match message {
            ServerMessage::Answer(stream, id) => self.close_call(stream, id),
            ServerMessage::Progress(stream) => {
                // Elsewhere its token might be taken for that of another call.
                self.is_open(stream).then(|| to_stream(stream.clone()))
            }
            ServerMessage::Cancelled(id) => {
                let went = self.requests.remove(id).filter(|stream| {
                    // That stream may have ended since.
                    stream.as_str() == StreamId::STANDALONE || self.is_open(stream)
                });
                Some(to_stream(went.unwrap_or_else(|| self.said(said_on))))
            }
            ServerMessage::Request(id) => {
                let newest = || self.open.len().checked_sub(1);
                let stream = match (said_on, newest()) {
                    // A client that asks for no standalone stream would never see it there.
                    (None, Some(newest)) => self.unless_unread(newest),
                    _ => self.said(said_on),
                };
                if self.requests.len() < REQUESTS_MAX {
                    self.requests.insert(id.clone(), stream.clone());
                }
                Some(to_stream(stream))
            }
            ServerMessage::Unsendable(..) => None,
            ServerMessage::Other => Some(to_stream(self.said(said_on))),
        }
    }

    fn close_call(&mut self, stream: &StreamId, id: &str) -> Option<Destination> {
        let at = self.open.iter().position(|open| open.stream == *stream)?;
        let open = &mut self.open[at];
        let call = open.calls.iter().position(|call| **call == *id)?;
        open.calls.remove(call);
        let ends = open.calls.is_empty();
        if ends {
            self.open.remove(at);
        }
        Some(Destination {
            stream: stream.clone(),
            ends,
        })
    }

    /// The stream on which the server has said something, if it is open; else the default one.
    fn said(&self, on: Option<&StreamId>) -> StreamId {
        let at = on.and_then(|on| self.open.iter().position(|open| open.stream == *on));
        match (at, on) {
            (Some(at), _) => self.unless_unread(at),
            (None, Some(on)) if on.as_str() == StreamId::STANDALONE => on.clone(),
            _ => self.default_stream(),
        }
    }

    fn default_stream(&self) -> StreamId {
        let standalone = StreamId::standalone();
        match self.open.len() {
            0 => standalone,
            1 if self.open[0].calls.len() == 1 => self.unless_unread(0),
            _ if self.readers.contains(&standalone) => standalone,
            count => self.unless_unread(count - 1),
        }
    }

    /// The stream; or the standalone one, if no client could ever read the message there.
    fn unless_unread(&self, at: usize) -> StreamId {
        let open = &self.open[at];
        let is_lost = !self.readers.contains(&open.stream) && (self.redirect || !open.resumable);
        if is_lost {
            StreamId::standalone()
        } else {
            open.stream.clone()
        }
    }
}

fn to_stream(stream: StreamId) -> Destination {
    Destination {
        stream,
        ends: false,
    }
}

#[cfg(test)]
mod tests;
