//! What a stream has said since the client has gone, then what it says: out of the daemon,
//! whichever process says it.

use std::time::Duration;

use mcp_sessiond_proto::streams::{Cursor, EventId, Gap, Replayed};
use mcp_sessiond_proto::{Error, Json, StreamId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::handshake::key;
use super::writer::Writer;
use crate::error::SessionError;
use crate::session::Session;

/// The key of the state that tells how much of the standalone stream was sent: an event id.
const SENT: &str = "mcp.standalone";
/// The first version of MCP whose clients take an event without data.
const PRIMES: &str = "2025-11-25";
/// Between two attempts while the daemon is away.
const AWAY: Duration = Duration::from_secs(1);

/// One reading of a stream.
pub(super) struct Tail {
    pub(super) session: Session,
    pub(super) stream: StreamId,
    /// The id for the client to come back with, before there is a message.
    pub(super) primed: Option<EventId>,
    after: Cursor,
    /// The id of the request that the stream answers.
    opened_by: Option<Value>,
}

/// Whether clients of this version of MCP take an event without data.
pub(super) fn primes(version: &str) -> bool {
    version >= PRIMES
}

impl Tail {
    /// Of a stream from its beginning on, or from this event, which the client gets first.
    pub(super) fn fresh(
        session: Session,
        stream: StreamId,
        primed: Option<EventId>,
        opened_by: Value,
    ) -> Self {
        let after = primed
            .clone()
            .map_or(Cursor::Stream(stream.clone()), Cursor::Event);
        Self {
            session,
            stream,
            primed,
            after,
            opened_by: Some(opened_by),
        }
    }

    /// What a GET reads. `version`: of MCP, where the client has told it. None: the stream was said
    /// to its end.
    pub(super) async fn begin(
        session: Session,
        last: Option<&str>,
        version: Option<&str>,
    ) -> Result<Option<Self>, SessionError> {
        let does_prime = version.is_some_and(primes);
        if let Some(last) = last {
            let last = EventId(last.to_owned());
            let found = session.find_event(&last).await?;
            let opened_by = found
                .stream
                .opened_by
                .as_ref()
                .and_then(|id| serde_json::from_str(id.as_str()).ok());
            let (stream, primed) = (found.stream.stream, does_prime.then(|| last.clone()));
            let tail = Self {
                session,
                stream,
                primed,
                after: Cursor::Event(last),
                opened_by,
            };
            return Ok((!found.ended).then_some(tail));
        }
        let stream = StreamId::standalone();
        let after = sent(&session)
            .await?
            .map_or(Cursor::Stream(stream.clone()), Cursor::Event);
        let mut tail = Self {
            session,
            stream,
            primed: None,
            after,
            opened_by: None,
        };
        if does_prime {
            tail.prime().await?;
        }
        Ok(Some(tail))
    }

    async fn prime(&mut self) -> Result<(), SessionError> {
        if let Cursor::Event(id) = &self.after {
            self.primed = Some(id.clone());
            return Ok(());
        }
        let streams = self.session.streams().await?;
        // An id beyond a message that was not sent would lose it; so would none, which the first
        // message makes up for.
        if streams
            .iter()
            .all(|stream| stream.stream != self.stream || stream.events == 0)
        {
            let id = self.session.standalone().prime().await?.id;
            self.after = Cursor::Event(id.clone());
            self.primed = Some(id);
        }
        Ok(())
    }

    /// The client was told this event.
    pub(super) fn is_past(&mut self, id: Option<EventId>) {
        if let Some(id) = id {
            self.after = Cursor::Event(id);
        }
    }

    /// Writes until the stream has ended.
    pub(super) async fn follow(mut self, writer: &Writer) {
        let mut waits = false;
        loop {
            let page = if waits {
                self.session
                    .wait(std::slice::from_ref(&self.after), writer.pause())
                    .await
            } else {
                self.session.replay(&self.after).await
            };
            match page {
                Ok(page) => {
                    waits = !page.more;
                    if self.is_last(page, writer).await {
                        return;
                    }
                }
                Err(error) if error.passes() => {
                    writer.comment().await;
                    sleep(AWAY).await;
                }
                Err(_) => return,
            }
        }
    }

    /// Writes a page. Whether it is the last one.
    async fn is_last(&mut self, page: Replayed, writer: &Writer) -> bool {
        let Replayed {
            events,
            gaps,
            next,
            ended,
            ..
        } = page;
        for gap in &gaps {
            writer.event(None, &lost(gap)).await;
        }
        let mut is_last = !ended.is_empty();
        for event in &events {
            writer.event(Some(&event.id), event.message.as_str()).await;
            if self.is_answer(&event.message) {
                // With a daemon that is older than `close` of `append`, a will may follow: that of
                // a process that was killed before it had closed the stream. It is no answer any
                // more.
                is_last = true;
                break;
            }
        }
        match events.last() {
            Some(last) if self.stream == StreamId::standalone() => {
                // Where that fails the next reader may get these again.
                let _ = self.session.set_as(&key(SENT), &last.id.0).await;
            }
            None if gaps.is_empty() && !is_last => writer.comment().await,
            _ => {}
        }
        self.after = next
            .into_iter()
            .next()
            .unwrap_or_else(|| self.after.clone());
        is_last
    }

    /// Whether a message is the answer with which the stream ends.
    fn is_answer(&self, message: &Json) -> bool {
        #[derive(Deserialize)]
        struct Message {
            method: Option<IgnoredAny>,
            id: Option<Value>,
        }
        let Some(asked) = &self.opened_by else {
            return false;
        };
        serde_json::from_str::<Message>(message.as_str())
            .is_ok_and(|message| message.method.is_none() && message.id.as_ref() == Some(asked))
    }
}

/// The last event of the standalone stream that a client was sent, if it is still known.
async fn sent(session: &Session) -> Result<Option<EventId>, SessionError> {
    let Some(id) = session.get_as::<String>(&key(SENT)).await?.map(EventId) else {
        return Ok(None);
    };
    match session.find_event(&id).await {
        Ok(_) => Ok(Some(id)),
        Err(error) if matches!(error.refusal(), Some(Error::UnknownCursor)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a client is told of events that were deleted before it fetched them.
fn lost(gap: &Gap) -> String {
    let count = gap.last.saturating_sub(gap.first).saturating_add(1);
    let were = if count == 1 {
        "message of this stream was"
    } else {
        "messages of this stream were"
    };
    let data = format!("{count} {were} deleted before the client fetched them");
    let params = json!({"level": "warning", "logger": "mcp-sessiond", "data": data});
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string()
}
