//! Which stream a message of the server goes to.
//!
//! Answers and progress go to the stream of their call, and nowhere else. A cancellation goes to
//! the stream that the cancelled request went to. Any other message goes to the stream on which the
//! server has said it, where the transport tells. A server on stdio can't tell: its message goes to
//! the call's stream if exactly one call is open; a question goes to the newest open call; else it
//! goes to the standalone stream if somebody reads it, and otherwise to the newest open call.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use mcp_sessiond_proto::StreamId;

use crate::messages::{Id, ServerMessage};
use crate::policy::Policy;

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) stream: StreamId,
    /// Whether it is the last message of the stream.
    pub(crate) ends: bool,
}

/// A stream that was opened for calls, until it is closed.
#[derive(Debug)]
struct CallStream {
    stream: StreamId,
    phase: Phase,
    /// The calls that are not answered.
    calls: Vec<Call>,
    /// Whether a client was sent an event id of it, and so can resume it.
    resumable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is not stored yet, and the server has none of its calls.
    Opening,
    Open,
    /// Its last message is being stored; or another process has opened it, and nobody knows yet
    /// what has become of its calls.
    Finishing,
}

#[derive(Debug)]
struct Call {
    id: Id,
    /// Whether the client has not used the id again.
    is_newest: bool,
}

/// The calls of one session, and which streams have a reader.
#[derive(Debug)]
pub(crate) struct StreamRouter {
    policy: Policy,
    /// Those that are open in the order in which they were opened.
    streams: Vec<CallStream>,
    readers: BTreeSet<StreamId>,
    /// The streams that the server's own requests went to.
    requests: BTreeMap<Id, StreamId>,
}

/// Unanswered requests of the server of which the stream is remembered. Cancellations of further
/// ones go where any other notification goes.
const REQUESTS_MAX: usize = 1_024;

impl StreamRouter {
    /// With no call.
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            streams: Vec::new(),
            readers: BTreeSet::new(),
            requests: BTreeMap::new(),
        }
    }

    /// A client has posted these calls, and a stream is being opened for them.
    pub(crate) fn begin(&mut self, stream: StreamId, calls: Vec<Id>) {
        let former = self.streams.iter_mut().flat_map(|open| &mut open.calls);
        former
            .filter(|call| calls.contains(&call.id))
            .for_each(|call| call.is_newest = false);
        self.add(stream, calls, Phase::Opening);
    }

    fn add(&mut self, stream: StreamId, calls: Vec<Id>, phase: Phase) {
        let of = |id| Call {
            id,
            is_newest: true,
        };
        self.streams.push(CallStream {
            stream,
            phase,
            calls: calls.into_iter().map(of).collect(),
            resumable: phase == Phase::Finishing,
        });
    }

    /// The stream is there, and its client reads it.
    pub(crate) fn opened(&mut self, stream: &StreamId) {
        if let Some(at) = self.position(stream) {
            let mut open = self.streams.remove(at);
            open.phase = Phase::Open;
            self.streams.push(open);
            self.readers.insert(stream.clone());
        }
    }

    /// Another process has opened this stream. Its client may have an event id of it.
    pub(crate) fn inherit(&mut self, stream: StreamId) {
        self.add(stream, Vec::new(), Phase::Finishing);
    }

    /// These calls of a stream that another process has opened are open.
    pub(crate) fn reopen(&mut self, stream: &StreamId, calls: Vec<Id>) {
        self.finished(stream);
        self.add(stream.clone(), calls, Phase::Finishing);
        if let Some(open) = self.streams.last_mut() {
            open.phase = Phase::Open;
        }
    }

    /// The stream is closed, or was never there.
    pub(crate) fn finished(&mut self, stream: &StreamId) {
        self.streams.retain(|open| open.stream != *stream);
        self.readers.remove(stream);
    }

    /// A stream has a reader now, or has none any more.
    pub(crate) fn set_reader(&mut self, stream: &StreamId, is_there: bool) {
        if is_there {
            self.readers.insert(stream.clone());
        } else {
            self.readers.remove(stream);
        }
    }

    /// The streams that have a reader.
    pub(crate) fn readers(&self) -> &BTreeSet<StreamId> {
        &self.readers
    }

    /// A reader of the stream was sent an event id.
    pub(crate) fn set_resumable(&mut self, stream: &StreamId) {
        if let Some(at) = self.position(stream) {
            self.streams[at].resumable = true;
        }
    }

    fn position(&self, stream: &StreamId) -> Option<usize> {
        self.streams.iter().position(|open| open.stream == *stream)
    }

    fn open(&self) -> impl DoubleEndedIterator<Item = &CallStream> {
        self.streams.iter().filter(|open| open.phase == Phase::Open)
    }

    /// Whether no call is open, or about to be.
    pub(crate) fn is_idle(&self) -> bool {
        let is_done = |open: &CallStream| open.phase == Phase::Finishing;
        self.streams.iter().all(is_done)
    }

    /// Whether a request of the server's waits for the client's answer.
    pub(crate) fn has_question(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The streams with open calls, and how many each has.
    pub(crate) fn open_calls(&self) -> impl Iterator<Item = (&StreamId, usize)> {
        self.open().map(|open| (&open.stream, open.calls.len()))
    }

    /// Whether a stream has open calls.
    pub(crate) fn is_open(&self, stream: &StreamId) -> bool {
        self.open().any(|open| open.stream == *stream)
    }

    /// Whether something may still come on a stream of calls.
    pub(crate) fn goes_on(&self, stream: &StreamId) -> bool {
        let goes_on = |open: &CallStream| open.stream == *stream && open.phase != Phase::Opening;
        self.streams.iter().any(goes_on)
    }

    /// The stream of the call that a client cancels by this id. None: there is no such call, or it
    /// may be another one. Two pages of one client may count alike, and the other one's call is not
    /// to be cancelled.
    pub(crate) fn cancelled(&self, id: &str) -> Option<&StreamId> {
        let of = |open: &CallStream| open.calls.iter().position(|call| *call.id == *id);
        let mut found = self
            .streams
            .iter()
            .filter_map(|open| Some((open, of(open)?)));
        let ((open, at), None) = (found.next()?, found.next()) else {
            return None;
        };
        // The one that is meant may have been answered.
        (open.phase == Phase::Open && open.calls[at].is_newest).then_some(&open.stream)
    }

    /// A call is not to be answered any more: the client has cancelled it, or the server was never
    /// sent it. None: it was answered before. Else whether the stream ends by this.
    pub(crate) fn drop_call(&mut self, stream: &StreamId, id: &str) -> Option<bool> {
        self.close_call(stream, id).map(|to| to.ends)
    }

    /// A request of the server's needs no answer any more.
    pub(crate) fn request_answered(&mut self, id: &str) {
        self.requests.remove(id);
    }

    /// No call that is open will be answered. Returns the streams, and which calls were open on
    /// each.
    pub(crate) fn clear(&mut self) -> Vec<(StreamId, Vec<Id>)> {
        self.requests.clear();
        let open = self.streams.iter_mut();
        open.filter(|open| open.phase == Phase::Open)
            .map(|open| {
                open.phase = Phase::Finishing;
                let calls = open.calls.drain(..).map(|call| call.id);
                (open.stream.clone(), calls.collect())
            })
            .collect()
    }

    /// Where a message of the server goes. None: it is about a call that is not open. `said_on`: the
    /// stream on which the server has said it, where the transport tells.
    pub(crate) fn route(
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
                Some(to_stream(
                    went.unwrap_or_else(|| self.said(message, said_on)),
                ))
            }
            ServerMessage::Request(id) => {
                let stream = self.said(message, said_on);
                if self.requests.len() < REQUESTS_MAX {
                    self.requests.insert(id.clone(), stream.clone());
                }
                Some(to_stream(stream))
            }
            ServerMessage::Unsendable(..) | ServerMessage::Lost(_) => None,
            ServerMessage::Log | ServerMessage::Other => {
                Some(to_stream(self.said(message, said_on)))
            }
        }
    }

    fn close_call(&mut self, stream: &StreamId, id: &str) -> Option<Destination> {
        let of = |open: &CallStream| open.stream == *stream && open.phase == Phase::Open;
        let open = self.streams.iter_mut().find(|open| of(open))?;
        let call = open.calls.iter().position(|call| *call.id == *id)?;
        open.calls.remove(call);
        let ends = open.calls.is_empty();
        if ends {
            open.phase = Phase::Finishing;
        }
        Some(Destination {
            stream: stream.clone(),
            ends,
        })
    }

    /// The stream on which the server has said something, if it is open; else the default one.
    fn said(&self, message: &ServerMessage, on: Option<&StreamId>) -> StreamId {
        match on {
            Some(on) if on.as_str() == StreamId::STANDALONE => on.clone(),
            Some(on) => match self.open().find(|open| open.stream == *on) {
                Some(open) => self.unless_unread(open),
                None => self.default_stream(message),
            },
            None => match (message, self.open().next_back()) {
                // A client that asks for no standalone stream would never see it there.
                (ServerMessage::Request(_), Some(newest)) if !self.policy.attributes => {
                    self.unless_unread(newest)
                }
                _ => self.default_stream(message),
            },
        }
    }

    fn default_stream(&self, message: &ServerMessage) -> StreamId {
        let standalone = StreamId::standalone();
        let Some(newest) = self.open().next_back() else {
            return standalone;
        };
        let is_only = newest.calls.len() == 1 && self.open().nth(1).is_none();
        let is_standalone = match self.policy.attributes {
            true => !is_only || *message != ServerMessage::Log,
            false => !is_only && self.readers.contains(&standalone),
        };
        match is_standalone {
            true => standalone,
            false => self.unless_unread(newest),
        }
    }

    /// The stream; or the standalone one, if no client could ever read the message there.
    fn unless_unread(&self, open: &CallStream) -> StreamId {
        let is_unread = !self.readers.contains(&open.stream);
        if is_unread && (self.policy.redirect || !open.resumable) {
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
