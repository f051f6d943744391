//! What the engine must do for the registry, in order.

use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_identity::{Key, ProcessId, StartTime};
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error, Loss, LossId, LossRecord, ServiceName, SessionId};

use super::{
    BackendOf, Claimant, KeeperRecord, OwnerRecord, ServerRecord, ServiceRecord, ServiceSession,
    SessionRecord, TokenFile,
};

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
    /// Record an owner, new or changed.
    SaveOwner(OwnerRecord),
    /// Forget an owner.
    DropOwner(ProcessId),
    /// Record what was read of a process.
    SaveClaimant(ProcessId, Claimant),
    /// Forget it, and stop watching that process, unless something else
    /// [depends](super::Registry::depends_on) on it.
    DropClaimant(ProcessId),
    /// Record a session, new or changed.
    SaveSession(SessionRecord),
    /// Forget a session.
    DropSession(SessionId),
    /// Record a service, new or changed.
    SaveService(ServiceRecord),
    /// Forget a service.
    DropService(ServiceName),
    /// Record what a session of a service has lost.
    SaveServiceLoss(ServiceSession, LossRecord),
    /// Forget it: it was told, or the session has ended.
    DropServiceLoss(LossId),
    /// Record a keeper, new or changed, and its session. Without one it has to end.
    SaveKeeper(Option<BackendOf>, KeeperRecord),
    /// Forget a keeper that has exited, and whose backend is gone.
    DropKeeper(ProcessId),
    /// Record what is known of a server, new or changed.
    SaveServer(ServerRecord),
    /// Forget it.
    DropServer(ServerDigest),
    /// Record that the records of an earlier daemon were lost, and when this daemon was started.
    SaveLostRecords(StartTime),
    /// Record that the claim of a server has carried that.
    SaveLostTold(ProcessId, Key),
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
