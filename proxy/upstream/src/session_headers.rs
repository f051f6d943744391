//! What a request says of its session, and by which login it may be made.

use std::fmt;

use reqwest::header::HeaderValue;

use crate::cookies::Cookies;
use crate::login::Bearer;

/// What a request says of its session.
#[derive(Clone, Default)]
pub(super) struct SessionHeaders {
    /// The id that the server has given it, if it has.
    pub(super) session: Option<HeaderValue>,
    /// The version of MCP that was agreed on; none before that.
    pub(super) version: Option<HeaderValue>,
    /// The user's login that it was begun with, if it was. The session is nobody else's.
    pub(super) login: Option<String>,
    /// Those that the server, or what is in front of it, has set in it.
    pub(super) cookies: Cookies,
}

/// Shows whether there is an id, and not which.
impl fmt::Debug for SessionHeaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SessionHeaders");
        shown
            .field("has_session", &self.session.is_some())
            .field("version", &self.version);
        shown.field("has_login", &self.login.is_some()).finish()
    }
}

impl SessionHeaders {
    /// Of a session with this id, and this version of MCP, that was begun with this login, and has these
    /// cookies.
    pub(super) fn of(
        session: Option<&str>,
        version: Option<&str>,
        login: Option<&str>,
        cookies: &Cookies,
    ) -> Self {
        let header = |text: Option<&str>| HeaderValue::from_str(text?).ok();
        Self {
            session: header(session),
            version: header(version),
            login: login.map(str::to_owned),
            cookies: cookies.clone(),
        }
    }

    /// Whether a request with this login may be made in it. Before there is a session any may.
    pub(super) fn is_for(&self, bearer: Option<&Bearer>) -> bool {
        self.is_of(bearer.map(|bearer| &*bearer.login))
    }

    /// The same for the login itself.
    pub(super) fn is_of(&self, login: Option<&str>) -> bool {
        let is_begun = self.session.is_some() || self.version.is_some();
        !is_begun || self.login.as_deref() == login
    }
}
