//! How a request names its session, and how a response does.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use mcp_sessiond_proto::SessionId;

/// The header that names a session (MCP 2025-11-25, Session Management).
pub const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// The cookie that names a session, where cookies are taken.
pub const SESSION_COOKIE: &str = "mcp_session_id";

/// What the header `Mcp-Session-Id` of a request says.
#[must_use]
pub fn named_by_header(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(SESSION_HEADER)
        .and_then(|value| value.to_str().ok())
}

/// Cookies of the name that are looked at.
const COOKIES_MAX: usize = 4;

/// What the cookies `mcp_session_id` of a request say, the first four of them. Another server on
/// the same host can set one, too, and the browser does not tell whose each is.
pub fn named_by_cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers
        .get_all(COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs
        .filter_map(|pair| pair.trim().strip_prefix(SESSION_COOKIE)?.strip_prefix('='))
        .take(COOKIES_MAX)
}

/// Names the session in the header `Mcp-Session-Id` of a response.
pub fn name_session(headers: &mut HeaderMap, session: &SessionId) {
    if let Ok(value) = HeaderValue::from_str(session.as_str()) {
        headers.insert(SESSION_HEADER, value);
    }
}

/// From which pages a browser sends the cookie (RFC 6265bis, section 4.1.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SameSite {
    /// From pages of the same site alone.
    #[default]
    Strict,
    /// Also when a user follows a link to the site.
    Lax,
    /// From every page. Browsers ask that such a cookie be `Secure`, which it is.
    None,
}

/// How the cookie `mcp_session_id` is set: `HttpOnly`, until the browser is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCookie {
    path: String,
    secure: bool,
    same_site: SameSite,
}

impl Default for SessionCookie {
    /// For all paths, `SameSite=Strict`, also without TLS.
    fn default() -> Self {
        Self {
            path: "/".into(),
            secure: false,
            same_site: SameSite::Strict,
        }
    }
}

impl SessionCookie {
    /// For this path and those below it. Characters that no cookie's path may have are left out.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = path
            .chars()
            .filter(|sign| sign.is_ascii_graphic() && *sign != ';')
            .collect();
        self
    }

    /// Whether browsers send it over TLS alone.
    #[must_use]
    pub fn secure(mut self, secure: bool) -> Self {
        self.secure = secure;
        self
    }

    /// From which pages browsers send it.
    #[must_use]
    pub fn same_site(mut self, same_site: SameSite) -> Self {
        self.same_site = same_site;
        self
    }

    /// Names the session in a cookie of a response.
    pub fn name_session(&self, headers: &mut HeaderMap, session: &SessionId) {
        let Self {
            path, same_site, ..
        } = self;
        let secure = if self.secure || *same_site == SameSite::None {
            "; Secure"
        } else {
            ""
        };
        let cookie = format!(
            "{SESSION_COOKIE}={session}; Path={path}; HttpOnly; SameSite={same_site:?}{secure}"
        );
        if let Ok(value) = HeaderValue::from_str(&cookie) {
            headers.append(SET_COOKIE, value);
        }
    }
}
