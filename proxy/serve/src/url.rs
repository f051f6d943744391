//! Where a server is.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::Scheme;

/// The URL of a server: `http://HOST:PORT/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url(Uri);

impl Url {
    /// The host, as the resolver takes it.
    pub(super) fn host(&self) -> &str {
        let host = self.0.host().unwrap_or_default();
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(80)
    }

    /// What `Host` says.
    pub(super) fn authority(&self) -> HeaderValue {
        let authority = self
            .0
            .authority()
            .map_or("", |authority| authority.as_str());
        HeaderValue::from_str(authority).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// Path and query.
    pub(super) fn path(&self) -> &str {
        self.0.path_and_query().map_or("/", |path| path.as_str())
    }
}

/// Without its query, which may hold a secret.
impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self
            .0
            .authority()
            .map_or("", |authority| authority.as_str());
        write!(formatter, "http://{authority}{}", self.0.path())
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text
            .parse()
            .map_err(|_| "it must be a URL such as http://127.0.0.1:3000/mcp")?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                let message = "`serve` does not speak TLS to a server: give the http:// URL of the server itself, or \
                     of a proxy that speaks TLS for it";
                return Err(message.into());
            }
            _ => return Err("it must begin with http://".into()),
        }
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err("it must not hold a name or a password".into());
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err("it must name a host".into());
        }
        Ok(Self(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_shown_without_its_query() {
        let url: Url = "http://[::1]:3000/mcp?key=secret".parse().expect("a URL");
        assert_eq!(
            (url.host(), url.port(), url.path()),
            ("::1", 3000, "/mcp?key=secret")
        );
        assert_eq!(
            (url.to_string(), url.authority().to_str().expect("ASCII")),
            ("http://[::1]:3000/mcp".into(), "[::1]:3000")
        );
        let url: Url = "http://localhost".parse().expect("a URL");
        assert_eq!((url.host(), url.port(), url.path()), ("localhost", 80, "/"));
        for wrong in [
            "https://example.org/mcp",
            "http://user:pass@localhost/",
            "localhost:3000",
            "/mcp",
            "ftp://a/",
            "http://",
        ] {
            wrong.parse::<Url>().expect_err(wrong);
        }
    }
}
