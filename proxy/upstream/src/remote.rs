//! Where a server is, and what every request to it says.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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

/// How long a request waits for a server that can't be reached, unless the entry says it: a restart
/// of one takes no longer, as a rule.
const HOLD: Duration = Duration::from_secs(10);

/// A server that has a URL. Clones share their connections.
#[derive(Clone)]
pub struct Remote {
    /// What people know it by.
    pub(crate) name: String,
    pub(crate) url: Url,
    /// They are secret.
    pub(crate) headers: HeaderMap,
    /// None: the entry says itself who it is, by `Authorization`, or nobody is to be named.
    pub(crate) login: Option<Login>,
    /// How long a request waits for a server that can't be reached, and was before.
    pub(crate) hold: Duration,
    /// Whether it was: one that was there may be restarting, and of any other one a direct client
    /// hears at once that it is not there.
    pub(crate) was_reached: Arc<AtomicBool>,
    /// Whether it is reached without a proxy that the environment names (`HTTPS_PROXY`), and by a
    /// connection for each request: where none can be made, the request has not begun.
    pub(crate) is_direct: bool,
    /// Made by the first who needs it.
    pub(crate) client: Arc<OnceLock<reqwest::Client>>,
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
    /// Without this a next process would take messages for others.
    #[error("what the next process needs of the connection could not be stored")]
    NotStored,
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
        let mut remote = Self {
            name: name.to_owned(),
            url,
            headers: HeaderMap::new(),
            login: None,
            hold: HOLD,
            was_reached: Arc::default(),
            is_direct: false,
            client: Arc::default(),
        }
        .with_headers(headers)?;
        let says_who = remote.headers.contains_key(AUTHORIZATION);
        remote.login = (!says_who).then(|| Login::of(name, &remote.url));
        Ok(remote)
    }

    /// The same, each request to which has these headers, too.
    ///
    /// # Errors
    /// [`RemoteError::Header`].
    pub fn with_headers(
        mut self,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, RemoteError> {
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
            self.headers.append(header, value);
        }
        Ok(self)
    }

    /// A server at this URL, by which people know it without what may be secret in it. It is told of
    /// no login: whoever sends it something is let in elsewhere. No proxy is used, and each request
    /// has a connection of its own.
    ///
    /// # Errors
    /// [`RemoteError::Url`].
    pub fn direct(url: &str) -> Result<Self, RemoteError> {
        let mut remote = Self::new("", url, [])?;
        remote.name = without_query(&remote.url);
        (remote.login, remote.is_direct) = (None, true);
        Ok(remote)
    }

    /// The same, whose requests wait so long for a server that can't be reached, and was before.
    #[must_use]
    pub fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Whether it was reached by this, or a clone.
    pub fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// The host and the port at which it listens.
    pub fn address(&self) -> (&str, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host, self.url.port_or_known_default().unwrap_or_default())
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

/// Without the query, which may hold a secret.
impl fmt::Display for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&without_query(&self.url))
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
    fn a_server_that_is_reached_directly_is_known_by_its_url_and_told_of_no_login() {
        let remote = Remote::direct("http://[::1]:3000/mcp?key=hidden").expect("a URL");
        assert_eq!(
            (remote.address(), remote.to_string(), &*remote.name),
            (
                ("::1", 3000),
                "http://[::1]:3000/mcp".into(),
                "http://[::1]:3000/mcp"
            )
        );
        assert!(remote.login().is_none());
        let remote = Remote::direct("http://localhost").expect("a URL");
        assert_eq!(
            (remote.address(), remote.to_string()),
            (("localhost", 80), "http://localhost/".into())
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
