//! A server that has a URL: `wrap -- https://…`, `wrap @NAME` where the entry has a `url`, and one
//! of those of `wrap --all`.

#[cfg(feature = "http")]
mod connector;

use std::collections::BTreeMap;

use mcp_sessiond_proxy::front::bundle::{Failure, FailureCode};
use mcp_sessiond_proxy::server::remote::RemoteServer;

/// The server of this name.
///
/// # Errors
/// [`FailureCode::BadEntry`]. That the server can't be reached, or wants a login, is told by its
/// answer to `initialize`.
#[cfg(feature = "http")]
pub(crate) fn server(
    name: &str,
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<RemoteServer, Failure> {
    let remote = mcp_sessiond_upstream::Remote::new(name, url, headers.clone())
        .map_err(|why| Failure::new(FailureCode::BadEntry, why.to_string()))?;
    Ok(RemoteServer::new(url, headers, |store| {
        Box::new(connector::RemoteConnector { remote, store })
    }))
}

/// This build reaches none.
///
/// # Errors
/// Always.
#[cfg(not(feature = "http"))]
pub(crate) fn server(
    _: &str,
    _: &str,
    _: &BTreeMap<String, String>,
) -> Result<RemoteServer, Failure> {
    let why = crate::extras::absent("way to a server that has a URL", "http");
    Err(Failure::new(FailureCode::BadEntry, why))
}

/// What people know a server by that is in no file: its URL, without what may be secret in it.
pub(crate) fn redacted_url(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = plain.split_once("//").unwrap_or(("", plain));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_secrets() {
        assert_eq!(
            redacted_url("https://a:b@x.org:1/mcp?key=c#d"),
            "https://x.org:1/mcp"
        );
        assert_eq!(redacted_url("http://x.org"), "http://x.org");
    }
}
