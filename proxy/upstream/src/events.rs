//! Events of a response, as they come.

use std::collections::VecDeque;
use std::fmt;

use mcp_sessiond_relay::sse::{Event, Parser};
use reqwest::Response;

use crate::body::{Body, BodyError};

/// The events.
pub(super) struct Events {
    body: Body,
    parser: Parser,
    events: VecDeque<Event>,
    /// Whether the connection broke, and the server has not ended the stream.
    pub(super) broke_off: bool,
    /// Whether an event was too large: the rest of the stream can't be read.
    pub(super) is_too_large: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    pub(super) fn of(response: Response) -> Result<Self, BodyError> {
        Ok(Self {
            body: Body::of(response)?,
            parser: Parser::default(),
            events: VecDeque::new(),
            broke_off: false,
            is_too_large: false,
        })
    }

    /// The id of the event that was too large, where that is known.
    pub(super) fn too_large(&self) -> Option<String> {
        self.parser.id().map(str::to_owned)
    }

    /// The next one. None: the stream has ended, or broken off, or can't be read any more.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.is_too_large {
                return None;
            }
            let Ok(bytes) = self.body.next().await? else {
                self.broke_off = true;
                return None;
            };
            self.is_too_large = self
                .parser
                .read(&bytes, |event| self.events.push_back(event))
                .is_err();
        }
    }
}
