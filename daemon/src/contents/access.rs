//! Who asks for a session, and what they may do with it.

use std::fmt;
use std::sync::Arc;

use mcp_sessiond_proto::sessions::Caller;
use mcp_sessiond_proto::{Error, ServiceName, SessionId};

use crate::storage::RecordId;

/// Who asks for which session, as the daemon has verified it.
#[derive(Clone)]
pub struct Access {
    /// The session.
    pub place: RecordId,
    /// On whose behalf the caller says that it asks.
    pub caller: Option<Caller>,
    /// What the caller must be, to change anything; asked again in the step that applies the
    /// change.
    pub writer: Writer,
    /// Whether there is such a session although the storage has nothing of it yet: a claim has made
    /// it.
    pub claimed: bool,
    /// Whether something is kept by a change, so that the session counts as used.
    pub keeps: bool,
}

/// Who may change a session.
#[derive(Clone)]
pub enum Writer {
    /// Whoever may see it.
    Anyone,
    /// Whoever has the lease.
    Holder(Arc<dyn Lease>),
    /// Nobody: of its host's sessions it is none any more, but it may have left a tombstone.
    Nobody,
}

/// What is known of a lease, at any moment.
pub trait Lease: Send + Sync {
    /// Whether the caller may change the session. If something is kept by that (`keeps`), the session
    /// counts as used.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    fn check(&self, keeps: bool) -> Result<(), Error>;

    /// Whether a live process holds the session.
    fn is_held(&self) -> bool;

    /// Whether there is such a session at all, held or not.
    fn is_there(&self) -> bool;
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Access({:?}, claimed {})",
            self.place, self.claimed
        )
    }
}

impl Access {
    /// A service's session.
    pub fn service(service: &ServiceName, session: &SessionId, caller: Option<Caller>) -> Self {
        Self {
            place: RecordId {
                owner: format!("service {service}"),
                name: session.to_string(),
            },
            caller,
            writer: Writer::Anyone,
            claimed: false,
            keeps: true,
        }
    }

    /// Of the daemon itself.
    pub fn daemon(place: RecordId) -> Self {
        Self {
            place,
            caller: None,
            writer: Writer::Anyone,
            claimed: false,
            keeps: true,
        }
    }

    /// Whether there is such a session although the storage has nothing of it: it may have ended
    /// since.
    pub(super) fn is_claimed(&self) -> bool {
        self.claimed && matches!(&self.writer, Writer::Holder(lease) if lease.is_there())
    }

    pub(super) fn may_write(&self) -> Result<(), Error> {
        match &self.writer {
            Writer::Anyone => Ok(()),
            Writer::Holder(lease) => lease.check(self.keeps),
            Writer::Nobody => Err(Error::UnknownSession),
        }
    }
}
