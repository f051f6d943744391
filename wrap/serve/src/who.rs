//! Who may: who has connected, what a request says of host and origin, and for whom it is.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use mcp_sessiond_client::{Caller, credential};

use crate::refusal::Refusal;
use crate::settings::Settings;

/// How a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// From our own user: the kernel says so.
    Ours,
    /// From whomever.
    Unknown,
}

/// Names of loopback that `Host` may say.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The session was made for another caller.
#[must_use]
pub fn bound_to_another() -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "the session is bound to another caller")
}

/// For whom a request is.
///
/// # Errors
/// Where it shows no token and has to, or a wrong one.
pub fn caller(headers: &HeaderMap, arrival: Arrival, settings: &Settings) -> Result<Caller, Refusal> {
    let refused = |message: &str| Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
    let shown = headers.get(header::AUTHORIZATION).map(|value| bearer(value.as_bytes()));
    match (shown, &settings.token, arrival) {
        (Some(Some(shown)), Some(token), _) if token.is(shown) => Ok(credential(shown)),
        (Some(_), Some(_), _) => refused("the bearer token is wrong"),
        // Whatever is shown, nothing was asked for.
        (_, _, Arrival::Ours) => {
            let uid = nix::unistd::geteuid();
            Ok(Caller::Identity { iss: "uid".into(), sub: uid.to_string() })
        }
        (_, Some(_), Arrival::Unknown) => {
            refused("a bearer token is needed: `serve` has told its file at start")
        }
        (_, None, Arrival::Unknown) => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "the kernel does not say that this connection is of the user who runs `serve`",
        )),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Whether a request is meant for us, and comes from a page that may: a page of another origin must not reach this, whatever
/// name it has made the browser resolve to our address.
///
/// # Errors
/// Forbidden.
pub fn admit(uri: &Uri, headers: &HeaderMap, settings: &Settings) -> Result<(), Refusal> {
    let refused = |message: String| Err(Refusal::new(StatusCode::FORBIDDEN, message));
    let said = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = uri.authority().map(Authority::as_str).or(said);
    let Some(authority) = authority.and_then(|host| host.parse::<Authority>().ok()) else {
        return refused("the header `Host` is missing, or can't be read".into());
    };
    let host = authority.host();
    let is = |name: &str| name.eq_ignore_ascii_case(host);
    if !LOOPBACK.into_iter().any(is) && !settings.hosts.iter().any(|name| is(name)) {
        return refused(format!("`Host: {authority}` is none of ours; name it by `--host`"));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    // A page that we have served ourselves.
    let ours = origin.split_once("://").is_some_and(|(_, at)| at.eq_ignore_ascii_case(authority.as_str()));
    if ours || settings.origins.iter().any(|named| named == origin) {
        return Ok(());
    }
    refused("pages of this origin may not come here; name it by `--origin`".into())
}
