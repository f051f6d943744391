//! What the engine must do for the registry, in order.

use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_identity::ProcessId;
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error, Loss, LossRecord, SessionId};

use super::{KeeperRecord, Record, RecordKey, TokenFile};

/// Names a claim until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A granted claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The number of the lease.
    pub epoch: Epoch,
    /// How the claim came to it.
    pub outcome: Outcome,
    /// What was lost before, and is told now.
    pub because: Option<Loss>,
    /// What is on record of that, and of the members of its session.
    pub lost: Vec<LossRecord>,
    /// The file that its token is in.
    pub file: TokenFile,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Put this on record, new or changed.
    Save(Record),
    /// Forget what is on record under this key. Where that is a claimant, its process is not watched
    /// from then on, unless something else [depends](super::Registry::depends_on) on it.
    Drop(RecordKey),
    /// Have a keeper end, which takes its backend down.
    EndKeeper(ProcessId),
    /// A keeper has exited: kill what is left of its backend, and then tell
    /// [`super::Registry::swept`].
    SweepBackend(KeeperRecord),
    /// Tell people that a session ends which nobody could resume, and what the host has lost by
    /// that, where it is something.
    Unreachable {
        /// The session.
        session: SessionId,
        /// What people know its server by.
        server: String,
        /// The pid of its host.
        host: u32,
        /// What is lost.
        loss: Option<Loss>,
    },
    /// End what is left of it elsewhere, under the id that its owner knew.
    EndContents(ProcessId, SessionId),
    /// Delete a token file, if it is there.
    DeleteToken(TokenFile),
    /// Answer a claim, once everything before this is on record.
    Answer(Ticket, Result<Lease, Error>),
}
