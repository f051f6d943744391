//! Where a server is, and what every request to it says.

use std::fmt;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::login::Login;
use crate::url::without_query;

/// Headers that are ours: an entry can't set them.
const OURS: [&str; 8] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// A server of `servers.json` that has a `url`.
#[derive(Clone)]
pub struct Remote {
    /// The name of the entry.
    pub(crate) name: String,
    pub(crate) url: Url,
    /// They are secret.
    pub(crate) headers: HeaderMap,
    /// None: the entry says itself who it is, by `Authorization`.
    pub(crate) login: Option<Login>,
}

/// An entry that no connection can be made of, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// It has no usable URL.
    #[error("`url` must be that of a server, such as https://example.org/mcp: {0}")]
    Url(String),
    /// A header can't be sent.
    #[error("the header {0:?} can't be set: {1}")]
    Header(String, &'static str),
    /// TLS is not there.
    #[error("no client for HTTP can be made: {0}")]
    Client(String),
}

impl Remote {
    /// A server at this URL, each request to which has these headers.
    ///
    /// # Errors
    /// [`RemoteError`], which names the header, and not its value.
    pub fn new(
        name: &str,
        url: &str,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, RemoteError> {
        let url = address(url)?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let wrong = |why| RemoteError::Header(name.clone(), why);
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong("it is not a header's name"))?;
            if OURS.contains(&header.as_str()) {
                return Err(wrong("it is set here"));
            }
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| wrong("its value has characters that no header may have"))?;
            value.set_sensitive(true);
            all.append(header, value);
        }
        let login = (!all.contains_key(AUTHORIZATION)).then(|| Login::of(name, &url));
        Ok(Self {
            name: name.to_owned(),
            url,
            headers: all,
            login,
        })
    }

    /// A digest of where the server is, and of the headers that say who we are.
    pub(crate) fn whose(&self) -> String {
        let headers = self.headers.iter().flat_map(|(name, value)| {
            [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"].concat()
        });
        let text: Vec<u8> = format!("{}\n{}\n", self.name, self.url)
            .into_bytes()
            .into_iter()
            .chain(headers)
            .collect();
        let digest = mcp_sessiond_process::digest("mcp-sessiond session with a server", &text);
        digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The user's login with the server. None: the entry has an `Authorization` header.
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }
}

/// Shows no headers, and of the URL no query, which may hold a secret.
impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Remote")
            .field("name", &self.name)
            .field("url", &without_query(&self.url))
            .finish_non_exhaustive()
    }
}

fn address(text: &str) -> Result<Url, RemoteError> {
    let wrong = |why: &str| RemoteError::Url(why.to_owned());
    let mut url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(wrong("it must begin with https:// or http://"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it must name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(
            "it must not hold a name or a password; put them into `headers`",
        ));
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_and_its_secrets_are_not_shown() {
        let headers = [("X-Key".to_owned(), "hidden".to_owned())];
        let remote =
            Remote::new("a", "https://example.org/mcp?key=hidden", headers).expect("an entry");
        assert!(
            !format!("{remote:?}").contains("hidden")
                && !format!("{:?}", remote.headers).contains("hidden")
        );
        assert!(remote.login().is_some());
        let own = [("authorization".to_owned(), "Bearer x".to_owned())];
        assert!(
            Remote::new("a", "http://localhost/", own)
                .expect("an entry")
                .login()
                .is_none()
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for wrong in [
            "example.org",
            "ftp://a/",
            "https://user:pass@a/",
            "https://",
            "file:///etc/passwd",
        ] {
            let refused = Remote::new("a", wrong, []).expect_err(wrong);
            assert!(matches!(refused, RemoteError::Url(_)), "{wrong}: {refused}");
        }
        for (name, value) in [
            ("a b", "1"),
            ("Host", "1"),
            ("Mcp-Session-Id", "1"),
            ("X", "hid\nden"),
        ] {
            let refused =
                Remote::new("a", "http://a/", [(name.into(), value.into())]).expect_err(name);
            assert!(
                refused.to_string().contains(name) && !refused.to_string().contains("hid"),
                "{refused}"
            );
        }
    }
}
