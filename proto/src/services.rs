//! Leases on services: one process at a time holds the lease on a service's name. The service's
//! sessions are those of [`sessions`](crate::sessions); their keepers check the epoch of this
//! lease.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::losses::{Loss, LossRecord};
use crate::names::{BackendName, RequestId, ServiceName};
use crate::types::{Epoch, SessionId};

/// Leases a service's name to the calling process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeRequest {
    /// The service.
    pub service: ServiceName,
    /// The deadline, in ms of the machine's `CLOCK_MONOTONIC`: the daemon grants no lease after it.
    /// In JSON: decimal text.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
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
    /// The name of the backend, where the session has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
}

/// Something that a session of a service had is lost, which the holder of the service's lease has
/// found: it goes on record until its client was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteLossRequest {
    /// The service.
    pub service: ServiceName,
    /// The epoch of the lease on it.
    pub epoch: Epoch,
    /// The session.
    pub session: SessionId,
    /// The member of a list that was lost. None: the session's only server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<BackendName>,
    /// Why.
    pub because: Loss,
}

/// Asks what sessions of services have lost, and their clients were not told of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceLossesRequest {
    /// The service; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The session; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// What a session of a service has lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceLoss {
    /// The service.
    pub service: ServiceName,
    /// The session.
    pub session: SessionId,
    /// The loss.
    pub loss: LossRecord,
}

/// Asks for the secret of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// The service.
    pub service: ServiceName,
    /// Puts a new key in place of the current one first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotate: bool,
    /// An idempotency key: a rotation that is repeated with the same one rotates nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

/// The secret of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSecret {
    /// The key that counts for whatever is made from now on.
    pub current: SecretKey,
    /// The keys that were rotated out and still count for what was made with them, the latest
    /// first.
    pub former: Vec<SecretKey>,
}

/// A key: 256 random bits as base64url (RFC 4648, section 5) without padding, 43 characters. It is
/// never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretKey(pub String);

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey")
    }
}
