//! The keeper at work: one loop that carries lines between its backend and its front, and tells the relay what happens.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_client::Control;
use mcp_sessiond_proto::backends::{Attach, KeeperReply, Kept, StartedRequest};
use mcp_sessiond_proto::{Epoch, Error};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::backend::{Backend, Program};
use super::children::Children;
use super::errors::Ring;
use super::front::{Beside, Front, Outlet};
use super::lines::{Line, Lines};
use super::relay::{Limits, Order, Relay};
use super::visits::{House, Visit, Word, receive, reply};
use super::watch::{Exited, Watch};
use crate::process::{Pinned, ProcessId};

/// Connections beside fronts that have not attached yet.
const BESIDES: usize = 4;

/// Visits that wait to be dealt with.
const VISITS: usize = 16;

/// Bytes of the backend's standard error that are read at once.
const ERRORS_CHUNK: usize = 8 * 1024;

/// How long after a front has attached there is nothing left to do for it but to carry lines; and how long a backend that has
/// closed its standard output may take to exit.
const SETTLED: Duration = Duration::from_secs(1);

/// How long it may be until the clock is looked at where nothing is due.
const QUIET: Duration = Duration::from_secs(24 * 3600);

/// How long a front may take to read its last answers when the backend is taken down, and how long what the backend has left
/// behind may take to die. With three times `stop_wait_ms` that is what the daemon waits before it kills a keeper.
const FAREWELL: Duration = Duration::from_secs(1);

/// A keeper that has registered, and whose backend runs.
pub struct Keeper {
    pub(super) house: Arc<House>,
    /// What the daemon said when it registered.
    pub(super) kept: Kept,
    /// The control plane, for calls that nobody waits for.
    control: Control,
    program: Program,
    pub(super) relay: Relay,
    children: Arc<Children>,
    pub(super) backend: Option<Backend>,
    outlet: Outlet,
    /// Former backends that are being taken down.
    retiring: JoinSet<()>,
    pub(super) front: Option<Front>,
    besides: Vec<(ProcessId, Beside)>,
    began: Instant,
    /// Since when a front has been attached, or none has.
    pub(super) since: Instant,
    /// The highest epoch that was let in, and who showed it.
    last: Option<(Epoch, ProcessId)>,
    pub(super) ring: Ring,
    /// A front that has just attached, and is yet to be watched.
    arrived: Option<Pinned>,
    /// When what was needed to start, or to attach, is not needed any more.
    slim_at: Option<Instant>,
}

/// What happened.
enum Event {
    Children,
    End(&'static str),
    Visit(Visit),
    FrontGone,
    FromFront(Line),
    FromBackend(Line),
    OutputClosed,
    InputClosed,
    Errors(Vec<u8>),
    ErrorsClosed,
    Written,
    Time,
}

impl Keeper {
    /// Starts the backend.
    ///
    /// # Errors
    /// When there is no such program, or none that may be run.
    pub fn start(house: House, kept: Kept, control: Control, program: Program) -> io::Result<Self> {
        let children = Arc::new(Children::new());
        let limits = Limits {
            ask_wait_ms: kept.ask_wait_ms,
            queue_messages: kept.queue_messages,
            queue_bytes: kept.queue_bytes,
        };
        let now = Instant::now();
        let mut keeper = Self {
            house: Arc::new(house),
            ring: Ring::new(kept.stderr_bytes),
            kept,
            control,
            program,
            relay: Relay::new(limits),
            children,
            backend: None,
            outlet: Outlet::default(),
            retiring: JoinSet::new(),
            front: None,
            besides: Vec::new(),
            began: now,
            since: now,
            last: None,
            arrived: None,
            slim_at: Some(now + SETTLED),
        };
        keeper.start_backend()?;
        Ok(keeper)
    }

    /// Milliseconds since it began.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Keeps the backend until its owner is gone, nobody has come for the linger time, or it is told to end; then takes
    /// the backend down. `children` are the signals that tell of them, listened to since before the backend was started.
    ///
    /// # Errors
    /// When the operating system tells of no signals.
    pub async fn hold(
        mut self,
        listener: UnixListener,
        path: PathBuf,
        mut watch: Watch,
        mut sigchld: Signal,
    ) -> io::Result<()> {
        let (sender, mut visits) = mpsc::channel(VISITS);
        let receiving = tokio::spawn(receive(listener, self.house.clone(), sender));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let why = loop {
            self.hand_out();
            let deadline = self.deadline();
            let event = {
                let (reads_front, reads_backend) = (self.relay.reads_front(), self.relay.reads_backend());
                let (front_in, front_out) = match &mut self.front {
                    Some(Front { reader, writer, outlet, .. }) => (Some(reader), Some((outlet, writer))),
                    None => (None, None),
                };
                let (input, output, errors) = match &mut self.backend {
                    Some(Backend { input, output, errors, .. }) => {
                        (input.as_mut(), output.as_mut(), errors.as_mut())
                    }
                    None => (None, None, None),
                };
                tokio::select! {
                    biased;
                    Some(()) = sigchld.recv() => Event::Children,
                    Some(()) = terminate.recv() => Event::End("it was told to"),
                    Some(()) = interrupt.recv() => Event::End("it was told to"),
                    // A terminal is none of its business.
                    Some(()) = hangup.recv() => Event::Written,
                    exited = watch.exited() => match exited {
                        Exited::Owner => Event::End("its host is gone"),
                        // What it said before is read to its end, unless there is no hurry to read it.
                        Exited::Front if reads_front => Event::Written,
                        Exited::Front => Event::FrontGone,
                    },
                    Some(visit) = visits.recv() => Event::Visit(visit),
                    event = to_front(front_out) => event,
                    event = to_backend(&mut self.outlet, input) => event,
                    event = from_backend(output), if reads_backend => event,
                    event = from_front(front_in), if reads_front => event,
                    event = from_errors(errors) => event,
                    () = sleep_until(deadline) => Event::Time,
                }
            };
            if let Some(why) = self.take_in(event).await {
                break why;
            }
            if let Some(front) = self.arrived.take() {
                watch.follow(Some(front));
            }
        };
        receiving.abort();
        let _ = std::fs::remove_file(&path);
        self.end(why, &mut sigchld).await;
        Ok(())
    }

    /// Gives the next line to whoever is free to take one.
    fn hand_out(&mut self) {
        if let Some(front) = &mut self.front
            && front.outlet.is_empty()
            && let Some(line) = self.relay.pull_front()
        {
            front.hand_out(line);
        }
        let listens = self.backend.as_ref().is_some_and(|backend| backend.input.is_some());
        if listens
            && self.outlet.is_empty()
            && let Some(line) = self.relay.pull_backend()
        {
            self.outlet.put(line);
        }
    }

    fn deadline(&self) -> Instant {
        let linger = self.since + Duration::from_millis(self.kept.linger_ms);
        let relay = self.relay.next_deadline().map(|at| self.began + Duration::from_millis(at));
        let lonely = self.front.is_none().then_some(linger);
        let mute = self.backend.as_ref().and_then(|backend| backend.mute_since).map(|since| since + SETTLED);
        let next = [relay, lonely, mute, self.slim_at].into_iter().flatten().min();
        // Where nothing is due, something has to happen first.
        next.unwrap_or_else(|| Instant::now() + QUIET)
    }

    /// Tells the relay, and does what it says. Returns why the keeper has to end, if it has.
    async fn take_in(&mut self, event: Event) -> Option<&'static str> {
        let now = self.now();
        match event {
            Event::Children => {
                self.children.reap();
                let ended = self.backend.as_ref().and_then(|backend| self.children.ended(backend.pid));
                if let Some(ended) = ended {
                    self.backend_ended(&ended.to_string());
                }
            }
            Event::End(why) => return Some(why),
            Event::Visit(visit) => self.visit(visit).await,
            Event::FrontGone => self.detach(),
            Event::FromFront(Line::Whole(line)) => self.relay.from_front(line, now),
            Event::FromFront(Line::Oversized { head, tail }) => {
                self.relay.oversized_from_front(&head, &tail, now);
            }
            Event::FromBackend(Line::Whole(line)) => self.relay.from_backend(line, now),
            Event::FromBackend(Line::Oversized { head, tail }) => {
                self.relay.oversized_from_backend(&head, &tail, now);
            }
            // It is about to be heard of as ended; else it can't be talked to any more, whatever else it does.
            Event::OutputClosed => {
                let backend = self.backend.as_mut()?;
                backend.output = None;
                backend.mute_since = Some(Instant::now());
            }
            Event::InputClosed => {
                self.outlet = Outlet::default();
                self.backend.as_mut()?.input = None;
            }
            Event::Errors(text) => self.show(&text),
            Event::ErrorsClosed => self.backend.as_mut()?.errors = None,
            Event::Written => {}
            Event::Time => {
                self.relay.tick(now);
                if self.slim_at.is_some_and(|at| at <= Instant::now()) {
                    self.slim_at = None;
                    // There is no harm in it where it fails.
                    #[cfg(target_os = "linux")]
                    drop(crate::sys::let_go_of_text());
                }
                let mute = self.backend.as_ref().and_then(|backend| backend.mute_since);
                if mute.is_some_and(|since| since.elapsed() >= SETTLED) {
                    self.replace("it closed its standard output");
                }
                let lingered = self.since.elapsed() >= Duration::from_millis(self.kept.linger_ms);
                if self.front.is_none() && lingered {
                    return Some("nobody has come for it");
                }
            }
        }
        for order in self.relay.orders() {
            match order {
                Order::Start => self.restart(),
                Order::Replace { why } => {
                    self.say(&format!("{why}; a fresh server is started"));
                    self.retire();
                    self.restart();
                }
                Order::Say(text) => self.say(&text),
            }
        }
        None
    }

    async fn visit(&mut self, visit: Visit) {
        match visit {
            Visit::Beside { process, stream } => {
                if let Ok(beside) = Beside::new(stream) {
                    self.besides.retain(|(former, _)| *former != process);
                    if self.besides.len() == BESIDES {
                        self.besides.remove(0);
                    }
                    self.besides.push((process, beside));
                }
            }
            Visit::Status { mut writer } => {
                let status = KeeperReply::Status(Box::new(self.status()));
                tokio::spawn(async move { reply(&mut writer, &status).await });
            }
            Visit::Attach { attach, process, word, reader, mut writer } => {
                match self.admit(&attach, process.id(), word) {
                    Ok(()) => self.attach(attach, process, reader, writer).await,
                    Err(error) => {
                        tokio::spawn(async move { reply(&mut writer, &KeeperReply::Refused(error)).await });
                    }
                }
            }
        }
    }

    /// Whether a front may have the backend: the daemon says so, or, while that is away, its epoch is newer than all that
    /// were seen.
    fn admit(&self, attach: &Attach, process: ProcessId, word: Word) -> Result<(), Error> {
        match (word, self.last) {
            (Word::Holder(holder), _) if holder == process => Ok(()),
            // The lease is another process's.
            (Word::Holder(_), _) => Err(Error::SessionHeld),
            (Word::Refused(error), _) => Err(error),
            (Word::Away, Some((newest, last))) => {
                let again = attach.epoch == newest && last == process;
                if attach.epoch > newest || again {
                    Ok(())
                } else {
                    Err(Error::StaleEpoch { given: attach.epoch, newest })
                }
            }
            (Word::Away, None) => Ok(()),
        }
    }

    async fn attach(
        &mut self,
        attach: Attach,
        front: Pinned,
        reader: Lines<tokio::net::unix::OwnedReadHalf>,
        mut writer: OwnedWriteHalf,
    ) {
        self.detach();
        let process = front.id();
        self.arrived = Some(front);
        let now = self.now();
        let initialize = attach.initialize.map(|line| Bytes::copy_from_slice(line.as_str().as_bytes()));
        let attached = self.relay.attach(initialize, now);
        // A line of some hundred bytes on a new connection: it fits, or nobody is there.
        let told = timeout(FAREWELL, reply(&mut writer, &KeeperReply::Attached(attached))).await;
        let found = self.besides.iter().position(|(beside, _)| *beside == process);
        let beside = found.map(|at| self.besides.remove(at).1);
        self.last = Some((attach.epoch, process));
        self.since = Instant::now();
        self.front = Some(Front::new(process, attach.epoch, reader, writer, beside));
        if !matches!(told, Ok(Ok(()))) {
            self.detach();
        }
        self.slim_at = Some(Instant::now() + SETTLED);
    }

    fn detach(&mut self) {
        if let Some(mut front) = self.front.take() {
            self.relay.detach(front.unconfirmed(), self.now());
            self.since = Instant::now();
        }
    }

    fn backend_ended(&mut self, why: &str) {
        let now = self.now();
        let Some(mut backend) = self.backend.take() else { return };
        for line in backend.last_lines() {
            match line {
                Line::Whole(line) => self.relay.from_backend(line, now),
                Line::Oversized { head, tail } => self.relay.oversized_from_backend(&head, &tail, now),
            }
        }
        self.outlet = Outlet::default();
        self.relay.backend_exited(why, now);
        // What it left behind in its group.
        self.take_down(backend);
    }

    /// Ends the running backend, which can't be used any more; another one is started when the relay says so.
    fn replace(&mut self, why: &str) {
        self.retire();
        let now = self.now();
        self.relay.backend_exited(why, now);
    }

    fn retire(&mut self) {
        self.outlet = Outlet::default();
        if let Some(backend) = self.backend.take() {
            self.take_down(backend);
        }
    }

    fn take_down(&mut self, backend: Backend) {
        let (children, patience) = (self.children.clone(), self.patience());
        self.retiring.spawn(async move { backend.take_down(&children, patience).await });
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.kept.stop_wait_ms)
    }

    fn restart(&mut self) {
        if let Err(error) = self.start_backend() {
            let now = self.now();
            self.relay.backend_exited(&format!("it could not be started: {error}"), now);
        }
    }

    fn start_backend(&mut self) -> io::Result<()> {
        let now = self.now();
        self.relay.backend_started(now);
        let backend = Backend::start(&self.program, &self.children)?;
        let request = StartedRequest {
            session: self.house.session.clone(),
            keeper: self.house.keeper,
            pid: backend.pid.as_raw().unsigned_abs(),
        };
        self.backend = Some(backend);
        let control = self.control.clone();
        tokio::spawn(async move {
            // Where it is not told, the daemon can't sweep after us when both were killed.
            let told = control.call(|connection, context| {
                let request = request.clone();
                async move { connection.backend_started(context, request).await }
            });
            drop(told.await);
            control.hang_up();
        });
        Ok(())
    }

    /// Says something of our own to whoever reads the backend's standard error.
    fn say(&mut self, text: &str) {
        self.show(format!("mcp-sessiond: {text}\n").as_bytes());
    }

    fn show(&mut self, text: &[u8]) {
        self.ring.push(text);
        if let Some(front) = &mut self.front {
            front.show(text);
        }
    }

    /// Tells the front, and takes the backend down.
    async fn end(mut self, why: &str, sigchld: &mut Signal) {
        let now = self.now();
        self.say(&format!("the server is taken down: {why}"));
        self.relay.stopping("stopped", now);
        if let Some(front) = &mut self.front {
            let farewell = async {
                loop {
                    if front.outlet.write(&mut front.writer).await.is_err() {
                        return;
                    }
                    let Some(line) = self.relay.pull_front() else { return };
                    front.hand_out(line);
                }
            };
            let _ = timeout(FAREWELL, farewell).await;
        }
        self.front = None;
        self.retire();
        let (children, mut retiring) = (&self.children, self.retiring);
        let down = async {
            while retiring.join_next().await.is_some() {}
            children.end_strays(FAREWELL).await;
        };
        tokio::pin!(down);
        loop {
            tokio::select! {
                () = &mut down => return,
                Some(()) = sigchld.recv() => children.reap(),
            }
        }
    }
}

async fn to_front(front: Option<(&mut Outlet, &mut OwnedWriteHalf)>) -> Event {
    match front {
        Some((outlet, writer)) if !outlet.is_empty() => match outlet.write(writer).await {
            Ok(()) => Event::Written,
            Err(_) => Event::FrontGone,
        },
        _ => std::future::pending().await,
    }
}

async fn to_backend(outlet: &mut Outlet, input: Option<&mut pipe::Sender>) -> Event {
    match input {
        Some(input) if !outlet.is_empty() => match outlet.write(input).await {
            Ok(()) => Event::Written,
            Err(_) => Event::InputClosed,
        },
        _ => std::future::pending().await,
    }
}

async fn from_front(reader: Option<&mut Lines<tokio::net::unix::OwnedReadHalf>>) -> Event {
    match reader {
        Some(reader) => match reader.next().await {
            Ok(Some(line)) => Event::FromFront(line),
            Ok(None) | Err(_) => Event::FrontGone,
        },
        None => std::future::pending().await,
    }
}

async fn from_backend(output: Option<&mut Lines<pipe::Receiver>>) -> Event {
    match output {
        Some(output) => match output.next().await {
            Ok(Some(line)) => Event::FromBackend(line),
            Ok(None) | Err(_) => Event::OutputClosed,
        },
        None => std::future::pending().await,
    }
}

async fn from_errors(errors: Option<&mut pipe::Receiver>) -> Event {
    let Some(errors) = errors else { return std::future::pending().await };
    if errors.readable().await.is_err() {
        return Event::ErrorsClosed;
    }
    let mut text = vec![0; ERRORS_CHUNK];
    match errors.try_read(&mut text) {
        Ok(read @ 1..) => {
            text.truncate(read);
            Event::Errors(text)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Event::Written,
        Ok(0) | Err(_) => Event::ErrorsClosed,
    }
}
