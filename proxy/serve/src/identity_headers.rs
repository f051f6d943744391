//! A proxy that has found out who its client is, and says so in headers.

use axum::http::{HeaderMap, HeaderName};
use mcp_sessiond_client::Caller;
use mcp_sessiond_proto::sessions::IDENTITY_MAX;

use crate::refusal::Refusal;

/// The issuer where no header names one.
const PROXY: &str = "proxy";

/// The issuer of our own user's identity, which no proxy may name.
const UID: &str = "uid";

/// The headers in which a trusted proxy says on whose behalf a request is made. Only a listener
/// that lets in nobody else than the proxy may read them: anybody can send them.
#[derive(Debug)]
pub struct IdentityHeaders {
    subject: HeaderName,
    issuer: Option<HeaderName>,
}

impl IdentityHeaders {
    /// The header that names the subject, and the one that names who has identified it; without the
    /// latter the issuer is `proxy`.
    ///
    /// # Errors
    /// When one is not a name of a header.
    pub fn new(subject: &str, issuer: Option<&str>) -> Result<Self, String> {
        let name = |text: &str| {
            text.parse()
                .map_err(|_| format!("`{text}` is not a name of a header"))
        };
        Ok(Self {
            subject: name(subject)?,
            issuer: issuer.map(name).transpose()?,
        })
    }

    /// The caller whom the proxy names.
    ///
    /// # Errors
    /// 401 when a header is missing, empty or too long, can't be read, or comes more than once.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let sub = only(headers, &self.subject)?;
        let iss = self
            .issuer
            .as_ref()
            .map_or(Ok(PROXY), |issuer| only(headers, issuer))?;
        if iss == UID {
            return Err(Refusal::unauthorized(format!(
                "a proxy can't name the issuer `{UID}`"
            )));
        }
        Ok(Caller::Identity {
            iss: iss.to_owned(),
            sub: sub.to_owned(),
        })
    }
}

/// The value of a header that comes once. If it comes twice, one may be the client's own.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, Refusal> {
    let refused =
        |why: &str| Refusal::unauthorized(format!("the header `{name}` of the proxy {why}"));
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().ok_or_else(|| refused("is missing"))?;
    if values.next().is_some() {
        return Err(refused("comes more than once"));
    }
    let value = std::str::from_utf8(value.as_bytes())
        .map_err(|_| refused("is not UTF-8"))?
        .trim();
    match value.len() {
        0 => Err(refused("is empty")),
        1..=IDENTITY_MAX => Ok(value),
        _ => Err(refused("is too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(issuer: Option<&str>, sent: &[(&str, &str)]) -> Result<(String, String), u16> {
        let headers = IdentityHeaders::new("X-Forwarded-User", issuer).expect("names");
        let mut all = HeaderMap::new();
        for (name, value) in sent {
            let name: HeaderName = name.parse().expect("a name");
            all.append(name, value.parse().expect("a value"));
        }
        match headers.caller(&all) {
            Ok(Caller::Identity { iss, sub }) => Ok((iss, sub)),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.status.as_u16()),
        }
    }

    #[test]
    fn a_proxy_names_the_subject_and_perhaps_the_issuer_and_each_once() {
        let (user, issuer) = (
            ("x-forwarded-user", "ann"),
            ("X-Issuer", "https://id.example"),
        );
        assert_eq!(caller(None, &[user]), Ok(("proxy".into(), "ann".into())));
        assert_eq!(
            caller(Some("x-issuer"), &[user, issuer]),
            Ok((issuer.1.into(), "ann".into()))
        );
        let long = "x".repeat(IDENTITY_MAX + 1);
        for refused in [
            &[][..],
            &[("x-forwarded-user", "")],
            &[user, user],
            &[("x-forwarded-user", &long)],
        ] {
            assert_eq!(caller(None, refused), Err(401), "{refused:?}");
        }
        assert_eq!(caller(Some("x-issuer"), &[user]), Err(401));
        assert_eq!(
            caller(Some("x-issuer"), &[user, ("x-issuer", "uid")]),
            Err(401),
            "that is our own user"
        );
        assert!(IdentityHeaders::new("no name", None).is_err());
    }
}
