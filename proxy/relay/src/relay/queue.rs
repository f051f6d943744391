//! What waits to be handed out, in the order in which it came.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::entry::Entry;
use crate::numbers::Answered;
use crate::version::Need;

/// Lines that wait for a reader who reads; more are not taken on until it has read some.
const FLOW_LINES: usize = 64;
/// Bytes of them. One message may go over.
const FLOW_BYTES: usize = 64 * 1024;

/// What a line for the front carries.
pub(super) enum ToFront {
    /// An answer to a call of the attached front.
    Answer(Answered),
    /// A line of our own for the attached front.
    Ours,
    /// A notification that means something to the attached front alone.
    Bound,
    /// A notification for whoever is attached.
    Notice,
    /// A request, by its number, and what the host must be able to do.
    Ask(u64, Option<Need>),
}

/// What a line for the backend carries.
pub(super) enum ToBackend {
    /// A call, by its number.
    Call(u64),
    /// A call is cancelled, by its number.
    Cancel(u64),
    /// The host has the answer to its `initialize`.
    Initialized,
    /// An answer to a request of the running backend, or its progress.
    Answer,
    /// A notification.
    Notice,
    /// What is no JSON-RPC.
    Other,
}

/// What whoever takes a line has to meet, a bit each.
pub(super) type Wants = u8;

impl ToFront {
    /// Not everything is our own.
    pub(super) const FOREIGN: Wants = 1;
    /// The front is ready.
    pub(super) const READY: Wants = 2;

    /// The host can do this.
    pub(super) const fn need(need: Need) -> Wants {
        match need {
            Need::Sampling => 4,
            Need::Elicitation => 8,
            Need::Roots => 16,
        }
    }
}

/// Something that has to be met before it is handed out.
pub(super) trait Wanting {
    /// What that is.
    fn wants(&self) -> Wants;
}

impl Wanting for ToFront {
    fn wants(&self) -> Wants {
        match self {
            Self::Ours => 0,
            Self::Answer(_) => Self::FOREIGN,
            Self::Bound | Self::Notice | Self::Ask(_, None) => Self::FOREIGN | Self::READY,
            Self::Ask(_, Some(need)) => Self::FOREIGN | Self::READY | Self::need(*need),
        }
    }
}

impl Wanting for ToBackend {
    fn wants(&self) -> Wants {
        0
    }
}

impl<P: Wanting> Wanting for Entry<P> {
    fn wants(&self) -> Wants {
        self.parts
            .iter()
            .fold(0, |wants, (_, part)| wants | part.wants())
    }
}

/// How many entries there are, and how many bytes they have.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Tally {
    lines: usize,
    bytes: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.bytes += other.bytes;
    }
}

/// Entries, and how much there is of each kind: that is asked at every event.
pub(super) struct Queue<P> {
    pub entries: VecDeque<Entry<P>>,
    pub bytes: usize,
    /// By what they want.
    tallies: [Tally; 32],
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            tallies: [Tally::default(); 32],
        }
    }
}

impl<P: Wanting> Queue<P> {
    /// Adds an entry at the end.
    pub(super) fn push(&mut self, entry: Entry<P>) {
        self.count(&entry);
        self.entries.push_back(entry);
    }

    /// Adds an entry at the beginning.
    pub(super) fn push_front(&mut self, entry: Entry<P>) {
        self.count(&entry);
        self.entries.push_front(entry);
    }

    fn count(&mut self, entry: &Entry<P>) {
        let bytes = entry.line.len();
        self.bytes += bytes;
        self.tallies[usize::from(entry.wants())].add(Tally { lines: 1, bytes });
    }

    /// Takes the first entry that wants no more than what is `met`.
    pub(super) fn pull(&mut self, met: Wants) -> Option<Entry<P>> {
        if self.tally(met).lines == 0 {
            return None;
        }
        let at = self
            .entries
            .iter()
            .position(|entry| entry.wants() & !met == 0)?;
        self.take(at)
    }

    /// Takes the first entry of which every part is such.
    pub(super) fn pull_such(&mut self, such: impl Fn(&P) -> bool) -> Option<Entry<P>> {
        let at = self
            .entries
            .iter()
            .position(|entry| entry.parts.iter().all(|(_, part)| such(part)))?;
        self.take(at)
    }

    fn take(&mut self, at: usize) -> Option<Entry<P>> {
        let entry = self.entries.remove(at)?;
        let tally = &mut self.tallies[usize::from(entry.wants())];
        tally.lines -= 1;
        tally.bytes -= entry.line.len();
        self.bytes -= entry.line.len();
        Some(entry)
    }

    /// Keeps the parts that are wanted, and gives back the others.
    pub(super) fn retain(&mut self, wanted: impl Fn(&P) -> bool) -> Vec<P> {
        let mut gone = Vec::new();
        for entry in core::mem::take(self).entries {
            let (kept, others) = entry.split(&wanted);
            gone.extend(
                others
                    .into_iter()
                    .flat_map(|entry| entry.parts)
                    .map(|(_, part)| part),
            );
            kept.into_iter().for_each(|entry| self.push(entry));
        }
        gone
    }

    /// Whether something wants more than what is `met`.
    pub(super) fn wants_more(&self, met: Wants) -> bool {
        self.tally(met).lines < self.entries.len()
    }

    /// Whether what wants no more than what is `met` is more than a reader should find waiting.
    pub(super) fn flows_over(&self, met: Wants) -> bool {
        let Tally { lines, bytes } = self.tally(met);
        lines >= FLOW_LINES || bytes >= FLOW_BYTES
    }

    fn tally(&self, met: Wants) -> Tally {
        let mut sum = Tally::default();
        for (_, tally) in (0_u8..)
            .zip(&self.tallies)
            .filter(|(wants, _)| wants & !met == 0)
        {
            sum.add(*tally);
        }
        sum
    }

    /// Counts again.
    #[cfg(test)]
    pub(super) fn assert_counts(&self) {
        let mut fresh = Self::default();
        self.entries.iter().for_each(|entry| fresh.count(entry));
        assert_eq!((fresh.bytes, fresh.tallies), (self.bytes, self.tallies));
    }
}
