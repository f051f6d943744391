//! Lines of a server's standard error that say whose they are, where several servers write to one.

use mcp_sessiond_proto::text::printable;

/// With this our own lines begin.
const OWN: &str = "mcp-sessiond: ";

/// Bytes of a line that are held back until it ends. A longer one is passed on in pieces.
const LINE_MAX: usize = 64 * 1024;

/// Puts a server's name before each of its lines.
#[derive(Debug)]
pub(crate) struct NamedLines {
    /// None: the lines are passed on as they are.
    name: Option<String>,
    /// What has come of a line that has not ended.
    begun: Vec<u8>,
    /// Whether the beginning of that line was passed on.
    is_torn: bool,
}

impl NamedLines {
    /// Of the server of this name; of the only one, where there is none.
    pub(crate) fn of(name: Option<&str>) -> Self {
        Self {
            name: name.map(printable),
            begun: Vec::new(),
            is_torn: false,
        }
    }

    /// What is to be written of these bytes, and of those before.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.name.is_none() {
            return bytes.to_vec();
        }
        let mut named = Vec::with_capacity(bytes.len() + 64);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            let has_ended = piece.ends_with(b"\n");
            if has_ended || self.begun.len() >= LINE_MAX {
                self.write(&mut named);
                self.is_torn = !has_ended;
            }
        }
        named
    }

    /// What is to be written of a line that will not end any more.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let mut named = Vec::new();
        if !self.begun.is_empty() {
            self.write(&mut named);
            // Else what another server writes would stand in the same line.
            named.push(b'\n');
        }
        named
    }

    fn write(&mut self, named: &mut Vec<u8>) {
        if self.is_torn {
            named.extend_from_slice(&self.begun);
        } else {
            self.name_line(&self.begun, named);
        }
        self.begun.clear();
    }

    fn name_line(&self, mut line: &[u8], named: &mut Vec<u8>) {
        if let Some(name) = &self.name {
            if let Some(rest) = line.strip_prefix(OWN.as_bytes()) {
                named.extend_from_slice(OWN.as_bytes());
                line = rest;
            }
            named.extend_from_slice(name.as_bytes());
            named.extend_from_slice(b": ");
        }
        named.extend_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(name: Option<&str>, text: &str, cut: usize) -> String {
        let mut lines = NamedLines::of(name);
        let pieces = text.as_bytes().chunks(cut);
        let mut written: Vec<u8> = pieces.flat_map(|piece| lines.push(piece)).collect();
        written.extend(lines.end());
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn each_line_has_the_name_wherever_it_is_cut() {
        let text = "ready\nmcp-sessiond: the server is stopped\n\nlast";
        let named = "mail: ready\nmcp-sessiond: mail: the server is stopped\nmail: \nmail: last\n";
        for cut in 1..=text.len() {
            assert_eq!(all(Some("mail"), text, cut), named, "{cut}");
            assert_eq!(all(None, text, cut), text);
        }
    }

    #[test]
    fn a_line_without_an_end_is_passed_on_in_pieces() {
        let text = "x".repeat(2 * LINE_MAX + 1);
        assert_eq!(all(Some("mail"), &text, 1_000), format!("mail: {text}\n"));
    }

    #[test]
    fn a_name_can_t_write_to_the_terminal() {
        assert_eq!(all(Some("a\u{1b}[2J"), "x\n", 9), "a\u{fffd}[2J: x\n");
    }
}
