//! The handshake of a session, which is stored with it, so that a new server can be initialised
//! like the former one.

use mcp_sessiond_http_session::handshake::Handshake;
use mcp_sessiond_proto::sessions::Status;
use mcp_sessiond_proto::{Json, StateKey};

use crate::error::SessionError;
use crate::session::{Session, Update};

/// The key of the state that has a handshake which is too large for the metadata.
const STATE: &str = "mcp.handshake";

/// Stores it. With that the session is ready.
pub(super) async fn store(handshake: &Handshake, session: &Session) -> Result<(), SessionError> {
    let update = Update::default().status(Status::ready());
    let (json, fits) = handshake.write();
    if fits {
        session.update(update.metadata(json)).await?;
        return Ok(());
    }
    session.set(&key(STATE), &json).await?;
    session
        .update(update.metadata(Json::trusted("null".into())))
        .await
        .map(drop)
}

/// That of a session. None: its `initialize` was never answered.
pub(super) async fn recorded(session: &Session) -> Result<Option<Handshake>, SessionError> {
    let metadata = session.view().await?.metadata;
    // Until then the metadata is what the client has asked.
    if let Some(found) = metadata.as_ref().and_then(Handshake::read) {
        return Ok(Some(found));
    }
    Ok(session
        .get(&key(STATE))
        .await?
        .as_ref()
        .and_then(Handshake::read))
}

/// A key of our own.
pub(super) fn key(name: &str) -> StateKey {
    #[expect(clippy::expect_used, reason = "they are constants")]
    name.parse().expect("a key")
}
