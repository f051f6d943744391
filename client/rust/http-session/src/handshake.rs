//! The handshake of a session, which is stored with it, so that a fresh server can be initialised
//! like the former one.

use alloc::boxed::Box;
use alloc::string::String;

use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::sessions::METADATA_MAX;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first version of MCP that says what a priming event is: one that has an id and no data.
const PRIMES: &str = "2025-11-25";
/// The version whose POSTs may be batches.
const BATCHES: &str = "2025-03-26";
/// The version that is meant where nobody says which (MCP 2025-06-18, Protocol Version Header).
pub const ASSUMED: &str = "2025-03-26";
/// The versions of MCP that have sessions.
pub const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What the client has asked, what the server has answered, and the version that it chose. Every
/// library of ours stores the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handshake {
    /// The parameters of the client's `initialize`.
    pub initialize: Box<RawValue>,
    /// The server's result.
    pub result: Box<RawValue>,
    /// The version of MCP.
    pub version: String,
}

/// Who sends `initialize`, and for which version of MCP.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Client {
    protocol_version: Option<String>,
    client_info: Option<Info>,
}

#[derive(Deserialize, PartialEq, Eq)]
struct Info {
    name: Option<String>,
}

impl Handshake {
    /// The handshake with these parameters of the client's, and this result of the server's.
    pub fn new(initialize: Box<RawValue>, result: Box<RawValue>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Chosen {
            protocol_version: String,
        }
        let chosen = serde_json::from_str::<Chosen>(result.get());
        let version = chosen.map_or_else(|_| ASSUMED.into(), |chosen| chosen.protocol_version);
        Self {
            initialize,
            result,
            version,
        }
    }

    /// Reads what is on record. None: it is something else.
    pub fn read(recorded: &Json) -> Option<Self> {
        serde_json::from_str(recorded.as_str()).ok()
    }

    /// As it is stored, and whether it fits into the metadata of a session.
    pub fn write(&self) -> (Json, bool) {
        let json = Json::trusted(serde_json::to_string(self).unwrap_or_default());
        let fits = json.len() <= METADATA_MAX;
        (json, fits)
    }

    /// Whether an `initialize` with these parameters is by the same client, and asks for the same
    /// version.
    pub fn is_of(&self, params: &str) -> bool {
        let read = |params: &str| serde_json::from_str::<Client>(params).ok();
        read(self.initialize.get()) == read(params)
    }

    /// Whether the server sends messages for the client's log.
    pub fn logs(&self) -> bool {
        #[derive(Deserialize)]
        struct Result {
            #[serde(default)]
            capabilities: Capabilities,
        }
        #[derive(Deserialize, Default)]
        struct Capabilities {
            #[serde(default)]
            logging: Option<serde::de::IgnoredAny>,
        }
        serde_json::from_str::<Result>(self.result.get())
            .is_ok_and(|result| result.capabilities.logging.is_some())
    }

    /// Whether the client knows what a priming event is.
    pub fn primes(&self) -> bool {
        primes(&self.version)
    }

    /// Whether a POST may be a batch.
    pub fn batches(&self) -> bool {
        self.version.as_str() <= BATCHES
    }
}

/// Whether clients of this version of MCP know what a priming event is.
pub fn primes(version: &str) -> bool {
    // Versions are dates.
    version >= PRIMES
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_client_or_version_is_another_session() {
        let raw = |value: &serde_json::Value| serde_json::value::to_raw_value(value).expect("JSON");
        let recorded = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let handshake = Handshake::new(raw(&recorded), raw(&json!({})));
        assert_eq!(handshake.version, ASSUMED);
        let is_of = |params: serde_json::Value| handshake.is_of(&params.to_string());
        assert!(is_of(
            json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "a", "version": "2"}})
        ));
        assert!(!is_of(
            json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "a"}})
        ));
        assert!(!is_of(
            json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "b"}})
        ));
    }
}
