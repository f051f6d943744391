//! Events: appended to streams, and deleted where there are more than the limits allow, the oldest
//! first.

use std::collections::BTreeSet;

use mcp_sessiond_proto::streams::{
    APPEND_BYTES_MAX, APPEND_MAX, AppendRequest, Appended, PruneRequest, Pruned,
};
use mcp_sessiond_proto::{Error, Json, RequestId, StreamId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::event_id::{EventIds, Position};
use super::head::{self, Chunk, Head, Run, StreamRow};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Bounds, Contents, keys, streams};
use crate::storage::{Item, Key, Scan};

/// Changes from one destination to another within one append to an orphaned stream: each makes an
/// item of its own.
const RUNS_MAX: usize = 100;

impl Contents {
    /// Appends messages to a stream, all or none; and closes it with them, if the request says so.
    ///
    /// # Errors
    /// [`Error::UnknownStream`], [`Error::StreamClosed`], [`Error::QuotaExceeded`],
    /// [`Error::InvalidArgument`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn append(
        &self,
        access: &Access,
        request: &AppendRequest,
    ) -> Result<Vec<Appended>, Error> {
        check(request, &self.bounds())?;
        let keys: Vec<_> = needs(request).collect();
        let (appended, over) = self
            .change_of(access, Admit::Living, &keys, |draft| {
                let appended = append(draft, request)?;
                let over = prune(draft, appended.iter().map(|event| &event.stream))?;
                Ok((appended, over))
            })
            .await?;
        let counter = &self.meters.counters.events_appended_total;
        counter.fetch_add(appended.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.tell_news(&access.place);
        if over {
            self.prune_on(access).await;
        }
        Ok(appended)
    }

    /// Prunes until the session is within its caps: one change takes only so many streams at once.
    async fn prune_on(&self, access: &Access) {
        while let Ok(true) = self
            .change(access, Admit::Living, |draft| prune(draft, []))
            .await
        {}
    }
}

fn check(request: &AppendRequest, bounds: &Bounds) -> Result<(), Error> {
    let bytes: usize = request.messages.iter().flatten().map(Json::len).sum();
    let count = request.messages.len();
    if count == 0 || count > APPEND_MAX || bytes > APPEND_BYTES_MAX {
        let sentence = format!(
            "one append has 1 to {APPEND_MAX} messages and at most {APPEND_BYTES_MAX} bytes"
        );
        return Err(Error::InvalidArgument { sentence });
    }
    let quota = |what: String, limit: usize| {
        Err(Error::QuotaExceeded {
            what,
            limit: limit as u64,
        })
    };
    if let Some(large) = request
        .messages
        .iter()
        .flatten()
        .find(|message| message.len() > bounds.limits.message_bytes)
    {
        return quota(
            format!("a message of {} bytes", large.len()),
            bounds.limits.message_bytes,
        );
    }
    let most_events = bounds.limits.stream_events.min(bounds.limits.events);
    if count > most_events {
        return quota(format!("an append of {count} messages"), most_events);
    }
    let most_bytes = bounds
        .limits
        .stream_event_bytes
        .min(bounds.limits.event_bytes);
    if bytes > most_bytes {
        return quota(format!("an append of {bytes} bytes"), most_bytes);
    }
    if request.close {
        streams::closable(&request.stream)
    } else {
        Ok(())
    }
}

/// What has to be read before anything can be appended: the stream, and whether it has been before.
fn needs(request: &AppendRequest) -> impl Iterator<Item = Key> {
    std::iter::once(keys::stream_key(&request.stream))
        .chain(request.request.as_ref().map(keys::request_key))
}

fn append(draft: &mut Draft<'_>, request: &AppendRequest) -> Result<Vec<Appended>, Halt> {
    let appended = append_open(draft, request)?;
    if request.close {
        // Also where this is a repetition: what it repeats may have been said to a daemon that knew
        // nothing of closing.
        streams::close(draft, &request.stream)?;
    }
    Ok(appended)
}

fn append_open(draft: &mut Draft<'_>, request: &AppendRequest) -> Result<Vec<Appended>, Halt> {
    let repeated = request.request.as_ref().map(keys::request_key);
    draft.need(needs(request))?;
    if let Some(key) = &repeated
        && let Some(item) = draft.item(key)?
    {
        return Ok(answer(draft, head::decode(&item.value)?));
    }
    let row = draft.stream(&request.stream)?.ok_or(Error::UnknownStream)?;
    if row.closed {
        return Err(Error::StreamClosed.into());
    }
    let mut runs = Vec::new();
    let destinations = destinations(request, row.orphaned)?;
    // The request is known for as long as this part of it can be replayed: what stays in the stream
    // is the answer.
    let stays = destinations
        .iter()
        .rposition(|(stream, _)| *stream == request.stream);
    let remembered = stays.unwrap_or(destinations.len().saturating_sub(1));
    for (at, (stream, messages)) in destinations.into_iter().enumerate() {
        let known_by = request.request.clone().filter(|_| at == remembered);
        runs.push(put(draft, known_by, stream, messages)?);
    }
    if let Some(key) = repeated {
        draft.put(key, "", head::encode(&runs));
    }
    Ok(answer(draft, runs))
}

/// Messages and the stream that they go to.
type Destined<'a> = (StreamId, &'a [Option<Json>]);

/// Where each message goes: to its stream, or where the reader of that is gone and it is no answer,
/// to the standalone one. An answer stays where its cursor finds it.
fn destinations(request: &AppendRequest, orphaned: bool) -> Result<Vec<Destined<'_>>, Error> {
    let messages = request.messages.as_slice();
    if !orphaned {
        return Ok(vec![(request.stream.clone(), messages)]);
    }
    let stays = |message: &Option<Json>| message.as_ref().is_none_or(is_answer);
    let runs = messages.chunk_by(|one, next| stays(one) == stays(next));
    let to = |run: &[Option<Json>]| match run.first() {
        Some(first) if !stays(first) => StreamId::standalone(),
        _ => request.stream.clone(),
    };
    let runs: Vec<_> = runs.map(|run| (to(run), run)).collect();
    if runs.len() > RUNS_MAX {
        let sentence = format!(
            "the stream is an orphan, and these messages change {} times between it and the standalone one; append at most {RUNS_MAX} such at once",
            runs.len()
        );
        return Err(Error::InvalidArgument { sentence });
    }
    Ok(runs)
}

/// Whether a message is a JSON-RPC response: it has an `id` and a `result` or `error`, and no
/// `method`.
fn is_answer(message: &Json) -> bool {
    #[derive(Deserialize)]
    struct Shape {
        id: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
        // Of any value, null too.
        #[serde(default, deserialize_with = "present")]
        result: bool,
        error: Option<IgnoredAny>,
    }
    fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| true)
    }
    serde_json::from_str::<Shape>(message.as_str()).is_ok_and(|shape| {
        shape.id.is_some() && shape.method.is_none() && (shape.result || shape.error.is_some())
    })
}

pub(super) fn put(
    draft: &mut Draft<'_>,
    request: Option<RequestId>,
    stream: StreamId,
    messages: &[Option<Json>],
) -> Result<Run, Halt> {
    let mut row = draft.stream(&stream)?.ok_or(Error::UnknownStream)?;
    let chunk = Chunk {
        position: row.last_position + 1,
        at_ms: draft.now_ms,
        request,
        messages: messages
            .iter()
            .map(|message| message.as_ref().map(|json| json.as_str().to_owned()))
            .collect(),
    };
    let count = messages.len() as u64;
    let bytes = chunk.bytes();
    let number = draft.head.last_number + 1;
    if draft.head.events == 0 {
        draft.head.oldest_ms = draft.now_ms;
    }
    if row.events() == 0 {
        row.first_number = number;
    }
    row.last_position += count;
    row.last_number = number + count - 1;
    row.last_chunk = number;
    row.bytes += bytes;
    draft.head.last_number = row.last_number;
    draft.head.events = draft
        .head
        .events
        .saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    draft.head.event_bytes += bytes;
    let run = Run {
        stream: stream.clone(),
        position: chunk.position,
        number,
        count,
    };
    draft.put(
        keys::event_key(number),
        stream.as_str(),
        head::encode(&chunk),
    );
    draft.set_stream(stream, row)?;
    Ok(run)
}

fn answer(draft: &Draft<'_>, runs: Vec<Run>) -> Vec<Appended> {
    let ids = EventIds::new(&draft.head.secret);
    let events = |run: Run| {
        (0..run.count)
            .map(|at| {
                let place = Position {
                    stream: run.stream.clone(),
                    position: run.position + at,
                    number: run.number + at,
                    chunk: run.number,
                };
                let id = ids.make(&place);
                Appended {
                    id,
                    stream: place.stream,
                    position: place.position,
                    number: place.number,
                }
            })
            .collect::<Vec<_>>()
    };
    runs.into_iter().flat_map(events).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_response_and_nothing_else() {
        let is = |text: &str| is_answer(&Json::new(text).expect("JSON"));
        assert!(
            is(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#) && is(r#"{"id":"a","error":{"code":1}}"#)
        );
        for other in [
            r#"{"method":"notifications/progress"}"#,
            r#"{"id":1,"method":"ping"}"#,
            "[]",
            "1",
            r#"{"id":1}"#,
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
