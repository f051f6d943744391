//! What waits to be handed out, in the order in which it came.

use std::collections::VecDeque;

use super::Need;
use super::entry::Entry;
use super::view::Answered;

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

/// Entries, and how many bytes they have.
pub(super) struct Queue<P> {
    pub entries: VecDeque<Entry<P>>,
    pub bytes: usize,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }
}

impl<P> Queue<P> {
    /// Adds an entry at the end.
    pub(super) fn push(&mut self, entry: Entry<P>) {
        self.bytes += entry.line.len();
        self.entries.push_back(entry);
    }

    /// Takes the first entry that is such.
    pub(super) fn pull(&mut self, such: impl Fn(&Entry<P>) -> bool) -> Option<Entry<P>> {
        let at = self.entries.iter().position(such)?;
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.line.len();
        Some(entry)
    }

    /// Keeps the parts that are wanted, and gives back the others.
    pub(super) fn retain(&mut self, wanted: impl Fn(&P) -> bool) -> Vec<P> {
        let mut gone = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            let (kept, others) = entry.split(&wanted);
            gone.extend(others.into_iter().flat_map(|entry| entry.parts).map(|(_, part)| part));
            self.entries.extend(kept);
        }
        self.bytes = self.entries.iter().map(|entry| entry.line.len()).sum();
        gone
    }

    /// Whether what is such is more than a reader should find waiting. Looks at no more entries than it must.
    pub(super) fn flows_over(&self, such: impl Fn(&Entry<P>) -> bool) -> bool {
        let mut bytes = 0;
        let mut lines = 0;
        self.entries.iter().filter(|entry| such(entry)).any(|entry| {
            lines += 1;
            bytes += entry.line.len();
            lines >= FLOW_LINES || bytes >= FLOW_BYTES
        })
    }
}
