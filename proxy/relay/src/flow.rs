//! Lines are handed out, and read only while there is room for them.

use bytes::Bytes;

use super::life::Life;
use super::numbers::Open;
use super::queue::{ToBackend, ToFront};
use super::{Call, Relay, count};

impl Relay {
    /// The next line for the attached front. It counts as handed out.
    pub fn pull_front(&mut self) -> Option<Bytes> {
        self.hurry();
        self.refuse_asks();
        let front = self.front.as_ref()?;
        let entry = self.to_front.pull(front.meets())?;
        for (_, part) in &entry.parts {
            if let ToFront::Ask(number, _) = part
                && let Some(ask) = self.asks.open.get_mut(number)
            {
                ask.kind.handed = Some(self.connections);
                // Somebody has it before them, and the backend waits for what they say.
                self.used |= &*ask.method != "ping";
            }
        }
        Some(entry.line)
    }

    /// The next line for the backend. It counts as handed out.
    pub fn pull_backend(&mut self) -> Option<Bytes> {
        if !matches!(self.life, Life::Running { .. }) {
            return None;
        }
        let line = match self.lane.pop_front() {
            Some(line) => line,
            None if self.handshake.revive => return None,
            None => {
                let entry = if self.draining.is_some() {
                    // It ends what it has begun, and begins nothing.
                    let calls = &self.calls.open;
                    let is_sent = |call: &u64| calls.get(call).is_some_and(|call| call.kind.sent);
                    self.to_backend.pull_such(|part| match part {
                        ToBackend::Answer => true,
                        ToBackend::Cancel(call) => is_sent(call),
                        _ => false,
                    })?
                } else {
                    self.to_backend.pull(0)?
                };
                for (_, part) in &entry.parts {
                    if let ToBackend::Call(number) = part
                        && let Some(call) = self.calls.open.get_mut(number)
                    {
                        call.kind.sent = true;
                    }
                }
                entry.line
            }
        };
        count(&mut self.counts.to_backend, line.len());
        Some(line)
    }

    /// Whether the front is to be read from: not while what it has sent before still waits for the
    /// backend.
    #[must_use]
    pub fn reads_front(&self) -> bool {
        let flows = match self.life {
            Life::Running { .. } if !self.handshake.revive => !self.to_backend.flows_over(0),
            // What is read is answered at once.
            Life::Stopping => true,
            Life::Down { refusing: true, .. } => !self.to_backend.flows_over(0),
            // A host that begins may get its answers from us.
            _ if self.front.as_ref().is_some_and(|front| !front.ready) => {
                !self.to_backend.flows_over(0)
            }
            _ => self.to_backend.entries.is_empty(),
        };
        flows && !self.to_front.flows_over(0)
    }

    /// Whether the backend is to be read from: not while a front reads too slowly, nor while there
    /// is none and as much waits for it as may.
    #[must_use]
    pub fn reads_backend(&self) -> bool {
        let full = self.full();
        match &self.front {
            None => !full,
            Some(front) => !full && !self.to_front.flows_over(front.meets()),
        }
    }

    /// Whether as much waits for a front as may.
    pub(super) fn full(&self) -> bool {
        self.to_front.entries.len() >= self.limits.queue_messages
            || self.to_front.bytes >= self.limits.queue_bytes
    }

    /// A front that waits for an answer, which can't be read because of what is kept for it, gets
    /// that now.
    fn hurry(&mut self) {
        // Nor can the backend be initialised again, and the front may be unable to say that it is
        // ready.
        let unread = self.handshake.revive && !self.reads_front();
        if self.full()
            && let Some(front) = &mut self.front
            && !front.ready
        {
            let asks = |call: &Open<Call>| {
                call.asker == self.connections && call.kind.sent && !call.kind.ours()
            };
            front.ready = unread || self.handshake.awaited() || self.calls.open.values().any(asks);
        }
    }
}
