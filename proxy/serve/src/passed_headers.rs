//! Headers of a client that the server behind `serve` gets: a key of the user's own, say. They are part of whom a session belongs to,
//! so that nobody goes on with what the server has begun for another key. They are stored nowhere: each request brings them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use mcp_sessiond_client::{Caller, credential};

use crate::refusal::Refusal;

/// Headers, with their values.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// Which headers are passed on, and what the callers have sent.
#[derive(Debug, Default)]
pub struct PassedHeaders {
    names: Vec<HeaderName>,
    /// How many callers are remembered: as many as may have a session.
    callers: usize,
    /// What each has sent, the latest last.
    sent: Mutex<VecDeque<(Caller, Headers)>>,
}

impl PassedHeaders {
    /// These headers are passed on, for at most so many callers at one time.
    ///
    /// # Errors
    /// When one can't be.
    pub fn new(names: &[String], callers: usize) -> Result<Self, String> {
        let name = |text: &String| match text.parse() {
            Err(_) => Err(format!("`{text}` is not a name of a header")),
            // Cookies belong to a session with the server.
            Ok(header::COOKIE) => {
                Err("cookies are kept for each session, and not passed on".into())
            }
            Ok(name) => Ok(name),
        };
        Ok(Self {
            names: names.iter().map(name).collect::<Result<_, _>>()?,
            callers,
            sent: Mutex::default(),
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether this one is passed on.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.names.contains(name)
    }

    /// The caller of a request with these headers, on whose behalf it is made as far as is proven.
    ///
    /// # Errors
    /// 400 when a header is there twice, or is not text.
    pub fn caller(&self, proven: Caller, headers: &HeaderMap) -> Result<Caller, Refusal> {
        if self.is_empty() {
            return Ok(proven);
        }
        let mut sent = Headers::new();
        let mut text = match &proven {
            Caller::Identity { iss, sub } => {
                format!("{} {iss}{} {sub}", iss.len(), sub.len()).into_bytes()
            }
            Caller::Credential { hash } => hash.0.to_vec(),
        };
        for name in &self.names {
            let wrong = |why: &str| Refusal::invalid(format!("the header `{name}` {why}"));
            let mut values = headers.get_all(name).into_iter();
            let Some(value) = values.next() else { continue };
            if values.next().is_some() {
                return Err(wrong("is there twice"));
            }
            let mut value = value.clone();
            value.to_str().map_err(|_| wrong("is not text"))?;
            value.set_sensitive(true);
            // No value has a newline.
            for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
                text.extend_from_slice(part);
            }
            sent.push((name.clone(), value));
        }
        let caller = credential(&text);
        self.remember(caller.clone(), sent);
        Ok(caller)
    }

    fn remember(&self, caller: Caller, headers: Headers) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        match sent.iter().position(|(known, _)| *known == caller) {
            Some(at) => drop(sent.remove(at)),
            None if sent.len() >= self.callers.max(1) => drop(sent.pop_front()),
            None => {}
        }
        sent.push_back((caller, headers));
    }

    /// What this caller has sent. None: so many others have asked since that it is not known any more; the caller's next request
    /// brings it.
    pub fn of(&self, caller: &Caller) -> Option<Headers> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, headers) = sent.iter().find(|(known, _)| known == caller)?;
        Some(headers.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-key", HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_value_is_part_of_the_caller_and_is_known_for_the_latest_ones() {
        let passed = PassedHeaders::new(&["X-Key".into()], 2).expect("a name");
        let proven = credential(b"token");
        let caller = |values: &[&'static str]| passed.caller(proven.clone(), &with(values));
        let [one, two, none] =
            [&["one"][..], &["two"], &[]].map(|values| caller(values).expect("a caller"));
        assert!(one != two && one != none && two != none && none != proven);
        assert_eq!(passed.of(&none), Some(Headers::new()));
        assert_eq!(passed.of(&one), None, "two have come since");
        assert_eq!(caller(&["one"]).expect("a caller"), one);
        assert_eq!(passed.of(&one).map(|sent| sent.len()), Some(1));
        let twice = caller(&["one", "two"]).expect_err("twice");
        assert_eq!(twice.status.as_u16(), 400);
        caller(&["hidden"]).expect("a caller");
        let shown = format!("{passed:?}");
        assert!(
            shown.contains("x-key") && !shown.contains("hidden"),
            "{shown}"
        );
        let other = passed.caller(credential(b"other"), &with(&["one"]));
        assert_ne!(other.expect("a caller"), one);
    }

    #[test]
    fn without_a_name_the_caller_is_the_proven_one() {
        let passed = PassedHeaders::default();
        let caller = passed.caller(credential(b"token"), &with(&["one"]));
        assert_eq!(caller.expect("a caller"), credential(b"token"));
        for wrong in ["no name", "Cookie"] {
            PassedHeaders::new(&[wrong.into()], 2).expect_err(wrong);
        }
    }
}
