//! What the backend writes to its standard error: the end of it is kept, and the front's host is shown it as it comes.

use std::collections::VecDeque;

/// The last bytes of what was written.
#[derive(Debug)]
pub struct Ring {
    bytes: VecDeque<u8>,
    most: usize,
}

impl Ring {
    /// Keeps `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { bytes: VecDeque::new(), most }
    }

    /// Takes in what was written, and lets go of the oldest.
    pub fn push(&mut self, written: &[u8]) {
        let kept = &written[written.len().saturating_sub(self.most)..];
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.most);
        self.bytes.drain(..over);
        self.bytes.extend(kept);
    }

    /// What is kept, as text. Half a character at its beginning shows as one that can't be shown.
    #[must_use]
    pub fn text(&self) -> String {
        let (first, second) = self.bytes.as_slices();
        String::from_utf8_lossy(&[first, second].concat()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let mut ring = Ring::new(8);
        for (written, kept) in
            [("", ""), ("abc", "abc"), ("defgh", "abcdefgh"), ("i", "bcdefghi"), ("0123456789", "23456789")]
        {
            ring.push(written.as_bytes());
            assert_eq!(ring.text(), kept);
        }
    }
}
