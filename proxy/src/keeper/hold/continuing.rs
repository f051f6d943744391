//! Continuing fronts: the fronts of a service's session. Each takes over where the former one
//! stopped.

use bytes::Bytes;
use mcp_sessiond_client::SessionError;
use mcp_sessiond_process::PinnedProcess;
use mcp_sessiond_proto::backends::{Attached, FrontRequest, KeeperReply, RELAYED_MAX};
use mcp_sessiond_proto::{Epoch, Error};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout};

use super::{End, Keeper, LAST_LINES_WAIT};
use crate::keeper::continuing::{Continuing, ContinuingLine, PREFIX_MAX};
use crate::keeper::front::Front;
use crate::keeper::requests::{KeeperContext, reply};
use crate::lines::{Line, Lines};

impl Keeper {
    /// Whether its fronts continue each other: the session is a service's.
    pub(super) fn continues(&self) -> bool {
        self.context.service.is_some()
    }

    pub(super) async fn attach_continuing(
        &mut self,
        epoch: Epoch,
        front: PinnedProcess,
        reader: Lines<OwnedReadHalf>,
        mut writer: OwnedWriteHalf,
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
        // A line of some hundred bytes on a new connection: it fits, or nobody is there.
        let told = timeout(
            LAST_LINES_WAIT,
            reply(&mut writer, &KeeperReply::Attached(attached)),
        )
        .await;
        let found = self
            .control_channels
            .iter()
            .position(|(owner, _)| *owner == process);
        let control = found.map(|at| self.control_channels.remove(at).1);
        self.last = (epoch, Some(process));
        self.since = Instant::now();
        if !matches!(told, Ok(Ok(()))) {
            return;
        }
        let (half, mut buffer) = reader.into_parts();
        buffer.set_limit(RELAYED_MAX + PREFIX_MAX);
        let mut front = Front::new(
            process,
            epoch,
            Lines::from_parts(half, buffer),
            writer,
            control,
        );
        if is_first {
            front.forward_stderr(&self.ring.bytes());
        }
        front.continuing = Some(Continuing::default());
        self.front = Some(front);
    }

    /// Handles a line of the front. Returns why the keeper must end, if it must.
    pub(super) fn handle_continuing(&mut self, line: Line) -> Option<End> {
        let said = ContinuingLine::read(line);
        let known =
            matches!(said, Some(ContinuingLine::Calls(_))).then(|| self.relay.known_calls());
        let continuing = self
            .front
            .as_mut()
            .and_then(|front| front.continuing.as_mut())?;
        match said {
            // The keeper had taken it before the front's connection broke.
            Some(ContinuingLine::Message(number, _)) if number <= self.taken => {
                continuing.lane.push_back(format!("t{}", self.taken).into());
            }
            Some(ContinuingLine::Message(number, line))
                if number == self.taken + 1 && continuing.held.is_none() =>
            {
                continuing.held = Some((number, line));
            }
            Some(ContinuingLine::Confirmed(number)) => self.relay.confirm(number),
            Some(ContinuingLine::Calls(_)) => {
                let known = known.unwrap_or_default();
                continuing
                    .lane
                    .push_back(format!("o[{}]", known.join(",")).into());
            }
            Some(ContinuingLine::End) => return Some(End::Signal),
            // The front breaks the protocol.
            Some(ContinuingLine::Message(..) | ContinuingLine::Taken(_)) | None => self.detach(),
        }
        None
    }

    /// Takes the front's waiting message, if the relay has room for it, and gives the front its
    /// next line.
    pub(super) fn hand_out_continuing(&mut self) {
        let now = self.now();
        let takes = self.relay.reads_front();
        self.relay.number_lines();
        let Some(front) = &mut self.front else { return };
        let Some(continuing) = &mut front.continuing else {
            return;
        };
        if takes && let Some((number, line)) = continuing.held.take() {
            self.taken = number;
            continuing.lane.push_back(format!("t{number}").into());
            match line {
                Line::Whole(line) => self.relay.from_front(line, now),
                Line::Oversized { head, tail } => {
                    self.relay.oversized_from_front(&head, &tail, now);
                }
            }
        }
        if !front.pending_line.is_empty() {
            return;
        }
        let message = || {
            self.relay
                .pull_numbered()
                .map(|(number, line)| ContinuingLine::message(number, &line))
        };
        if let Some(line) = continuing.lane.pop_front().or_else(message) {
            front.pending_line.put(line);
        }
    }

    /// Sends the front the lines that are left, up to the limit for unconfirmed ones, and says that
    /// the keeper ends. None if the front could not be told.
    pub(super) async fn end_continuing_front(&mut self) -> Option<Front> {
        let mut front = self.front.take()?;
        let last_lines = async {
            while front.pending_line.write(&mut front.writer).await.is_ok() {
                // What was taken comes first: a line that the front does not see acknowledged may
                // have been carried out.
                let lane = front
                    .continuing
                    .as_mut()
                    .and_then(|continuing| continuing.lane.pop_front());
                let message = || {
                    self.relay
                        .pull_numbered()
                        .map(|(number, line)| ContinuingLine::message(number, &line))
                };
                if let Some(line) = lane.or_else(message) {
                    front.pending_line.put(line);
                    continue;
                }
                if !self.relay.waits_for_confirmation() {
                    break;
                }
                match front
                    .reader
                    .next()
                    .await
                    .ok()
                    .flatten()
                    .and_then(ContinuingLine::read)
                {
                    Some(ContinuingLine::Confirmed(number)) => self.relay.confirm(number),
                    Some(_) => {}
                    None => break,
                }
            }
            front.pending_line.put(Bytes::from_static(b"e"));
            front.pending_line.write(&mut front.writer).await
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
            let asked = self.control.call(|connection, context| {
                let request = request.clone();
                async move { connection.check_front(context, request).await }
            });
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
