//! A session's cookies (RFC 6265). A balancer names by one which of its servers has the session, and a
//! server may name a login by one: so they are kept with the session's id, go with it, and are sent to that origin alone.
//! All requests go to one URL.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue, SET_COOKIE};
use serde::{Deserialize, Serialize};

use crate::url::is_private;

/// Cookies of one session, and bytes of one: as many as any client has to take (RFC 6265, section
/// 6.1). What is more is not kept.
const COOKIES_MAX: usize = 50;
const COOKIE_BYTES_MAX: usize = 4096;

/// The cookies of one session, for all who use it.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Cookies(Arc<Mutex<Vec<Cookie>>>);

#[derive(Serialize, Deserialize)]
struct Cookie {
    name: String,
    value: String,
    /// When it ends, in ms since 1970. None: with the session.
    until: Option<u64>,
}

/// Shows how many there are, and nothing of them.
impl fmt::Debug for Cookies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} cookies", self.all().len())
    }
}

impl Cookies {
    fn all(&self) -> MutexGuard<'_, Vec<Cookie>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// What a request says of them, behind those that it has already. None: there are none.
    pub(crate) fn header(&self, own: Option<&HeaderValue>) -> Option<HeaderValue> {
        let mut all = self.all();
        all.retain(|cookie| is_later(cookie.until));
        if all.is_empty() {
            return None;
        }
        let own = own.and_then(|own| own.to_str().ok()).map(str::to_owned);
        let kept = all
            .iter()
            .map(|Cookie { name, value, .. }| format!("{name}={value}"));
        let pairs: Vec<_> = own.into_iter().chain(kept).collect();
        let mut header = HeaderValue::from_str(&pairs.join("; ")).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Takes in those that a response from this URL sets.
    pub(crate) fn note(&self, headers: &HeaderMap, from: &Url) {
        for set in headers.get_all(SET_COOKIE) {
            let Some(cookie) = set.to_str().ok().and_then(|set| Cookie::of(set, from)) else {
                continue;
            };
            let mut all = self.all();
            all.retain(|other| other.name != cookie.name);
            if is_later(cookie.until) && all.len() < COOKIES_MAX {
                all.push(cookie);
            }
        }
    }
}

impl Cookie {
    /// What a `Set-Cookie` from this URL sets. None: nothing that is sent there again.
    fn of(set: &str, from: &Url) -> Option<Self> {
        let (pair, attributes) = set.split_once(';').unwrap_or((set, ""));
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || name.len() + value.len() > COOKIE_BYTES_MAX {
            return None;
        }
        let (mut max_age, mut expires) = (None, None);
        for attribute in attributes.split(';') {
            let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let value = value.trim();
            let is_for_us = match &*key.trim().to_ascii_lowercase() {
                "secure" => is_private(from),
                "domain" => is_within(from.host_str()?, value),
                // Without a slash it is that of the URL.
                "path" => !value.starts_with('/') || is_below(from.path(), value),
                "max-age" => {
                    max_age = value.parse::<i64>().ok().or(max_age);
                    true
                }
                "expires" => {
                    expires = httpdate::parse_http_date(value).ok().or(expires);
                    true
                }
                _ => true,
            };
            if !is_for_us {
                return None;
            }
        }
        let until = match max_age {
            Some(seconds) => {
                let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                SystemTime::now().checked_add(left)
            }
            None => expires,
        };
        let in_ms = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        };
        Some(Self {
            name: name.to_owned(),
            value: value.to_owned(),
            until: until.map(in_ms),
        })
    }
}

fn is_later(until: Option<u64>) -> bool {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    until.is_none_or(|until| u128::from(until) > since.as_millis())
}

/// Whether a host is in a cookie's domain (section 5.1.3). An address is in its own alone.
fn is_within(host: &str, domain: &str) -> bool {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    let above = host.strip_suffix(&domain);
    let is_name = host.parse::<std::net::Ipv4Addr>().is_err();
    above.is_some_and(|above| above.is_empty() || is_name && above.ends_with('.'))
}

/// Whether a path is that of a cookie, or below it (section 5.1.4).
fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(from: &str, set: &[&str]) -> Option<String> {
        let cookies = Cookies::default();
        for set in set {
            let header = HeaderValue::from_str(set).expect("a value");
            let headers = HeaderMap::from_iter([(SET_COOKIE, header)]);
            cookies.note(&headers, &Url::parse(from).expect("a URL"));
        }
        let kept = serde_json::to_string(&cookies).expect("JSON");
        let kept: Cookies = serde_json::from_str(&kept).expect("the same");
        Some(kept.header(None)?.to_str().expect("text").to_owned())
    }

    #[test]
    fn those_of_the_entry_stay_and_go_first() {
        let own = HeaderValue::from_static("a=1");
        let cookies = Cookies::default();
        assert_eq!(cookies.header(Some(&own)), None);
        let headers = HeaderMap::from_iter([(SET_COOKIE, HeaderValue::from_static("b=2"))]);
        cookies.note(&headers, &Url::parse("http://[::1]/").expect("a URL"));
        assert_eq!(cookies.header(Some(&own)).expect("both"), "a=1; b=2");
    }

    #[test]
    fn what_is_set_is_sent_until_it_ends() {
        let at = |set: &[&str]| sent("https://a.example.org/mcp", set);
        assert_eq!(at(&["n=1; Path=/; HttpOnly"]).as_deref(), Some("n=1"));
        assert_eq!(at(&["n=1", "m=2", "n=3"]).as_deref(), Some("m=2; n=3"));
        assert_eq!(at(&["n=a=b; Max-Age=60"]).as_deref(), Some("n=a=b"));
        assert_eq!(at(&["n=1", "n=; Max-Age=0"]), None);
        assert_eq!(at(&["n=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT"]), None);
        let both = "n=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT; Max-Age=9";
        assert_eq!(at(&[both]).as_deref(), Some("n=1"));
        assert_eq!(at(&["no pair", "=1"]), None);
        let many: Vec<String> = (0..60).map(|n| format!("n{n}=1")).collect();
        let many: Vec<&str> = many.iter().map(|set| &**set).collect();
        assert_eq!(at(&many).expect("some").split("; ").count(), COOKIES_MAX);
        assert_eq!(at(&[&format!("n={}", "x".repeat(COOKIE_BYTES_MAX))]), None);
    }

    #[test]
    fn what_is_for_another_place_is_not_sent_to_this() {
        for (from, set, is_sent) in [
            ("https://a.example.org/mcp", "n=1; Domain=example.org", true),
            (
                "https://a.example.org/mcp",
                "n=1; Domain=.A.example.org",
                true,
            ),
            (
                "https://a.example.org/mcp",
                "n=1; Domain=b.example.org",
                false,
            ),
            ("https://a.example.org/mcp", "n=1; Domain=ample.org", false),
            ("http://127.0.0.1/mcp", "n=1; Domain=0.0.1", false),
            ("https://a.example.org/mcp", "n=1; Path=/mcp", true),
            ("https://a.example.org/mcp", "n=1; Path=/m", false),
            ("https://a.example.org/mcp/b", "n=1; Path=/mcp/", true),
            ("https://a.example.org/mcp", "n=1; Secure", true),
            ("http://a.example.org/mcp", "n=1; Secure", false),
            ("http://localhost/mcp", "n=1; Secure", true),
        ] {
            assert_eq!(sent(from, &[set]).is_some(), is_sent, "{from} {set}");
        }
    }
}
