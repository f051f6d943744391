//! Server-sent events as they come (HTML, section 9.2.6): bytes in, events out.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mcp_sessiond_proto::backends::relayed_max;

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Its data; empty where it has none.
    pub data: String,
    /// After how many ms the server wants its client to come back.
    pub retry: Option<u64>,
    /// Whether it is of the kind that carries messages.
    pub is_message: bool,
}

/// An event, or a line of one, that has more than [`relayed_max`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// How many of the bytes were read.
    pub read: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "an event of the server has more than {} bytes",
            relayed_max()
        )
    }
}

impl core::error::Error for TooLarge {}

/// What was read of an event that is not at its end.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it belongs to it.
    returned: bool,
    has_begun: bool,
    id: Option<String>,
    data: Option<String>,
    retry: Option<u64>,
    kind: String,
    /// The event is too large: nothing but its id is kept.
    skips: bool,
}

impl Parser {
    /// Reads on. Each event that is complete goes to `heard`.
    ///
    /// # Errors
    /// [`TooLarge`], once for each such event. The next call skips the rest of it; of its
    /// fields, those before its data are kept.
    pub fn read(&mut self, bytes: &[u8], mut heard: impl FnMut(Event)) -> Result<(), TooLarge> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &rest[..end.unwrap_or(rest.len())];
            self.returned &= part.is_empty();
            let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
            let room = relayed_max().saturating_sub(held);
            if self.skips {
                // A comment stands for a line of which nothing is kept.
                if !part.is_empty() {
                    self.line = Vec::from(b":");
                }
            } else if part.len() > room {
                (self.skips, self.line, self.data) = (true, Vec::from(b":"), None);
                let read = bytes.len() - rest.len() + room + 1;
                return Err(TooLarge { read });
            } else {
                self.line.extend_from_slice(part);
            }
            let Some(end) = end else { break };
            let is_return = rest[end] == b'\r';
            let follows = core::mem::replace(&mut self.returned, is_return);
            rest = &rest[end + 1..];
            if (is_return || !follows)
                && let Some(event) = self.end_of_line()
            {
                heard(event);
            }
        }
        Ok(())
    }

    /// The id of the event that is not at its end, where that has come before its data.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn end_of_line(&mut self) -> Option<Event> {
        let bytes = core::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = &*text;
        if !core::mem::replace(&mut self.has_begun, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_of_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => self.retry = value.parse().ok().or(self.retry),
            "event" => value.clone_into(&mut self.kind),
            // A comment, or an unknown field.
            _ => {}
        }
        None
    }

    fn end_of_event(&mut self) -> Option<Event> {
        let (id, data, retry) = (self.id.take(), self.data.take(), self.retry.take());
        let kind = core::mem::take(&mut self.kind);
        self.skips = false;
        if id.is_none() && data.is_none() && retry.is_none() {
            return None;
        }
        let is_message = kind.is_empty() || kind == "message";
        Some(Event {
            id,
            data: data.unwrap_or_default(),
            retry,
            is_message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for part in parts {
            parser
                .read(part.as_bytes(), |event| events.push(event))
                .expect("not too large");
        }
        events
    }

    fn message(id: Option<&str>, data: &str) -> Event {
        Event {
            id: id.map(str::to_owned),
            data: data.into(),
            retry: None,
            is_message: true,
        }
    }

    #[test]
    fn events_come_whole_whatever_ends_their_lines_and_wherever_they_are_cut() {
        for end in ["\n", "\r\n", "\r"] {
            let text = [
                ": a comment",
                "",
                "id: 7",
                "data: {\"a\":",
                "data:1}",
                "",
                "data: 2",
                "",
                "data: lost",
            ];
            let text = text.join(end);
            let expected = vec![message(Some("7"), "{\"a\":\n1}"), message(None, "2")];
            assert_eq!(read(&[&text]), expected, "{end:?}");
            for at in 0..text.len() {
                assert_eq!(
                    read(&[&text[..at], &text[at..]]),
                    expected,
                    "{end:?} cut at {at}"
                );
            }
        }
    }

    #[test]
    fn an_event_without_data_brings_its_id_and_when_to_come_back() {
        let priming = Event {
            retry: Some(500),
            ..message(Some("a"), "")
        };
        assert_eq!(
            read(&["\u{feff}id: a\nretry: 500\ndata: \n\n"]),
            std::slice::from_ref(&priming)
        );
        assert_eq!(read(&["id: a\nretry: 500\n\n"]), [priming]);
        let other = Event {
            is_message: false,
            ..message(None, "/messages")
        };
        assert_eq!(
            read(&["event: endpoint\ndata: /messages\n\nevent: message\ndata: 1\n\n"]),
            [other, message(None, "1")]
        );
        assert_eq!(read(&["id: no\0ne\nretry: soon\nother: field\n\n"]), []);
    }

    #[test]
    fn an_event_without_an_end_is_not_kept_for_ever() {
        let mut parser = Parser::default();
        let part = vec![b'x'; relayed_max() / 4];
        let read: Vec<_> = (0..6)
            .map(|_| parser.read(&part, |_| panic!("no event")))
            .collect();
        assert_eq!(
            read,
            [
                Ok(()),
                Ok(()),
                Ok(()),
                Ok(()),
                Err(TooLarge { read: 1 }),
                Ok(())
            ]
        );
    }

    #[test]
    fn nothing_of_an_event_that_is_too_large_is_heard_but_its_id() {
        let large = [
            "id: 1\ndata: ",
            &"x".repeat(relayed_max()),
            "\ndata: 2\n\nid: 3\ndata: 4\n\n",
        ]
        .concat();
        let (mut parser, mut heard) = (Parser::default(), Vec::new());
        let error = parser
            .read(large.as_bytes(), |event| heard.push(event))
            .expect_err("too large");
        assert_eq!((parser.id(), heard.len()), (Some("1"), 0));
        assert_eq!(
            parser.read(&large.as_bytes()[error.read..], |event| heard.push(event)),
            Ok(())
        );
        assert_eq!(heard, [message(Some("1"), ""), message(Some("3"), "4")]);
    }
}
