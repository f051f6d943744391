//! What the backend writes to its standard error: the end of it is kept, and the front's host is
//! shown it as it comes.

use std::collections::VecDeque;

use mcp_sessiond_proto::backends::Written;

use super::error_line::error_line;

/// The last bytes of what was written.
#[derive(Debug)]
pub struct StderrRing {
    bytes: VecDeque<u8>,
    most: usize,
    /// How many of them came since the running backend was started.
    recent: usize,
    /// How many were written in all.
    total: u64,
}

impl StderrRing {
    /// Keeps `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            most,
            recent: 0,
            total: 0,
        }
    }

    /// Takes in what was written, and lets go of the oldest.
    pub fn push(&mut self, written: &[u8]) {
        let kept = &written[written.len().saturating_sub(self.most)..];
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.most);
        self.bytes.drain(..over);
        self.bytes.extend(kept);
        self.recent = (self.recent + kept.len()).min(self.bytes.len());
        self.total += written.len() as u64;
    }

    /// Another backend is started.
    pub fn begin(&mut self) {
        self.recent = 0;
    }

    /// The line of the running backend, or of the one that has just ended, that says why it has
    /// ended: the beginning of it if it is long.
    pub fn error_line(&self) -> Option<String> {
        error_line(&String::from_utf8_lossy(&self.recent()))
    }

    /// What is kept of the running backend, or of the one that has just ended.
    pub fn recent(&self) -> Vec<u8> {
        let bytes = self.bytes();
        bytes[bytes.len() - self.recent..].to_vec()
    }

    /// What is kept.
    pub fn bytes(&self) -> Vec<u8> {
        let (first, second) = self.bytes.as_slices();
        [first, second].concat()
    }

    /// What was written after the first `after` bytes.
    pub fn after(&self, after: u64) -> Written {
        let bytes = self.bytes();
        let first = self.total - bytes.len() as u64;
        let from = after.clamp(first, self.total);
        let new = &bytes[usize::try_from(from - first).unwrap_or(bytes.len())..];
        // What begins a character may be followed by the rest of it.
        let open = new
            .utf8_chunks()
            .last()
            .map_or(0, |chunk| chunk.invalid().len());
        let text = String::from_utf8_lossy(&new[..new.len() - open]).into_owned();
        Written {
            text,
            next: self.total - open as u64,
            missed: first.saturating_sub(after),
        }
    }

    /// The same as text. Half a character at its beginning shows as one that can't be shown.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_of_the_latest_backend_are_quoted() {
        let mut ring = StderrRing::new(1_000);
        assert_eq!(ring.error_line(), None);
        ring.push(b"first\nError: no key\n \n\n");
        assert_eq!(ring.error_line().as_deref(), Some("Error: no key"));
        ring.begin();
        assert_eq!(ring.error_line(), None, "those were another one's words");
        ring.push(b"new");
        assert_eq!(ring.error_line().as_deref(), Some("new"));
        assert_eq!(ring.recent(), b"new");
    }

    #[test]
    fn the_end_is_kept() {
        let mut ring = StderrRing::new(8);
        for (written, kept) in [
            ("", ""),
            ("abc", "abc"),
            ("defgh", "abcdefgh"),
            ("i", "bcdefghi"),
            ("0123456789", "23456789"),
        ] {
            ring.push(written.as_bytes());
            assert_eq!(ring.text(), kept);
        }
    }

    #[test]
    fn what_was_written_is_told_once() {
        let mut ring = StderrRing::new(8);
        assert_eq!(
            ring.after(0),
            Written {
                text: String::new(),
                next: 0,
                missed: 0
            }
        );
        ring.push(b"one\n");
        assert_eq!(
            ring.after(0),
            Written {
                text: "one\n".into(),
                next: 4,
                missed: 0
            }
        );
        assert_eq!(
            ring.after(4),
            Written {
                text: String::new(),
                next: 4,
                missed: 0
            }
        );
        // Half a character waits for its other half.
        ring.push(b"a\xc3");
        assert_eq!(
            ring.after(4),
            Written {
                text: "a".into(),
                next: 5,
                missed: 0
            }
        );
        ring.push(b"\xa9\n");
        assert_eq!(
            ring.after(5),
            Written {
                text: "é\n".into(),
                next: 8,
                missed: 0
            }
        );
        ring.push(b"three\n");
        assert_eq!(
            ring.after(4),
            Written {
                text: "\u{fffd}\nthree\n".into(),
                next: 14,
                missed: 2
            }
        );
        // Of a keeper that has begun anew, there is nothing before what it has.
        assert_eq!(
            ring.after(99),
            Written {
                text: String::new(),
                next: 14,
                missed: 0
            }
        );
    }
}
