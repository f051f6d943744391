//! The keeper at work: one loop that carries lines between its backend and its front, and tells the
//! relay what happens.
//!
//! `events` are what it waits for. `attach` lets fronts in, `continuing` those of a service, and
//! `shared` the clients that share a backend. `restarts` ends backends and starts the next ones, and
//! tells of the losses; `leaving` ends a backend with its front. `status` is what the keeper says of itself.

mod attach;
mod continuing;
mod events;
mod leaving;
mod restarts;
mod shared;
mod status;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use mcp_sessiond_client::Control;
use mcp_sessiond_process::socket::Listener;
use mcp_sessiond_process::{PinnedProcess, ProcessId, fault};
use mcp_sessiond_proto::backends::frame::{Frame, Kind};
use mcp_sessiond_proto::backends::{Counts, Kept};
use mcp_sessiond_proto::{Epoch, Resume};
use mcp_sessiond_relay::{Effect, Limits, Relay};
use nix::sys::signal::Signal;
use signal_hook_tokio::Signals;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::events::{from_backend, from_clients, from_front, from_stderr, to_backend, to_front};
use super::backend::Backend;
use super::children::{ChildExit, Children, StopMode};
use super::exits::{Exit, ExitWatcher};
use super::front_connection::FrontConnection;
use super::program_change::ProgramFile;
use super::requests::{FrontRule, Incoming, KeeperContext, receive};
use super::sharing::{self, Sharing};
use super::sources::Sources;
use super::spare::Spare;
use super::stderr_ring::StderrRing;
use crate::alarm::Alarm;
use crate::frames::PendingFrames;
use crate::lines::{Line, PendingLine};
use crate::memory::IDLE;
use crate::program::Program;
use crate::signals::GivenMask;

/// Lines that are handed out one after the other before the loop looks at anything else.
const AT_ONCE: usize = 16;

/// Visits that wait to be dealt with.
const INCOMING_MAX: usize = 16;

/// How long after a front has attached the keeper gives memory back, and how long a backend that
/// has closed its standard input or output may take to exit.
const SETTLED: Duration = Duration::from_secs(1);

/// How long a front may take to read its last answers when the backend is taken down, and how long
/// processes that the backend has left behind may take to die. Both, with four times
/// `stop_wait_ms`, make up how long the daemon waits before it kills a keeper.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// How often a keeper without a front looks whether its socket is still in place, and its directory
/// with it. Where that is gone, no front finds it any more.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A keeper that has registered, and whose backend runs.
pub struct Keeper {
    pub(super) context: Arc<KeeperContext>,
    /// What the daemon said when it registered.
    pub(super) kept: Kept,
    /// The daemon, for calls whose answers the keeper does not wait for.
    control: Control,
    pub(super) program: Program,
    /// The program's files, to notice changes.
    program_file: Option<ProgramFile>,
    sources: Option<Sources>,
    /// The file of these for which the running backend was started.
    edited: Option<String>,
    /// The host of the latest front, where a former one's may have been another process.
    last_host: Option<ProcessId>,
    pub(super) relay: Relay,
    children: Arc<Children>,
    pub(super) backend: Option<Backend>,
    pending_line: PendingLine,
    /// Former backends that are being taken down.
    retiring: JoinSet<()>,
    /// The next backend is to be started, when they are gone.
    start_due: bool,
    pub(super) front: Option<FrontConnection>,
    /// The clients, where hosts share the backend. Then no front has it.
    sharing: Option<Sharing>,
    began: Instant,
    /// When the latest front attached or left.
    pub(super) since: Instant,
    /// How often it looks at its socket while it has no front, and when it has looked last.
    look_every: Duration,
    looked: Instant,
    /// When the latest front said that it leaves, after its host had begun a conversation, in ms of
    /// the clock that start times are read from; 0 where that is not known.
    closed: Option<u64>,
    /// The signal by which its host has ended the latest front: the backend gets it when it ends.
    signal: Option<Signal>,
    /// The backend's input was closed for good, since its host has closed its own: the processes to
    /// spare at the backend's end.
    input_over: Option<BTreeSet<ProcessId>>,
    /// Whether another front may have the backend as the latest has left it, as the daemon said
    /// last.
    rule: FrontRule,
    /// Whether the daemon was told how a front has left.
    has_told_left: bool,
    /// What the daemon is being told.
    telling: JoinSet<()>,
    /// The counts that the daemon has confirmed.
    reported: Arc<Mutex<Counts>>,
    /// Why the keeper is about to end.
    ending: Option<End>,
    /// The signals that the host had blocked.
    mask: GivenMask,
    /// How long it waits for its first front.
    first_front: Duration,
    /// The newest epoch, and the process that attached with it.
    last: (Epoch, Option<ProcessId>),
    /// The number of the last message taken from the latest front, where fronts continue each
    /// other.
    taken: u64,
    /// Tells this keeper from former ones of the same name.
    incarnation: u64,
    pub(super) ring: StderrRing,
    /// Whether the last line of the backend's standard error has not ended.
    is_in_line: bool,
    /// A front that has just attached and is not watched yet.
    arrived: Option<PinnedProcess>,
    /// When to check whether memory can be given back.
    trim_at: Option<Instant>,
    /// Whether a line was carried since the last check.
    busy: bool,
}

/// Why a keeper ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By a signal: the daemon's, or somebody's by hand.
    Signal,
    /// With its front, which has left for good. Until the backend is gone, lines are carried, and the
    /// front waits.
    FrontLeft,
    /// The session of a service has ended.
    SessionEnded,
    /// The front that has the backend wants it no longer: its entry was removed or edited, or it can't
    /// be initialised.
    Dropped,
    /// With the session's host.
    HostGone,
    /// No front was attached for the linger time.
    Lingered,
    /// Its socket was taken away.
    SocketGone,
}

impl End {
    /// Whether somebody wants the end: a front that is attached hears so, and gets the answers that
    /// come in time.
    fn is_asked(self) -> bool {
        matches!(self, Self::Signal | Self::SessionEnded)
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Signal => "somebody has sent SIGTERM to its keeper",
            Self::SessionEnded => "its session has ended",
            Self::Dropped => {
                "its wrapper has ended it: its entry was removed or edited, or it could not be initialised"
            }
            Self::FrontLeft => "its host has closed it",
            Self::HostGone => "its host is gone",
            Self::Lingered => "no host has come back for it in time",
            Self::SocketGone => "its socket was removed, so no host can reach it",
        }
    }
}

/// What happened.
enum Event {
    Children,
    End(End),
    Incoming(Incoming),
    FrontGone,
    FromFront(Frame),
    FromClient(sharing::Event),
    FromBackend(Line),
    /// What stands behind its last newline.
    LastFromBackend(Line),
    OutputClosed,
    InputClosed,
    Stderr(Vec<u8>),
    StderrClosed,
    Written,
    Retired,
    Time,
}

impl Keeper {
    /// Starts the backend. `epoch` is that of the lease under which the keeper has registered.
    ///
    /// # Errors
    /// When there is no such program, or none that may be run.
    pub fn start(
        context: KeeperContext,
        epoch: Epoch,
        kept: Kept,
        control: Control,
        program: Program,
        mask: GivenMask,
        first_front: Duration,
    ) -> io::Result<Self> {
        let children = context.children.clone();
        let limits = Limits {
            ask_wait_ms: kept.ask_wait_ms,
            queue_messages: kept.queue_messages,
            queue_bytes: kept.queue_bytes,
            ping_wait_ms: kept.ping_wait_ms,
            stop_wait_ms: kept.stop_wait_ms,
            closes: kept.closes,
            closes_ms: kept.closes_ms,
            is_users: kept.owner.is_none(),
        };
        let relay = if context.service.is_some() {
            Relay::continuing(limits)
        } else {
            Relay::new(limits)
        };
        let discover = kept.discover.clone();
        let now = Instant::now();
        let mut keeper = Self {
            ring: StderrRing::new(kept.stderr_bytes),
            is_in_line: false,
            kept,
            control,
            program,
            program_file: None,
            sources: None,
            edited: None,
            last_host: None,
            relay: relay.knowing(discover),
            context: Arc::new(context),
            children,
            backend: None,
            pending_line: PendingLine::default(),
            retiring: JoinSet::new(),
            start_due: false,
            front: None,
            sharing: None,
            began: now,
            since: now,
            look_every: fault::look().unwrap_or(LOOK_EVERY),
            looked: now,
            closed: None,
            signal: None,
            input_over: None,
            rule: FrontRule::NONE,
            has_told_left: false,
            telling: JoinSet::new(),
            reported: Arc::default(),
            ending: None,
            mask,
            first_front,
            last: (epoch, None),
            taken: 0,
            incarnation: PinnedProcess::own()?.id().start.0,
            arrived: None,
            trim_at: Some(now + SETTLED),
            busy: false,
        };
        keeper.start_backend()?;
        Ok(keeper)
    }

    /// Milliseconds since it began.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Keeps the backend until its owner is gone, no front has attached for the linger time, or the
    /// keeper is told to end; then takes the backend down. `listener` and `placed` are the same
    /// socket; `signals` are SIGCHLD and SIGTERM, waited for since before the backend was started; `spare` is for clients that there is no other descriptor for.
    pub async fn hold(
        mut self,
        listener: UnixListener,
        placed: &Listener,
        mut watch: ExitWatcher,
        mut signals: Signals,
        spare: Spare,
    ) {
        let (sender, mut incoming) = mpsc::channel(INCOMING_MAX);
        let mut alarm = Alarm::default();
        let receiving = tokio::spawn(receive(listener, self.context.clone(), sender, spare));
        let why = loop {
            if self.sharing.is_some() {
                // A start that the last event has led to may have left something.
                self.apply_effects();
            }
            self.hand_out();
            while self.can_pass_on() {
                self.apply_effects();
                self.hand_out();
            }
            let deadline = self.deadline();
            let event = {
                // A continuing front also confirms what makes room, and sends no message before
                // the last one was acknowledged.
                let reads_front = self.continues() || self.relay.reads_front();
                let reads_backend = self.relay.reads_backend();
                let (front_in, front_out) = match &mut self.front {
                    Some(FrontConnection {
                        reader,
                        writer,
                        pending,
                        ..
                    }) => (Some(reader), Some((pending, &*writer))),
                    None => (None, None),
                };
                let (input, output, errors) = match &mut self.backend {
                    Some(Backend {
                        input,
                        output,
                        errors,
                        ..
                    }) => (input.as_mut(), output.as_mut(), errors.as_mut()),
                    None => (None, None, None),
                };
                tokio::select! {
                    biased;
                    Some(signal) = signals.next() => match signal == Signal::SIGCHLD as i32 {
                        true => Event::Children,
                        false => Event::End(End::Signal),
                    },
                    exited = watch.exited() => match exited {
                        Exit::Owner => Event::End(End::HostGone),
                        // Read what the front has written before, unless the relay takes no lines
                        // now.
                        Exit::Front if reads_front => Event::Written,
                        Exit::Front => Event::FrontGone,
                    },
                    Some(_) = self.retiring.join_next() => Event::Retired,
                    Some(incoming) = incoming.recv() => Event::Incoming(incoming),
                    event = to_front(front_out) => event,
                    event = to_backend(&mut self.pending_line, input) => event,
                    event = from_backend(output), if reads_backend => event,
                    event = from_front(front_in), if reads_front => event,
                    event = from_clients(&mut self.sharing) => event,
                    event = from_stderr(errors) => event,
                    () = alarm.ring(deadline) => Event::Time,
                }
            };
            let left = matches!(
                event,
                Event::FrontGone | Event::FromClient(sharing::Event::Left(_))
            );
            let ends = self.handle_with_more(event).await;
            if self.ends_with_front_now() {
                // Whoever connects is told that this backend ends.
                if self.is_taken_down() {
                    break End::FrontLeft;
                }
            } else if let Some(why) = ends {
                if self.ending.is_none() {
                    receiving.abort();
                    placed.unlink();
                }
                self.begin_end(why);
            } else if (left || self.look_due().is_some_and(|due| due <= Instant::now()))
                && self.ending.is_none()
            {
                self.looked = Instant::now();
                if !placed.is_in_place() {
                    self.begin_end(End::SocketGone);
                }
            }
            // Wait for the answers that come in time.
            if let Some(why) = self.ending
                && (!why.is_asked() || self.relay.is_drained(self.now()))
                && why != End::FrontLeft
            {
                break why;
            }
            if let Some(front) = self.arrived.take() {
                watch.follow(Some(front));
            }
        };
        receiving.abort();
        placed.unlink();
        // If the host is gone, that is probably why the daemon has sent SIGTERM.
        let why = if watch.owner_is_alive() {
            why
        } else {
            End::HostGone
        };
        self.end(why, &mut signals).await;
    }

    /// Gives the front and the backend their next lines, if they can take one. Most lines are taken
    /// at once: then the loop need not go round once more for each. What a front was handed and does
    /// not read before it goes is lost, and counted: that is little, so many lines are handed out at
    /// a time, and [no more](PendingFrames::is_full).
    fn hand_out(&mut self) {
        // One that ends looks after each line whether it was the last.
        let rounds = if self.ending.is_some() { 1 } else { AT_ONCE };
        if self.continues() {
            self.take_held();
        }
        let has = |this: &Self, what: fn(&PendingFrames) -> bool| {
            this.front
                .as_ref()
                .is_some_and(|front| what(&front.pending))
        };
        if has(self, PendingFrames::is_empty) {
            let mut is_all = false;
            for _ in 0..rounds {
                is_all = !self.hand_out_next();
                if is_all || has(self, PendingFrames::is_full) {
                    break;
                }
            }
            // Where there is more, the loop writes, which comes back here after it.
            if let Some(front) = self.front.as_mut().filter(|_| is_all) {
                front.pending.write_at_once(&front.writer);
            }
        }
        if let Some(Backend {
            input: Some(input), ..
        }) = &self.backend
        {
            for round in 1..=rounds {
                let Some(line) = self
                    .pending_line
                    .is_empty()
                    .then(|| self.relay.pull_backend())
                    .flatten()
                else {
                    break;
                };
                self.pending_line.put(line);
                if round < rounds {
                    self.pending_line
                        .write_at_once(|pieces| input.try_write_vectored(pieces));
                }
            }
        }
        self.close_input_behind_last_line();
    }

    /// Puts what the front gets next behind what is on its way to it. False: there is nothing.
    fn hand_out_next(&mut self) -> bool {
        let continues = self.continues();
        let Some(front) = &mut self.front else {
            return false;
        };
        if front.hand_out_lane() {
            return true;
        }
        if continues {
            let numbered = self.relay.pull_numbered();
            let put = |(number, line)| front.pending.put(Kind::Line, number, line);
            numbered.map(put).is_some()
        } else {
            let line = self.relay.pull_front();
            line.map(|line| front.hand_out(line)).is_some()
        }
    }

    /// When something is due. None: only an event wakes the loop.
    fn deadline(&self) -> Option<Instant> {
        let linger = self.since + self.linger();
        let relay = self
            .relay
            .next_deadline()
            .map(|at| self.began + Duration::from_millis(at));
        let lonely = self.is_alone().then_some(linger);
        let mute = self
            .backend
            .as_ref()
            .filter(|_| self.input_over.is_none())
            .and_then(|backend| backend.closed_since)
            .map(|since| since + SETTLED);
        let due = [relay, lonely, mute, self.trim_at, self.look_due()];
        due.into_iter().flatten().min()
    }

    /// When to look next whether the socket is in place. With a front: when that leaves.
    fn look_due(&self) -> Option<Instant> {
        let looks = self.is_alone() && self.ending.is_none();
        looks.then_some(self.looked + self.look_every)
    }

    /// How long the backend stays without a front. That depends on whether there was one, and how
    /// it left.
    fn linger(&self) -> Duration {
        // A used server of a host of which nothing is known ends as if its host had closed it.
        let is_over = self.rule.resume == Resume::Unknown && self.relay.is_used();
        match (self.last.1, self.closed.is_some() || is_over) {
            (None, _) => self.first_front,
            (Some(_), true) => Duration::from_millis(self.kept.closed_linger_ms),
            (Some(_), false) => Duration::from_millis(self.kept.linger_ms),
        }
    }

    /// Handles an event, and lines that were read with this one: the loop need not go round once more
    /// for each, and what comes of them is written at once.
    async fn handle_with_more(&mut self, event: Event) -> Option<End> {
        let mut more: fn(&mut Self) -> Option<Event> = |_| None;
        match event {
            Event::FromFront(_) => more = Self::next_from_front,
            Event::FromBackend(_) => more = Self::next_from_backend,
            _ => {}
        }
        let mut ends = self.handle(event).await;
        for _ in 1..AT_ONCE {
            // One that ends looks after each line whether it was the last.
            if ends.is_some() || self.ending.is_some() {
                break;
            }
            let Some(event) = more(self) else { break };
            ends = self.handle(event).await;
        }
        ends
    }

    /// What was read of the front already.
    fn next_from_front(&mut self) -> Option<Event> {
        let reads = self.continues() || self.relay.reads_front();
        let front = self.front.as_mut().filter(|_| reads)?;
        // The loop meets what breaks the protocol.
        let said = front.reader.next_buffered()?.ok()??;
        Some(Event::FromFront(said))
    }

    /// The same of the backend.
    fn next_from_backend(&mut self) -> Option<Event> {
        let reads = self.relay.reads_backend();
        let backend = self.backend.as_mut().filter(|_| reads)?;
        let line = backend.output.as_mut()?.next_buffered()?;
        Some(Event::FromBackend(line))
    }

    /// Passes an event to the relay and carries out the relay's orders. Returns why the keeper must
    /// end, if it must.
    async fn handle(&mut self, event: Event) -> Option<End> {
        let now = self.now();
        let is_line = match &event {
            Event::FromFront(said) => said.kind == Kind::Line,
            Event::FromClient(event) => matches!(event, sharing::Event::Line(..)),
            event => matches!(event, Event::FromBackend(_) | Event::LastFromBackend(_)),
        };
        if is_line {
            self.busy = true;
            self.trim_at.get_or_insert_with(|| Instant::now() + IDLE);
        }
        match event {
            Event::Children => {
                self.children.reap();
                let ended = self
                    .backend
                    .as_ref()
                    .and_then(|backend| self.children.ended(backend.pid));
                match ended {
                    Some(_) if self.input_over.is_some() => self.closed_backend_ended(),
                    Some(ChildExit::Code(0)) if self.goes_on_in_another() => {}
                    Some(ended) => self.backend_ended(&ended.to_string()),
                    None => {}
                }
            }
            // The daemon knows already that nobody resumes what the front has left.
            Event::End(End::Signal) if self.has_left_for_good() => self.end_with_front(),
            Event::End(why) => return Some(why),
            // The connection closes, so the visitor looks for another keeper.
            Event::Incoming(_) if self.ending.is_some_and(|why| why != End::FrontLeft) => {}
            Event::Incoming(incoming) => self.handle_incoming(incoming).await,
            Event::FrontGone => self.detach(),
            Event::FromFront(said) if self.continues() => return self.handle_continuing(said),
            // A front that has not said that it leaves does not want this backend any more.
            Event::FromFront(said) if said.kind == Kind::End && !self.is_left() => {
                return Some(End::Dropped);
            }
            Event::FromFront(said) => self.handle_frame(said),
            Event::FromClient(event) => self.handle_client(event),
            Event::FromBackend(line) => {
                if let Some(backend) = &mut self.backend {
                    backend.has_spoken = true;
                }
                self.take_line(line);
            }
            Event::LastFromBackend(line) => self.take_last_line(line),
            // Its exit is about to be reported; if not, it can't be used any more all the same.
            Event::OutputClosed => {
                let backend = self.backend.as_mut()?;
                backend.output = None;
                backend.closed_since = Some(Instant::now());
            }
            Event::InputClosed => {
                self.pending_line = PendingLine::default();
                let backend = self.backend.as_mut()?;
                backend.input = None;
                backend.closed_since = Some(Instant::now());
            }
            Event::Stderr(text) => self.push_stderr(&text),
            Event::StderrClosed => self.backend.as_mut()?.errors = None,
            Event::Written | Event::Retired => {}
            Event::Time => {
                self.relay.tick(now);
                if self.trim_at.is_some_and(|at| at <= Instant::now()) {
                    // Not while lines are carried: the pages would only come back.
                    self.trim_at = std::mem::take(&mut self.busy).then(|| Instant::now() + IDLE);
                    if self.trim_at.is_none() {
                        mcp_sessiond_process::runtime::give_back_memory();
                    }
                }
                let mute = self
                    .backend
                    .as_ref()
                    .and_then(|backend| backend.closed_since);
                if mute.is_some_and(|since| since.elapsed() >= SETTLED) && self.input_over.is_none()
                {
                    self.replace("it closed its standard input or output");
                }
                let lingered = self.since.elapsed() >= self.linger();
                if self.is_alone() && lingered {
                    if !self.is_served().await {
                        return Some(End::Lingered);
                    }
                    self.since = Instant::now();
                }
            }
        }
        self.apply_effects();
        None
    }

    /// Carries out what the relay wants.
    fn apply_effects(&mut self) {
        loop {
            self.pass_on_shared();
            let effects = self.relay.effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.apply(effect);
            }
        }
        // Only after the former backend is gone, which may hold a port or the lock on a profile.
        if self.start_due && self.retiring.is_empty() && self.input_over.is_none() {
            self.start_due = false;
            self.restart();
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Start => self.start_due = true,
            // It ends as its host has left it.
            Effect::Replace { .. } if self.input_over.is_some() => {}
            Effect::Replace { why, hangs } => {
                self.log_line(&format!("{why}; a fresh server is started"));
                self.retire(if hangs {
                    StopMode::Terminate
                } else {
                    self.graceful()
                });
                self.start_due = true;
            }
            Effect::ReplaceUnused => {
                self.retire(self.graceful());
                self.start_due = true;
            }
            Effect::Ended(why) => {
                let why = format!("{}{why}", self.context.name_in_list());
                self.tell_loss(&why);
            }
            Effect::Learned(learned) => self.tell_learned(learned),
            Effect::Say(text) => self.log_line(&text),
        }
    }
}
