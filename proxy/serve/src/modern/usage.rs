//! Whether a server is in use: a state machine without I/O. No request gets to a server that is
//! being ended, and none is ended while a request is on its way to it.

use std::time::Duration;

use tokio::time::Instant;

/// The use of one server.
#[derive(Debug)]
pub(super) struct Usage {
    /// Requests that have come, and are not over.
    requests: usize,
    /// When a request last came or was over.
    active: Instant,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The daemon is being told. If that fails, it goes on.
    Ending,
    Ended,
}

/// Whether a request may go to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// The server is there for it, until it is over.
    Granted,
    /// It has to wait until the server has ended, or goes on.
    Waits,
    /// The server has ended.
    Ended,
}

impl Usage {
    /// A server that nobody has used yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            requests: 0,
            active: now,
            phase: Phase::Serving,
        }
    }

    /// A request comes.
    pub(super) fn start_request(&mut self, now: Instant) -> Entry {
        match self.phase {
            Phase::Serving => {
                self.requests += 1;
                self.active = now;
                Entry::Granted
            }
            Phase::Ending => Entry::Waits,
            Phase::Ended => Entry::Ended,
        }
    }

    /// A request is over.
    pub(super) fn finish_request(&mut self, now: Instant) {
        self.requests -= 1;
        self.active = now;
    }

    /// Whether nobody has used it for so long. From then on it is being ended.
    pub(super) fn start_ending(&mut self, now: Instant, idle: Duration) -> bool {
        let is_idle = self.requests == 0 && now.duration_since(self.active) >= idle;
        if is_idle && self.phase == Phase::Serving {
            self.phase = Phase::Ending;
            return true;
        }
        false
    }

    /// It could not be ended.
    pub(super) fn cancel_ending(&mut self) {
        if self.phase == Phase::Ending {
            self.phase = Phase::Serving;
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Ended;
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_used_is_not_ended_and_what_is_being_ended_is_not_used() {
        let start = Instant::now();
        let mut usage = Usage::new(start);
        assert_eq!(usage.start_request(start), Entry::Granted);
        assert!(
            !usage.start_ending(start + IDLE * 9, IDLE),
            "a request is on its way, however long"
        );
        usage.finish_request(start + IDLE);
        assert!(!usage.start_ending(start + IDLE, IDLE));
        assert!(usage.start_ending(start + IDLE * 2, IDLE));
        assert!(
            !usage.start_ending(start + IDLE * 2, IDLE),
            "it is being ended already"
        );
        assert_eq!(usage.start_request(start + IDLE * 2), Entry::Waits);
        usage.cancel_ending();
        assert_eq!(usage.start_request(start + IDLE * 2), Entry::Granted);
        usage.finish_request(start + IDLE * 2);
        usage.end();
        assert_eq!(usage.start_request(start + IDLE * 9), Entry::Ended);
        usage.cancel_ending();
        assert!(usage.has_ended() && !usage.start_ending(start + IDLE * 9, IDLE));
    }
}
