//! Continuing fronts: each takes over where the former one stopped, and the relay changes nothing
//! when a front goes. Each line for the front has a number, and is kept until the front confirms
//! it; the next front gets every unconfirmed line again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_proto::backends::Attached;

use super::message::{Kind, Line, Part};
use super::{Limits, Millis, Relay};

/// How many unconfirmed lines a front may be handed: it need not keep more than these.
const WINDOW_LINES: usize = 256;
/// How many bytes of them. The last message may exceed it.
const WINDOW_BYTES: usize = 1024 * 1024;

/// The unconfirmed lines.
#[derive(Default)]
pub(super) struct Numbered {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the last confirmed line.
    confirmed: u64,
    /// How many of the lines the attached front was handed, and how many bytes.
    handed: usize,
    handed_bytes: usize,
}

impl Numbered {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn is_full(&self, limits: &Limits) -> bool {
        self.lines.len() >= limits.queue_messages || self.bytes >= limits.queue_bytes
    }

    fn next(&mut self) -> Option<(u64, Bytes)> {
        if self.handed >= WINDOW_LINES || self.handed_bytes >= WINDOW_BYTES {
            return None;
        }
        let line = self.lines.get(self.handed)?.clone();
        self.handed += 1;
        self.handed_bytes += line.len();
        Some((self.confirmed + self.handed as u64, line))
    }

    /// Ignores the numbers of lines that this front was not handed.
    fn confirm(&mut self, number: u64) {
        while self.confirmed < number && self.handed > 0 {
            let Some(line) = self.lines.pop_front() else {
                return;
            };
            self.confirmed += 1;
            self.handed -= 1;
            self.handed_bytes -= line.len();
            self.bytes -= line.len();
        }
    }

    fn begin_again(&mut self) {
        (self.handed, self.handed_bytes) = (0, 0);
    }
}

impl Relay {
    /// A relay whose fronts continue each other.
    #[must_use]
    pub fn continuing(limits: Limits) -> Self {
        Self {
            numbered: Some(Numbered::default()),
            ..Self::new(limits)
        }
    }

    /// A front has attached that continues the former one, if there was one. The relay need not be
    /// told when it goes.
    pub fn attach_continuing(&mut self, now: Millis) -> Attached {
        let resumed = self.front.is_some();
        if !resumed {
            self.attach(None, None, now);
        }
        let initialized = self.handshake.answer.is_some();
        let Some(numbered) = &mut self.numbered else {
            return Attached::default();
        };
        numbered.begin_again();
        Attached {
            resumed,
            initialized,
            waiting: numbered.lines.len(),
            ..Attached::default()
        }
    }

    /// Numbers the lines that wait for the front, as far as there is room for them.
    pub fn number_lines(&mut self) {
        while self
            .numbered
            .as_ref()
            .is_some_and(|numbered| !numbered.is_full(&self.limits))
        {
            let Some(line) = self.pull_front() else {
                return;
            };
            if let Some(numbered) = &mut self.numbered {
                numbered.push(line);
            }
        }
    }

    /// Whether there are lines that the attached front was not handed: it has to confirm others
    /// first.
    #[must_use]
    pub fn waits_for_confirmation(&self) -> bool {
        let unhanded = |numbered: &Numbered| numbered.lines.len() > numbered.handed;
        self.numbered.as_ref().is_some_and(unhanded) || !self.to_front.entries.is_empty()
    }

    /// The next line for the attached front, and its number.
    pub fn pull_numbered(&mut self) -> Option<(u64, Bytes)> {
        self.number_lines();
        self.numbered.as_mut()?.next()
    }

    /// The front confirms all lines up to this number.
    pub fn confirm(&mut self, number: u64) {
        if let Some(numbered) = &mut self.numbered {
            numbered.confirm(number);
        }
        self.number_lines();
    }

    /// The ids of the calls that fronts have made and whose answers none has confirmed: raw JSON,
    /// as it came.
    #[must_use]
    pub fn known_calls(&self) -> Vec<Box<str>> {
        let open = self.calls.open.values().filter(|call| {
            // A backend may never answer what was cancelled.
            self.is_current(call.asker) && !call.kind.ours() && call.cancelled.is_none()
        });
        let unconfirmed = self.numbered.iter().flat_map(|numbered| &numbered.lines);
        let waiting = self.to_front.entries.iter().map(|entry| &entry.line);
        let answered = unconfirmed.chain(waiting).flat_map(answered);
        open.map(|call| call.id.clone()).chain(answered).collect()
    }

    /// How many lines are unconfirmed, and how many bytes.
    pub(super) fn unconfirmed(&self) -> (usize, usize) {
        self.numbered
            .as_ref()
            .map_or((0, 0), |numbered| (numbered.lines.len(), numbered.bytes))
    }
}

/// The ids of the calls that this line answers.
fn answered(line: &Bytes) -> Vec<Box<str>> {
    let copy = OnceCell::new();
    let id = |part: &Part<'_>| match part {
        Part::Message(message) => match &message.kind {
            Kind::Answer { id, .. } => Some(Box::from(*id)),
            Kind::Request { .. } | Kind::Notification { .. } => None,
        },
        Part::Unreadable(_) | Part::Other => None,
    };
    match Line::of(line, &copy) {
        Line::Blank => Vec::new(),
        Line::One(part) => id(&part).into_iter().collect(),
        Line::Batch(parts) => parts.iter().filter_map(|(_, part)| id(part)).collect(),
    }
}
