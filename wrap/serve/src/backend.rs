//! What stands between HTTP and a server.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_client::Session;

use crate::which::Id;

/// The backend is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server has ended")]
pub struct Ended;

/// One session's server, which takes lines and says lines.
pub trait Backend: Send + Sync {
    /// Hands it a line, without a newline. Returns when the line is taken: from then on it is not lost with this process, if
    /// the backend is not.
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>>;

    /// The next line that it has said, with its number, which no other line of this incarnation has. None: it is gone. One caller
    /// at a time.
    fn next(&self) -> BoxFuture<'_, Option<(u64, Bytes)>>;

    /// The line of this number is kept elsewhere, as all are that came before it.
    fn confirm(&self, number: u64);

    /// The ids of calls that it has taken and not answered.
    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>>;

    /// Ends it.
    fn end(&self) -> BoxFuture<'_, ()>;

    /// What tells it from every other one, and from what it was before it was started anew: the numbers of its lines are its own.
    fn incarnation(&self) -> &str;

    /// Whether it has served this session before, so that it knows its handshake.
    fn continues(&self) -> bool;
}

/// Where backends come from.
pub trait Backends: Send + Sync {
    /// The backend of a session: the one that there is, or a new one.
    ///
    /// # Errors
    /// Those of starting a program, or of reaching one.
    fn backend<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, io::Result<Arc<dyn Backend>>>;
}
