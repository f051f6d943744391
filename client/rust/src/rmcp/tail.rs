//! What a stream has said since the client has gone, then what it says: out of the daemon,
//! whichever process says it.

use std::time::Duration;

use mcp_sessiond_http_session::handshake::primes;
use mcp_sessiond_http_session::reader::{EventReader, Part};
use mcp_sessiond_proto::streams::{Appended, Cursor, EventId, FoundEvent};
use mcp_sessiond_proto::{Error, StreamId};
use tokio::time::sleep;

use super::handshake::key;
use super::writer::Writer;
use crate::error::SessionError;
use crate::session::Session;

/// The key of the state that tells how much of the standalone stream was sent: an event id.
const SENT: &str = "mcp.standalone";
/// Between two attempts while the daemon is away.
const AWAY: Duration = Duration::from_secs(1);

/// What is told of an event that a client is sent which has come back.
pub(super) type Replayed = Box<dyn Fn(&EventId) + Send + Sync>;

/// One reading of a stream.
pub(super) struct Tail {
    pub(super) session: Session,
    /// Is told of each event that the client is sent.
    replayed: Option<Replayed>,
    /// The id for the client to come back with, before there is a message.
    pub(super) primed: Option<EventId>,
    pub(super) reader: EventReader,
}

impl Tail {
    /// Of a stream from its beginning on, or from this event, which the client gets first.
    pub(super) fn fresh(session: Session, stream: StreamId, primed: Option<Appended>) -> Self {
        let Some(Appended { id, position, .. }) = primed else {
            let after = Cursor::Stream(stream.clone());
            return Self {
                session,
                replayed: None,
                primed: None,
                reader: EventReader::new(stream, 0, after),
            };
        };
        Self {
            session,
            replayed: None,
            primed: Some(id.clone()),
            reader: EventReader::new(stream, position, Cursor::Event(id)),
        }
    }

    /// What a GET reads. `version`: of MCP, where the client has told it. None: the stream was said
    /// to its end.
    pub(super) async fn begin(
        session: Session,
        replayed: Option<Replayed>,
        last: Option<&str>,
        version: Option<&str>,
    ) -> Result<Option<Self>, SessionError> {
        let does_prime = version.is_some_and(primes);
        let (last, found) = match last.map(|last| EventId(last.to_owned())) {
            Some(last) => {
                let found = session.find_event(&last).await?;
                (Some(last), Some(found))
            }
            None => sent(&session).await?.unzip(),
        };
        if let (Some(last), Some(found)) = (last, found) {
            let (stream, primed) = (found.stream.stream, does_prime.then(|| last.clone()));
            let tail = Self {
                session,
                replayed,
                primed,
                reader: EventReader::new(stream, found.position, Cursor::Event(last)),
            };
            return Ok((!found.ended).then_some(tail));
        }
        // An id beyond a message that was not sent would lose it; so would none, which the first
        // message makes up for.
        let standalone = StreamId::standalone();
        let is_empty = does_prime
            && session
                .streams()
                .await?
                .iter()
                .all(|stream| stream.stream != standalone || stream.events == 0);
        let primed = match is_empty {
            true => Some(session.standalone().prime().await?),
            false => None,
        };
        Ok(Some(Self {
            replayed,
            ..Self::fresh(session, standalone, primed)
        }))
    }

    /// Writes until the stream has ended.
    pub(super) async fn follow(mut self, writer: &Writer) {
        let mut waits = false;
        loop {
            let page = if waits {
                let after = std::slice::from_ref(self.reader.after());
                self.session.wait(after, writer.pause()).await
            } else {
                self.session.replay(self.reader.after()).await
            };
            match page {
                Ok(page) => {
                    waits = !page.more;
                    let (parts, has_ended) = self.reader.page(page);
                    self.write(parts, has_ended, writer).await;
                    if has_ended {
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

    async fn write(&self, parts: Vec<Part>, has_ended: bool, writer: &Writer) {
        if parts.is_empty() && !has_ended {
            writer.comment().await;
        }
        let mut last = None;
        for Part { text, event } in parts {
            if let (Some((_, id)), Some(replayed)) = (&event, &self.replayed) {
                replayed(id);
            }
            writer.write(text).await;
            last = event.or(last);
        }
        if let Some((_, EventId(id))) = last
            && self.reader.stream().as_str() == StreamId::STANDALONE
        {
            // Where that fails the next reader may get these again.
            let _ = self.session.set_as(&key(SENT), &id).await;
        }
    }
}

/// The last event of the standalone stream that a client was sent, if it is still known.
async fn sent(session: &Session) -> Result<Option<(EventId, FoundEvent)>, SessionError> {
    let Some(id) = session.get_as::<String>(&key(SENT)).await?.map(EventId) else {
        return Ok(None);
    };
    match session.find_event(&id).await {
        Ok(found) => Ok(Some((id, found))),
        Err(error) if matches!(error.refusal(), Some(Error::UnknownCursor)) => Ok(None),
        Err(error) => Err(error),
    }
}
