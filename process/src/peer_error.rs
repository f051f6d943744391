//! Why a peer is turned away.

use std::io;

/// A peer that nobody should talk to.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It is another user's.
    #[error("the peer belongs to user {0}, not to ours")]
    OtherUid(u32),
    /// It is in another pid namespace, so that nothing can be said about its parents.
    #[error("the peer is in another pid namespace")]
    OtherNamespace,
    /// Its pid is that of one process, and another one writes: a child that has inherited the
    /// connection, or who was handed it.
    #[error(
        "the connection was opened by process {connected}, and process {writer} writes on it; before Linux 6.5 they must be the same"
    )]
    AnotherWriter {
        /// Who has the pid of the one that opened the connection.
        connected: u32,
        /// Who writes; 0 where it is in another pid namespace.
        writer: u32,
    },
    /// It has not written back what it was sent.
    #[error("the peer has given a wrong answer to the question who it is")]
    WrongAnswer,
    /// It listens, and does not hold the lock by which it would be known.
    #[error(
        "whether process {0} listens there can't be determined: before Linux 6.5 it must hold a lock, and does not"
    )]
    NoLock(u32),
    /// The system does not let us hold processes.
    #[error("the peer can't be held (pidfd_open, Linux 5.3): {0}")]
    NotHeld(io::Error),
    /// It has exited, or hung up.
    #[error("the peer has exited, or hung up")]
    Gone,
    /// The system would not say.
    #[error("the peer can't be identified: {0}")]
    Io(#[from] io::Error),
}
