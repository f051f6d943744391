//! What is different between those that serve sessions.

/// What is different between those that serve sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Whether the messages of a stream without a reader go to the standalone stream, answers and
    /// progress excepted.
    pub redirect: bool,
    /// Whether the server tells of each message that belongs to a call to which one, but of lines
    /// for the client's log: then what it does not tell it of belongs to none.
    pub attributes: bool,
}
