//! The handshake of a session, which is stored with it, so that a new server can be initialised
//! like the former one.

use mcp_sessiond_client::{Json, Session, SessionError, SessionStatus, SessionView, Update};
use mcp_sessiond_proto::sessions::METADATA_MAX;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first version of MCP that says what a priming event is: one that has an id and no data.
const PRIMES: &str = "2025-11-25";
/// The version whose POSTs may be batches.
const BATCHES: &str = "2025-03-26";
/// The version that is meant where a client does not say which.
pub const ASSUMED: &str = "2025-03-26";
/// The versions that a client may speak here.
pub const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The key of the session's state that has a handshake which is too large for the metadata.
const STATE: &str = "serve.handshake";

/// A handshake. It is stored as the metadata of the session.
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

    /// Whether an `initialize` with these parameters is by the same client, and asks for the same
    /// version.
    pub fn is_of(&self, params: &RawValue) -> bool {
        #[derive(Deserialize, PartialEq, Eq)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            protocol_version: Option<String>,
            client_info: Option<Info>,
        }
        #[derive(Deserialize, PartialEq, Eq)]
        struct Info {
            name: Option<String>,
        }
        let read = |text: &RawValue| serde_json::from_str::<Params>(text.get()).ok();
        read(&self.initialize) == read(params)
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

    /// Stores the handshake. With that the session is ready.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn store(&self, session: &Session) -> Result<(), SessionError> {
        let json = Json::trusted(serde_json::to_string(self).unwrap_or_default());
        let ready = Update::default().status(SessionStatus::ready());
        if json.len() <= METADATA_MAX {
            return session.update(ready.metadata(json)).await.map(drop);
        }
        if let Ok(key) = STATE.parse() {
            session.set(&key, &json).await?;
        }
        session.update(ready).await.map(drop)
    }

    /// The handshake that is stored with a session.
    ///
    /// # Errors
    /// Those of the daemon.
    pub async fn of(session: &Session, view: &SessionView) -> Result<Option<Self>, SessionError> {
        let read = |json: &Json| serde_json::from_str(json.as_str()).ok();
        match (&view.metadata, STATE.parse()) {
            (Some(metadata), _) => Ok(read(metadata)),
            (None, Ok(key)) => Ok(session.get(&key).await?.as_ref().and_then(read)),
            (None, Err(_)) => Ok(None),
        }
    }

    /// Whether the client knows what a priming event is.
    pub fn primes(&self) -> bool {
        // Versions are dates.
        self.version.as_str() >= PRIMES
    }

    /// Whether a POST may be a batch.
    pub fn batches(&self) -> bool {
        self.version.as_str() <= BATCHES
    }
}
