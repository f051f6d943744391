//! The numbers of what a server says: the same again where another process hears it again.
//!
//! The upper 16 bits are the process that has opened the stream, counted for each session, the next
//! 24 the stream, the rest what was said on it.

/// Bits that count what is said on one stream.
const LINE_BITS: u32 = 24;
/// Bits that count the streams of one process.
const STREAM_BITS: u32 = 24;
/// What we say ourselves on a stream is counted apart: what the server has said there has other
/// numbers, however much that was.
const OURS: u64 = 1 << (LINE_BITS - 1);

/// The numbers of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    base: u64,
    lines: u64,
    ours: u64,
}

impl Numbers {
    /// Those of a process's stream, from 0.
    pub(super) fn of(process: u16, stream: u64) -> Self {
        let stream = stream & ((1 << STREAM_BITS) - 1);
        Self {
            base: (u64::from(process) << STREAM_BITS | stream) << LINE_BITS,
            lines: 0,
            ours: 0,
        }
    }

    /// Those that follow on this one.
    pub(super) fn after(number: u64) -> Self {
        let base = base(number);
        Self {
            base,
            lines: number - base,
            ours: 0,
        }
    }

    /// The number that stands for the stream.
    pub(super) fn base(self) -> u64 {
        self.base
    }

    /// The last one; the base where there is none.
    pub(super) fn last(self) -> u64 {
        self.base | self.lines
    }

    /// The next that the server says.
    pub(super) fn next(&mut self) -> u64 {
        self.lines = (self.lines + 1) % OURS;
        self.last()
    }

    /// The next that we say in its place.
    pub(super) fn ours(&mut self) -> u64 {
        self.ours += 1;
        self.base | OURS | self.ours
    }
}

/// The number that stands for the stream of this one.
pub(super) fn base(number: u64) -> u64 {
    number >> LINE_BITS << LINE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_stream_go_on_where_they_were_and_are_no_others() {
        let mut numbers = Numbers::of(2, 7);
        let (first, second, ours) = (numbers.next(), numbers.next(), numbers.ours());
        assert!(numbers.base() < first && first < second && second < ours);
        assert!(
            [first, second, ours]
                .iter()
                .all(|number| base(*number) == numbers.base())
        );
        assert_eq!(Numbers::after(first).next(), second);
        assert_eq!(
            (Numbers::after(numbers.base()).next(), numbers.last()),
            (first, second)
        );
        assert!(
            ours < Numbers::of(2, 8).base() && Numbers::of(2, 8).base() < Numbers::of(3, 0).base()
        );
    }
}
