//! What the user should know of a session with a server.

use mcp_sessiond_proto::Loss;

/// What has become of the session. As text it is a sentence without a subject, which follows on the
/// server's name and a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum News {
    /// That of the former process goes on.
    #[error("the session that an earlier connection had with the server goes on")]
    Resumed,
    /// A new session was begun, and what was in the previous one is lost.
    #[error("{}", .0.notice())]
    Lost(Loss),
    /// A call of a former connection was answered. Nobody waits for that.
    #[error(
        "the answer to a call of an earlier connection was dropped: the host no longer waits for it"
    )]
    FormerAnswered,
    /// Nobody knows what has become of a call of a former connection.
    #[error("the outcome of a call of an earlier connection is unknown")]
    FormerUnknown,
    /// An event of the stream that belongs to no call could not be read.
    #[error(
        "a message of it is larger than `wrap.message_max_mib` allows and was not passed on; what follows it may be missing, too"
    )]
    TooLarge,
}
