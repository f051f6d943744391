//! What waits to be handed out, in the order in which it came.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::entry::Entry;
use crate::numbers::AnswerInfo;
use crate::version::Capability;

/// Lines that wait for one reader. More are not taken until it has read some.
const FLOW_LINES: usize = 64;
/// Bytes of them. One message may go over.
const FLOW_BYTES: usize = 64 * 1024;

/// What a line for the front carries.
pub(super) enum ToFront {
    /// An answer to a call of the attached front.
    Answer(AnswerInfo),
    /// A line of our own for the attached front.
    Ours,
    /// A notification that means something to the attached front alone.
    Bound,
    /// A notification for whoever is attached.
    Notice,
    /// A request, by its number, and what the host must be able to do.
    Ask(u64, Option<Capability>),
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
    /// What is not JSON-RPC.
    Other,
}

/// What the receiver of a line has to meet, a bit each.
pub(super) type Requirements = u8;

impl ToFront {
    /// It takes lines that are not the relay's own.
    pub(super) const FOREIGN: Requirements = 1;
    /// The front is ready.
    pub(super) const READY: Requirements = 2;

    /// The host has this capability.
    pub(super) const fn capability(need: Capability) -> Requirements {
        match need {
            Capability::Sampling => 4,
            Capability::Elicitation => 8,
            Capability::Roots => 16,
        }
    }
}

/// What is handed out only where its requirements are met.
pub(super) trait Requires {
    /// Its requirements.
    fn requires(&self) -> Requirements;
}

impl Requires for ToFront {
    fn requires(&self) -> Requirements {
        match self {
            Self::Ours => 0,
            Self::Answer(_) => Self::FOREIGN,
            Self::Bound | Self::Notice | Self::Ask(_, None) => Self::FOREIGN | Self::READY,
            Self::Ask(_, Some(need)) => Self::FOREIGN | Self::READY | Self::capability(*need),
        }
    }
}

impl Requires for ToBackend {
    fn requires(&self) -> Requirements {
        0
    }
}

impl<P: Requires> Requires for Entry<P> {
    fn requires(&self) -> Requirements {
        self.parts
            .iter()
            .fold(0, |wants, (_, part)| wants | part.requires())
    }
}

/// How many entries there are, and how many bytes they have.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Size {
    lines: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.bytes += other.bytes;
    }
}

/// Entries, and how many of each kind. The driver asks for that at every event, so it is
/// counted.
pub(super) struct Queue<P> {
    pub entries: VecDeque<Entry<P>>,
    pub bytes: usize,
    /// By their requirements.
    sizes: [Size; 32],
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            sizes: [Size::default(); 32],
        }
    }
}

impl<P: Requires> Queue<P> {
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
        self.sizes[usize::from(entry.requires())].add(Size { lines: 1, bytes });
    }

    /// Takes the first entry that requires no more than what is `met`.
    pub(super) fn pull(&mut self, met: Requirements) -> Option<Entry<P>> {
        if self.size(met).lines == 0 {
            return None;
        }
        let at = self
            .entries
            .iter()
            .position(|entry| entry.requires() & !met == 0)?;
        self.take(at)
    }

    /// Takes the first entry of which every part is wanted.
    pub(super) fn pull_if(&mut self, such: impl Fn(&P) -> bool) -> Option<Entry<P>> {
        let at = self
            .entries
            .iter()
            .position(|entry| entry.parts.iter().all(|(_, part)| such(part)))?;
        self.take(at)
    }

    fn take(&mut self, at: usize) -> Option<Entry<P>> {
        let entry = self.entries.remove(at)?;
        let tally = &mut self.sizes[usize::from(entry.requires())];
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

    /// Whether an entry requires more than what is `met`.
    pub(super) fn requires_more(&self, met: Requirements) -> bool {
        self.size(met).lines < self.entries.len()
    }

    /// Whether what requires no more than what is `met` is more than may wait for its
    /// reader.
    pub(super) fn overflows(&self, met: Requirements) -> bool {
        let Size { lines, bytes } = self.size(met);
        lines >= FLOW_LINES || bytes >= FLOW_BYTES
    }

    fn size(&self, met: Requirements) -> Size {
        let mut sum = Size::default();
        for (_, tally) in (0_u8..)
            .zip(&self.sizes)
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
        assert_eq!((fresh.bytes, fresh.sizes), (self.bytes, self.sizes));
    }
}
