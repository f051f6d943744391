//! A backend that hosts share: lines between the relay and its clients.

use mcp_sessiond_process::{PinnedProcess, ProcessId};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::types::LossToldRequest;
use tokio::time::Instant;

use super::{Keeper, Sharing};
use crate::keeper::sharing::{Event, NewClient};

impl Keeper {
    /// The same, for hosts that share the backend.
    #[must_use]
    pub(in crate::keeper) fn shared(mut self, sharing: Sharing) -> Self {
        let now = self.now();
        self.relay.attach(None, None, now);
        // Whoever has left has closed it, and expects it no more after the linger time.
        self.closed = Some(0);
        self.sharing = Some(sharing);
        self
    }

    /// Whether nobody is attached.
    pub(super) fn is_alone(&self) -> bool {
        match &self.sharing {
            Some(sharing) => sharing.is_alone(),
            None => self.front.is_none(),
        }
    }

    /// The process that holds the session, as far as the keeper knows.
    pub(super) fn holder(&self) -> Option<ProcessId> {
        match &self.sharing {
            Some(_) => PinnedProcess::own().ok().map(|own| own.id()),
            None => self.front.as_ref().map(|front| front.process),
        }
    }

    pub(super) fn join(&mut self, client: NewClient, process: ProcessId) {
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        if sharing.is_alone() {
            self.since = Instant::now();
        }
        self.last.1 = Some(process);
        sharing.arrive(client);
    }

    pub(super) fn handle_client(&mut self, event: Event) {
        let now = self.now();
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        let was_alone = sharing.is_alone();
        let losses = sharing.handle(event, now);
        if sharing.is_alone() && !was_alone {
            self.since = Instant::now();
        }
        if losses.is_empty() {
            return;
        }
        let request = LossToldRequest {
            session: self.context.session.clone(),
            epoch: self.last.0,
            service: None,
            losses,
        };
        self.notify_daemon(|control| async move { control.ask(Client::loss_told, request).await });
    }

    /// Passes on what clients and relay have for each other, as far as the relay has room.
    pub(super) fn pass_on_shared(&mut self) {
        let now = self.now();
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        let was_alone = sharing.is_alone();
        loop {
            sharing.apply(now);
            let mut has_moved = false;
            while self.relay.reads_front()
                && let Some(line) = sharing.next_line()
            {
                self.relay.from_front(line, now);
                has_moved = true;
            }
            while let Some(line) = self.relay.pull_front() {
                sharing.hand_out(&line, now);
                has_moved = true;
            }
            if !has_moved {
                break;
            }
        }
        if sharing.is_alone() && !was_alone {
            self.since = Instant::now();
        }
    }

    /// Whether lines of clients wait for which the relay has room.
    pub(super) fn can_pass_on(&self) -> bool {
        self.sharing.as_ref().is_some_and(Sharing::has_lines) && self.relay.reads_front()
    }
}
