//! What the user should know of a session with a server.

/// What has become of the session. As text it is a sentence without a subject, which follows on the
/// server's name and a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum News {
    /// That of the former process goes on.
    #[error("the session that an earlier connection had with the server goes on")]
    Resumed,
    /// The server does not know it any more.
    #[error(
        "a new session was begun, since the server has forgotten the previous one: what was in that is lost"
    )]
    Forgotten,
    /// Some of its nodes know it, and others don't.
    #[error(
        "a new session was begun, since the server has several nodes, and the requests of one session do not all reach the same node: what was in the previous one is lost"
    )]
    Scattered,
    /// The user has logged in or out since it was begun.
    #[error(
        "a new session was begun, since the previous one belongs to another login: what was in that is lost"
    )]
    OtherLogin,
    /// It is at another URL, or the headers are others.
    #[error(
        "a new session was begun, since the URL or the headers have changed: what was in the previous one is lost"
    )]
    OtherEntry,
    /// A host has said `initialize` with other words.
    #[error(
        "a new session was begun, since the host introduces itself differently now: what was in the previous one is lost"
    )]
    OtherHost,
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
    /// The server does not answer in it.
    #[error(
        "a new session was begun, since the server does not answer in the previous one: what was in that is lost"
    )]
    Silent,
}

impl News {
    /// Whether a new session was begun, and what was in the previous one is lost.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(
            self,
            Self::Forgotten
                | Self::Scattered
                | Self::OtherLogin
                | Self::OtherEntry
                | Self::OtherHost
                | Self::Silent
        )
    }
}
