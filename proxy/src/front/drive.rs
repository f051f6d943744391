//! What carries a [`Link`]'s effects out: it joins a client's end, a connection, and a way to
//! connect again.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_bundle::{Receipt, TrackedLine};
use mcp_sessiond_client::{Error, RequestId};
use mcp_sessiond_process::runtime::give_back_memory;
use mcp_sessiond_proto::Json;
use mcp_sessiond_relay::Millis;
use mcp_sessiond_relay::link::{In, Link, Out, Policy, Unreachable};
use nix::sys::signal::Signal;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{Client, FromClient};
use super::leave::{CurrentKeeper, release, server_wait, signals_for_servers};
use super::pending_leaves::{PendingLeave, PendingLeaves};
use super::probe::Probing;
use crate::alarm::Alarm;
use crate::connection::{Connection, FromServer};
use crate::lines::LineBuffer;
use crate::memory::IDLE;
use crate::notices::print;
use crate::server::connector::{
    ATTACH_WAIT, Attachment, Connected, Connector, Hello, NoBackend, PAUSE,
};
use crate::server::keeper_connector::{PingTimer, SessionCalls};
use crate::signals::{Leaving, note_unanswered};
use crate::stderr::{NamedStderr, until_heard};

/// How long what the host says waits for a server that was lost, before it is refused: as long as a
/// keeper would let it wait for one that has died.
const HOLD: Duration = Duration::from_secs(2);

/// The longest pause between attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long the keeper need not hear that the host was given a line. The host's next one, which takes
/// the word along, comes sooner wherever calls follow each other; alone it would wake the keeper
/// while the next call is on its way.
const CONFIRM_WITHIN: Duration = Duration::from_millis(5);

/// From this length on, in bytes, a line leaves memory behind that is worth giving back.
const LARGE: usize = 64 * 1024;

/// Why calls are not made any more where nothing can be connected again.
const GONE: &str =
    "the part of mcp-sessiond that carries messages to it has ended; reconnect it in the host";

/// What the user is told once the host has sent more than a probe: it may probe on a process of its
/// own, whose standard error nobody reads.
pub(crate) type Untold = Box<dyn FnOnce() + Send>;

/// What the user should know of a connection. The other argument is what has happened, if there was
/// one before.
pub(crate) type Reports = Box<dyn FnMut(&mut Attachment, Option<&'static str>) -> Untold + Send>;

/// What is done when the host has closed its end. It gets whether a conversation had begun, and whether
/// the server ends with this connection.
type AtClose = Box<dyn FnOnce(bool, bool) + Send>;

/// What a connection begins with.
pub(crate) enum Start {
    /// There is one already, and who leaves it if the host does before lines are carried.
    Connected(Connected, Option<PendingLeave>),
    /// There is none. The client's requests are refused for this reason, if there is one.
    Waiting(Option<String>),
    /// The client's first line, which is a part of the [`Hello`], is waited for.
    FirstLine,
}

/// An attempt to connect, in a task. Once this is dropped, it is given up.
type Attempt = oneshot::Receiver<Attempted>;

/// What has come of it.
type Attempted = (Box<dyn Connector>, Result<Connected, NoBackend>);

/// A link at work.
pub(crate) struct Driver {
    link: Link,
    began: Instant,
    client: Client,
    connection: Option<Connection>,
    /// None while an attempt has it, and where nothing can be connected again.
    connector: Option<Box<dyn Connector>>,
    attempt: Option<Attempt>,
    reports: Option<Reports>,
    /// How far this front has come that leaves, and what of that was dealt with.
    leaving: Option<watch::Receiver<Leaving>>,
    left: Leaving,
    pending_leaves: PendingLeaves,
    /// Signals for the server.
    signals: broadcast::Receiver<Signal>,
    /// Gives the session up, before a server ends with this connection, which has so long for that.
    session: Option<(SessionCalls, Duration)>,
    had: bool,
    /// What confirms the line of the server that the link is passing on.
    receipt: Receipt,
    /// Lasts until the keeper has heard that the host leaves; until its server is gone, where that ends
    /// with this front.
    pending_leave: Option<PendingLeave>,
    stderr: NamedStderr,
    untold: Vec<Untold>,
    probing: Option<Probing>,
    at_close: Option<AtClose>,
    /// Whether a conversation has begun, for the thread that waits for signals.
    has_begun: Arc<AtomicBool>,
    /// For the threads that end this process.
    current: Option<CurrentKeeper>,
    /// Whether the client does not speak JSON-RPC.
    is_raw: bool,
    is_over: bool,
    /// Whether memory is given back once nothing is carried for a while.
    gives_back: bool,
    /// When the keeper hears at the latest what the client was given, or that it takes nothing.
    confirm_at: Option<Instant>,
}

/// How links go on that have the host to themselves.
pub(crate) fn policy() -> Policy {
    Policy {
        hold_ms: millis(HOLD),
        pause_ms: millis(PAUSE),
        pause_max_ms: millis(PAUSE_MAX),
        shares_host: false,
    }
}

/// What has happened.
enum Event {
    Server(FromServer),
    Client(FromClient),
    Attempted(Box<Result<Attempted, RecvError>>),
    HostLeft(Leaving),
    Signal(Signal),
    Asked,
    /// It is time for something.
    Time,
}

impl Driver {
    /// For this client.
    pub(crate) fn new(client: Client, policy: Policy, stderr: NamedStderr) -> Self {
        Self {
            link: Link::new(policy),
            began: Instant::now(),
            client,
            connection: None,
            connector: None,
            attempt: None,
            reports: None,
            leaving: None,
            left: Leaving::No,
            signals: signals_for_servers(),
            session: None,
            pending_leaves: PendingLeaves::default(),
            had: false,
            receipt: Receipt::none(),
            pending_leave: None,
            stderr,
            untold: Vec::new(),
            probing: None,
            at_close: None,
            has_begun: Arc::default(),
            current: None,
            is_raw: false,
            is_over: false,
            gives_back: false,
            confirm_at: None,
        }
    }

    /// The user is told this once the host has sent more than a probe.
    pub(crate) fn telling(mut self, untold: Option<Untold>) -> Self {
        self.untold.extend(untold);
        self
    }

    /// Connections to keepers are reported so.
    pub(crate) fn reporting(mut self, reports: Reports) -> Self {
        self.reports = Some(reports);
        self
    }

    /// This says how far this front has come that leaves.
    pub(crate) fn leaving(
        mut self,
        leaving: watch::Receiver<Leaving>,
        pending_leaves: PendingLeaves,
    ) -> Self {
        (self.leaving, self.pending_leaves) = (Some(leaving), pending_leaves);
        self
    }

    /// The session is given up before a server ends with this connection. `stop_wait`: how long it
    /// has to end.
    pub(crate) fn releasing(mut self, session: SessionCalls, stop_wait: Duration) -> Self {
        self.session = Some((session, stop_wait));
        self
    }

    /// What lines show of the server's era is learned.
    pub(crate) fn learning(mut self, probing: Probing) -> Self {
        self.probing = Some(probing);
        self
    }

    /// This is done when the host has closed its end.
    pub(crate) fn at_close(mut self, at_close: impl FnOnce(bool, bool) + Send + 'static) -> Self {
        self.at_close = Some(Box::new(at_close));
        self
    }

    /// Whether a conversation has begun is told here.
    pub(crate) fn beginning(mut self, has_begun: Arc<AtomicBool>) -> Self {
        self.has_begun = has_begun;
        self
    }

    /// Threads that end this process find the keeper there.
    pub(crate) fn showing(mut self, current: CurrentKeeper) -> Self {
        self.current = Some(current);
        self
    }

    /// Carries lines between the client and the server. `connector`: how it is reached again, if it
    /// is. Returns what the host has said where that is not JSON-RPC, and where the rest comes from.
    pub(crate) async fn run(
        mut self,
        connector: Option<Box<dyn Connector>>,
        start: Start,
    ) -> Option<(LineBuffer, File)> {
        self.connector = connector;
        match start {
            Start::Connected(connected, pending_leave) => {
                self.connected(connected);
                drop(pending_leave);
            }
            Start::Waiting(refusal) => {
                refusal.into_iter().for_each(|why| self.link.refuse(&why));
                self.link.connect(self.now());
            }
            Start::FirstLine => self.connect_by_first_line().await?,
        }
        self.gives_back = self.has_host();
        self.carry().await;
        self.client.into_rest().filter(|_| self.is_raw)
    }

    /// None: the client is gone. A keeper that lives and does not answer is waited for.
    async fn connect_by_first_line(&mut self) -> Option<()> {
        let FromClient::Line(line) = self.client.go_on(true).await else {
            return None;
        };
        let mut connector = self.connector.take()?;
        let why = loop {
            let hello = Hello {
                first: Some(line.clone()),
                ..Hello::default()
            };
            let (again, connected) = tokio::select! {
                attempted = attempt(connector, hello) => attempted.ok()?,
                _ = self.client.go_on(false) => return None,
            };
            connector = again;
            match connected {
                Ok(connected) => {
                    self.connector = Some(connector);
                    self.connected(connected);
                    self.link.on(In::Host(line), self.now());
                    return Some(());
                }
                Err(NoBackend::Stalled(_)) => {}
                Err(why) => break why,
            }
        };
        self.stderr.print(&why);
        self.link.refuse(&why.to_string());
        self.link.on(In::Host(line), self.now());
        self.link.on(In::HostGone, self.now());
        Some(())
    }

    async fn carry(&mut self) {
        // While nothing is said, the keeper is asked after a time, and memory is given back.
        let mut ping_timer = PingTimer::start();
        let mut asking: Option<JoinHandle<()>> = None;
        let mut alarm = Alarm::default();
        while self.carry_out() {
            self.has_begun
                .store(self.link.has_begun(), Ordering::Relaxed);
            let Self {
                link,
                began,
                client,
                connection,
                attempt,
                leaving,
                left,
                signals,
                gives_back,
                confirm_at,
                ..
            } = self;
            let confirm_at = *confirm_at;
            let reads_host =
                link.reads_host() && connection.as_ref().is_none_or(Connection::is_flushed);
            let reads_server = client.is_flushed();
            let has_watch = connection.as_ref().is_some_and(|it| it.watch().is_some());
            let is_watched = has_watch && asking.is_none() && !link.is_settled();
            let due = link.due().map(|due| *began + Duration::from_millis(due));
            let quiet = is_watched.then(|| ping_timer.due());
            let idle = gives_back.then(|| ping_timer.quiet_since() + IDLE);
            let next = [due, quiet, idle, confirm_at].into_iter().flatten().min();
            let event = tokio::select! {
                biased;
                said = go_on(connection, reads_server) => Event::Server(said),
                said = client.go_on(reads_host) => Event::Client(said),
                attempted = attempted(attempt) => Event::Attempted(Box::new(attempted)),
                leaving = host_left(leaving, *left) => Event::HostLeft(leaving),
                Ok(signal) = signals.recv() => Event::Signal(signal),
                () = answered(&mut asking), if asking.is_some() => Event::Asked,
                () = alarm.ring(next) => Event::Time,
            };
            // Others may have been woken first, and what they say then is no answer in time.
            let leaving = self.leaving.as_ref().map(|leaving| *leaving.borrow());
            leaving
                .into_iter()
                .for_each(|leaving| self.host_left(leaving));
            match event {
                Event::Server(said) => {
                    ping_timer = PingTimer::start();
                    self.server_said(said);
                    // What has come with it is written with it.
                    while self.carry_out()
                        && let Some(more) =
                            self.connection.as_mut().and_then(Connection::next_ready)
                    {
                        self.server_said(more);
                    }
                }
                Event::Client(said) => {
                    ping_timer = PingTimer::start();
                    self.client_said(said);
                    while self.carry_out()
                        && self.link.reads_host()
                        && let Some(more) = self.client.next_ready()
                    {
                        self.client_said(more);
                    }
                }
                Event::Attempted(attempted) => self.attempted(*attempted),
                Event::HostLeft(leaving) => self.host_left(leaving),
                Event::Signal(signal) => self.connection.iter().for_each(|it| it.signal(signal)),
                Event::Asked => {
                    asking = None;
                    ping_timer.back_off();
                }
                Event::Time => {
                    let now = Instant::now();
                    let is_over = |time: Option<Instant>| time.is_some_and(|time| time <= now);
                    if is_over(quiet) {
                        let watch = self.connection.as_ref().and_then(Connection::watch);
                        asking = watch.cloned().map(|watch| {
                            let (since, stderr) = (ping_timer.quiet_since(), self.stderr.clone());
                            tokio::spawn(watch.check(since, move |what| stderr.print(&what)))
                        });
                    }
                    if is_over(confirm_at) {
                        let again = self.connection.as_ref().is_some_and(Connection::confirm);
                        self.confirm_at = again.then(|| Instant::now() + CONFIRM_WITHIN);
                    }
                    if is_over(idle) {
                        self.gives_back = false;
                        give_back_memory();
                    }
                    if is_over(due) {
                        self.link.on(In::Time, self.now());
                    }
                }
            }
        }
        self.say_the_rest().await;
    }

    /// This front has come so far that leaves.
    fn host_left(&mut self, leaving: Leaving) {
        if leaving <= self.left {
            return;
        }
        self.left = leaving;
        self.leave();
        if leaving >= Leaving::Late {
            if leaving == Leaving::Late && self.has_host() {
                self.say_unanswered();
            }
            self.link.on(In::HostGone, self.now());
        }
    }

    fn server_said(&mut self, said: FromServer) {
        match said {
            FromServer::Nothing => {}
            FromServer::Line(TrackedLine { line, receipt }) => {
                self.note_size(&line);
                let probing = self.probing.iter_mut();
                probing.for_each(|probing| probing.server_sent(&line));
                self.receipt = receipt;
                self.link.on(In::FromServer(line), self.now());
            }
            FromServer::Gone { on_purpose } => {
                self.connection = None;
                self.client.forget_passed();
                self.pending_leave = None;
                self.current.iter().for_each(|current| current.set(None));
                self.link.on(In::Gone { on_purpose }, self.now());
            }
        }
    }

    fn client_said(&mut self, said: FromClient) {
        match said {
            FromClient::Nothing => {
                let passed = self.client.take_passed();
                if let Some(connection) = self.connection.as_ref().filter(|_| passed > 0) {
                    connection.note_passed_on(passed);
                }
            }
            FromClient::Line(line) => {
                self.note_size(&line);
                let probing = self.probing.iter_mut();
                probing.for_each(|probing| probing.host_sent(&line));
                self.link.on(In::Host(line), self.now());
            }
            FromClient::Closed => {
                if self.has_host() {
                    // Threads of their own tell, and nothing is carried meanwhile but last answers.
                    until_heard();
                }
                self.link.on(In::HostClosed, self.now());
            }
            FromClient::Gone => {
                // Without a word before it, that is no close.
                if self.has_host() && !self.link.is_closed() {
                    self.connection = None;
                }
                self.link.on(In::HostGone, self.now());
            }
            FromClient::Raw => {
                self.is_raw = true;
                self.link.on(In::HostGone, self.now());
            }
        }
    }

    /// Whether the client is the host: then this process lives as long as this does.
    fn has_host(&self) -> bool {
        matches!(self.client, Client::Host(_))
    }

    /// A large line leaves memory behind that is worth giving back.
    fn note_size(&mut self, line: &Bytes) {
        if self.has_host() && line.len() >= LARGE {
            self.gives_back = true;
        }
    }

    /// All is said, but what has come in the meantime.
    async fn say_the_rest(&mut self) {
        while let Some(said) = self.connection.as_mut().and_then(Connection::next_at_once) {
            self.server_said(said);
            self.carry_out();
        }
        while self.left < Leaving::Late && !self.client.is_flushed() {
            let said = self.client.go_on(false).await;
            self.client_said(said);
        }
        self.client.finish().await;
        self.leave();
        if self.ends_with_front() && self.host_leaves() {
            self.wait_for_server().await;
        }
        self.pending_leave = None;
    }

    /// The user is told what the host has asked in vain.
    fn say_unanswered(&self) {
        let open = self.link.waiting();
        if open > 0 {
            let calls = if open == 1 {
                "1 call was"
            } else {
                &format!("{open} calls were")
            };
            // This process is about to end, and must not end before this is written.
            print(&format_args!(
                "{calls} not answered: the host closed its input, and the answer did not come within `wrap.input_end_wait_ms`"
            ));
            note_unanswered();
        }
    }

    /// Whether the host leaves, and with it all that this front has.
    fn host_leaves(&self) -> bool {
        let leaving = self.leaving.as_ref();
        self.link.is_closed() || leaving.is_some_and(|leaving| *leaving.borrow() > Leaving::No)
    }

    /// Whether the server ends with this connection, where its host leaves in an orderly way.
    fn ends_with_front(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.ends_with_front() == Some(true))
    }

    /// The server ends with this front: it has its time, and what it still says is passed on. Of one of
    /// several, whoever ends this process sees to it that this ends.
    async fn wait_for_server(&mut self) {
        let (mut alarm, mut until) = (Alarm::default(), None);
        if let Some((session, stop_wait)) = self.session.take() {
            until = Some(Instant::now() + server_wait(stop_wait));
            release(session).await;
        }
        self.connection.iter().for_each(Connection::end);
        while self.connection.is_some() {
            let is_flushed = self.client.is_flushed();
            tokio::select! {
                said = go_on(&mut self.connection, is_flushed) => self.server_said(said),
                said = self.client.go_on(false), if !is_flushed => self.client_said(said),
                leaving = host_left(&mut self.leaving, self.left) => {
                    self.left = leaving;
                    self.leave();
                }
                Ok(signal) = self.signals.recv() => {
                    self.connection.iter().for_each(|it| it.signal(signal));
                }
                // The keeper hangs.
                () = alarm.ring(until) => return,
            }
            self.carry_out();
        }
    }

    /// Does what the link says. False: it is over.
    fn carry_out(&mut self) -> bool {
        while let Some(out) = self.link.next_out() {
            match out {
                Out::Pass(line) => {
                    let receipt = std::mem::take(&mut self.receipt);
                    self.client.pass(line, receipt, self.connection.as_ref());
                    let within = || Instant::now() + CONFIRM_WITHIN;
                    self.confirm_at.get_or_insert_with(within);
                }
                Out::Answer(line) => self.client.put(TrackedLine::once(line)),
                Out::ToServer(line) => {
                    if let Some(connection) = &mut self.connection {
                        connection.put(line);
                    }
                }
                Out::Connect => self.connect(),
                Out::Used => self.untold.drain(..).for_each(|report| report()),
                Out::Say(what) => self.stderr.print(&what),
                Out::Leave => {
                    if let Some(at_close) = self.at_close.take() {
                        at_close(self.link.has_begun(), self.ends_with_front());
                    }
                    self.leave();
                    if let Some(connection) = &mut self.connection {
                        connection.close();
                    }
                }
                Out::End => self.is_over = true,
            }
        }
        !self.is_over
    }

    fn connect(&mut self) {
        let Some(connector) = self.connector.take() else {
            let never = In::Unreachable(Unreachable::Never(GONE));
            return self.link.on(never, self.now());
        };
        let hello = Hello {
            first: None,
            initialize: self.link.initialized().and_then(as_json),
            has_failed_call: self.link.has_failed_call(),
        };
        self.attempt = Some(attempt(connector, hello));
    }

    fn attempted(&mut self, attempted: Result<Attempted, RecvError>) {
        self.attempt = None;
        let why = match attempted {
            Ok((connector, connected)) => {
                self.connector = Some(connector);
                match connected {
                    Ok(connected) => return self.connected(connected),
                    Err(why) => why,
                }
            }
            Err(error) => NoBackend::Passing(error.to_string()),
        };
        let sentence = why.to_string();
        let unreachable = In::Unreachable(unreachable(&why, &sentence));
        self.link.on(unreachable, self.now());
    }

    fn connected(&mut self, connected: Connected) {
        let connection = match connected {
            Connected::Keeper(attachment) => self.attached(*attachment),
            Connected::Pipe(pipe) => Ok(Connection::by_pipe(pipe)),
        };
        match connection {
            Ok(connection) => {
                if let Some(current) = &self.current {
                    current.set(connection.sender().cloned());
                }
                self.connection = Some(connection);
                let prefix = RequestId::mint().to_string();
                self.link.on(In::Connected(&prefix), self.now());
            }
            Err(error) => {
                let why = error.to_string();
                let passing = In::Unreachable(Unreachable::Passing(&why));
                self.link.on(passing, self.now());
            }
        }
    }

    fn attached(&mut self, mut attachment: Attachment) -> io::Result<Connection> {
        if let Some(notice) = attachment.notice.take() {
            self.stderr.print(&notice);
        }
        let again = self.had.then_some(attachment.again);
        self.had = true;
        if let Some(reports) = &mut self.reports {
            let report = reports(&mut attachment, again);
            if self.link.is_used() {
                report();
            } else {
                self.untold.push(report);
            }
        }
        self.pending_leave = Some(self.pending_leaves.add());
        if attachment.attached.ends_with_front == Some(true) {
            self.pending_leaves.note_end_with_front();
        }
        Connection::to_keeper(attachment, self.stderr.of_server())
    }

    /// The keeper is told that the host leaves.
    fn leave(&mut self) {
        self.connection.iter().for_each(Connection::leave);
        if !self.ends_with_front() {
            self.pending_leave = None;
        }
    }

    fn now(&self) -> Millis {
        millis(self.began.elapsed())
    }
}

/// A time in ms; a part of one is over as well.
fn millis(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}

async fn go_on(connection: &mut Option<Connection>, reads: bool) -> FromServer {
    match connection {
        Some(connection) => connection.go_on(reads).await,
        None => std::future::pending().await,
    }
}

/// Begins an attempt to connect.
fn attempt(mut connector: Box<dyn Connector>, hello: Hello) -> Attempt {
    let (mut give, given) = oneshot::channel();
    tokio::spawn(async move {
        let until = std::time::Instant::now() + ATTACH_WAIT;
        let connected = tokio::select! {
            connected = connector.connect(&hello, until) => connected,
            () = give.closed() => return connector.release().await,
        };
        drop(give.send((connector, connected)));
    });
    given
}

async fn attempted(attempt: &mut Option<Attempt>) -> Result<Attempted, RecvError> {
    match attempt {
        Some(attempt) => attempt.await,
        None => std::future::pending().await,
    }
}

fn unreachable<'a>(why: &NoBackend, sentence: &'a str) -> Unreachable<'a> {
    match why {
        NoBackend::NoSession(Some(Error::NoVerifiedHost { .. }), _) => Unreachable::NoHost,
        NoBackend::Taken(_) => Unreachable::Taken(sentence),
        NoBackend::Stalled(_) => Unreachable::Stalled,
        NoBackend::NoSession(..)
        | NoBackend::NoProgram { .. }
        | NoBackend::BadEntry(_)
        | NoBackend::Passing(_)
        | NoBackend::Unanswered(_)
        | NoBackend::Ending(_)
        | NoBackend::Closed { .. } => Unreachable::Passing(sentence),
    }
}

/// Waits until a keeper has answered that is asked.
async fn answered(asking: &mut Option<JoinHandle<()>>) {
    if let Some(asking) = asking {
        let _ = asking.await;
    }
}

/// Waits until this front has come further that leaves.
async fn host_left(leaving: &mut Option<watch::Receiver<Leaving>>, from: Leaving) -> Leaving {
    if let Some(leaving) = leaving {
        let further = leaving.wait_for(|leaving| *leaving > from).await;
        if let Ok(further) = further.map(|leaving| *leaving) {
            return further;
        }
    }
    // There is no front that could leave.
    std::future::pending().await
}

fn as_json(line: &Bytes) -> Option<Json> {
    Json::new(String::from_utf8(line.to_vec()).ok()?).ok()
}
