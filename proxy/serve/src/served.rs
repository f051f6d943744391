//! A session as requests see it: one that the daemon keeps, or one that nobody keeps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use mcp_sessiond_client::{Caller, EventId, SessionId};

use crate::live::Live;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::said::Posted;
use crate::tail::{Tail, resumed, standalone};
use crate::unkept::Unkept;

/// The body of a response that is a stream of events, part by part.
pub type Parts = BoxStream<'static, Bytes>;

/// A session.
#[derive(Debug, Clone)]
pub enum Served {
    /// The daemon keeps it.
    Kept(Arc<Live>),
    /// It ends with this process.
    Unkept(Arc<Unkept>),
}

impl Served {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        match self {
            Self::Kept(live) => live.id(),
            Self::Unkept(unkept) => unkept.id(),
        }
    }

    /// Its handshake.
    #[must_use]
    pub fn record(&self) -> &Record {
        match self {
            Self::Kept(live) => live.record(),
            Self::Unkept(unkept) => unkept.record(),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Kept(live) => live.has_ended(),
            Self::Unkept(unkept) => unkept.has_ended(),
        }
    }

    /// Checks that the session was made for this caller.
    ///
    /// # Errors
    /// 403.
    pub fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        match self {
            Self::Kept(live) => live.admit(caller),
            Self::Unkept(unkept) => unkept.admit(caller),
        }
    }

    /// Sends the server messages that want no answer.
    ///
    /// # Errors
    /// When there is no server to take them.
    pub async fn post(&self, messages: Vec<Posted>) -> Result<(), Refusal> {
        match self {
            Self::Kept(live) => live.post(messages).await,
            Self::Unkept(unkept) => unkept.post(messages).await,
        }
    }

    /// Sends the server the calls of a POST. Returns the stream of their answers.
    ///
    /// # Errors
    /// When there is no daemon or no server; when two calls have one id.
    pub async fn call(&self, messages: Vec<Posted>, is_batch: bool) -> Result<Parts, Refusal> {
        match self {
            Self::Kept(live) => live.call(messages, is_batch).await.map(parts),
            Self::Unkept(unkept) => unkept.call(messages).await,
        }
    }

    /// The standalone stream.
    ///
    /// # Errors
    /// When there is no daemon, or no server can be started.
    pub async fn listen(&self) -> Result<Parts, Refusal> {
        match self {
            Self::Kept(live) => standalone(live).await.map(parts),
            Self::Unkept(unkept) => unkept.listen(),
        }
    }

    /// A stream from an event on. None: it has ended, and that was its last event.
    ///
    /// # Errors
    /// When there is no such event, or no daemon.
    pub async fn resume(&self, event: EventId) -> Result<Option<Parts>, Refusal> {
        match self {
            Self::Kept(live) => Ok(resumed(live, event).await?.map(parts)),
            Self::Unkept(_) => Err(Refusal::invalid(
                "no stream can be resumed: `serve --unkept` runs without a daemon, and keeps no events",
            )),
        }
    }

    /// Attaches to the session's server, or starts one, so that a client that only listens hears
    /// it.
    ///
    /// # Errors
    /// When no server can be started.
    pub async fn wake(&self) -> Result<(), Refusal> {
        match self {
            Self::Kept(live) => live.wake().await,
            Self::Unkept(_) => Ok(()),
        }
    }

    /// For how long nobody has used this session of the caller. None: it is in use, or is another
    /// caller's.
    #[must_use]
    pub fn unused_for(&self, caller: &Caller) -> Option<Duration> {
        match self {
            Self::Kept(live) => live.unused_for(caller),
            Self::Unkept(unkept) => unkept.unused_for(caller),
        }
    }

    /// Ends it if nobody has used it for too long.
    pub async fn look(&self) {
        match self {
            Self::Kept(live) => live.look().await,
            Self::Unkept(unkept) => unkept.look().await,
        }
    }

    /// Ends the session, and its server.
    ///
    /// # Errors
    /// When the daemon could not be told. Then the session goes on.
    pub async fn end(&self) -> Result<(), Refusal> {
        match self {
            Self::Kept(live) => live.end().await,
            Self::Unkept(unkept) => {
                unkept.end().await;
                Ok(())
            }
        }
    }
}

fn parts(tail: Tail) -> Parts {
    let parts = futures::stream::unfold(tail, async |mut tail| {
        let part = tail.next().await?;
        Some((part, tail))
    });
    parts.boxed()
}
