//! Replay and tail: what was said after a place, and what is said next. They join without loss or repetition, since
//! both begin at a cursor and give one back.

use std::collections::HashSet;
use std::time::Duration;

use mcp_sessiond_proto::streams::{
    APPEND_MAX, Cursor, EVENTS_BYTES, EVENTS_MAX, Event, Gap, ReplayRequest, Replayed, WAIT_MAX_MS,
    WAIT_STREAMS_MAX, WaitRequest,
};
use mcp_sessiond_proto::{Error, Json, StreamId};
use tokio::time::Instant;

use super::draft::{Draft, Halt, Scan};
use super::event_id::{EventIds, Position};
use super::head::{self, Chunk, StreamRow};
use super::{Access, Admit, Contents};
use crate::storage::Item;

/// Scans that one answer may take: where most of what is found is before the cursors, the answer ends early.
const SCANS_MAX: usize = 6;

/// Bytes of items that one scan reads, beyond which the answer would be full anyway.
const SCAN_BYTES: usize = 2 * EVENTS_BYTES;

impl Contents {
    /// What was said after a place, a page at a time.
    ///
    /// # Errors
    /// [`Error::UnknownCursor`], [`Error::UnknownStream`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn replay(&self, access: &Access, request: &ReplayRequest) -> Result<Replayed, Error> {
        let most = most(request.most)?;
        let after = std::slice::from_ref(&request.after);
        self.look(access, Admit::Living, |draft| replay(draft, after, most)).await
    }

    /// What is said next in several streams. Where there is nothing yet, it waits; nothing when the time is over, or
    /// when the daemon is about to exit. May be dropped at any time.
    ///
    /// # Errors
    /// As [`Contents::replay`].
    pub async fn wait(&self, access: &Access, request: &WaitRequest) -> Result<Replayed, Error> {
        let most = most(request.most)?;
        let count = request.after.len();
        if count == 0 || count > WAIT_STREAMS_MAX {
            let sentence = format!("`after` has 1 to {WAIT_STREAMS_MAX} cursors, not {count}");
            return Err(Error::InvalidArgument { sentence });
        }
        let timeout_ms = request.timeout_ms.unwrap_or(WAIT_MAX_MS).min(WAIT_MAX_MS);
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
        let _in_use = self.presence.call(&access.place);
        let news = self.news(&access.place);
        let mut after = request.after.clone();
        let mut first = true;
        loop {
            // Before the look: what is appended after it is news.
            let told = news.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let rule = |draft: &mut Draft<'_>| replay(draft, &after, most);
            let replayed = if std::mem::take(&mut first) {
                self.look(access, Admit::Living, rule).await?
            } else {
                self.look_on(access, Admit::Living, rule).await?.0
            };
            if !replayed.events.is_empty() || !replayed.gaps.is_empty() || self.is_closing() {
                return Ok(replayed);
            }
            // It may have come past priming events.
            after.clone_from(&replayed.next);
            if Instant::now() >= deadline {
                return Ok(replayed);
            }
            let look_again = if replayed.more {
                Instant::now()
            } else if self.storage.is_shared() {
                deadline.min(Instant::now() + Duration::from_millis(self.limits().poll_ms))
            } else {
                deadline
            };
            tokio::select! {
                () = told => {}
                () = tokio::time::sleep_until(look_again) => {}
            }
        }
    }
}

fn most(asked: Option<u32>) -> Result<usize, Error> {
    match asked.map(|asked| asked as usize) {
        None => Ok(EVENTS_MAX),
        Some(most) if (1..=EVENTS_MAX).contains(&most) => Ok(most),
        Some(_) => Err(Error::InvalidArgument { sentence: format!("`most` is 1 to {EVENTS_MAX}") }),
    }
}

/// One cursor on its way.
struct Want<'a> {
    given: &'a Cursor,
    /// None: the whole session, whose numbers then are its positions.
    stream: Option<(StreamId, StreamRow)>,
    /// The last position that was passed, with its number and its chunk's.
    position: u64,
    number: u64,
    chunk: u64,
    moved: bool,
}

impl Want<'_> {
    fn pass(&mut self, position: u64, number: u64, chunk: u64) {
        (self.position, self.number, self.chunk, self.moved) = (position, number, chunk, true);
    }

    /// What is missing between the last position and `next`.
    fn gap(&self, next: u64) -> Option<Gap> {
        let stream = self.stream.as_ref().map(|(stream, _)| stream.clone());
        (next > self.position + 1).then(|| Gap { stream, first: self.position + 1, last: next - 1 })
    }

    fn cursor(&self, ids: &EventIds) -> Cursor {
        match &self.stream {
            _ if !self.moved => self.given.clone(),
            None => Cursor::Number(self.number),
            Some((stream, _)) => Cursor::Event(ids.make(&Position {
                stream: stream.clone(),
                position: self.position,
                number: self.number,
                chunk: self.chunk,
            })),
        }
    }
}

fn want<'a>(draft: &mut Draft<'_>, ids: &EventIds, cursor: &'a Cursor) -> Result<Want<'a>, Halt> {
    let last_number = draft.head.last_number;
    match cursor {
        Cursor::Number(number) if *number > last_number => Err(Error::UnknownCursor.into()),
        Cursor::Number(number) => {
            // An append has at most so many events, so the one with the next number is not before this.
            let chunk = (number + 1).saturating_sub(APPEND_MAX as u64 - 1).max(1);
            Ok(Want { given: cursor, stream: None, position: *number, number: *number, chunk, moved: false })
        }
        Cursor::Stream(stream) => {
            let row = draft.stream(stream)?.ok_or(Error::UnknownStream)?;
            let chunk = row.opened_at + 1;
            let number = row.opened_at;
            Ok(Want {
                given: cursor,
                stream: Some((stream.clone(), row)),
                position: 0,
                number,
                chunk,
                moved: false,
            })
        }
        Cursor::Event(id) => {
            let Position { stream, position, number, chunk } = ids.read(id).ok_or(Error::UnknownCursor)?;
            let row = draft.stream(&stream)?.ok_or(Error::UnknownCursor)?;
            if number > last_number || number <= row.opened_at || position > row.last_position {
                return Err(Error::UnknownCursor.into());
            }
            Ok(Want { given: cursor, stream: Some((stream, row)), position, number, chunk, moved: false })
        }
    }
}

fn replay(draft: &mut Draft<'_>, after: &[Cursor], most: usize) -> Result<Replayed, Halt> {
    let ids = EventIds::new(&draft.head.secret);
    draft.need(
        after.iter().filter_map(|cursor| stream_of(&ids, cursor)).map(|stream| head::stream_key(&stream)),
    )?;
    let mut wants = after.iter().map(|cursor| want(draft, &ids, cursor)).collect::<Result<Vec<_>, _>>()?;
    let tags: Vec<String> =
        wants.iter().filter_map(|want| want.stream.as_ref()).map(|(stream, _)| stream.to_string()).collect();
    let different: HashSet<&String> = tags.iter().collect();
    if different.len() != tags.len() || (wants.len() > 1 && tags.len() < wants.len()) {
        let sentence = "cursors of different streams, or one number, go together".into();
        return Err(Error::InvalidArgument { sentence }.into());
    }
    let mut page = Page { most, bytes: 0, events: Vec::new(), gaps: Vec::new() };
    let start = wants.iter().map(|want| want.chunk).min().unwrap_or(1);
    let mut start = start.max(draft.head.pruned + 1);
    let mut more = true;
    for _ in 0..SCANS_MAX {
        let range = head::event_key(start)..head::end_of_events();
        let items = draft.scan(Scan { range, tags: tags.clone(), most, bytes: SCAN_BYTES })?;
        draft.need(items.iter().filter_map(|item| Some(head::stream_key(&item.tag.parse().ok()?))))?;
        let Some(last) = items.last() else {
            more = false;
            break;
        };
        start = head::event_number(&last.key) + 1;
        if !page.take(draft, &ids, &mut wants, items)? {
            break;
        }
        // Another scan would find nothing; and for it, all of this would be done again.
        if items.len() < most && items.iter().map(|item| item.value.len()).sum::<usize>() < SCAN_BYTES {
            more = false;
            break;
        }
    }
    if !more {
        for want in &mut wants {
            let (position, number, chunk) = match &want.stream {
                Some((_, row)) => (row.last_position, row.last_number, row.last_chunk),
                None => (draft.head.last_number, draft.head.last_number, 0),
            };
            if let Some(gap) = want.gap(position + 1) {
                page.gaps.push(gap);
                want.pass(position, number, chunk);
            }
        }
    }
    let next = wants.iter().map(|want| want.cursor(&ids)).collect();
    Ok(Replayed { events: page.events, gaps: page.gaps, next, more })
}

fn stream_of(ids: &EventIds, cursor: &Cursor) -> Option<StreamId> {
    match cursor {
        Cursor::Number(_) => None,
        Cursor::Stream(stream) => Some(stream.clone()),
        Cursor::Event(id) => Some(ids.read(id)?.stream),
    }
}

/// An answer that fills.
struct Page {
    most: usize,
    bytes: usize,
    events: Vec<Event>,
    gaps: Vec<Gap>,
}

impl Page {
    /// Takes what is after the cursors. False: it is full.
    fn take(
        &mut self,
        draft: &mut Draft<'_>,
        ids: &EventIds,
        wants: &mut [Want<'_>],
        items: &[Item],
    ) -> Result<bool, Halt> {
        for item in items {
            let Ok(stream) = item.tag.parse::<StreamId>() else { continue };
            let wanted = |want: &&mut Want<'_>| want.stream.as_ref().is_none_or(|(of, _)| *of == stream);
            let Some(want) = wants.iter_mut().find(wanted) else { continue };
            let number = head::event_number(&item.key);
            let chunk: Chunk = head::decode(&item.value)?;
            // A storage may take its time to forget: what is pruned is not there, whatever it still holds.
            let Some(row) = draft.stream(&stream)? else { continue };
            if number <= row.opened_at || chunk.position <= row.pruned {
                continue;
            }
            for (message, at) in chunk.messages.into_iter().zip(0..) {
                let place = Position {
                    stream: stream.clone(),
                    position: chunk.position + at,
                    number: number + at,
                    chunk: number,
                };
                let here = if want.stream.is_some() { place.position } else { place.number };
                if here <= want.position {
                    continue;
                }
                if self.events.len() >= self.most || self.bytes >= EVENTS_BYTES {
                    return Ok(false);
                }
                self.gaps.extend(want.gap(here));
                want.pass(here, place.number, number);
                if let Some(message) = message {
                    self.bytes += message.len();
                    let id = ids.make(&place);
                    self.events.push(Event {
                        id,
                        stream: place.stream,
                        position: place.position,
                        number: place.number,
                        message: Json::trusted(message),
                    });
                }
            }
        }
        Ok(true)
    }
}
