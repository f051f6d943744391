//! Appending: numbered without gaps in the stream and across the session, and kept before the ids
//! are told.

use mcp_sessiond_proto::streams::{APPEND_BYTES_MAX, APPEND_MAX, AppendRequest, Appended};
use mcp_sessiond_proto::{Error, Json, RequestId, StreamId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::event_id::{EventIds, Position};
use super::head::{self, Chunk, Run};
use super::transaction::{Draft, Halt};
use super::{Access, Admit, Bounds, Contents, keys, prune, streams};
use crate::storage::Key;

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
                let over = prune::prune(draft, appended.iter().map(|event| &event.stream))?;
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
            .change(access, Admit::Living, |draft| prune::prune(draft, []))
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
