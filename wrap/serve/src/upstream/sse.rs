//! Server-sent events as they come (HTML, section 9.2.6): bytes in, events out.

/// Bytes that one event may have.
pub(super) const EVENT_MAX: usize = 16 * 1024 * 1024;

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its id, if it has one.
    pub(super) id: Option<String>,
    /// Its data; empty where it has none.
    pub(super) data: String,
    /// After how many ms the server wants its client to come back.
    pub(super) retry: Option<u64>,
    /// Whether it is of the kind that carries messages.
    pub(super) is_message: bool,
}

/// An event, or a line of one, that has more than [`EVENT_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the server has more than {EVENT_MAX} bytes")]
pub(super) struct TooLarge;

/// What was read of an event that is not at its end.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it belongs to it.
    returned: bool,
    has_begun: bool,
    id: Option<String>,
    data: Option<String>,
    retry: Option<u64>,
    kind: String,
}

impl Parser {
    /// Reads on. Each event that has come to its end goes to `heard`.
    ///
    /// # Errors
    /// [`TooLarge`]: nothing after it can be read.
    pub(super) fn read(&mut self, bytes: &[u8], mut heard: impl FnMut(Event)) -> Result<(), TooLarge> {
        for &byte in bytes {
            let follows = std::mem::replace(&mut self.returned, byte == b'\r');
            match byte {
                b'\n' if follows => {}
                b'\n' | b'\r' => {
                    if let Some(event) = self.end_of_line() {
                        heard(event);
                    }
                }
                _ => {
                    if self.line.len() + self.data.as_ref().map_or(0, String::len) >= EVENT_MAX {
                        return Err(TooLarge);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    fn end_of_line(&mut self) -> Option<Event> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = &*text;
        if !std::mem::replace(&mut self.has_begun, true) {
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
            // A comment, or a field of other times.
            _ => {}
        }
        None
    }

    fn end_of_event(&mut self) -> Option<Event> {
        let (id, data, retry) = (self.id.take(), self.data.take(), self.retry.take());
        let kind = std::mem::take(&mut self.kind);
        if id.is_none() && data.is_none() && retry.is_none() {
            return None;
        }
        let is_message = kind.is_empty() || kind == "message";
        Some(Event { id, data: data.unwrap_or_default(), retry, is_message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for part in parts {
            parser.read(part.as_bytes(), |event| events.push(event)).expect("not too large");
        }
        events
    }

    fn message(id: Option<&str>, data: &str) -> Event {
        Event { id: id.map(str::to_owned), data: data.into(), retry: None, is_message: true }
    }

    #[test]
    fn events_come_whole_whatever_ends_their_lines_and_wherever_they_are_cut() {
        for end in ["\n", "\r\n", "\r"] {
            let text =
                [": a comment", "", "id: 7", "data: {\"a\":", "data:1}", "", "data: 2", "", "data: lost"];
            let text = text.join(end);
            let expected = vec![message(Some("7"), "{\"a\":\n1}"), message(None, "2")];
            assert_eq!(read(&[&text]), expected, "{end:?}");
            for at in 0..text.len() {
                assert_eq!(read(&[&text[..at], &text[at..]]), expected, "{end:?} cut at {at}");
            }
        }
    }

    #[test]
    fn an_event_without_data_brings_its_id_and_when_to_come_back() {
        let priming = Event { retry: Some(500), ..message(Some("a"), "") };
        assert_eq!(read(&["\u{feff}id: a\nretry: 500\ndata: \n\n"]), std::slice::from_ref(&priming));
        assert_eq!(read(&["id: a\nretry: 500\n\n"]), [priming]);
        let other = Event { is_message: false, ..message(None, "/messages") };
        assert_eq!(
            read(&["event: endpoint\ndata: /messages\n\nevent: message\ndata: 1\n\n"]),
            [other, message(None, "1")]
        );
        assert_eq!(read(&["id: no\0ne\nretry: soon\nother: field\n\n"]), []);
    }

    #[test]
    fn an_event_without_an_end_is_not_kept_for_ever() {
        let mut parser = Parser::default();
        let part = vec![b'x'; EVENT_MAX / 4];
        let read: Vec<_> = (0..5).map(|_| parser.read(&part, |_| panic!("no event"))).collect();
        assert_eq!(read, [Ok(()), Ok(()), Ok(()), Ok(()), Err(TooLarge)]);
    }
}
