//! What is on record of a session's handshake, so that a server can be initialised again.

use mcp_sessiond_client::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first version of MCP whose streams begin with an event that has an id and no data.
const PRIMES: &str = "2025-11-25";
/// The version whose POSTs may be batches.
const BATCHES: &str = "2025-03-26";
/// The version that is meant where a client does not say which.
pub const ASSUMED: &str = "2025-03-26";
/// The versions that a client may speak here.
pub const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A handshake. It is the metadata of the session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The parameters of the client's `initialize`.
    pub initialize: Box<RawValue>,
    /// The server's result.
    pub result: Box<RawValue>,
    /// The version that the server has chosen.
    pub version: String,
}

impl Record {
    /// Of these parameters, and this result.
    #[must_use]
    pub fn new(initialize: Box<RawValue>, result: Box<RawValue>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Chosen {
            protocol_version: String,
        }
        let chosen = serde_json::from_str::<Chosen>(result.get());
        let version = chosen.map_or_else(|_| ASSUMED.into(), |chosen| chosen.protocol_version);
        Self { initialize, result, version }
    }

    /// As it is kept.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::trusted(serde_json::to_string(self).unwrap_or_default())
    }

    /// As it was kept.
    #[must_use]
    pub fn of(metadata: &Json) -> Option<Self> {
        serde_json::from_str(metadata.as_str()).ok()
    }

    /// Whether streams begin with a priming event.
    #[must_use]
    pub fn primes(&self) -> bool {
        // Versions are dates.
        self.version.as_str() >= PRIMES
    }

    /// Whether a POST may be a batch.
    #[must_use]
    pub fn batches(&self) -> bool {
        self.version.as_str() <= BATCHES
    }
}
