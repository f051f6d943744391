//! On whose behalf a request is made: functions for
//! [`SessionLayer::new`](super::SessionLayer::new).
//!
//! A session belongs to the caller that began it; any other gets 404. Each of these takes the head
//! of a request, and returns the caller, none where sessions are bound to nobody, or a refusal.

use http::header::AUTHORIZATION;
use http::request::Parts;
use mcp_sessiond_proto::sessions::Caller;

use super::Refusal;
use crate::credential::credential;

/// The caller is whoever shows the bearer token (RFC 6750). Its hash alone is stored. This does not
/// check the token: do that before, in a layer of yours.
///
/// # Errors
/// 401 without a token.
pub fn bearer(parts: &Parts) -> Result<Option<Caller>, Refusal> {
    let shown = parts
        .headers
        .get(AUTHORIZATION)
        .and_then(|value| bearer_token(value.as_bytes()));
    let shown = shown.ok_or_else(|| Refusal::unauthorized("a bearer token is needed"))?;
    Ok(Some(credential(shown)))
}

/// As [`bearer`] where a token is shown; without one, whoever knows the session's id.
///
/// # Errors
/// None.
pub fn bearer_if_shown(parts: &Parts) -> Result<Option<Caller>, Refusal> {
    if parts.headers.contains_key(AUTHORIZATION) {
        bearer(parts).or(Ok(None))
    } else {
        Ok(None)
    }
}

/// The token in a value of the header `Authorization`, if it has one.
#[must_use]
pub fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii());
    token.filter(|token| !token.is_empty())
}

/// The caller is the user that runs this process: for a listener that lets in nobody else, such as
/// a Unix socket of mode 0600.
///
/// # Errors
/// None.
#[cfg(unix)]
pub fn own_user(_: &Parts) -> Result<Option<Caller>, Refusal> {
    Ok(Some(of_uid(nix::unistd::geteuid().as_raw())))
}

/// The user of this uid, where a server knows it of each connection.
#[must_use]
pub fn of_uid(uid: u32) -> Caller {
    Caller::Identity {
        iss: "uid".into(),
        sub: uid.to_string(),
    }
}

/// The [`Caller`] that a layer above has put into the request's extensions: one that has checked a
/// JWT, say, and knows its `iss` and `sub`.
///
/// # Errors
/// 401 where there is none.
pub fn from_extensions(parts: &Parts) -> Result<Option<Caller>, Refusal> {
    match parts.extensions.get::<Caller>() {
        Some(caller) => Ok(Some(caller.clone())),
        None => Err(Refusal::unauthorized("nothing says who sends this request")),
    }
}

/// Sessions are bound to nobody: whoever knows a session's id may use it.
///
/// # Errors
/// None.
pub fn nobody(_: &Parts) -> Result<Option<Caller>, Refusal> {
    Ok(None)
}
