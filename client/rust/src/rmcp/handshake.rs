//! The handshake of a session, which is stored with it, so that a new server can be initialised
//! like the former one. `serve` and the libraries of other languages store the same.

use mcp_sessiond_proto::sessions::Status;
use mcp_sessiond_proto::{Json, StateKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::SessionError;
use crate::session::{Session, Update};
use crate::tower::CONNECTION;

/// The key of the state that has a handshake which is too large for the metadata.
const STATE: &str = "mcp.handshake";
/// Bytes of a session's metadata.
pub(super) const METADATA_MAX: usize = 64 * 1024;
/// The version that is meant where a server does not say which (MCP 2025-06-18, Protocol Version
/// Header).
const ASSUMED: &str = "2025-03-26";

/// What the client has asked, what the server has answered, and the version of MCP that it chose.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Handshake {
    pub(super) initialize: Value,
    pub(super) result: Value,
    pub(super) version: String,
}

impl Handshake {
    pub(super) fn new(initialize: Value, result: Value) -> Self {
        let version = result["protocolVersion"]
            .as_str()
            .unwrap_or(ASSUMED)
            .to_owned();
        Self {
            initialize,
            result,
            version,
        }
    }

    /// Stores it. With that the session is ready.
    pub(super) async fn store(&self, session: &Session) -> Result<(), SessionError> {
        let text = serde_json::to_string(self)?;
        let update = Update::default().status(Status::ready());
        if text.len() <= METADATA_MAX {
            session.update(update.metadata(Json::trusted(text))).await?;
            return Ok(());
        }
        session.set(&key(STATE), &Json::trusted(text)).await?;
        session
            .update(update.metadata(Json::trusted("null".into())))
            .await
            .map(drop)
    }

    /// That of a session. None: its `initialize` was never answered.
    pub(super) async fn of(session: &Session) -> Result<Option<Self>, SessionError> {
        let metadata = session.view().await?.metadata;
        // Until then the metadata is what the client has asked.
        let read = |json: &Json| serde_json::from_str::<Self>(json.as_str()).ok();
        if let Some(found) = metadata.as_ref().and_then(read) {
            return Ok(Some(found));
        }
        Ok(session.get(&key(STATE)).await?.as_ref().and_then(read))
    }
}

/// A key of our own.
pub(super) fn key(name: &str) -> StateKey {
    #[expect(clippy::expect_used, reason = "they are constants")]
    name.parse().expect("a key")
}

/// The error that a call gets whose server ended before it had answered. `serve` sends the same.
pub(super) fn outcome_unknown(id: &Value) -> Json {
    let message = "the server ended before it had answered: the outcome of this call is unknown";
    lost(id, message, "unknown")
}

/// What a client gets that comes back for an answer that could not be kept.
pub(super) fn not_kept(id: &Value) -> Json {
    lost(
        id,
        "the call was carried out, but its answer could not be stored",
        "not_kept",
    )
}

fn lost(id: &Value, message: &str, outcome: &str) -> Json {
    let error = json!({"code": CONNECTION, "message": message, "data": {"outcome": outcome}});
    Json::from(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}
