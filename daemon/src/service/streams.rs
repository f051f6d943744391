//! Streams that are opened, perhaps with a last will, and closed, perhaps with their last messages.

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::streams::{AppendRequest, Appended, OpenStreamRequest, Stream, StreamRef};

use super::Conversation;
use crate::contents::Of;

impl Conversation {
    /// Opens a stream. The author of its will is the peer.
    pub(super) async fn open_stream(&self, request: OpenStreamRequest) -> Result<Stream, Error> {
        let access = self.access(&request.of).await?;
        let wills = &self.daemon.wills;
        let author = request.will.as_ref().map(|_| wills.author(&self.peer));
        if author.is_some() {
            self.daemon.fleet.needed().await?;
        }
        let opened = self
            .daemon
            .contents
            .open_stream(&access, &request, author.as_deref())
            .await?;
        if author.is_some() {
            wills.made(self.peer.clone(), access.place, Of::Stream(request.stream))?;
        }
        Ok(opened)
    }

    /// Appends messages, and closes the stream with them if the request says so.
    pub(super) async fn append(&self, request: AppendRequest) -> Result<Vec<Appended>, Error> {
        let access = self.access(&request.of).await?;
        let appended = self.daemon.contents.append(&access, &request).await?;
        if request.close {
            self.daemon
                .wills
                .closed(&access.place, &Of::Stream(request.stream));
        }
        Ok(appended)
    }

    pub(super) async fn close_stream(&self, request: StreamRef) -> Result<Stream, Error> {
        let access = self.access(&request.of).await?;
        let closed = self.daemon.contents.close_stream(&access, &request).await?;
        self.daemon
            .wills
            .closed(&access.place, &Of::Stream(request.stream));
        Ok(closed)
    }
}
