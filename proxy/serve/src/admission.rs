//! Who may connect, which host and origin a request may name, and on whose behalf it is made.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use mcp_sessiond_client::tower::SESSION_HEADER;
use mcp_sessiond_client::tower::caller::{bearer_token, of_uid};
use mcp_sessiond_client::{Caller, credential};

use crate::refusal::Refusal;
use crate::settings::{Proof, Settings};

/// Names of loopback that `Host` may say.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The session was made for another caller, who does not learn that there is one.
pub fn bound_to_another() -> Refusal {
    Refusal::unknown_session()
}

/// The headers that decide where a request goes and on whose behalf: readers that take the first
/// and readers that take the last of two differ.
const ONCE: [HeaderName; 6] = [
    header::HOST,
    header::ORIGIN,
    header::AUTHORIZATION,
    SESSION_HEADER,
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("last-event-id"),
];

/// Checks that no such header is there twice.
///
/// # Errors
/// 400.
pub fn check_single(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut once = ONCE.into_iter();
    let twice = once.find(|name| headers.get_all(name).iter().count() > 1);
    twice.map_or(Ok(()), |name| {
        Err(Refusal::invalid(format!(
            "the header `{name}` is there twice"
        )))
    })
}

/// The caller of a request. Where there is a token, everybody has to show it: a proxy of our own
/// user's speaks for whoever has reached it. Else the listener has let in connections of our own
/// user alone. A trusted proxy says who has reached it. What a client shows the server is part of it.
///
/// # Errors
/// When the token is missing or wrong, or a header is missing by which the proxy says who it is.
pub fn caller(headers: &HeaderMap, settings: &Settings) -> Result<Caller, Refusal> {
    let shown = || {
        headers
            .get(header::AUTHORIZATION)
            .map(|value| bearer_token(value.as_bytes()))
    };
    let proven = match &settings.proof {
        Proof::Kernel => of_uid(nix::unistd::geteuid().as_raw()),
        Proof::Token(token) => match shown() {
            Some(Some(shown)) if token.is(shown) => credential(shown),
            Some(_) => return Err(Refusal::invalid_token("the bearer token is wrong")),
            None => {
                let message =
                    "a bearer token is needed: `serve` has said at its start which file has it";
                return Err(Refusal::unauthorized(message));
            }
        },
        Proof::Jwt(jwt) => match shown() {
            Some(Some(shown)) => jwt
                .caller(shown)
                .map_err(|rejected| Refusal::invalid_token(rejected.to_string()))?,
            Some(None) => {
                return Err(Refusal::invalid_token(
                    "`Authorization` has no bearer token",
                ));
            }
            None => {
                return Err(Refusal::unauthorized(
                    "a bearer token is needed: a JWT of the issuer's",
                ));
            }
        },
    };
    let caller = match &settings.identity {
        Some(identity) => identity.caller(headers)?,
        None => proven,
    };
    settings.passed.caller(caller, headers)
}

/// The caller of all sessions, where each is made for the same one.
pub fn only_caller(settings: &Settings) -> Option<Caller> {
    let is_kernel = matches!(settings.proof, Proof::Kernel)
        && settings.identity.is_none()
        && settings.passed.is_empty();
    is_kernel.then(|| of_uid(nix::unistd::geteuid().as_raw()))
}

/// The host and port that a request is for.
pub fn authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let named = headers.get(header::HOST);
    let named = named.and_then(|host| host.to_str().ok());
    let authority = uri.authority().map(Authority::as_str).or(named)?;
    authority.parse().ok()
}

/// Checks `Host` and `Origin`, so that no page of another origin reaches us, whatever name it has
/// made the browser resolve to our address (DNS rebinding).
///
/// # Errors
/// 403.
pub fn check_origin(uri: &Uri, headers: &HeaderMap, settings: &Settings) -> Result<(), Refusal> {
    let refused = |message: String| Err(Refusal::new(StatusCode::FORBIDDEN, message));
    let Some(authority) = authority(uri, headers) else {
        return refused("the header `Host` is missing, or can't be read".into());
    };
    if authority.as_str().contains('@') {
        return refused("`Host` has a user in it".into());
    }
    let host = authority.host();
    let is = |name: &str| name.eq_ignore_ascii_case(host);
    if !LOOPBACK.into_iter().any(is) && !settings.hosts.iter().any(|name| is(name)) {
        return refused(format!(
            "`Host: {authority}` is not a name of this listener; allow it with `--host`"
        ));
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default();
    // A page that we serve ourselves.
    let ours = origin
        .split_once("://")
        .is_some_and(|(_, at)| at.eq_ignore_ascii_case(authority.as_str()));
    if ours || settings.origins.iter().any(|named| named == origin) {
        return Ok(());
    }
    refused("this origin is not allowed; allow it with `--origin`".into())
}
