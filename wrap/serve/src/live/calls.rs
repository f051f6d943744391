//! What a client posts.

use std::sync::Arc;

use bytes::Bytes;
use mcp_sessiond_client::{Appended, Cursor, Json, RequestId, Stream, StreamId};
use serde_json::value::RawValue;

use super::handshake::held;
use super::pump::closed;
use super::{Live, Reading};
use crate::backend::Ended;
use crate::refusal::Refusal;
use crate::said::{Posted, PostedKind, not_started};
use crate::tail::Tail;
use crate::which::{Call, Id};

/// Bytes that ids and tokens may have together: the daemon keeps them as the stream's origin.
const ORIGIN_MAX: usize = 200;

impl Live {
    /// Hands over what wants no answer.
    ///
    /// # Errors
    /// Where there is no server to take it.
    pub async fn post(self: &Arc<Self>, messages: Vec<Posted>) -> Result<(), Refusal> {
        let server = self.server().await?;
        for Posted { kind, line } in messages {
            match &kind {
                // The server was told before. A client says it again where it has sent `initialize` again.
                PostedKind::Initialized if self.welcomed(server.incarnation()) => continue,
                PostedKind::Answer(id) => self.state().which.ask_answered(id),
                _ => {}
            }
            if server.send(line).await.is_err() {
                return Err(Refusal::for_now("the server has ended, and is started again"));
            }
            if let PostedKind::Cancelled(id) = kind {
                let ended = {
                    let mut state = self.state();
                    let ended = state.which.cancelled(&id);
                    state.finishing.extend(ended.clone());
                    ended
                };
                if let Some(stream) = ended {
                    self.finish(&stream).await;
                }
            }
        }
        Ok(())
    }

    /// Opens a stream for the answers to what is called, and calls.
    ///
    /// # Errors
    /// Where there is no daemon or no server; where an id is in use.
    pub async fn call(self: &Arc<Self>, messages: Vec<Posted>, is_batch: bool) -> Result<Tail, Refusal> {
        let mut calls = Vec::new();
        let mut lines = Vec::new();
        let mut rest = Vec::new();
        for message in messages {
            if let PostedKind::Call(call) = message.kind {
                calls.push(call);
                lines.push(message.line);
            } else {
                rest.push(message);
            }
        }
        if !rest.is_empty() {
            self.post(rest).await?;
        }
        let name = RequestId::mint();
        let opened_by = opened_by(&calls, is_batch)?;
        let kind = match &calls[..] {
            _ if is_batch => BATCH,
            [call] if opened_by.as_str() != &*call.id => TOLD,
            _ => CALL,
        };
        let stream: StreamId =
            format!("{kind}-{name}").parse().map_err(|_| Refusal::invalid("no name for a stream"))?;
        let primes = self.record.primes();
        let (opened, primed) = held(self.settings().hold, async {
            let opened = self.session.open_stream(&stream, Some(opened_by)).await?;
            let primed = if primes { Some(opened.prime().await?) } else { None };
            Ok((opened, primed))
        })
        .await?;
        let called = self.send(&opened, &calls, lines, primed).await;
        if called.is_err() {
            drop(opened.close().await);
        }
        called
    }

    async fn send(
        self: &Arc<Self>,
        stream: &Stream,
        calls: &[Call],
        lines: Vec<Bytes>,
        primed: Option<Appended>,
    ) -> Result<Tail, Refusal> {
        let (server, reading) = loop {
            let server = self.server().await?;
            if let Some(reading) = self.opened(stream.id(), calls, primed.is_some(), server.incarnation())? {
                break (server, reading);
            }
            tokio::task::yield_now().await;
        };
        for (call, line) in calls.iter().zip(lines) {
            if server.send(line).await == Err(Ended) {
                self.not_taken(stream.id(), call).await;
            }
        }
        let (position, after) = match &primed {
            Some(primed) => (primed.position, Cursor::Event(primed.id.clone())),
            None => (0, Cursor::Stream(stream.id().clone())),
        };
        let mut tail = Tail::new(self.clone(), stream.id().clone(), position, after, Some(reading));
        if let Some(primed) = primed {
            tail.prime(&primed.id);
        }
        Ok(tail)
    }

    /// Notes the calls as open on this stream, with a reader. None: this server is gone. Whoever finds that out answers what is
    /// open then: these must be among it, or not begin.
    fn opened(
        &self,
        stream: &StreamId,
        calls: &[Call],
        is_primed: bool,
        incarnation: &str,
    ) -> Result<Option<Reading>, Refusal> {
        let mut state = self.state();
        if state.ended {
            return Err(Refusal::unknown_session());
        }
        if state.running.as_deref() != Some(incarnation) {
            return Ok(None);
        }
        state.which.open(stream.clone(), calls.to_vec()).map_err(|duplicate| {
            Refusal::invalid(format!("{duplicate}: take another id, or cancel that request"))
        })?;
        if is_primed {
            state.which.resumable(stream);
        }
        Ok(Some(state.read(stream)))
    }

    /// The server was gone before it had taken this call.
    async fn not_taken(self: &Arc<Self>, stream: &StreamId, call: &Call) {
        let ends = {
            let mut state = self.state();
            let is_open = state.which.calls().any(|open| open.id == call.id);
            let ends = state.which.cancelled(&call.id).is_some();
            if ends {
                state.finishing.insert(stream.clone());
            }
            is_open.then_some(ends)
        };
        // Else it was answered with all others.
        if let Some(ends) = ends {
            self.say(stream, RequestId::mint(), not_started(&call.id)).await;
            if ends {
                self.finish(stream).await;
            }
        }
    }

    /// A stream is said to its end: nothing more is appended, and its reader is sent nothing more.
    pub(super) async fn finish(&self, stream: &StreamId) {
        closed(&self.session.stream(stream.clone())).await;
        self.state().finish(stream);
    }
}

/// What the names of streams of single calls begin with.
const CALL: &str = "call";
/// The same, where progress is told by another token than the id.
const TOLD: &str = "told";
/// What the names of streams of batches begin with.
const BATCH: &str = "batch";

/// What is on record as the origin of a stream, which has to be an id: that of its call. Of a batch all ids, and of a call whose
/// progress has another token both, as a text.
fn opened_by(calls: &[Call], is_batch: bool) -> Result<Json, Refusal> {
    let text = |parts: &[&str]| format!("[{}]", parts.join(","));
    if let ([call], false) = (calls, is_batch) {
        let both = call.token.as_deref().map(|token| text(&[&call.id, token]));
        return match both.filter(|both| both.len() <= ORIGIN_MAX) {
            Some(both) => Ok(Json::from(&serde_json::Value::String(both))),
            None => Json::new(&*call.id).map_err(|_| Refusal::invalid("an id is a string or a number")),
        };
    }
    let ids: Vec<&str> = calls.iter().map(|call| &*call.id).collect();
    let ids = text(&ids);
    if ids.len() > ORIGIN_MAX {
        return Err(Refusal::invalid("a batch with so many calls is not taken: send them one by one"));
    }
    Ok(Json::from(&serde_json::Value::String(ids)))
}

/// The calls that have opened a stream of this name, as [`opened_by`] has them on record.
pub(super) fn callers(opened_by: &Json, stream: &str) -> Vec<Call> {
    let text = serde_json::from_str::<String>(opened_by.as_str()).unwrap_or_default();
    let parts: Vec<&RawValue> = serde_json::from_str(&text).unwrap_or_default();
    let mut parts = parts.into_iter().map(|part| Id::from(part.get()));
    if stream.starts_with(BATCH) {
        return parts.map(|id| Call { id, token: None }).collect();
    }
    match (stream.starts_with(TOLD), parts.next(), parts.next()) {
        (true, Some(id), token @ Some(_)) => vec![Call { id, token }],
        _ => vec![Call { id: opened_by.as_str().into(), token: None }],
    }
}
