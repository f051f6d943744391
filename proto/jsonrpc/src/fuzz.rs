//! Whatever a line is, it is read without a panic, and what is passed on of it is what was sent.
//! `tests/fuzz` runs this with coverage; as an ordinary test it runs its corpus and some random
//! inputs.

use core::cell::OnceCell;

use bytes::Bytes;

use crate::capabilities::declare_list_changes;
use crate::message::{Kind, Line, Part};
use crate::{Oversized, edited, id_prefix, owned};

#[test]
fn lines_are_read() {
    bolero::check!().for_each(|line: &[u8]| {
        let copy = OnceCell::new();
        let read = Line::of(line, &copy);
        for (span, part) in read.parts() {
            let sent = span.map_or(line, |span| &line[span]);
            let Part::Message(message) = part else {
                continue;
            };
            assert_eq!(message.raw, sent);
            if let Kind::Request { id, .. } | Kind::Answer { id, .. } = &message.kind {
                assert!(sent.windows(id.len()).any(|part| part == id.as_bytes()));
            }
            let parts = [message.params(), message.result(), message.error()];
            for part in parts.into_iter().flatten() {
                assert!(part.sent().is_none_or(|part| part.len() <= sent.len()));
            }
            let _ = (message.not_json(), message.error_code(), message.uri());
            let _ = (message.asked_progress(), message.answered_subscription());
        }
        let line = Bytes::copy_from_slice(line);
        assert_eq!(edited(&line, |_, _| {}), line);
        let declared = edited(&line, declare_list_changes);
        let changes = edited(&declared, declare_list_changes);
        assert_eq!(changes, declared, "it is declared once");
        let there = id_prefix::tagged(&line, "x");
        assert!(there.len() >= line.len());
        for message in owned::Message::read(&line) {
            assert_eq!(owned::Message::read(&message.write()).len(), 1);
        }
        let (head, tail) = line.split_at(line.len() / 2);
        let _ = (
            Oversized::of_host(head, tail),
            Oversized::of_server(head, tail),
        );
    });
}
