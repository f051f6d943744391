//! What a client posts.

use std::sync::Arc;

use bytes::Bytes;
use mcp_sessiond_client::{
    Appended, Cursor, Error, Json, RequestId, SessionError, Stream, StreamId,
};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::delivery::close;
use super::tail::Tail;
use super::{EventReceiver, Live};
use crate::backend::{Backend, Ended};
use crate::messages::{
    Calls, Id, Posted, PostedKind, answering, asked_by, cancelling, not_started, outcome_unknown,
    to_server,
};
use crate::refusal::Refusal;
use crate::stream_router::StreamRouter;

/// Bytes that the ids of one POST may have together: the daemon keeps them as the origin of the
/// stream.
const ORIGIN_MAX: usize = 200;

impl Live {
    /// Sends the server messages that want no answer.
    ///
    /// # Errors
    /// When there is no server to take them.
    pub async fn post(self: &Arc<Self>, messages: Vec<Posted>) -> Result<(), Refusal> {
        self.state().called = Instant::now();
        let server = self.server().await?;
        for Posted { kind, line } in messages {
            let initialized = matches!(kind, PostedKind::Initialized);
            // A client says it again when it has sent `initialize` again. The server gets it once.
            if initialized && self.is_initialized(server.incarnation()) {
                continue;
            }
            let stream = match &kind {
                PostedKind::Cancelled(id) => self.state().router.stream_of(id).cloned(),
                _ => None,
            };
            let line = for_server(&kind, line, server.incarnation(), &mut self.state().router);
            let Some(line) = line else { continue };
            if let (PostedKind::Cancelled(id), Some(stream)) = (&kind, stream) {
                // At once, though the server may be busy, or gone.
                self.drop_call(&stream, id).await;
            }
            if server.send(line).await.is_err() {
                return Err(Refusal::for_now(
                    "the server has ended, and is started again",
                ));
            }
            if initialized {
                self.state().initialized = Some(server.incarnation().to_owned());
            }
        }
        Ok(())
    }

    /// A call is not to be answered any more. If it was the last one of its stream, the stream is
    /// closed.
    async fn drop_call(&self, stream: &StreamId, id: &str) {
        let ends = {
            let mut state = self.state();
            let ends = state.router.drop_call(stream, id) == Some(true);
            if ends {
                state.finishing.insert(stream.clone());
            }
            ends
        };
        if ends {
            self.finish(stream).await;
        }
    }

    /// Opens a stream for the answers to the calls of a POST, and sends the server the calls.
    ///
    /// # Errors
    /// When there is no daemon or no server; when two calls have one id.
    pub async fn call(
        self: &Arc<Self>,
        messages: Vec<Posted>,
        is_batch: bool,
    ) -> Result<Tail, Refusal> {
        self.state().called = Instant::now();
        let Calls { calls, lines, rest } = Calls::of(messages)?;
        if !rest.is_empty() {
            self.post(rest).await?;
        }
        let origin = origin(&calls, is_batch)?;
        loop {
            let server = self.server().await?;
            // A batch has several answers, and a will is one message.
            let will = calls
                .first()
                .filter(|_| !is_batch && !server.outlasts())
                .map(|id| outcome_unknown(id));
            let (opened, primed) = self
                .open(server.incarnation(), is_batch, &origin, will)
                .await?;
            let stream = opened.id().clone();
            match self.opened(&stream, &calls, server.incarnation()) {
                Ok(Some(reading)) => {
                    let untold = self.state().untold.take();
                    if let Some(untold) = untold {
                        // Before its answer.
                        self.store(&stream, RequestId::mint(), untold).await;
                    }
                    self.send(&*server, &stream, &calls, lines).await;
                    return Ok(self.tail(stream, &primed, reading));
                }
                // The server has ended meanwhile.
                Ok(None) => drop(opened.close().await),
                Err(refusal) => {
                    drop(opened.close().await);
                    return Err(refusal);
                }
            }
        }
    }

    async fn open(
        &self,
        incarnation: &str,
        is_batch: bool,
        origin: &Json,
        will: Option<Json>,
    ) -> Result<(Stream, Appended), Refusal> {
        let (first, second) = (name(incarnation, is_batch)?, name(incarnation, is_batch)?);
        self.within_hold(async {
            let is_full = |error: &SessionError| error.refusal().is_some_and(Error::is_of_memory);
            match self.open_as(&first, origin, will.clone()).await {
                Err(error) if is_full(&error) && self.prune_events().await => {
                    self.open_as(&second, origin, will).await
                }
                opened => opened,
            }
        })
        .await
    }

    async fn open_as(
        &self,
        stream: &StreamId,
        origin: &Json,
        will: Option<Json>,
    ) -> Result<(Stream, Appended), SessionError> {
        let origin = Some(origin.clone());
        let opened = match will {
            Some(will) => {
                self.session
                    .open_stream_with_will(stream, origin, will)
                    .await?
            }
            None => self.session.open_stream(stream, origin).await?,
        };
        match opened.prime().await {
            Ok(primed) => Ok((opened, primed)),
            Err(error) => {
                drop(opened.close().await);
                Err(error)
            }
        }
    }

    async fn send(&self, server: &dyn Backend, stream: &StreamId, calls: &[Id], lines: Vec<Bytes>) {
        for (id, line) in calls.iter().zip(lines) {
            if let Err(Ended { may_have_arrived }) =
                server.send(to_server(&line, stream.as_str())).await
            {
                self.call_not_sent(
                    stream,
                    id,
                    if may_have_arrived {
                        outcome_unknown
                    } else {
                        not_started
                    },
                )
                .await;
            }
        }
    }

    fn tail(self: &Arc<Self>, stream: StreamId, primed: &Appended, reading: EventReceiver) -> Tail {
        let after = Cursor::Event(primed.id.clone());
        let mut tail = Tail::new(self.clone(), stream, primed.position, after, Some(reading));
        tail.prime(&primed.id);
        tail
    }

    /// Notes the calls as open on this stream, and their client as its reader. None: the server has
    /// ended. The task that notices its end answers every call that is open then, so that a call is
    /// noted before that, or not at all.
    fn opened(
        &self,
        stream: &StreamId,
        calls: &[Id],
        incarnation: &str,
    ) -> Result<Option<EventReceiver>, Refusal> {
        let mut state = self.state();
        if state.ended {
            return Err(Refusal::unknown_session());
        }
        if state.running.as_deref() != Some(incarnation) {
            return Ok(None);
        }
        state.router.open(stream.clone(), calls.to_vec());
        // A client of an older version may know no event that is not a message.
        if self.record.primes() {
            state.router.set_resumable(stream);
        }
        Ok(Some(state.read(stream)))
    }

    /// The server ended before it had acknowledged this call, which is answered with this error.
    async fn call_not_sent(&self, stream: &StreamId, id: &str, error: fn(&str) -> Json) {
        let ends = {
            let mut state = self.state();
            let ends = state.router.drop_call(stream, id);
            if ends == Some(true) {
                state.finishing.insert(stream.clone());
            }
            ends
        };
        // None: it was answered with all others that were open.
        match ends {
            Some(true) => drop(self.store_last(stream, RequestId::mint(), error(id)).await),
            Some(false) => drop(self.store(stream, RequestId::mint(), error(id)).await),
            None => {}
        }
    }

    /// Closes a stream, and ends its reader's connection.
    pub(super) async fn finish(&self, stream: &StreamId) {
        close(&self.session.stream(stream.clone())).await;
        self.state().finish(stream);
    }
}

/// A message that wants no answer, as this server gets it. None: it is about a request of a former
/// server.
fn for_server(
    kind: &PostedKind,
    line: Bytes,
    incarnation: &str,
    router: &mut StreamRouter,
) -> Option<Bytes> {
    Some(match kind {
        PostedKind::Answer(id) => {
            let asked = asked_by(incarnation, id)?;
            router.request_answered(&asked);
            answering(&line, &asked)
        }
        PostedKind::Progress(token) => answering(&line, &asked_by(incarnation, token)?),
        PostedKind::Cancelled(id) => match router.stream_of(id) {
            Some(stream) => cancelling(&line, stream),
            None => line,
        },
        _ => line,
    })
}

/// What the names of streams of single calls begin with.
const CALL: &str = "call";
/// What the names of streams of batches begin with.
const BATCH: &str = "batch";

/// A name for a stream that nobody has. It tells which server its calls are sent to.
fn name(incarnation: &str, is_batch: bool) -> Result<StreamId, Refusal> {
    let kind = if is_batch { BATCH } else { CALL };
    let name = format!("{kind}-{incarnation}-{}", RequestId::mint());
    name.parse()
        .map_err(|_| Refusal::invalid("there is no name for a stream"))
}

/// Whether the calls of a stream of this name were sent to that server, if they were sent at all.
pub(super) fn is_for(stream: &StreamId, incarnation: &str) -> bool {
    let of_server = stream
        .as_str()
        .split_once('-')
        .and_then(|(_, rest)| rest.rsplit_once('-'));
    of_server.is_some_and(|(of_server, _)| of_server == incarnation)
}

/// What the daemon keeps as the origin of a stream, which has to be an id: that of its call. The
/// ids of a batch as one text.
fn origin(calls: &[Id], is_batch: bool) -> Result<Json, Refusal> {
    if let ([id], false) = (calls, is_batch) {
        return Json::new(&**id).map_err(|_| Refusal::invalid("an id is a string or a number"));
    }
    let ids = format!("[{}]", calls.join(","));
    if ids.len() > ORIGIN_MAX {
        return Err(Refusal::invalid(
            "the batch has too many calls: send them one by one",
        ));
    }
    Ok(Json::from(&serde_json::Value::String(ids)))
}

/// The calls of a stream, of which [`origin`] is on record.
pub(super) fn calls_of(stream: &StreamId, origin: &Json) -> Vec<Id> {
    if !stream.as_str().starts_with(BATCH) {
        return vec![origin.as_str().into()];
    }
    let text = serde_json::from_str::<String>(origin.as_str()).unwrap_or_default();
    let ids: Vec<&RawValue> = serde_json::from_str(&text).unwrap_or_default();
    ids.into_iter().map(|id| id.get().into()).collect()
}
