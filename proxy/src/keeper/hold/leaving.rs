//! A front that leaves for good, and a backend that ends with it: as directly, the backend gets the end
//! of its input first, and then has its time; meanwhile its lines are carried, and the front waits.

use mcp_sessiond_proto::Resume;

use super::{End, Keeper};
use crate::keeper::children::StopMode;
use crate::keeper::front_connection::signal_of;

impl Keeper {
    /// Whether the backend is ending with its front.
    pub(super) fn ends_with_front_now(&self) -> bool {
        self.ending == Some(End::FrontLeft)
    }

    /// Whether the front has said that it leaves.
    pub(super) fn is_left(&self) -> bool {
        let front = self.front.as_ref();
        front.is_some_and(|front| front.leaves_since().is_some())
    }

    /// Whether the front has said that it leaves, and its host's rule forbids that another one has
    /// the backend.
    pub(super) fn has_left_for_good(&self) -> bool {
        let is_owned = !self.continues() && self.sharing.is_none();
        is_owned
            && self.is_left()
            && match self.rule.resume {
                // After a close its host may come back at once, which the next attach shows.
                Resume::Always | Resume::Conversation => false,
                Resume::Cut | Resume::Unknown => self.relay.has_conversed(),
                Resume::Never => true,
            }
    }

    /// Whether the backend ends with a front that leaves in an orderly way, as its host's rule has it.
    pub(super) fn ends_at_leave(&self) -> bool {
        !matches!(self.rule.resume, Resume::Always | Resume::Conversation)
    }

    /// Closes the backend's input if its host has closed its own for good, and has said nothing that
    /// is still on its way.
    pub(super) fn close_input_behind_last_line(&mut self) {
        let has_closed = self.front.as_ref().is_some_and(|front| front.has_closed);
        if !has_closed
            || self.input_over.is_some()
            || !self.pending_line.is_empty()
            || !self.relay.is_backend_fed()
            || !self.has_left_for_good()
        {
            return;
        }
        self.close_input();
    }

    fn close_input(&mut self) {
        let children = &self.children;
        let spared = self.backend.as_mut().map(|it| it.close_input(children));
        self.input_over.get_or_insert(spared.unwrap_or_default());
    }

    /// The front waits for nothing any more. Its backend ends now, if it does so with its front; else
    /// the front is let go.
    pub(super) fn end_with_front(&mut self) {
        if self.ends_with_front_now() {
            return;
        }
        let Some(front) = self.front.as_ref().filter(|_| self.has_left_for_good()) else {
            return self.detach();
        };
        let epoch = front.epoch;
        self.signal = front.ending_signal();
        let since = front.leaves_since();
        self.closed = since.filter(|_| self.relay.has_conversed());
        // The daemon, too, knows from now on that nobody resumes this.
        self.tell_left(epoch);
        self.begin_end(End::FrontLeft);
        self.close_input();
        let Some(leader) = self.backend.as_ref().map(|backend| backend.pid) else {
            return;
        };
        let (children, patience) = (self.children.clone(), self.stop_wait());
        let detached = self.input_over.clone().unwrap_or_default();
        let stop_mode = StopMode::Graceful {
            signal: self.signal,
        };
        self.retiring.spawn(async move {
            children.end(leader, stop_mode, detached, patience).await;
        });
    }

    /// The backend has exited after its input was closed for good: no other one is started.
    pub(super) fn closed_backend_ended(&mut self) {
        if !self.ends_with_front_now() {
            self.end_with_front();
        }
        drop(self.take_last_output());
        let now = self.now();
        self.relay.stopping("its host has closed it", now);
    }

    /// Whether nothing is left of a backend that has ended with its front.
    pub(super) fn is_taken_down(&self) -> bool {
        self.retiring.is_empty()
    }

    /// Hands a signal of the host on to the backend.
    pub(super) fn signal_backend(&self, number: u64) {
        let backend = self.backend.as_ref().map(|backend| backend.pid);
        if let Some((leader, signal)) = backend.zip(signal_of(number)) {
            self.children.signal(leader, signal);
        }
    }
}
