//! Caps by count, bytes and age: the oldest events go. Who comes for them later is told of the gap.

use std::collections::BTreeSet;

use mcp_sessiond_proto::streams::{PruneRequest, Pruned};
use mcp_sessiond_proto::{Error, StreamId};

use super::head::{self, Chunk, Head, StreamRow};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Contents, keys};
use crate::storage::{Item, Scan};

/// Items that are looked at for one change.
const CHUNKS_MAX: usize = 1_024;

/// Bytes of events that are read for one change, in order to be pruned.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Streams whose rows one change may write: a storage takes 128 items, and there are the event's
/// own.
const STREAMS_MAX: usize = 16;

/// A full session is pruned by this part of its cap at once, so that not every append has to.
const SLACK: usize = 16;

/// Prunes what is over a cap of the session, or of one of these streams. Tells whether there is
/// more to prune. What was appended by this very draft always stays.
pub(super) fn prune<'s>(
    draft: &mut Draft<'_>,
    streams: impl IntoIterator<Item = &'s StreamId>,
) -> Result<bool, Halt> {
    let streams: BTreeSet<&StreamId> = streams.into_iter().collect();
    let mut more = false;
    for stream in streams {
        more |= prune_stream(draft, stream)?;
    }
    Ok(more | prune_session(draft)?)
}

fn target(limit: usize) -> u64 {
    (limit - limit / SLACK) as u64
}

fn prune_stream(draft: &mut Draft<'_>, stream: &StreamId) -> Result<bool, Halt> {
    let bounds = draft.bounds;
    let Some(row) = draft.stream(stream)? else {
        return Ok(false);
    };
    let over =
        |row: &StreamRow, events: u64, bytes: u64| row.events() > events || row.bytes > bytes;
    if !over(
        &row,
        bounds.limits.stream_events as u64,
        bounds.limits.stream_event_bytes as u64,
    ) {
        return Ok(false);
    }
    drop_oldest_of(draft, stream, |row, _| {
        over(
            row,
            target(bounds.limits.stream_events),
            target(bounds.limits.stream_event_bytes),
        )
    })
}

/// Drops a stream's chunks, the oldest first, up to one that does not go. Tells whether there may
/// be more that go.
fn drop_oldest_of(
    draft: &mut Draft<'_>,
    stream: &StreamId,
    goes: impl Fn(&StreamRow, &Chunk) -> bool,
) -> Result<bool, Halt> {
    let Some(row) = draft.stream(stream)? else {
        return Ok(false);
    };
    let start = row.first_number.max(draft.head.pruned + 1);
    let range = keys::event_key(start)..keys::end_of_events();
    let scan = Scan {
        range,
        tags: vec![stream.to_string()],
        most: CHUNKS_MAX,
        bytes: BYTES_MAX,
    };
    let chunks = draft.scan(scan)?;
    for item in chunks {
        let Some(row) = draft.stream(stream)? else {
            break;
        };
        if !goes(&row, &head::decode(&item.value)?) {
            return Ok(false);
        }
        drop_chunk(draft, item)?;
        draft.forget_one(&item.key);
    }
    Ok(chunks.len() == CHUNKS_MAX)
}

fn prune_session(draft: &mut Draft<'_>) -> Result<bool, Halt> {
    let bounds = draft.bounds;
    let now_ms = draft.now_ms;
    let aged = |at_ms: u64| {
        bounds.sessions.event_age_ms > 0
            && at_ms.saturating_add(bounds.sessions.event_age_ms) <= now_ms
    };
    let over = |head: &Head, events: u64, bytes: u64| {
        u64::from(head.events) > events || head.event_bytes > bytes
    };
    let is_over = over(
        &draft.head,
        bounds.limits.events as u64,
        bounds.limits.event_bytes as u64,
    );
    if draft.head.events == 0 || !(is_over || aged(draft.head.oldest_ms)) {
        return Ok(false);
    }
    drop_oldest(draft, |head, chunk| {
        let too_much = is_over
            && over(
                head,
                target(bounds.limits.events),
                target(bounds.limits.event_bytes),
            );
        too_much || aged(chunk.at_ms)
    })
}

/// Drops the session's chunks, the oldest first, up to one that does not go. Tells whether there
/// may be more that go.
fn drop_oldest(draft: &mut Draft<'_>, goes: impl Fn(&Head, &Chunk) -> bool) -> Result<bool, Halt> {
    let now_ms = draft.now_ms;
    let range = keys::event_key(draft.head.pruned + 1)..keys::end_of_events();
    let start = range.start.clone();
    let scan = Scan::of(range, CHUNKS_MAX, BYTES_MAX);
    let chunks = draft.scan(scan)?;
    // Only so many streams at once: their rows have to be read and written.
    let mut streams = BTreeSet::new();
    let within = |item: &&Item| {
        streams.contains(&item.tag)
            || streams.len() < STREAMS_MAX && streams.insert(item.tag.clone())
    };
    let candidates: Vec<&Item> = chunks
        .iter()
        .take_while({
            let mut within = within;
            move |item| within(item)
        })
        .collect();
    let tags: BTreeSet<StreamId> = candidates
        .iter()
        .filter_map(|item| item.tag.parse().ok())
        .collect();
    draft.need(tags.iter().map(keys::stream_key))?;
    let mut end = None;
    let mut oldest_ms = now_ms;
    let mut stopped = false;
    for item in &candidates {
        let chunk: Chunk = head::decode(&item.value)?;
        oldest_ms = chunk.at_ms;
        if !goes(&draft.head, &chunk) {
            stopped = true;
            break;
        }
        let last = keys::event_number(&item.key) + chunk.messages.len() as u64 - 1;
        drop_chunk(draft, item)?;
        draft.head.pruned = last;
        end = Some(keys::event_key(last + 1));
    }
    let bytes: usize = chunks.iter().map(|item| item.value.len()).sum();
    let seen_all =
        candidates.len() == chunks.len() && chunks.len() < CHUNKS_MAX && bytes < BYTES_MAX;
    if !stopped && seen_all {
        // What is left was appended just now.
        oldest_ms = now_ms;
    }
    draft.head.oldest_ms = oldest_ms;
    if let Some(end) = end {
        draft.forget(start..end);
    }
    Ok(!stopped && !seen_all)
}

impl Contents {
    /// Prunes by hand, the oldest events first. What was appended at once stays or goes as a whole.
    ///
    /// # Errors
    /// [`Error::UnknownStream`]; [`Error::InvalidArgument`] where nothing says what goes; those of
    /// a session that is not there, not the caller's, or terminated.
    pub async fn prune_events(
        &self,
        access: &Access,
        request: &PruneRequest,
    ) -> Result<Pruned, Error> {
        if request.keep.is_none() && request.older_than_ms.is_none() {
            let sentence =
                "`keep` says how many events stay, or `older_than_ms` of what age they go".into();
            return Err(Error::InvalidArgument { sentence });
        }
        let mut pruned = Pruned::default();
        loop {
            let (more, one) = self
                .change(access, Admit::Living, |draft| by_hand(draft, request))
                .await?;
            pruned.events += one.events;
            pruned.bytes += one.bytes;
            if !more {
                return Ok(pruned);
            }
        }
    }
}

fn by_hand(draft: &mut Draft<'_>, request: &PruneRequest) -> Result<(bool, Pruned), Halt> {
    draft.quietly();
    let (before, now_ms) = ((draft.head.events, draft.head.event_bytes), draft.now_ms);
    let goes = |left: u64, chunk: &Chunk| {
        let is_spare = |keep: u64| left.saturating_sub(chunk.messages.len() as u64) >= keep;
        let is_old = |age: u64| chunk.at_ms.saturating_add(age) <= now_ms;
        request.keep.is_none_or(is_spare) && request.older_than_ms.is_none_or(is_old)
    };
    let more = match &request.stream {
        Some(stream) => {
            draft.stream(stream)?.ok_or(Error::UnknownStream)?;
            drop_oldest_of(draft, stream, |row, chunk| goes(row.events(), chunk))?
        }
        None if draft.head.events == 0 => false,
        None => drop_oldest(draft, |head, chunk| goes(head.events.into(), chunk))?,
    };
    let events = u64::from(before.0.saturating_sub(draft.head.events));
    let bytes = before.1.saturating_sub(draft.head.event_bytes);
    Ok((more, Pruned { events, bytes }))
}

/// Counts a chunk out. Its item is the caller's to forget.
fn drop_chunk(draft: &mut Draft<'_>, item: &Item) -> Result<(), Halt> {
    let chunk: Chunk = head::decode(&item.value)?;
    let Ok(stream) = item.tag.parse::<StreamId>() else {
        return Ok(());
    };
    let count = chunk.messages.len() as u64;
    let last = chunk.position + count - 1;
    let number = keys::event_number(&item.key);
    // A storage may take its time to forget: what was counted out is not counted again, nor is what
    // another stream of that name has left.
    let counts = |row: &StreamRow| row.pruned < last && number > row.opened_at;
    let Some(mut row) = draft.stream(&stream)?.filter(counts) else {
        return Ok(());
    };
    if let Some(request) = &chunk.request {
        draft.forget_one(&keys::request_key(request));
    }
    draft.free(item.key.len() + item.value.len());
    draft.prune(count);
    row.pruned = last;
    row.first_number = number + count;
    row.bytes = row.bytes.saturating_sub(chunk.bytes());
    draft.head.events = draft
        .head
        .events
        .saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
    draft.head.event_bytes = draft.head.event_bytes.saturating_sub(chunk.bytes());
    draft.set_stream(stream, row)
}

/// Counts a stream's chunks out and forgets them, the oldest `most` of them. Tells whether that was
/// all.
pub(super) fn drop_all(
    draft: &mut Draft<'_>,
    stream: &StreamId,
    row: &StreamRow,
    most: usize,
) -> Result<bool, Halt> {
    let range = keys::event_key(row.first_number.max(draft.head.pruned + 1))..keys::end_of_events();
    let scan = Scan {
        range,
        tags: vec![stream.to_string()],
        most: most + 1,
        bytes: BYTES_MAX,
    };
    let chunks = draft.scan(scan)?;
    for item in chunks.iter().take(most) {
        drop_chunk(draft, item)?;
        draft.forget_one(&item.key);
    }
    Ok(chunks.len() <= most)
}
