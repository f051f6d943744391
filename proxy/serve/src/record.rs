//! Where the handshake of a session is stored: as its metadata.

use mcp_sessiond_client::{Session, SessionError, SessionStatus, SessionView, Update};
use mcp_sessiond_http_session::handshake::Handshake;

/// The key of the session's state that has a handshake which is too large for the metadata.
const STATE: &str = "serve.handshake";

/// Stores the handshake. With that the session is ready.
///
/// # Errors
/// Those of the daemon.
pub async fn store(handshake: &Handshake, session: &Session) -> Result<(), SessionError> {
    let ready = Update::default().status(SessionStatus::ready());
    let (json, fits) = handshake.write();
    if fits {
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
pub async fn of(session: &Session, view: &SessionView) -> Result<Option<Handshake>, SessionError> {
    match (&view.metadata, STATE.parse()) {
        (Some(metadata), _) => Ok(Handshake::read(metadata)),
        (None, Ok(key)) => Ok(session.get(&key).await?.as_ref().and_then(Handshake::read)),
        (None, Err(_)) => Ok(None),
    }
}
