//! The events of a session as they come: which kind of message each is, its method and its size.
//! Never the message.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_client::{Cursor, Event, Json, Replayed, Session, SessionError};
use mcp_sessiond_http_session::sse::COMMENT;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::views::{now_ms, shorten};

/// Events of the past that a page is told of at first.
const PAST_MAX: u64 = 200;

/// An event.
#[derive(Debug, Serialize)]
struct EventView<'a> {
    /// Its number in the session.
    number: u64,
    /// When it came, in ms since the Unix epoch; null: before this page watched.
    at_ms: Option<u64>,
    stream: &'a str,
    position: u64,
    kind: &'static str,
    /// Answers have none.
    method: Option<String>,
    /// Of the message.
    bytes: usize,
}

/// The body of a response that tells of a session's events.
pub(super) struct Watch {
    session: Session,
    after: Cursor,
    /// Whether what was stored before is told.
    is_current: bool,
    waiting: VecDeque<Bytes>,
    keep_alive: Duration,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Watch {
    /// Tells of the events after number `last`; without one of the last few, and of all that come.
    pub(super) fn after(
        session: Session,
        last: Option<u64>,
        last_number: u64,
        keep_alive: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let after = Cursor::Number(last.unwrap_or_else(|| last_number.saturating_sub(PAST_MAX)));
        let waiting = VecDeque::new();
        Self {
            session,
            after,
            is_current: false,
            waiting,
            keep_alive,
            is_over: false,
            _permit: permit,
        }
    }

    /// The next part of the body. None: the body ends.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(part) = self.waiting.pop_front() {
                return Some(part);
            }
            if self.is_over {
                return None;
            }
            let page = if self.is_current {
                self.session
                    .wait(std::slice::from_ref(&self.after), self.keep_alive)
                    .await
            } else {
                self.session.replay(&self.after).await
            };
            self.take(page).await;
        }
    }

    async fn take(&mut self, page: Result<Replayed, SessionError>) {
        match page {
            Ok(page) => self.push(page),
            Err(error) if error.passes() => {
                self.waiting.push_back(COMMENT.into());
                sleep(self.keep_alive / 4).await;
            }
            Err(_) => {
                self.is_over = true;
                self.waiting.push_back("event: end\ndata: {}\n\n".into());
            }
        }
    }

    fn push(&mut self, page: Replayed) {
        let Replayed {
            events,
            gaps,
            next,
            more,
            ..
        } = page;
        for gap in gaps {
            let lost = format!(r#"{{"first":{},"last":{}}}"#, gap.first, gap.last);
            self.waiting
                .push_back(format!("event: gap\ndata: {lost}\n\n").into());
        }
        if events.is_empty() && self.is_current {
            self.waiting.push_back(COMMENT.into());
        }
        let at_ms = self.is_current.then(now_ms);
        self.waiting
            .extend(events.iter().map(|event| part(event, at_ms)));
        if let Some(next) = next.into_iter().next() {
            self.after = next;
        }
        if !self.is_current && !more {
            self.is_current = true;
            // From here on each event is told when it comes.
            self.waiting
                .push_back("event: current\ndata: {}\n\n".into());
        }
    }
}

fn part(event: &Event, at_ms: Option<u64>) -> Bytes {
    let (kind, method) = kind(&event.message);
    let Event {
        number, position, ..
    } = *event;
    let (stream, bytes) = (event.stream.as_str(), event.message.len());
    let shown = EventView {
        number,
        at_ms,
        stream,
        position,
        kind,
        method,
        bytes,
    };
    let shown = serde_json::to_string(&shown).unwrap_or_default();
    format!("id: {number}\ndata: {shown}\n\n").into()
}

/// What kind of message it is, and its method.
fn kind(message: &Json) -> (&'static str, Option<String>) {
    let copy = OnceCell::new();
    match Line::of(message.as_str().as_bytes(), &copy)
        .message()
        .map(|message| message.kind)
    {
        Some(Kind::Request { method, .. }) => ("request", Some(shorten(method.into_owned()))),
        Some(Kind::Notification { method }) => ("notification", Some(shorten(method.into_owned()))),
        Some(Kind::Answer { failed: true, .. }) => ("error", None),
        Some(Kind::Answer { .. }) => ("answer", None),
        None => ("other", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_by_its_kind_method_and_size_and_not_by_what_it_says() {
        let of = |text: &str| kind(&Json::new(text).expect("JSON"));
        let secret = r#""params":{"data":"secret"}"#;
        let asked = of(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping",{secret}}}"#
        ));
        assert_eq!(asked, ("request", Some("ping".into())));
        let told = of(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message",{secret}}}"#
        ));
        assert_eq!(told, ("notification", Some("notifications/message".into())));
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":"secret","result":"secret"}"#),
            ("answer", None)
        );
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"secret"}}"#),
            ("error", None)
        );
        let long = of(&format!(
            r#"{{"jsonrpc":"2.0","method":"{}"}}"#,
            "x".repeat(5_000)
        ))
        .1;
        assert!(long.is_some_and(|method| method.chars().count() <= 101));
    }
}
