//! Who serves a service: one process at a time, by a lease on its name. The sessions themselves are those of
//! [`sessions`](crate::sessions); their keepers check the epoch of this lease. For a daemon whose hello has
//! [`SERVICES`](crate::hello::SERVICES).

use serde::{Deserialize, Serialize};

use crate::names::ServiceName;
use crate::types::{Epoch, SessionId};

/// The calling process is to serve a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeRequest {
    /// The service.
    pub service: ServiceName,
    /// When nobody waits for the answer any more: in ms of the machine's `CLOCK_MONOTONIC`. Nothing is granted after it. In JSON:
    /// decimal text.
    #[serde(default, with = "crate::text::optional", skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// A service that the calling process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The number of the lease.
    pub epoch: Epoch,
}

/// The lease on a service: what `release_service` ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceLease {
    /// The service.
    pub service: ServiceName,
    /// The epoch of the lease.
    pub epoch: Epoch,
}

/// Names a session whose backend is looked for. Without `service` it is a [`LeaseRef`](crate::types::LeaseRef).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindRequest {
    /// The session.
    pub session: SessionId,
    /// The epoch of the lease: on the session, or, with `service`, on that.
    pub epoch: Epoch,
    /// The service that the session belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
}
