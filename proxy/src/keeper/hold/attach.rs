//! Requests on the keeper's socket, and which front has the backend.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_process::{self as process, PinnedProcess, ProcessId, Table};
use mcp_sessiond_proto::backends::frame::{Frame, Kind};
use mcp_sessiond_proto::backends::{
    Attach, Attached, CountedRequest, Counts, KeeperReply, LeftRequest, ProcessRef, Remembered,
};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::{Epoch, Error, Resume};
use tokio::time::{Instant, timeout};

use super::{End, Keeper, LAST_LINES_WAIT, SETTLED};
use crate::frames::Frames;
use crate::keeper::front_connection::FrontConnection;
use crate::keeper::program_change::ProgramFile;
use crate::keeper::requests::{FrontRule, Incoming, KeeperContext, LeaseCheck, reply};
use crate::lines::Line;
use crate::socket::SocketWriter;

/// By how much the epoch jumps when a daemon has lost its records: no lease that the keeper has not
/// heard of has come that far.
const EPOCHS_LEFT_OUT: u64 = 1_000;

/// How long the keeper waits for what a former front has sent, which is there or does not come.
const SENT_WAIT: Duration = Duration::from_millis(20);

impl Keeper {
    pub(super) async fn handle_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Status { writer } => {
                let status = KeeperReply::Status(Box::new(self.status()));
                tokio::spawn(async move { reply(&writer, &status).await });
            }
            Incoming::Stderr { after, writer } => {
                let written = KeeperReply::Errors(self.ring.after(after));
                tokio::spawn(async move { reply(&writer, &written).await });
            }
            Incoming::Join { client, process } => self.join(*client, process),
            Incoming::Ping { writer } => {
                tokio::spawn(async move { reply(&writer, &KeeperReply::Pong {}).await });
            }
            Incoming::Remember { writer } => {
                let remembered = KeeperReply::Remembered(self.remembered());
                tokio::spawn(async move { reply(&writer, &remembered).await });
            }
            Incoming::Restart { writer } => {
                self.restart_by_hand();
                tokio::spawn(async move { reply(&writer, &KeeperReply::Restarting {}).await });
            }
            Incoming::Attach {
                attach,
                process,
                check,
                reader,
                writer,
            } => {
                match check {
                    LeaseCheck::Holder(_, rule) => self.rule = rule,
                    // When this front was started is not known.
                    _ => self.rule.closed_ms = FrontRule::NONE.closed_ms,
                }
                let refused = match self.admit(&attach, process.id(), check) {
                    Ok(()) if attach.continues => {
                        return self
                            .attach_continuing(attach.epoch, process, reader, writer)
                            .await;
                    }
                    Ok(()) => match self.forbids(process.id()).await {
                        false => return self.attach(*attach, process, reader, writer).await,
                        true => KeeperReply::Closed {
                            used: self.relay.is_used(),
                        },
                    },
                    Err(error) => KeeperReply::Refused(error),
                };
                tokio::spawn(async move { reply(&writer, &refused).await });
            }
        }
    }

    /// Whether the host's rule forbids that this process has the backend as another one has left
    /// it. What that one has sent, its last words included, is read before.
    async fn forbids(&mut self, process: ProcessId) -> bool {
        if self.ends_with_front_now() {
            return true;
        }
        let former = self.last.1.filter(|former| *former != process);
        if former.is_none() || self.rule.resume == Resume::Always {
            return false;
        }
        self.read_to_end().await;
        self.detach();
        self.rule.forbids(self.closed, self.relay.is_used())
    }

    /// Reads what the attached front has still sent: until its end, or until nothing more comes
    /// from one that lives.
    async fn read_to_end(&mut self) {
        while self.relay.reads_front() {
            let Some(front) = &mut self.front else { return };
            let Ok(Ok(Some(said))) = timeout(SENT_WAIT, front.reader.next()).await else {
                return;
            };
            self.handle_frame(said);
        }
    }

    /// Handles what a front says that continues no other one.
    pub(super) fn handle_frame(&mut self, said: Frame) {
        let now = self.now();
        if said.kind != Kind::Line {
            let is_signal = said.number > 0;
            match said.kind {
                Kind::Signal => return self.signal_backend(said.number),
                Kind::End => return self.end_with_front(),
                _ => {}
            }
            let front = self.front.as_mut();
            if !front.is_some_and(|front| front.note(&said)) {
                return self.detach();
            }
            return match said.kind {
                Kind::Leave if is_signal && self.ends_with_front_now() => {
                    self.signal_backend(said.number);
                }
                Kind::Leave if is_signal => self.end_with_front(),
                _ => {}
            };
        }
        match said.body {
            Line::Whole(line) => self.relay.from_front(line, now),
            Line::Oversized { head, tail } => {
                self.relay.oversized_from_front(&head, &tail, now);
            }
        }
    }

    /// Tells a daemon that has lost its records whose backend this is. That daemon does not know
    /// the former leases, so they become stale now, and each front claims again.
    fn remembered(&mut self) -> Remembered {
        self.last.0 = Epoch(self.last.0.0.saturating_add(EPOCHS_LEFT_OUT));
        if let Some(front) = &mut self.front {
            front.epoch = self.last.0;
        }
        let reference = |process: ProcessId| {
            let ProcessId { pid, start, inode } = process;
            ProcessRef {
                pid,
                start: start.0,
                inode,
            }
        };
        Remembered {
            record: self.kept.record.clone(),
            epoch: self.last.0,
            front: self.holder().map(reference),
            backend: self
                .backend
                .as_ref()
                .map(|backend| backend.pid.as_raw().unsigned_abs()),
            ending: self.ending.is_some(),
        }
    }

    /// Whether a front may have the backend: the daemon says so, or the daemon is away and the
    /// front's epoch is the newest that this keeper has seen. The daemon's word may be outdated:
    /// another front may have attached since.
    fn admit(&self, attach: &Attach, process: ProcessId, check: LeaseCheck) -> Result<(), Error> {
        let (newest, last) = self.last;
        let stale = || {
            Err(Error::StaleEpoch {
                given: attach.epoch,
                newest,
            })
        };
        let again = last.is_none_or(|last| last == process);
        match check {
            LeaseCheck::Refused(error) => Err(error),
            _ if attach.epoch < newest => stale(),
            LeaseCheck::Holder(holder, _) if holder == process => Ok(()),
            // Another process holds the lease.
            LeaseCheck::Holder(..) => Err(Error::SessionHeld),
            LeaseCheck::DaemonAway if attach.epoch > newest || again => Ok(()),
            LeaseCheck::DaemonAway => stale(),
        }
    }

    async fn attach(
        &mut self,
        attach: Attach,
        front: PinnedProcess,
        reader: Frames,
        writer: SocketWriter,
    ) {
        self.detach();
        self.report_counts();
        let process = front.id();
        let now = self.now();
        let initialize = attach
            .initialize
            .map(|line| Bytes::copy_from_slice(line.as_str().as_bytes()));
        let is_new_host = self.is_new_host(&front);
        let changed = self
            .program_file
            .as_ref()
            .filter(|_| self.backend.is_some())
            .and_then(ProgramFile::changed);
        let edited = match (&changed, &initialize) {
            (None, None) if !is_new_host => self.edited_source(),
            _ => None,
        };
        let is_again = edited.is_some() && edited == self.edited;
        if changed.is_some() || edited.is_some() {
            self.edited.clone_from(&edited);
        }
        let changed = changed.or(edited);
        self.arrived = Some(front);
        let attached = self.relay.attach(initialize, changed.as_deref(), now);
        self.relay.refuse_after_loss(attach.refuses_after_loss);
        if let Some(why) = attach.lost {
            self.relay.note_former_loss(why, attach.lost_is_told);
        }
        let found = self.backend.as_ref().filter(|_| attached.resumed);
        let age = found.map_or(Duration::ZERO, |backend| backend.started.elapsed());
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let attached = Attached {
            age_ms,
            ends_with_front: Some(self.ends_at_leave()),
            ..attached
        };
        // Where no front has come yet, the words of a server that has ended say why.
        let is_new_to_it = self.backend.is_some() || self.last.1.is_none();
        let forwards_stderr = !attached.resumed && is_new_to_it;
        // Some hundred bytes on a new connection: they fit, or nobody is there.
        let told = timeout(
            LAST_LINES_WAIT,
            reply(&writer, &KeeperReply::Attached(attached)),
        )
        .await;
        self.last = (attach.epoch, Some(process));
        self.since = Instant::now();
        let mut front = FrontConnection::new(process, attach.epoch, reader, writer);
        if forwards_stderr {
            // The host of a direct child would have seen this output, too, and not that of a former
            // one.
            front.forward_stderr(&self.ring.recent());
        }
        self.front = Some(front);
        if !matches!(told, Ok(Ok(()))) {
            self.detach();
        }
        if let Some(file) = self.edited.clone().filter(|_| is_again) {
            self.log_line(&format!(
                "{file} has changed twice in a row; if the server itself writes this file, `\"sources\": false` in servers.json, or \
                 `wrap --no-sources`, leaves such files out"
            ));
        }
        self.trim_at = Some(Instant::now() + SETTLED);
    }

    /// A file that the running backend's script may import and that has changed, where a front that
    /// attaches now gets a fresh one because of it.
    fn edited_source(&self) -> Option<String> {
        let sources = self.sources.as_ref().filter(|_| self.backend.is_some())?;
        self.relay.is_free_to_change().then(|| sources.changed())?
    }

    /// Whether a front's host is another process than the one that has had the backend.
    fn is_new_host(&mut self, front: &PinnedProcess) -> bool {
        if self.kept.owner.is_some() {
            return false;
        }
        let host = process::find_host(front, &Table::default()).host.ok();
        let host = host.map(|host| host.id());
        let former = std::mem::replace(&mut self.last_host, host);
        host.is_none() || former != host
    }

    pub(super) fn detach(&mut self) {
        let Some(mut front) = self.front.take() else {
            return;
        };
        if self.continues() {
            // The relay need not know: another front continues this one.
            self.since = Instant::now();
            return;
        }
        front.note_rest();
        let unconfirmed = front.unpassed();
        self.relay.ends_told(front.ends_told());
        self.signal = front.ending_signal();
        // Where its `initialize` had no answer, no conversation has begun that could be closed.
        self.closed = front.leaves_since().filter(|_| self.relay.has_conversed());
        let orderly = self.closed.is_some();
        self.relay.detach(unconfirmed, orderly, self.now());
        self.since = Instant::now();
        // The front of a list stays: it has other servers.
        let is_dropped = self.ending == Some(End::Dropped);
        if !is_dropped && (!self.has_told_left || !self.ends_with_front_now()) {
            self.tell_left(front.epoch);
        }
        self.report_counts();
    }

    /// Tells the daemon how the front has left that had this epoch.
    pub(super) fn tell_left(&mut self, epoch: Epoch) {
        let request = LeftRequest {
            session: self.context.session.clone(),
            keeper: self.context.keeper,
            epoch,
            orderly: self.closed.is_some(),
            at_ms: self.closed.unwrap_or(0),
            used: self.relay.is_used(),
        };
        // If the daemon does not get this, the session counts as used and cut off, and is kept for
        // longer.
        self.has_told_left = true;
        self.notify_daemon(|control| async move { control.ask(Client::front_left, request).await });
    }

    /// Tells the daemon how many messages were lost and parked, unless it knows.
    pub(super) fn report_counts(&self) {
        tokio::spawn(self.counts_report());
    }

    /// The same, as a future to wait for.
    pub(super) fn counts_report(&self) -> impl Future<Output = ()> + Send + use<> {
        let (lost, parked) = self.relay.lost_and_parked();
        let (counted, told) = (Counts { lost, parked }, self.reported.clone());
        let (
            control,
            KeeperContext {
                session, keeper, ..
            },
        ) = (self.control.clone(), &*self.context);
        let request = CountedRequest {
            session: session.clone(),
            keeper: *keeper,
            counted,
            told: known(&told),
        };
        async move {
            if request.told == counted {
                return;
            }
            let telling = control.ask(Client::backend_counted, request);
            if telling.await.is_ok() {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.lost = told.lost.max(counted.lost);
                told.parked = told.parked.max(counted.parked);
            }
            control.hang_up();
        }
    }
}

fn known(told: &Mutex<Counts>) -> Counts {
    *told.lock().unwrap_or_else(PoisonError::into_inner)
}
