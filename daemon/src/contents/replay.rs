//! Replay and tail: what was said after a place, and what is said next. They join without loss or
//! repetition, since both begin at a cursor and give one back.

use std::collections::HashSet;
use std::time::Duration;

use mcp_sessiond_proto::streams::{
    APPEND_MAX, Cursor, EVENTS_BYTES, EVENTS_MAX, Event, EventId, Gap, ReplayRequest, Replayed,
    WAIT_MAX_MS, WAIT_STREAMS_MAX, WaitRequest,
};
use mcp_sessiond_proto::{Error, Json, StreamId};
use tokio::time::Instant;

use super::event_id::{EventIds, Position};
use super::head::{self, Chunk, Head, StreamRow};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Contents, keys};
use crate::storage::{Item, Scan};

/// Scans that one answer may take, twice: where most of what is found is before the cursors, the
/// answer ends early.
const SCANS_MAX: usize = 6;

/// What an event takes in an answer beside its message: its id, its stream, its numbers and their
/// names.
const EVENT_COST: usize = 400;

/// Items that one scan reads at least, however few events are wanted: some of what it finds is
/// before the cursors.
const SCAN_LEAST: usize = 64;

/// Bytes of items that one scan reads, beyond which the answer would be full anyway.
const SCAN_BYTES: usize = 2 * EVENTS_BYTES;

impl Contents {
    /// What was said after a place, a page at a time.
    ///
    /// # Errors
    /// [`Error::UnknownCursor`], [`Error::UnknownStream`]; those of a session that is not there,
    /// not the caller's, or terminated.
    pub async fn replay(
        &self,
        access: &Access,
        request: &ReplayRequest,
    ) -> Result<Replayed, Error> {
        let most = most(request.most)?;
        let after = std::slice::from_ref(&request.after);
        self.look(access, Admit::Living, |draft| replay(draft, after, most))
            .await
    }

    /// What is said next in several streams. Where there is nothing yet, it waits; nothing when the
    /// time is over, when one of them ends in the meantime or all have ended, or when the daemon is
    /// about to exit. May be dropped at any time.
    ///
    /// # Errors
    /// As [`Contents::replay`].
    pub async fn wait(&self, access: &Access, request: &WaitRequest) -> Result<Replayed, Error> {
        let most = most(request.most)?;
        let count = request.after.len();
        if count == 0 || count > WAIT_STREAMS_MAX {
            let sentence = format!("`after` has 1 to {WAIT_STREAMS_MAX} cursors");
            return Err(Error::InvalidArgument { sentence });
        }
        let timeout_ms = request.timeout_ms.unwrap_or(WAIT_MAX_MS).min(WAIT_MAX_MS);
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
        let mut in_use = None;
        let news = self.news(&access.place);
        let mut after = request.after.clone();
        // The streams that had ended before it waited.
        let mut ended = None;
        loop {
            // Before the look: what is appended after it is news.
            let told = news.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let rule = |draft: &mut Draft<'_>| replay(draft, &after, most);
            let replayed = match ended {
                None => self.look(access, Admit::Living, rule).await?,
                Some(_) => self.look_quietly(access, Admit::Known, &[], rule).await?.0,
            };
            if !replayed.events.is_empty() || !replayed.gaps.is_empty() || self.is_closing() {
                return Ok(replayed);
            }
            let now_ended = replayed.ended.len();
            if now_ended > *ended.get_or_insert(now_ended) || now_ended == count {
                return Ok(replayed);
            }
            // It may have come past priming events.
            after.clone_from(&replayed.next);
            if Instant::now() >= deadline {
                return Ok(replayed);
            }
            // After the first look, so that a client that waits does not revive a session that has
            // ended.
            in_use.get_or_insert_with(|| self.presence.call(&access.place));
            let look_again = if replayed.more {
                Instant::now()
            } else {
                self.next_look(deadline)
            };
            tokio::select! {
                () = told => {}
                () = tokio::time::sleep_until(look_again) => {}
            }
        }
    }
}

impl Contents {
    /// When whoever waits has to look again, although nothing has told of a change: another daemon
    /// may have made one.
    pub(super) fn next_look(&self, deadline: Instant) -> Instant {
        if !self.store.is_shared() {
            return deadline;
        }
        deadline.min(Instant::now() + Duration::from_millis(self.bounds().sessions.poll_ms))
    }
}

fn most(asked: Option<u32>) -> Result<usize, Error> {
    match asked.map(|asked| asked as usize) {
        None => Ok(EVENTS_MAX),
        Some(most) if (1..=EVENTS_MAX).contains(&most) => Ok(most),
        Some(_) => Err(Error::InvalidArgument {
            sentence: format!("`most` is 1 to {EVENTS_MAX}"),
        }),
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
        (next > self.position + 1).then(|| Gap {
            stream,
            first: self.position + 1,
            last: next - 1,
        })
    }

    /// The last position that there is, with its number and its chunk's.
    fn last(&self, head: &Head) -> (u64, u64, u64) {
        match &self.stream {
            Some((_, row)) => (row.last_position, row.last_number, row.last_chunk),
            None => (head.last_number, head.last_number, 0),
        }
    }

    /// Where a scan for what comes next has to begin.
    fn start(&self, head: &Head) -> u64 {
        let first_number = self.stream.as_ref().map_or(0, |(_, row)| row.first_number);
        self.chunk.max(first_number).max(head.pruned + 1)
    }

    /// What a scan chooses by; nothing where it is about the whole session.
    fn tags(&self) -> Vec<String> {
        self.stream
            .iter()
            .map(|(stream, _)| stream.to_string())
            .collect()
    }

    /// Its stream, if there is nothing to come there.
    fn ended(&self) -> Option<StreamId> {
        let (stream, row) = self.stream.as_ref()?;
        (row.closed && self.position >= row.last_position).then(|| stream.clone())
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
            let chunk = chunk_with(draft, number + 1)?;
            Ok(Want {
                given: cursor,
                stream: None,
                position: *number,
                number: *number,
                chunk,
                moved: false,
            })
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
            let (
                Position {
                    stream,
                    position,
                    number,
                    chunk,
                },
                row,
            ) = place_of(draft, ids, id)?;
            Ok(Want {
                given: cursor,
                stream: Some((stream, row)),
                position,
                number,
                chunk,
                moved: false,
            })
        }
    }
}

/// Where an event is, and its stream.
pub(super) fn place_of(
    draft: &mut Draft<'_>,
    ids: &EventIds,
    id: &EventId,
) -> Result<(Position, StreamRow), Halt> {
    let place = ids.read(id).ok_or(Error::UnknownCursor)?;
    let row = draft.stream(&place.stream)?.ok_or(Error::UnknownCursor)?;
    let is_there = place.number <= draft.head.last_number
        && place.number > row.opened_at
        && place.position <= row.last_position;
    if is_there {
        Ok((place, row))
    } else {
        Err(Error::UnknownCursor.into())
    }
}

/// Where the chunk begins that has the event of this number; or the number itself, where there is
/// none.
fn chunk_with(draft: &Draft<'_>, number: u64) -> Result<u64, Halt> {
    // An append has at most so many events, so it does not begin before this.
    let earliest = number
        .saturating_sub(APPEND_MAX as u64 - 1)
        .max(draft.head.pruned + 1);
    if number > draft.head.last_number
        || earliest >= number
        || draft.item(&keys::event_key(number))?.is_some()
    {
        return Ok(number);
    }
    let range = keys::event_key(earliest)..keys::event_key(number);
    let before = draft.scan(Scan::of(range, APPEND_MAX, usize::MAX))?;
    Ok(before
        .last()
        .map_or(number, |item| keys::event_number(&item.key)))
}

fn replay(draft: &mut Draft<'_>, after: &[Cursor], most: usize) -> Result<Replayed, Halt> {
    let ids = EventIds::new(&draft.head.secret);
    draft.need(
        after
            .iter()
            .filter_map(|cursor| stream_of(&ids, cursor))
            .map(|stream| keys::stream_key(&stream)),
    )?;
    let mut wants = after
        .iter()
        .map(|cursor| want(draft, &ids, cursor))
        .collect::<Result<Vec<_>, _>>()?;
    let tags: Vec<String> = wants
        .iter()
        .filter_map(|want| want.stream.as_ref())
        .map(|(stream, _)| stream.to_string())
        .collect();
    let different: HashSet<&String> = tags.iter().collect();
    if different.len() != tags.len() || (wants.len() > 1 && tags.len() < wants.len()) {
        let sentence = "cursors of different streams, or one number, go together".into();
        return Err(Error::InvalidArgument { sentence }.into());
    }
    let mut page = Page {
        most,
        bytes: 0,
        events: Vec::new(),
        gaps: Vec::new(),
    };
    // A cursor that has nothing after it is left out: what others have said since then is not
    // looked through for it.
    let head = &draft.head;
    let behind = || {
        wants
            .iter()
            .filter(|want| want.last(head).0 > want.position)
    };
    let most_behind = behind()
        .min_by_key(|want| want.start(head))
        .map(|want| (want.start(head), want.tags()));
    let mut more = false;
    if let Some((start, tags)) = most_behind {
        let all: Vec<String> = behind().flat_map(Want::tags).collect();
        let mut left = page.fill(draft, &ids, &mut wants, start, &all)?;
        more = left.is_some();
        if more && wants.iter().all(|want| !want.moved) {
            // All that was looked through is before the cursors of the others. So this one goes
            // first, alone.
            if all.len() > 1 {
                left = page.fill(draft, &ids, &mut wants, start, &tags)?;
            }
            let head = &draft.head;
            if let Some(want) = wants.iter_mut().find(|want| want.tags() == tags) {
                match left {
                    None => page.end(want, head),
                    // What was found is forgotten, though it is still there.
                    Some(next) if tags.is_empty() && !want.moved => {
                        page.gaps.extend(want.gap(next));
                        want.pass(next - 1, next - 1, 0);
                    }
                    Some(_) => {}
                }
            }
        }
    }
    if !more {
        for want in &mut wants {
            page.end(want, &draft.head);
        }
    }
    let next = wants.iter().map(|want| want.cursor(&ids)).collect();
    let ended = wants.iter().filter_map(Want::ended).collect();
    Ok(Replayed {
        events: page.events,
        gaps: page.gaps,
        next,
        more,
        ended,
    })
}

fn stream_of(ids: &EventIds, cursor: &Cursor) -> Option<StreamId> {
    match cursor {
        Cursor::Number(_) => None,
        Cursor::Stream(stream) => Some(stream.clone()),
        Cursor::Event(id) => Some(ids.read(id)?.stream),
    }
}

/// Bytes that a JSON text takes as a string in JSON.
pub(super) fn escaped_len(text: &[u8]) -> usize {
    // Of what has to be escaped, a JSON text has quotes, backslashes and blanks. A block is so
    // small that one byte can count them: then the compiler compares many bytes at once.
    let escaped = |byte: &u8| {
        b"\"\\\n\r\t"
            .iter()
            .fold(0, |found, of| found | u8::from(byte == of))
    };
    let of_block = |block: &[u8]| usize::from(block.iter().map(escaped).sum::<u8>());
    text.len() + text.chunks(u8::MAX.into()).map(of_block).sum::<usize>()
}

/// An answer that fills.
struct Page {
    most: usize,
    bytes: usize,
    events: Vec<Event>,
    gaps: Vec<Gap>,
}

impl Page {
    /// Scans from a number on, until it is full, or has scanned often enough. Tells where to go on,
    /// if there is more.
    fn fill(
        &mut self,
        draft: &mut Draft<'_>,
        ids: &EventIds,
        wants: &mut [Want<'_>],
        mut start: u64,
        tags: &[String],
    ) -> Result<Option<u64>, Halt> {
        for _ in 0..SCANS_MAX {
            let range = keys::event_key(start)..keys::end_of_events();
            let most = self.most.max(SCAN_LEAST);
            let items = draft.scan(Scan {
                range,
                tags: tags.to_vec(),
                most,
                bytes: SCAN_BYTES,
            })?;
            draft.need(
                items
                    .iter()
                    .filter_map(|item| Some(keys::stream_key(&item.tag.parse().ok()?))),
            )?;
            let Some(last) = items.last() else {
                return Ok(None);
            };
            start = keys::event_number(&last.key) + 1;
            if !self.take(draft, ids, wants, items)? {
                break;
            }
            // Another scan would find nothing; and for it, all of this would be done again.
            if items.len() < most
                && items.iter().map(|item| item.value.len()).sum::<usize>() < SCAN_BYTES
            {
                return Ok(None);
            }
        }
        Ok(Some(start))
    }

    /// There is nothing after this cursor but what is missing.
    fn end(&mut self, want: &mut Want<'_>, head: &Head) {
        let (position, number, chunk) = want.last(head);
        if let Some(gap) = want.gap(position + 1) {
            self.gaps.push(gap);
            want.pass(position, number, chunk);
        }
    }

    /// Takes what is after the cursors. False: it is full.
    fn take(
        &mut self,
        draft: &mut Draft<'_>,
        ids: &EventIds,
        wants: &mut [Want<'_>],
        items: &[Item],
    ) -> Result<bool, Halt> {
        for item in items {
            let Ok(stream) = item.tag.parse::<StreamId>() else {
                continue;
            };
            let wanted =
                |want: &&mut Want<'_>| want.stream.as_ref().is_none_or(|(of, _)| *of == stream);
            let Some(want) = wants.iter_mut().find(wanted) else {
                continue;
            };
            let number = keys::event_number(&item.key);
            let chunk: Chunk = head::decode(&item.value)?;
            // A storage may take its time to forget: what is pruned is not there, whatever it still
            // holds.
            let Some(row) = draft.stream(&stream)? else {
                continue;
            };
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
                let here = if want.stream.is_some() {
                    place.position
                } else {
                    place.number
                };
                if here <= want.position {
                    continue;
                }
                let bytes = message
                    .as_ref()
                    .map_or(0, |message| escaped_len(message.as_bytes()) + EVENT_COST);
                let is_full = self.bytes + bytes > EVENTS_BYTES && !self.events.is_empty();
                if self.events.len() >= self.most || is_full {
                    return Ok(false);
                }
                self.gaps.extend(want.gap(here));
                want.pass(here, place.number, number);
                if let Some(message) = message {
                    self.bytes += bytes;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_text_is_as_long_as_it_is_in_json() {
        let texts = ["", "{\"a\": \"b\\\"c\"}", "[1,\n\t2]\r", "\u{e9}\u{1f980}"];
        for text in texts
            .map(|text| text.repeat(100))
            .iter()
            .chain([&"\"".repeat(1000)])
        {
            let json = serde_json::to_string(text).expect("a string");
            assert_eq!(escaped_len(text.as_bytes()), json.len() - 2, "{text}");
        }
    }
}
