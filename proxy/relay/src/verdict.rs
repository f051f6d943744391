//! What a refusal of a remote server means: that this one request is refused, or that the session
//! is gone.
//!
//! Servers say in many ways that they don't know a session: 404 with -32001 and no id, 404 with
//! -32600, 404 as text, 404 with an empty error, 404 with -32001 under the request's own id; and
//! some answer 404 with -32601 in a session that lives. Others say it by 400 "Invalid Request", 403,
//! 500, or 200 with an error of no request. So neither status nor words nor the id decide. They only
//! make a server suspected, and one `ping` in the session decides.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use mcp_sessiond_jsonrpc::readable::Readable;

/// A refusal: a response of HTTP whose status is not 2xx, or is 200 with an error whose id is null.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The status.
    pub status: u16,
    /// Whether the request named a session.
    pub in_session: bool,
    /// Whether the server asks for a login (`WWW-Authenticate`).
    pub has_challenge: bool,
    /// What it says.
    pub body: &'a Bytes,
}

/// What a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The body answers the request under its own id, and is passed on.
    Answer,
    /// The request is refused, and nothing else.
    Refused,
    /// The server may not know the session any more: a `ping` in it decides.
    Suspected,
}

/// What a `ping` says of the session that it was sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// The server knows it: the refusal was about the one request.
    Alive,
    /// The server does not know it.
    Gone,
    /// The server does not say. The session stays, and the request gets the server's own refusal.
    Unclear,
}

impl Refusal<'_> {
    /// What it means for a request with this id, which is JSON; none for a notification, an answer
    /// or a GET. `answers_by_404`: whether this server was seen to answer by 404 under the request's
    /// own id in a session that lives.
    pub fn verdict(&self, id: Option<&str>, answers_by_404: bool) -> Verdict {
        let is_answer = id.is_some_and(|id| self.answers(id));
        // Behind these a server says what has become of the request, if it names that.
        let is_vague = matches!(self.status, 200 | 403 | 500) && !self.has_challenge;
        let is_suspect = self.in_session && (self.denies_session() || is_vague);
        if is_suspect && !(is_answer && (answers_by_404 || is_vague)) {
            Verdict::Suspected
        } else {
            self.about_the_request(id)
        }
    }

    /// What it means once it is known that it is about this request alone.
    pub fn about_the_request(&self, id: Option<&str>) -> Verdict {
        if id.is_some_and(|id| self.answers(id)) {
            Verdict::Answer
        } else {
            Verdict::Refused
        }
    }

    /// What this refusal of a `ping` with this id says of its session.
    pub fn of_ping(&self, id: &str) -> SessionState {
        let copy = OnceCell::new();
        let read = Line::of(self.body, &copy).message();
        let no_method = read
            .and_then(|message| message.error_code())
            .is_some_and(|code| code == code::NO_METHOD);
        if no_method && self.answers(id) {
            SessionState::Alive
        } else if self.in_session && self.denies_session() {
            SessionState::Gone
        } else {
            SessionState::Unclear
        }
    }

    /// Whether a request that is nothing but well-formed is refused so because of its session.
    fn denies_session(&self) -> bool {
        match self.status {
            404 | 410 => true,
            400 => names_session(self.body) || self.is_invalid_request(),
            200 | 401 | 403 | 500 => !self.has_challenge && names_session(self.body),
            _ => false,
        }
    }

    /// Whether the server has not begun the request, if the session is gone: so it may be sent once
    /// more.
    pub fn may_be_repeated(&self) -> bool {
        match self.status {
            404 | 410 => true,
            400 | 401 => names_session(self.body),
            _ => false,
        }
    }

    /// Whether the server says itself that it does not know the session, and nothing of the request
    /// with this id. Where a `ping` says otherwise, they come from several nodes. Only a call is
    /// believed: a server may say so of each GET.
    pub fn contradicts_ping(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| !self.answers(id)) && self.may_be_repeated() && names_session(self.body)
    }

    /// Whether it is an error that says "Invalid Request", and not of which request.
    fn is_invalid_request(&self) -> bool {
        let copy = OnceCell::new();
        let message = Line::of(self.body, &copy).message();
        message.is_some_and(|message| message.error_code() == Some(code::INVALID_REQUEST))
            && self.answers("null")
    }

    /// Whether the body is an answer to the request with this id.
    fn answers(&self, id: &str) -> bool {
        let copy = OnceCell::new();
        let message = Line::of(self.body, &copy).message();
        message.is_some_and(
            |message| matches!(message.kind, Kind::Answer { id: answered, .. } if is_same(answered, id)),
        )
    }
}

/// Whether two ids are one: a server may escape other letters of a text than its client has.
fn is_same(one: &str, other: &str) -> bool {
    let read = |id: &str| serde_json::from_str::<String>(id).ok();
    one == other || read(one).is_some_and(|one| read(other) == Some(one))
}

/// Letters of a refusal's text that a call gets.
const SAID_MAX: usize = 200;

/// Whether a refusal speaks of the session.
pub fn names_session(body: &[u8]) -> bool {
    let said = String::from_utf8_lossy(body).to_ascii_lowercase();
    // The word alone: `session_name` is somebody's argument.
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = said.split(|c| !is_part(c));
    words.any(|word| ["session", "sessionid"].contains(&word)) || said.contains("not initialized")
}

/// The message of the error that a refusal is. Some servers leave its id out.
pub fn error_message(body: &[u8]) -> Option<String> {
    let body = Readable::of_sent(core::str::from_utf8(body).ok()?);
    body.member("error")?.member("message")?.read()
}

/// What a refusal says, in one line: the message of its error, or its text.
pub fn said(body: &[u8]) -> Option<String> {
    if let Some(message) = error_message(body) {
        return Some(message);
    }
    let text = String::from_utf8_lossy(body);
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_text = !words.is_empty() && !text.trim_start().starts_with(['<', '{', '[']);
    is_text.then(|| words.join(" ").chars().take(SAID_MAX).collect())
}

/// A place without its query and without a user, either of which may hold a secret.
pub fn without_secrets(location: &str) -> String {
    let place = location.split(['?', '#']).next().unwrap_or_default();
    match place.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => place.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &'static str) -> (u16, Bytes) {
        (status, Bytes::from_static(body.as_bytes()))
    }

    fn verdict((status, body): &(u16, Bytes), in_session: bool, known: bool) -> Verdict {
        let refusal = Refusal {
            status: *status,
            in_session,
            has_challenge: false,
            body,
        };
        refusal.verdict(Some("7"), known)
    }

    const OWN: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#;
    const OWN_SESSION: &str =
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"no session x"}}"#;
    const NOBODYS: &str =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}"#;
    const NULL: &str =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;

    #[test]
    fn all_ways_to_say_that_a_session_is_unknown_are_suspected() {
        for (status, body) in [
            (404, NULL),
            (
                404,
                r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"x"}}"#,
            ),
            (404, "Not Found"),
            (404, r#"{"jsonrpc":"2.0","id":7}"#),
            (
                404,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"x"}}"#,
            ),
            (404, OWN),
            (410, ""),
            (400, "Bad Request: No valid session ID provided"),
            (400, "Bad Request: Server not initialized"),
            (401, "Unauthorized: Session not found"),
            (400, "invalid sessionId"),
            (400, NOBODYS),
            (200, NOBODYS),
            (403, "Forbidden"),
            (500, NOBODYS),
        ] {
            let refused = refusal(status, body);
            assert_eq!(
                verdict(&refused, true, false),
                Verdict::Suspected,
                "{status} {body}"
            );
            assert_ne!(
                verdict(&refused, false, false),
                Verdict::Suspected,
                "{status} {body}"
            );
        }
    }

    #[test]
    fn what_says_nothing_of_the_session_is_about_the_request() {
        for (status, body) in [
            (400, "`session_name` is missing"),
            (400, "Parse error"),
            (
                400,
                r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32600,"message":"no"}}"#,
            ),
            (401, ""),
            (429, "session"),
            (503, "session"),
        ] {
            assert_eq!(
                verdict(&refusal(status, body), true, false),
                Verdict::Refused,
                "{status} {body}"
            );
        }
        for status in [200, 403, 500] {
            assert_eq!(verdict(&refusal(status, OWN), true, false), Verdict::Answer);
        }
        assert_eq!(verdict(&refusal(404, OWN), false, false), Verdict::Answer);
    }

    #[test]
    fn a_server_that_answers_by_404_is_not_suspected_for_it_again() {
        assert_eq!(verdict(&refusal(404, OWN), true, true), Verdict::Answer);
        assert_eq!(verdict(&refusal(404, NULL), true, true), Verdict::Suspected);
    }

    #[test]
    fn a_login_is_asked_for_first() {
        let body = Bytes::from_static(b"session expired");
        let asked = Refusal {
            status: 401,
            in_session: true,
            has_challenge: true,
            body: &body,
        };
        assert_eq!(asked.verdict(None, false), Verdict::Refused);
    }

    #[test]
    fn a_ping_decides() {
        let state = |status, body: &'static str| {
            let body = Bytes::from_static(body.as_bytes());
            let refusal = Refusal {
                status,
                in_session: true,
                has_challenge: false,
                body: &body,
            };
            refusal.of_ping("7")
        };
        assert_eq!(state(404, OWN), SessionState::Alive);
        assert_eq!(state(404, NULL), SessionState::Gone);
        assert_eq!(state(404, ""), SessionState::Gone);
        assert_eq!(state(400, "no such session"), SessionState::Gone);
        assert_eq!(state(400, NOBODYS), SessionState::Gone);
        for status in [200, 403, 500] {
            assert_eq!(state(status, NULL), SessionState::Gone);
            assert_eq!(state(status, NOBODYS), SessionState::Unclear);
        }
        for status in [429, 502, 503] {
            assert_eq!(state(status, "session"), SessionState::Unclear);
        }
    }

    #[test]
    fn what_was_not_begun_may_be_repeated() {
        let read = |(status, body): (u16, &'static str)| {
            let body = Bytes::from_static(body.as_bytes());
            let refusal = Refusal {
                status,
                in_session: true,
                has_challenge: false,
                body: &body,
            };
            (
                refusal.may_be_repeated(),
                refusal.contradicts_ping(Some("7")),
            )
        };
        for (refused, expected) in [
            ((404, NULL), (true, true)),
            ((404, "Not Found"), (true, false)),
            ((404, OWN_SESSION), (true, false)),
            ((400, "no such session"), (true, true)),
            ((400, NOBODYS), (false, false)),
            ((403, NULL), (false, false)),
            ((500, NULL), (false, false)),
            ((200, NULL), (false, false)),
        ] {
            assert_eq!(read(refused), expected, "{refused:?}");
        }
        let body = Bytes::from_static(NULL.as_bytes());
        let refusal = Refusal {
            status: 404,
            in_session: true,
            has_challenge: false,
            body: &body,
        };
        assert!(!refusal.contradicts_ping(None), "it was a GET");
    }

    #[test]
    fn a_place_is_shown_without_secrets() {
        for (location, shown) in [
            (
                "https://a:b@c.example:1/mcp?x=y#z",
                "https://c.example:1/mcp",
            ),
            ("https://c.example", "https://c.example"),
            ("/login?next=/mcp", "/login"),
        ] {
            assert_eq!(without_secrets(location), shown);
        }
    }

    #[test]
    fn a_refusal_says_its_error_or_its_text() {
        assert_eq!(
            said(br#"{"error":{"message":"no"}}"#).as_deref(),
            Some("no")
        );
        assert_eq!(said(b"not\n found ").as_deref(), Some("not found"));
        assert_eq!(said(b"<html>"), None);
        assert_eq!(said(b""), None);
    }
}
