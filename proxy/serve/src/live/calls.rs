//! What a client posts.

use std::sync::Arc;

use bytes::Bytes;
use mcp_sessiond_client::{
    Appended, Cursor, Error, Json, RequestId, SessionError, Stream, StreamId,
};
use mcp_sessiond_http_session::messages::{Id, to_server};
use mcp_sessiond_http_session::origin::{origin, stream_name};
use mcp_sessiond_http_session::posted::{Calls, Posted};
use mcp_sessiond_http_session::session::{Effect, Opened};
use mcp_sessiond_http_session::substitute::outcome_unknown;

use super::delivery::close;
use super::tail::Tail;
use super::{EventReceiver, Live};
use crate::backend::{Backend, Ended};
use crate::refusal::{Refusal, malformed};

impl Live {
    /// Sends the server messages that want no answer.
    ///
    /// # Errors
    /// When there is no server to take them.
    pub async fn post(self: &Arc<Self>, messages: Vec<Posted>) -> Result<(), Refusal> {
        self.state().session.used(self.now());
        let server = self.server().await?;
        for posted in messages {
            let effects = self.state().session.posted(&posted, server.incarnation());
            for effect in effects {
                let Effect::ToServer(line) = effect else {
                    self.carry_out([effect]).await;
                    continue;
                };
                if server.send(line).await.is_err() {
                    return Err(Refusal::for_now(
                        "the server has ended, and is started again",
                    ));
                }
            }
        }
        Ok(())
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
        self.state().session.used(self.now());
        let calls_tool = messages.iter().any(|posted| posted.calls_tool);
        let Calls { calls, lines, rest } = Calls::of(messages).map_err(malformed)?;
        if !rest.is_empty() {
            self.post(rest).await?;
        }
        let origin = origin(&calls, is_batch).ok_or_else(|| {
            Refusal::invalid(match is_batch {
                true => "the batch has too many calls: send them one by one",
                false => "the id of the request is too long",
            })
        })?;
        loop {
            let server = self.server().await?;
            // A batch has several answers, and a will is one message.
            let will = calls
                .first()
                .filter(|_| !is_batch && !server.outlasts())
                .map(|id| outcome_unknown(id));
            let (opened, primed) = self.open(&*server, &calls, is_batch, &origin, will).await?;
            let stream = opened.id().clone();
            if calls_tool {
                self.state().losses.call_begins(stream.clone());
            }
            let sending = self.sending.read().await;
            match self.opened(&stream, server.incarnation()) {
                Ok(Some(reading)) => {
                    if self.send(&*server, &stream, &calls, &lines).await {
                        return Ok(self.tail(stream, &primed, reading));
                    }
                    let mut state = self.state();
                    state.session.not_opened(&stream);
                }
                // The server has ended meanwhile.
                Ok(None) => {}
                Err(refusal) => {
                    self.state().losses.call_ends(&stream);
                    drop(opened.close().await);
                    return Err(refusal);
                }
            }
            self.state().losses.call_ends(&stream);
            drop(sending);
            drop(opened.close().await);
            self.left(server.incarnation()).await?;
        }
    }

    async fn open(
        &self,
        server: &dyn Backend,
        calls: &[Id],
        is_batch: bool,
        origin: &Json,
        will: Option<Json>,
    ) -> Result<(Stream, Appended), Refusal> {
        let name = || {
            stream_name(server.incarnation(), is_batch, &RequestId::mint())
                .ok_or_else(|| Refusal::invalid("there is no name for a stream"))
        };
        let (first, second) = (name()?, name()?);
        let begin = |stream: &StreamId| {
            let mut state = self.state();
            let calls = calls.to_vec();
            state.session.begin(stream.clone(), calls, self.now());
        };
        let opened = self.within_hold(async {
            let is_full = |error: &SessionError| error.refusal().is_some_and(Error::is_of_memory);
            begin(&first);
            match self.open_as(&first, origin, will.clone()).await {
                Err(error) if is_full(&error) && self.prune_events().await => {
                    begin(&second);
                    self.open_as(&second, origin, will).await
                }
                opened => opened,
            }
        });
        let opened = opened.await;
        for stream in [first, second] {
            if !matches!(&opened, Ok((opened, _)) if *opened.id() == stream) {
                self.state().session.not_opened(&stream);
            }
        }
        opened
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

    /// Sends the server the calls of a stream. False: it has ended, and has got none of them.
    async fn send(
        &self,
        server: &dyn Backend,
        stream: &StreamId,
        calls: &[Id],
        lines: &[Bytes],
    ) -> bool {
        for (nth, (id, line)) in calls.iter().zip(lines).enumerate() {
            if let Err(Ended { may_have_arrived }) =
                server.send(to_server(line, stream.as_str())).await
            {
                if nth == 0 && !may_have_arrived {
                    return false;
                }
                let effects = self.state().session.not_sent(stream, id, may_have_arrived);
                self.carry_out(effects).await;
            }
        }
        true
    }

    fn tail(self: &Arc<Self>, stream: StreamId, primed: &Appended, reading: EventReceiver) -> Tail {
        let after = Cursor::Event(primed.id.clone());
        let mut tail = Tail::new(self.clone(), stream, primed.position, after, Some(reading));
        tail.prime(&primed.id);
        tail
    }

    /// The calls are open on this stream, and their client is its reader. None: the server has ended.
    fn opened(
        &self,
        stream: &StreamId,
        incarnation: &str,
    ) -> Result<Option<EventReceiver>, Refusal> {
        let mut state = self.state();
        // A client of an older version may know no event that is not a message.
        let primed = self.handshake.primes();
        match state.session.opened(stream, incarnation, primed) {
            Opened::Ended => Err(Refusal::unknown_session()),
            Opened::ServerGone => Ok(None),
            Opened::Open => Ok(state.read(stream, self.now())),
        }
    }

    /// Closes a stream, and ends its reader's connection.
    pub(super) async fn finish(&self, stream: &StreamId) {
        close(&self.session.stream(stream.clone())).await;
        self.state().finish(stream, self.now());
    }
}
