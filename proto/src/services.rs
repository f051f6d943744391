//! Leases on services: one process at a time holds the lease on a service's name. The service's sessions are
//! those of [`sessions`](crate::sessions); their keepers check the epoch of this lease. Only for a daemon
//! whose hello has [`SERVICES`](crate::hello::SERVICES).

use serde::{Deserialize, Serialize};

use crate::names::ServiceName;
use crate::types::{Epoch, SessionId};

/// Leases a service's name to the calling process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeRequest {
    /// The service.
    pub service: ServiceName,
    /// The deadline, in ms of the machine's `CLOCK_MONOTONIC`: the daemon grants no lease after it. In JSON:
    /// decimal text.
    #[serde(default, with = "crate::text::optional", skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// The calling process's lease on a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The epoch of the lease.
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

/// Asks for a session's backend. Without `service` it is a [`LeaseRef`](crate::types::LeaseRef).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindRequest {
    /// The session.
    pub session: SessionId,
    /// The epoch of the lease on the session, or on `service` if that is set.
    pub epoch: Epoch,
    /// The service that the session belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
}
