//! Lines between the bundle and one backend's keeper.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_bundle::{Receipt, TrackedLine};
use mcp_sessiond_client::Loss;
use mcp_sessiond_jsonrpc::Oversized;
use mcp_sessiond_proto::backends::Attached;
use mcp_sessiond_proto::backends::frame::Kind;
use mcp_sessiond_proto::{Json, LossId};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use super::leave::{PendingLeave, PendingLeaves};
use crate::frames::{FrameSender, Frames, PendingLines};
use crate::front::open::{Open, refusals};
use crate::front::probe::is_probe;
use crate::id_prefix::IdPrefix;
use crate::lines::Line;
use crate::notices::{CarriedLoss, duration, print_ended};
use crate::server::attach::{Attaching, Attachment, KEEPER_REPLACED, NoBackend};
use crate::server::kept::{Door, QUIET, QUIET_MAX};
use crate::server::shared::place::Place;
use crate::server::shared::{Looking, Shared};
use crate::signals::{GivenMask, ending_signal};
use crate::stderr::Stderr;
use crate::waits::{ATTACH_WAIT, PAUSE, PAUSE_MAX};

/// How long the host's messages wait for a keeper that was lost, before they are refused: as in
/// front of a single server.
const HOLD: Duration = Duration::from_secs(2);

/// Says things about one server, of several by its name.
#[derive(Debug, Clone)]
pub(super) struct NamedStderr {
    pub(super) name: Option<String>,
    pub(super) stderr: Stderr,
}

impl NamedStderr {
    pub(super) fn print(&self, what: &dyn std::fmt::Display) {
        match &self.name {
            Some(name) => self.stderr.print(&format_args!("{name}: {what}")),
            None => self.stderr.print(what),
        }
    }

    fn print_then(&self, what: &dyn std::fmt::Display, written: impl FnOnce() + Send + 'static) {
        match &self.name {
            Some(name) => self
                .stderr
                .print_then(&format_args!("{name}: {what}"), written),
            None => self.stderr.print_then(what, written),
        }
    }
}

/// What the user should know of how a server came to be.
pub(super) struct Report {
    rule: Option<Loss>,
    /// What the server's own claim was told, and the front's was not: it was lost in between.
    carried: Option<CarriedLoss>,
    lost: Option<Loss>,
    /// Whether it was told at the claim that a former one was lost.
    is_told: bool,
    attached: Attached,
    /// How the keeper hears that its host was told.
    sender: Arc<FrameSender>,
}

impl Report {
    fn of(
        attachment: &mut Attachment,
        lost: Option<Loss>,
        is_told: bool,
        claimed_losses: &[LossId],
    ) -> Self {
        let loss = attachment.loss.take();
        let rule = loss.as_ref().map(|loss| loss.because);
        Self {
            lost: lost.filter(|_| !is_told && !attachment.attached.resumed),
            is_told,
            rule: rule.filter(|because| because.is_rule()),
            carried: loss
                .filter(|loss| !loss.because.is_rule())
                .filter(|loss| loss.id.is_none_or(|id| !claimed_losses.contains(&id))),
            attached: attachment.attached.clone(),
            sender: attachment.sender.clone(),
        }
    }

    fn print(self, to: &NamedStderr) {
        let Self {
            rule,
            carried,
            lost,
            is_told,
            attached,
            sender,
        } = self;
        if let Some(rule) = rule {
            to.print(&format_args!("a fresh server: {}", rule.sentence()));
        }
        let is_carried = carried.is_some();
        if let Some(loss) = carried {
            let what = format!("this server begins afresh: {}", loss.because.sentence());
            to.print_then(&what, move || loss.told());
        }
        if !attached.ended.is_empty() {
            let NamedStderr { name, stderr } = to;
            print_ended(stderr, name.as_deref(), &attached.ended, sender);
        } else if is_carried {
            // That says why it is a fresh one.
        } else if let Some(lost) = lost {
            to.print(&format_args!(
                "this server begins afresh: {}",
                lost.sentence()
            ));
        } else if attached.resumed && !is_told {
            to.print(&format_args!(
                "resumed the server that has been running for {}; `mcp-sessiond restart` gives a fresh one",
                duration(attached.age_ms)
            ));
        }
        if attached.lost > 0 {
            to.print(&format_args!(
                "{} messages were on their way when the previous connection ended, and may not have arrived",
                attached.lost
            ));
        }
    }
}

/// Carries lines between the bundle and a keeper, and attaches again whenever the keeper is lost
/// and there is something to be said to it.
pub(super) struct Carrying {
    /// None while it is with a thread that attaches.
    pub(super) door: Option<Box<dyn Attaching>>,
    pub(super) open: Open,
    pub(super) wanted: mpsc::Receiver<Bytes>,
    pub(super) said: mpsc::Sender<TrackedLine>,
    pub(super) stderr: NamedStderr,
    pub(super) leaving: watch::Receiver<bool>,
    pub(super) pending_leaves: PendingLeaves,
    /// How the server is told from all others, and from those that were lost before it: a keeper
    /// has failed what was asked on a former connection, and another keeper numbers its requests
    /// anew. None: it is the first one, and the host sees it alone.
    pub(super) id_prefix: Option<IdPrefix>,
    /// What was lost before this front came, until its first connection.
    pub(super) lost: Option<Loss>,
    /// Whether the claim was told of a loss of this server alone, until its first connection.
    pub(super) is_told: bool,
    /// The losses that the front's claim was told of.
    pub(super) claimed_losses: Vec<LossId>,
    /// Whether the host has sent more than a probe, and what is told then.
    pub(super) is_used: bool,
    pub(super) untold: Option<Report>,
}

/// Why a connection is over.
enum EndReason {
    /// The bundle has hung up.
    HungUp,
    /// The keeper is lost; whether it has said that it ends on purpose.
    Lost { on_purpose: bool },
}

impl Carrying {
    pub(super) async fn run(self, first: Attachment, pending_leave: PendingLeave) {
        self.run_with(first, None, pending_leave).await;
    }

    /// The same with a server that all hosts share. Whether this one can, its first line says.
    pub(super) async fn run_shared(
        mut self,
        shared: Shared,
        looking: Looking,
        door: Door,
        mask: GivenMask,
    ) {
        let Some(first) = self.wanted.recv().await else {
            return;
        };
        // Dropped with this.
        let Ok((_present, wanted)) = StdStream::pair() else {
            return;
        };
        let mut place = Place::new(shared, looking, first.clone(), mask, door).while_wanted(wanted);
        let attempt = tokio::task::spawn_blocking(move || {
            let attached = place.attach(None, Instant::now() + ATTACH_WAIT);
            (place, attached)
        });
        let attempt = tokio::select! {
            attempt = attempt => attempt,
            () = self.said.closed() => return,
        };
        let Ok((place, attached)) = attempt else {
            return;
        };
        self.door = Some(Box::new(place));
        match attached {
            Ok(attachment) => {
                let pending_leave = self.pending_leaves.add();
                self.run_with(attachment, Some(first), pending_leave).await;
            }
            Err(why) => {
                self.stderr.print(&why);
                self.answer(&refusals(&first, &why.to_string())).await;
            }
        }
    }

    async fn run_with(
        mut self,
        first: Attachment,
        mut waiting: Option<Bytes>,
        first_leave: PendingLeave,
    ) {
        let (mut attachment, mut pending_leave) = (first, first_leave);
        loop {
            if let Some(news) = self.door.as_mut().and_then(|door| door.notice()) {
                self.stderr.print(&news);
            }
            let is_told = std::mem::take(&mut self.is_told);
            self.untold = Some(Report::of(
                &mut attachment,
                self.lost.take(),
                is_told,
                &self.claimed_losses,
            ));
            if self.is_used
                && let Some(report) = self.untold.take()
            {
                report.print(&self.stderr);
            }
            if let Some(line) = waiting.clone() {
                self.note_use(&line);
            }
            let Ok(EndReason::Lost { on_purpose }) =
                self.carry(attachment, waiting.take(), pending_leave).await
            else {
                return;
            };
            self.id_prefix = Some(IdPrefix::mint());
            let answers = self.open.fail_all();
            self.answer(&answers).await;
            // A stopped server stays stopped until it is used.
            if on_purpose && self.open.unanswered().is_none() {
                match self.wanted.recv().await {
                    None => return,
                    line => waiting = line,
                }
            }
            match self.again(&mut waiting).await {
                Some(found) => (attachment, pending_leave) = (found, self.pending_leaves.add()),
                None => return,
            }
            let door = self.door.as_ref();
            let said = door.map_or(KEEPER_REPLACED, |door| door.reattached());
            // The daemon, too, knows that the keeper is lost, and would have the next front say so.
            let loss = attachment.loss.take();
            self.stderr.print_then(&said, move || {
                loss.into_iter().for_each(CarriedLoss::told);
            });
        }
    }

    /// The host says something. Once that is more than a probe, somebody reads what is told.
    fn note_use(&mut self, line: &Bytes) {
        self.is_used |= !is_probe(line);
        if self.is_used
            && let Some(report) = self.untold.take()
        {
            report.print(&self.stderr);
        }
    }

    /// `waiting` goes first, after an `initialize` that was not answered. `pending_leave` lasts
    /// until the keeper has heard that the host leaves.
    async fn carry(
        &mut self,
        attachment: Attachment,
        waiting: Option<Bytes>,
        pending_leave: PendingLeave,
    ) -> std::io::Result<EndReason> {
        let Attachment {
            reader,
            frames,
            sender,
            watch,
            ..
        } = attachment;
        let NamedStderr { name, stderr } = &self.stderr;
        let mut errors = stderr.of_server(name.as_deref());
        reader.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(reader)?.into_split();
        let mut reader = Frames::new(reader, frames);
        let mut passing = PendingLines::default();
        let id_prefix = self.id_prefix.clone();
        let to_server = |line: Bytes| {
            id_prefix.as_ref().map_or_else(
                || Some(line.clone()),
                |id_prefix| id_prefix.to_server(&line),
            )
        };
        let unanswered = self.open.unanswered().cloned();
        let mut first: VecDeque<Bytes> = unanswered
            .into_iter()
            .chain(waiting)
            .filter_map(to_server)
            .collect();
        let mut on_purpose = false;
        // None once the host has left.
        let mut pending_leave = Some(pending_leave);
        // When something was last said, and for how long nothing is until the keeper is asked.
        let (mut active, mut patience) = (Instant::now(), QUIET);
        let mut asking: Option<JoinHandle<()>> = None;
        loop {
            while passing.is_empty()
                && let Some(line) = first.pop_front()
            {
                self.open.from_host(&line);
                passing.put(line);
            }
            let is_empty = passing.is_empty();
            tokio::select! {
                biased;
                said = reader.next() => match said {
                    Ok(Some(said)) => {
                        let line = match (said.kind, said.body) {
                            (Kind::Line, Line::Whole(line)) => line,
                            (Kind::Line, Line::Oversized { head, tail }) => match Oversized::of_server(&head, &tail) {
                                Oversized::Failed(answer) => answer,
                                // Too large by the id that the keeper has given it.
                                Oversized::Refused(answer) => {
                                    first.push_back(answer);
                                    continue;
                                }
                                Oversized::Dropped => continue,
                            },
                            (Kind::Ending, _) => {
                                on_purpose = true;
                                continue;
                            }
                            (kind, Line::Whole(text)) if errors.note(kind, &text, &sender) => continue,
                            _ => break,
                        };
                        (active, patience) = (Instant::now(), QUIET);
                        self.open.from_keeper(&line);
                        let line = id_prefix.as_ref().map_or_else(|| line.clone(), |id_prefix| id_prefix.to_host(&line));
                        let receipt = confirmation(sender.clone());
                        if self.said.send(TrackedLine { line, receipt }).await.is_err() {
                            sender.leave(ending_signal());
                            return Ok(EndReason::HungUp);
                        }
                    }
                    Ok(None) | Err(_) => break,
                },
                sent = sender.send_by(&writer, &mut passing), if !is_empty => {
                    if sent.is_err() {
                        break;
                    }
                }
                line = self.wanted.recv(), if is_empty => match line {
                    Some(line) => if let Some(line) = to_server(line) {
                        self.note_use(&line);
                        (active, patience) = (Instant::now(), QUIET);
                        self.open.from_host(&line);
                        passing.put(line);
                    },
                    None => {
                        sender.leave(ending_signal());
                        return Ok(EndReason::HungUp);
                    }
                },
                () = host_left(&mut self.leaving), if pending_leave.is_some() => {
                    sender.leave(ending_signal());
                    pending_leave = None;
                }
                () = answered(&mut asking), if asking.is_some() => {
                    asking = None;
                    (active, patience) = (Instant::now(), (patience * 2).min(QUIET_MAX));
                }
                () = sleep_until((active + patience).into()),
                    if asking.is_none() && watch.is_some() && !self.open.is_settled() =>
                {
                    let (watch, stderr) = (watch.clone(), self.stderr.clone());
                    asking = Some(tokio::task::spawn_blocking(move || {
                        if let Some(watch) = watch {
                            watch.check(active, &|what| stderr.print(&what));
                        }
                    }));
                }
            }
        }
        errors.end();
        Ok(EndReason::Lost { on_purpose })
    }

    /// Attaches again, however long it takes. When it takes too long, what is asked for is refused
    /// meanwhile, `waiting` first.
    async fn again(&mut self, waiting: &mut Option<Bytes>) -> Option<Attachment> {
        let mut began = Instant::now();
        let mut pause = PAUSE;
        let mut said = String::new();
        loop {
            let mut door = self.door.take()?;
            let initialized = self.open.initialized().and_then(as_json);
            let attempt = tokio::task::spawn_blocking(move || {
                let attached = door.attach(initialized, Instant::now() + ATTACH_WAIT);
                (door, attached)
            });
            let (door, attached) = attempt.await.ok()?;
            self.door = Some(door);
            let why = match attached {
                Ok(attachment) => return Some(attachment),
                // What is asked is held for as long as the host waits.
                Err(NoBackend::Stalled(why)) => {
                    began = Instant::now();
                    why
                }
                Err(why) => why.to_string(),
            };
            if began.elapsed() >= HOLD {
                if said != why {
                    self.stderr.print(&format_args!(
                        "the server can't be started again: {why}; the wrapper keeps trying"
                    ));
                    said.clone_from(&why);
                }
                if let Some(unanswered) = self.open.unanswered().cloned() {
                    self.open.forget();
                    self.answer(&refusals(&unanswered, &why)).await;
                }
                let lines = waiting
                    .take()
                    .into_iter()
                    .chain(std::iter::from_fn(|| self.wanted.try_recv().ok()));
                let refused: Vec<u8> = lines.flat_map(|line| refusals(&line, &why)).collect();
                self.answer(&refused).await;
            }
            if self.said.is_closed() {
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Tells the bundle these answers of ours, a line each.
    async fn answer(&self, answers: &[u8]) {
        for answer in answers
            .split(|byte| *byte == b'\n')
            .filter(|answer| !answer.is_empty())
        {
            // Where nobody hears them, nobody waits for them.
            let _ = self
                .said
                .send(TrackedLine::once(Bytes::copy_from_slice(answer)))
                .await;
        }
    }
}

/// Waits until a keeper has answered that is asked.
async fn answered(asking: &mut Option<JoinHandle<()>>) {
    if let Some(asking) = asking {
        let _ = asking.await;
    }
}

/// Waits until the host has closed its end.
async fn host_left(leaving: &mut watch::Receiver<bool>) {
    // Its sender is the front's.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

fn as_json(line: &Bytes) -> Option<Json> {
    Json::new(String::from_utf8(line.to_vec()).ok()?).ok()
}

/// Tells the keeper that a message was passed on. This must never make anybody wait.
fn confirmation(sender: Arc<FrameSender>) -> Receipt {
    Receipt::new(move || sender.pass_on(1))
}
