//! Continuing fronts: the fronts of a service's session. Each takes over where the former one
//! stopped.

use mcp_sessiond_client::SessionError;
use mcp_sessiond_process::PinnedProcess;
use mcp_sessiond_proto::backends::frame::{Frame, Kind};
use mcp_sessiond_proto::backends::{Attached, FrontRequest, KeeperReply};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::{Epoch, Error};
use tokio::time::{Instant, timeout};

use super::{End, Keeper, LAST_LINES_WAIT};
use crate::frames::Frames;
use crate::keeper::front_connection::FrontConnection;
use crate::keeper::requests::{KeeperContext, reply};
use crate::lines::Line;
use crate::socket::SocketWriter;

impl Keeper {
    /// Whether its fronts continue each other: the session is a service's.
    pub(super) fn continues(&self) -> bool {
        self.context.service.is_some()
    }

    pub(super) async fn attach_continuing(
        &mut self,
        epoch: Epoch,
        front: PinnedProcess,
        reader: Frames,
        writer: SocketWriter,
    ) {
        self.detach();
        let process = front.id();
        if self.last != (epoch, Some(process)) {
            self.taken = 0;
        }
        self.arrived = Some(front);
        let attached = Attached {
            taken: self.taken,
            incarnation: self.incarnation,
            age_ms: self.age_ms(),
            ..self.relay.attach_continuing(self.now())
        };
        let is_first = !attached.resumed;
        // Some hundred bytes on a new connection: they fit, or nobody is there.
        let told = timeout(
            LAST_LINES_WAIT,
            reply(&writer, &KeeperReply::Attached(attached)),
        )
        .await;
        self.last = (epoch, Some(process));
        self.since = Instant::now();
        if !matches!(told, Ok(Ok(()))) {
            return;
        }
        let mut front = FrontConnection::new(process, epoch, reader, writer);
        if is_first {
            front.forward_stderr(&self.ring.bytes());
        }
        self.front = Some(front);
    }

    /// Handles what such a front says. Returns why the keeper must end, if it must.
    pub(super) fn handle_continuing(&mut self, said: Frame) -> Option<End> {
        let known = (said.kind == Kind::Calls).then(|| self.relay.known_calls());
        let front = self.front.as_mut()?;
        match said.kind {
            // The keeper had taken it before the front's connection broke.
            Kind::Line if said.number <= self.taken => front.put(Kind::Taken, self.taken, ""),
            Kind::Line if said.number == self.taken + 1 && front.held.is_none() => {
                front.held = Some((said.number, said.body));
            }
            Kind::Confirm => self.relay.confirm(said.number),
            Kind::Calls => {
                let known = known.unwrap_or_default();
                front.put(Kind::Calls, 0, format!("[{}]", known.join(",")));
            }
            Kind::Heard => {
                let before = front.ends_told();
                front.note(&said);
                self.relay.ends_told(front.ends_told() - before);
            }
            Kind::End => return Some(End::SessionEnded),
            // The front breaks the protocol.
            _ => self.detach(),
        }
        None
    }

    /// Takes the front's waiting message, if the relay has room for it.
    pub(super) fn take_held(&mut self) {
        let now = self.now();
        let takes = self.relay.reads_front();
        self.relay.number_lines();
        let Some(front) = &mut self.front else { return };
        if takes && let Some((number, line)) = front.held.take() {
            self.taken = number;
            front.put(Kind::Taken, number, "");
            match line {
                Line::Whole(line) => self.relay.from_front(line, now),
                Line::Oversized { head, tail } => {
                    self.relay.oversized_from_front(&head, &tail, now);
                }
            }
        }
    }

    /// Sends the front the messages that are left, up to the limit for unconfirmed ones, and says
    /// that the keeper ends. None if the front could not be told.
    pub(super) async fn end_continuing_front(&mut self) -> Option<FrontConnection> {
        let mut front = self.front.take()?;
        let last_lines = async {
            // What was taken comes first: a message that the front does not see acknowledged may
            // have been carried out.
            while front.write_lane().await.is_ok() {
                if let Some((number, line)) = self.relay.pull_numbered() {
                    front.pending.put(Kind::Line, number, line);
                    continue;
                }
                if !self.relay.waits_for_confirmation() {
                    break;
                }
                match front.reader.next().await.ok().flatten() {
                    Some(said) if said.kind == Kind::Confirm => self.relay.confirm(said.number),
                    Some(_) => {}
                    None => break,
                }
            }
            front.put(Kind::Ending, 0, "");
            front.write_lane().await
        };
        let is_said = matches!(timeout(LAST_LINES_WAIT, last_lines).await, Ok(Ok(_)));
        is_said.then_some(front)
    }

    /// Whether a process serves the name, which may take up the session when its client comes back.
    /// The daemon ends the session if that takes too long. A keeper to which no front has ever
    /// attached is not wanted any more.
    pub(super) async fn is_served(&self) -> bool {
        let (mut epoch, Some(_)) = self.last else {
            return false;
        };
        if !self.continues() {
            return false;
        }
        // A later process has a later epoch.
        for _ in 0..2 {
            let KeeperContext {
                session, keeper, ..
            } = &*self.context;
            let request = FrontRequest {
                session: session.clone(),
                keeper: *keeper,
                epoch,
            };
            let asked = self.control.ask(Client::check_front, request);
            match timeout(LAST_LINES_WAIT, asked).await {
                Ok(Ok(_)) => return true,
                Ok(Err(SessionError::Refused(Error::StaleEpoch { newest, .. }))) => epoch = newest,
                _ => return false,
            }
        }
        false
    }

    fn age_ms(&self) -> u64 {
        let age = self
            .backend
            .as_ref()
            .map(|backend| backend.started.elapsed())
            .unwrap_or_default();
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }
}
