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

    /// What is stored after [`Self::after`]: what to send of it, and whether the stream has ended
    /// with it.
    pub fn page(&mut self, page: Replayed) -> (Vec<Part>, bool) {
        let mut parts = Vec::new();
        let seen = self.position;
        let unseen = |gap: &Gap| {
            gap.last
                .saturating_sub(seen.max(gap.first.saturating_sub(1)))
        };
        let lost: u64 = page.gaps.iter().map(unseen).sum();
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use mcp_sessiond_proto::Json;
    use mcp_sessiond_proto::streams::Event;

    use super::*;

    fn event(position: u64) -> Event {
        Event {
            id: EventId(alloc::format!("e{position}")),
            stream: StreamId::standalone(),
            position,
            number: position,
            message: Json::trusted(position.to_string()),
        }
    }

    fn sent(parts: &[Part]) -> Vec<u64> {
        let events = parts.iter().filter_map(|part| part.event.as_ref());
        events.map(|(position, _)| *position).collect()
    }

    #[test]
    fn each_event_is_sent_once_and_what_was_deleted_is_counted_once() {
        let standalone = StreamId::standalone();
        let after = Cursor::Stream(standalone.clone());
        let mut reader = EventReader::new(standalone.clone(), 3, after);
        let gap = |first, last| Gap {
            stream: Some(standalone.clone()),
            first,
            last,
        };
        let page = Replayed {
            events: vec![event(3), event(6)],
            gaps: vec![gap(1, 2), gap(2, 5)],
            next: vec![Cursor::Event(EventId("e6".into()))],
            more: false,
            ended: vec![],
        };
        let (parts, has_ended) = reader.page(page.clone());
        assert!(!has_ended && parts[0].text.contains("\"2 messages of this stream were"));
        assert_eq!(sent(&parts), [6]);
        assert_eq!(*reader.after(), Cursor::Event(EventId("e6".into())));
        // It comes again, and then live.
        let ended = vec![standalone.clone()];
        assert_eq!(reader.page(Replayed { ended, ..page }), (vec![], true));
        assert_eq!(reader.event(6, &event(6).id, "6"), None);
        let text = reader.event(7, &event(7).id, "{\n7}").expect("new").text;
        assert_eq!(text, "event: message\nid: e7\ndata: { 7}\n\n");
    }
}
