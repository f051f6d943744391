//! What is on record, and survives the daemon.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mcp_sessiond_identity::{Key, ProcessId, Traits};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::{Epoch, Label, RequestId, SessionId};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Stands in the place of a former digest where there was no token. No token has this digest.
pub const NO_TOKEN: Digest = [0; 32];

/// A host as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The host's process.
    pub host: ProcessId,
    /// The name of its executable.
    pub name: String,
    /// Keys under which its sessions can't be told apart.
    pub plural: BTreeSet<Key>,
}

/// What was read of a process at its first claim. It is not read again: processes rewrite their own command lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimant {
    /// Its host.
    pub host: ProcessId,
    /// What its keys are made of.
    pub traits: Traits,
}

/// A session as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// The host that it belongs to.
    pub owner: ProcessId,
    /// Its key. None: it was doubtful, and nobody resumes this session; or it is found by its id.
    pub key: Option<Key>,
    /// The id that its owner finds it by, where that is what it is found by: its own, or one that the owner chose. Then it
    /// has no key, and stays when nobody holds it.
    pub name: Option<SessionId>,
    /// The request that made it, where that may be repeated.
    pub made_by: Option<RequestId>,
    /// The name of the executable that it was made for.
    pub program: String,
    /// The label that it was claimed with.
    pub label: Option<Label>,
    /// Its place in the order of opening.
    pub opened: u64,
    /// When it was opened, in ms since the Unix epoch. For people; nothing depends on it.
    pub opened_ms: u64,
    /// The newest epoch.
    pub epoch: Epoch,
    /// The process that holds it.
    pub holder: Option<ProcessId>,
    /// The file that its token goes to.
    pub file: TokenFile,
    /// The digest of the token that it was given last.
    pub digest: Option<Digest>,
    /// The digest of the one before ([`NO_TOKEN`] where there was none), while the file may still hold that.
    pub former: Option<Digest>,
    /// Whether the token was offered to the broker under this lease, whose answer is not known yet.
    pub offered: bool,
    /// The keeper that holds its backend. On record by itself ([`super::Effect::SaveKeeper`]), not with the session.
    pub keeper: Option<Box<KeeperRecord>>,
}

/// A keeper as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeeperRecord {
    /// The keeper's process, which leads a session of processes, in the sense of setsid(2): everything in that is the
    /// backend's.
    pub process: ProcessId,
    /// Its name, which is that of its socket.
    pub name: KeeperName,
    /// The name of the backend's executable, for people.
    pub program: String,
    /// The backend that it has started last.
    pub backend: Option<ProcessId>,
    /// Whether it has to end. No front is led to it any more.
    pub ending: bool,
}

impl SessionRecord {
    /// The id that its owner knows it by. Two owners may have chosen the same.
    #[must_use]
    pub fn told(&self) -> &SessionId {
        self.name.as_ref().unwrap_or(&self.id)
    }

    /// Whether an instance may know of this session: its holder, and instances of its owner's whose keys lead to it. A session that is found
    /// by its id is there for every instance of its owner's, one with a doubtful key for its holder alone.
    #[must_use]
    pub fn is_for(&self, process: ProcessId, claimant: &Claimant) -> bool {
        let its_key_leads_here = || match self.key {
            Some(key) => claimant.traits.key(self.label.as_ref()) == Ok(key),
            None => self.name.is_some(),
        };
        // The holder asks most, and needs no digest.
        self.owner == claimant.host && (self.holder == Some(process) || its_key_leads_here())
    }
}

/// The name of a token file: `token-<host pid>-<host start time>`, and `-<number>` behind it from 2 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenFile {
    /// The host.
    pub host: ProcessId,
    /// Which of the host's files, from 1.
    pub number: u32,
}

impl fmt::Display for TokenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "token-{}-{}", self.host.pid, self.host.start)?;
        if self.number > 1 { write!(formatter, "-{}", self.number) } else { Ok(()) }
    }
}

/// Everything on record.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The hosts.
    pub owners: Vec<OwnerRecord>,
    /// The processes that have claimed.
    pub claimants: Vec<(ProcessId, Claimant)>,
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// The keepers that no session has any more, and that were there all the same.
    pub ending: Vec<KeeperRecord>,
}
