//! The streams of a session, and what is appended to them.

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::streams::{
    AppendRequest, Appended, ListStreamsRequest, OpenStreamRequest, Stream as View, StreamRef,
};
use mcp_sessiond_proto::{Json, RequestId, StreamId};

use super::Session;
use super::state::only;
use crate::error::SessionError;

/// A stream of a session's. Clones are the same stream.
#[derive(Debug, Clone)]
pub struct Stream {
    session: Session,
    id: StreamId,
}

impl Session {
    /// Opens a stream, unless it is open. `opened_by` is the id of the request that it answers, as
    /// JSON.
    ///
    /// # Errors
    /// `stream_closed`, `invalid_argument`; those of every change ([`Session::update`]).
    pub async fn open_stream(
        &self,
        id: &StreamId,
        opened_by: Option<Json>,
    ) -> Result<Stream, SessionError> {
        self.open(id, opened_by, None).await
    }

    /// The same with a last will: a message that the daemon appends, and with which it closes the
    /// stream, within a second after this process has exited, or when the next daemon starts, if
    /// the stream is still open then. A later call for the same stream puts another will in the
    /// place of the former one, also of another process.
    ///
    /// # Errors
    /// As [`Session::open_stream`].
    pub async fn open_stream_with_will(
        &self,
        id: &StreamId,
        opened_by: Option<Json>,
        will: Json,
    ) -> Result<Stream, SessionError> {
        self.open(id, opened_by, Some(will)).await
    }

    async fn open(
        &self,
        id: &StreamId,
        opened_by: Option<Json>,
        will: Option<Json>,
    ) -> Result<Stream, SessionError> {
        self.call(|connection, context, of| {
            let request = OpenStreamRequest {
                of,
                stream: id.clone(),
                opened_by: opened_by.clone(),
                will: will.clone(),
            };
            async move { connection.open_stream(context, request).await }
        })
        .await?;
        Ok(self.stream(id.clone()))
    }

    /// A stream that is open already. Nothing is asked.
    #[must_use]
    pub fn stream(&self, id: StreamId) -> Stream {
        Stream {
            session: self.clone(),
            id,
        }
    }

    /// The stream that takes what belongs to no request: it is always open.
    #[must_use]
    pub fn standalone(&self) -> Stream {
        self.stream(StreamId::standalone())
    }

    /// All streams, in order of their ids.
    ///
    /// # Errors
    /// `unknown_session`, `session_terminated`, `binding_mismatch`.
    pub async fn streams(&self) -> Result<Vec<View>, SessionError> {
        let mut all: Vec<View> = Vec::new();
        loop {
            let after = all.last().map(|last| last.stream.clone());
            let page = self.call(|connection, context, of| {
                let request = ListStreamsRequest {
                    of,
                    after: after.clone(),
                };
                async move { connection.list_streams(context, request).await }
            });
            let page = page.await?;
            let is_last = page.len() < PAGE_MAX;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }
}

impl Stream {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &StreamId {
        &self.id
    }

    /// The session whose stream it is.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Appends a message. It is kept, once, when this returns its id.
    ///
    /// # Errors
    /// `unknown_stream`, `stream_closed`, `invalid_argument`; those of every change
    /// ([`Session::update`]).
    ///
    /// ```no_run
    /// # async fn example(session: mcp_sessiond_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_sessiond_client::Json;
    ///
    /// let stream = session.open_stream(&"answer-7".parse()?, None).await?;
    /// stream.append(Json::new(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#)?).await?;
    /// let appended = stream.append_and_close(Json::new(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)?).await?;
    /// println!("id: {}", appended.id.0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append(&self, message: Json) -> Result<Appended, SessionError> {
        only(self.append_all(vec![Some(message)]).await?)
    }

    /// Appends up to 256 messages with 3 MiB together, all or none. None of a message: a priming
    /// event, which has an id and is not replayed.
    ///
    /// # Errors
    /// As [`Stream::append`].
    pub async fn append_all(
        &self,
        messages: Vec<Option<Json>>,
    ) -> Result<Vec<Appended>, SessionError> {
        // By this a repetition is known.
        self.append_as(RequestId::mint(), messages).await
    }

    /// As [`Stream::append_all`], with an idempotency key: repeating the call with the same
    /// `request`, also in another process, appends nothing and returns the first answer, as long as
    /// the events can still be replayed.
    ///
    /// # Errors
    /// As [`Stream::append`].
    pub async fn append_as(
        &self,
        request: RequestId,
        messages: Vec<Option<Json>>,
    ) -> Result<Vec<Appended>, SessionError> {
        self.appended(request, messages, false).await
    }

    /// Appends a message, and closes the stream with it in one step: whether this process is killed
    /// before or after that, the stream's last will does not follow on the message.
    ///
    /// # Errors
    /// As [`Stream::append`] and [`Stream::close`].
    pub async fn append_and_close(&self, message: Json) -> Result<Appended, SessionError> {
        only(
            self.append_and_close_as(RequestId::mint(), vec![Some(message)])
                .await?,
        )
    }

    /// As [`Stream::append_and_close`], of several messages and with an idempotency key, as in
    /// [`Stream::append_as`]. A repeated call closes the stream, too.
    ///
    /// # Errors
    /// As [`Stream::append_and_close`].
    pub async fn append_and_close_as(
        &self,
        request: RequestId,
        messages: Vec<Option<Json>>,
    ) -> Result<Vec<Appended>, SessionError> {
        self.appended(request, messages, true).await
    }

    async fn appended(
        &self,
        request: RequestId,
        messages: Vec<Option<Json>>,
        close: bool,
    ) -> Result<Vec<Appended>, SessionError> {
        self.session
            .call(|connection, context, of| {
                let request = AppendRequest {
                    of,
                    stream: self.id.clone(),
                    request: Some(request.clone()),
                    messages: messages.clone(),
                    close,
                };
                async move { connection.append(context, request).await }
            })
            .await
    }

    /// Appends a priming event: an id for a client to come back with, before there is a message.
    ///
    /// # Errors
    /// As [`Stream::append`].
    pub async fn prime(&self) -> Result<Appended, SessionError> {
        only(self.append_all(vec![None]).await?)
    }

    /// Closes the stream: nothing is appended any more. What it has said can be replayed.
    ///
    /// # Errors
    /// `unknown_stream`, `invalid_argument` for the standalone one; those of every change
    /// ([`Session::update`]).
    pub async fn close(&self) -> Result<View, SessionError> {
        self.session
            .call(|connection, context, of| {
                let request = StreamRef {
                    of,
                    stream: self.id.clone(),
                };
                async move { connection.close_stream(context, request).await }
            })
            .await
    }

    /// The stream's reader is gone: what is appended and is no answer goes to the standalone stream
    /// from now on.
    ///
    /// # Errors
    /// As [`Stream::close`].
    pub async fn orphan(&self) -> Result<View, SessionError> {
        self.session
            .call(|connection, context, of| {
                let request = StreamRef {
                    of,
                    stream: self.id.clone(),
                };
                async move { connection.orphan_stream(context, request).await }
            })
            .await
    }
}
