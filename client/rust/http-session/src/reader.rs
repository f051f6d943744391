//! What the reader of a stream is sent: each event once and in order, those that were stored before
//! and those that come.

use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_proto::StreamId;
use mcp_sessiond_proto::streams::{Cursor, EventId, Gap, Replayed};

use crate::{sse, substitute};

/// A part of the body of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The text.
    pub text: String,
    /// The event that it is, by its position in the stream and its id. None: it has no place there.
    pub event: Option<(u64, EventId)>,
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self { text, event: None }
    }
}

/// The reader of a stream.
#[derive(Debug)]
pub struct EventReader {
    stream: StreamId,
    /// The position of the last event that was sent.
    position: u64,
    after: Cursor,
}

impl EventReader {
    /// A reader who has the events up to this position. `after`: the cursor of that place.
    pub fn new(stream: StreamId, position: u64, after: Cursor) -> Self {
        Self {
            stream,
            position,
            after,
        }
    }

    /// The stream.
    pub fn stream(&self) -> &StreamId {
        &self.stream
    }

    /// Where to go on reading what is stored.
    pub fn after(&self) -> &Cursor {
        &self.after
    }

    /// The position of the last event that was sent.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What is stored after [`Self::after`]: what to send of it, and whether the stream has ended
    /// with it.
    pub fn page(&mut self, page: Replayed) -> (Vec<Part>, bool) {
        let mut parts = Vec::new();
        let is_unseen = |gap: &Gap| (gap.last + 1).saturating_sub(gap.first.max(self.position + 1));
        let lost: u64 = page.gaps.iter().map(is_unseen).sum();
        if lost > 0 {
            parts.push(sse::event(None, &substitute::gap(lost)).into());
        }
        for event in page.events {
            parts.extend(self.event(event.position, &event.id, event.message.as_str()));
        }
        if let Some(next) = page.next.into_iter().next() {
            self.after = next;
        }
        (parts, page.ended.contains(&self.stream))
    }

    /// An event that has just been stored. None: the reader was sent it before.
    pub fn event(&mut self, position: u64, id: &EventId, message: &str) -> Option<Part> {
        if position <= self.position {
            return None;
        }
        self.position = position;
        self.after = Cursor::Event(id.clone());
        Some(Part {
            text: sse::event(Some(id), message),
            event: Some((position, id.clone())),
        })
    }
}
