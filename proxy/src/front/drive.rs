//! What carries a [`Link`]'s effects out: it joins a client's end, a connection, and a way to
//! connect again.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, Receipt, TrackedLine};
use mcp_sessiond_client::{Error, RequestId};
use mcp_sessiond_process::sys::give_back_memory;
use mcp_sessiond_proto::Json;
use mcp_sessiond_relay::Millis;
use mcp_sessiond_relay::link::{In, Link, Out, Policy, Unreachable};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::client::{Client, FromClient};
use super::leave::CurrentKeeper;
use super::pending_leaves::{PendingLeave, PendingLeaves};
use super::probe::Probing;
use crate::alarm::Alarm;
use crate::connection::{Connection, FromServer};
use crate::lines::LineBuffer;
use crate::server::attach::{Attaching, Attachment, NoBackend};
use crate::server::kept::{QUIET, QUIET_MAX};
use crate::stderr::NamedStderr;
use crate::waits::{ATTACH_WAIT, PAUSE, PAUSE_MAX};

/// How long what the host says waits for a server that was lost, before it is refused: as long as a
/// keeper would let it wait for one that has died.
const HOLD: Duration = Duration::from_secs(2);

/// How long nothing large is carried until memory is given back: what was needed to start, or for
/// large lines.
const IDLE: Duration = Duration::from_secs(2);

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

/// What is done when the host has closed its end. It gets whether a conversation had begun.
type AtClose = Box<dyn FnOnce(bool) + Send>;

/// A way to a keeper, again and again.
pub(crate) struct Connector {
    pub(crate) door: Box<dyn Attaching>,
    pub(crate) reports: Reports,
    /// Whether the host has left, where the client is not the host.
    pub(crate) leaving: Option<watch::Receiver<bool>>,
    pub(crate) pending_leaves: PendingLeaves,
}

/// An attempt to attach, in a thread of its own.
type Attempt = JoinHandle<(Connector, Result<Attachment, NoBackend>)>;

/// What has come of it.
type Attempted = Result<(Connector, Result<Attachment, NoBackend>), JoinError>;

/// A link at work.
pub(crate) struct Driver {
    link: Link,
    began: Instant,
    client: Client,
    connection: Option<Connection>,
    /// None while it is with a thread that attaches, and where nothing can be connected again.
    connector: Option<Connector>,
    attempt: Option<Attempt>,
    had: bool,
    /// What confirms the line of the server that the link is passing on.
    receipt: Receipt,
    /// Lasts until the keeper has heard that the host leaves.
    pending_leave: Option<PendingLeave>,
    stderr: NamedStderr,
    untold: Vec<Untold>,
    probing: Option<Probing>,
    at_close: Option<AtClose>,
    /// For the threads that end this process.
    current: Option<CurrentKeeper>,
    /// Whether the client does not speak JSON-RPC.
    is_raw: bool,
    is_over: bool,
    /// Whether memory is given back once nothing is carried for a while.
    gives_back: bool,
}

/// How links go on that have the host to themselves.
pub(crate) fn policy() -> Policy {
    Policy {
        hold_ms: millis(HOLD),
        pause_ms: millis(PAUSE),
        pause_max_ms: millis(PAUSE_MAX),
        shares_host: false,
        refuses_unreadable: false,
    }
}

/// What has happened.
enum Event {
    Server(FromServer),
    Client(FromClient),
    Attempted(Box<Attempted>),
    HostLeft,
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
            had: false,
            receipt: Receipt::none(),
            pending_leave: None,
            stderr,
            untold: Vec::new(),
            probing: None,
            at_close: None,
            current: None,
            is_raw: false,
            is_over: false,
            gives_back: false,
        }
    }

    /// The user is told this once the host has sent more than a probe.
    pub(crate) fn telling(mut self, untold: Option<Untold>) -> Self {
        self.untold.extend(untold);
        self
    }

    /// What lines show of the server's era is learned.
    pub(crate) fn learning(mut self, probing: Probing) -> Self {
        self.probing = Some(probing);
        self
    }

    /// This is done when the host has closed its end.
    pub(crate) fn at_close(mut self, at_close: impl FnOnce(bool) + Send + 'static) -> Self {
        self.at_close = Some(Box::new(at_close));
        self
    }

    /// Threads that end this process find the keeper there.
    pub(crate) fn showing(mut self, current: CurrentKeeper) -> Self {
        self.current = Some(current);
        self
    }

    /// Carries lines between the host and a server that has a keeper. `first`: the attachment, or,
    /// while there is none, why the host's requests are refused, if they are. Returns what the host
    /// has said where that is not JSON-RPC, and where the rest comes from.
    pub(crate) async fn run_kept(
        mut self,
        connector: Connector,
        first: Result<Attachment, Option<String>>,
    ) -> Option<(LineBuffer, File)> {
        self.gives_back = true;
        let pending_leave = connector.pending_leaves.add();
        self.connector = Some(connector);
        match first {
            Ok(attachment) => self.attached(attachment, pending_leave),
            Err(refusal) => {
                refusal.into_iter().for_each(|why| self.link.refuse(&why));
                self.link.connect(self.now());
            }
        }
        self.run().await;
        self.client.into_rest().filter(|_| self.is_raw)
    }

    /// Carries lines between the client and a server that has a pipe.
    /// Returns the connection, which is over once it is dropped.
    pub(crate) async fn run_by_pipe(mut self, pipe: Pipe) -> Option<Connection> {
        self.connected(Connection::by_pipe(pipe));
        self.run().await;
        self.connection
    }

    /// Carries lines between the client and a server that has a keeper, of which there is an
    /// attachment. `first`: what the client has said already.
    pub(crate) async fn run_attached(
        mut self,
        connector: Connector,
        attachment: Attachment,
        pending_leave: PendingLeave,
        first: Option<Bytes>,
    ) {
        self.connector = Some(connector);
        self.attached(attachment, pending_leave);
        if let Some(line) = first {
            self.link.on(In::Host(line), self.now());
        }
        self.run().await;
    }

    /// The same where the first line decides about the way. `connector` gets it, and something whose
    /// other end is closed once nobody wants the server any more.
    pub(crate) async fn run_from_first_line(
        mut self,
        connector: impl FnOnce(Bytes, UnixStream) -> Connector,
    ) {
        let FromClient::Line(first) = self.client.go_on(true).await else {
            return;
        };
        let Ok((_present, wanted)) = UnixStream::pair() else {
            return;
        };
        let attempt = attempt_waiting(connector(first.clone(), wanted));
        let attempted = tokio::select! {
            attempted = attempt => attempted,
            _ = self.client.go_on(false) => return,
        };
        let Ok((connector, attached)) = attempted else {
            return;
        };
        match attached {
            Ok(attachment) => {
                let pending_leave = connector.pending_leaves.add();
                let first = Some(first);
                self.run_attached(connector, attachment, pending_leave, first)
                    .await;
            }
            Err(why) => {
                self.stderr.print(&why);
                self.link.refuse(&why.to_string());
                self.link.on(In::Host(first), self.now());
                self.link.on(In::HostGone, self.now());
                self.run().await;
            }
        }
    }

    async fn run(&mut self) {
        // When something was last said, and for how long nothing is until the keeper is asked.
        let (mut active, mut patience) = (Instant::now(), QUIET);
        let mut asking: Option<JoinHandle<()>> = None;
        let mut alarm = Alarm::default();
        while self.carry_out() {
            let Self {
                link,
                began,
                client,
                connection,
                connector,
                attempt,
                pending_leave,
                gives_back,
                ..
            } = self;
            let reads_host =
                link.reads_host() && connection.as_ref().is_none_or(Connection::is_flushed);
            let reads_server = client.is_flushed();
            let has_watch = connection.as_ref().is_some_and(|it| it.watch().is_some());
            let is_watched = has_watch && asking.is_none() && !link.is_settled();
            let due = link.due().map(|due| *began + Duration::from_millis(due));
            let quiet = is_watched.then(|| active + patience);
            let idle = gives_back.then(|| active + IDLE);
            let next = [due, quiet, idle].into_iter().flatten().min();
            let event = tokio::select! {
                biased;
                said = go_on(connection, reads_server) => Event::Server(said),
                said = client.go_on(reads_host) => Event::Client(said),
                attempted = attempted(attempt) => Event::Attempted(Box::new(attempted)),
                () = host_left(connector), if pending_leave.is_some() => Event::HostLeft,
                () = answered(&mut asking), if asking.is_some() => Event::Asked,
                () = ring(&mut alarm, next) => Event::Time,
            };
            match event {
                Event::Server(said) => {
                    (active, patience) = (Instant::now(), QUIET);
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
                    (active, patience) = (Instant::now(), QUIET);
                    self.client_said(said);
                    while self.carry_out()
                        && self.link.reads_host()
                        && let Some(more) = self.client.next_ready()
                    {
                        self.client_said(more);
                    }
                }
                Event::Attempted(attempted) => self.attempted(*attempted),
                Event::HostLeft => self.leave(),
                Event::Asked => {
                    asking = None;
                    (active, patience) = (Instant::now(), (patience * 2).min(QUIET_MAX));
                }
                Event::Time => {
                    let now = Instant::now();
                    let is_over = |time: Option<Instant>| time.is_some_and(|time| time <= now);
                    if is_over(quiet) {
                        let watch = self.connection.as_ref().and_then(Connection::watch);
                        asking = watch.cloned().map(|watch| {
                            let (quiet, stderr) = (active.into_std(), self.stderr.clone());
                            tokio::task::spawn_blocking(move || {
                                watch.check(quiet, &|what| stderr.print(&what));
                            })
                        });
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
                    connection.confirm(passed);
                }
            }
            FromClient::Line(line) => {
                self.note_size(&line);
                let probing = self.probing.iter_mut();
                probing.for_each(|probing| probing.host_sent(&line));
                self.link.on(In::Host(line), self.now());
            }
            FromClient::Closed => self.link.on(In::HostClosed, self.now()),
            FromClient::Gone => {
                // Without a word before it, that is no close.
                if let Client::Host(_) = self.client {
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

    /// A large line leaves memory behind that is worth giving back.
    fn note_size(&mut self, line: &Bytes) {
        if self.current.is_some() && line.len() >= LARGE {
            self.gives_back = true;
        }
    }

    /// All is said, but what has come in the meantime.
    async fn say_the_rest(&mut self) {
        while let Some(said) = self.connection.as_mut().and_then(Connection::next_at_once) {
            self.server_said(said);
            self.carry_out();
        }
        while !self.client.is_flushed() {
            let said = self.client.go_on(false).await;
            self.client_said(said);
        }
        self.client.finish().await;
        self.leave();
    }

    /// Does what the link says. False: it is over.
    fn carry_out(&mut self) -> bool {
        while let Some(out) = self.link.next_out() {
            match out {
                Out::Pass(line) => {
                    let receipt = std::mem::take(&mut self.receipt);
                    self.client.pass(line, receipt, self.connection.as_ref());
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
                        at_close(self.link.has_begun());
                    }
                    self.leave();
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
        let initialized = self.link.initialized().and_then(as_json);
        self.attempt = Some(attempt(connector, initialized));
    }

    fn attempted(&mut self, attempted: Attempted) {
        self.attempt = None;
        let why = match attempted {
            Ok((connector, attached)) => {
                let leaves = connector.pending_leaves.clone();
                self.connector = Some(connector);
                match attached {
                    Ok(attachment) => return self.attached(attachment, leaves.add()),
                    Err(why) => why,
                }
            }
            Err(error) => NoBackend::Passing(error.to_string()),
        };
        let sentence = why.to_string();
        let unreachable = In::Unreachable(unreachable(&why, &sentence));
        self.link.on(unreachable, self.now());
    }

    fn attached(&mut self, mut attachment: Attachment, pending_leave: PendingLeave) {
        let Some(Connector { door, reports, .. }) = &mut self.connector else {
            return;
        };
        if let Some(news) = door.notice() {
            self.stderr.print(&news);
        }
        let again = self.had.then(|| door.reattached());
        let report = reports(&mut attachment, again);
        self.had = true;
        if self.link.is_used() {
            report();
        } else {
            self.untold.push(report);
        }
        self.pending_leave = Some(pending_leave);
        match Connection::to_keeper(attachment, self.stderr.of_server()) {
            Ok(connection) => self.connected(connection),
            Err(error) => {
                let why = error.to_string();
                let passing = In::Unreachable(Unreachable::Passing(&why));
                self.link.on(passing, self.now());
            }
        }
    }

    fn connected(&mut self, connection: Connection) {
        if let Some(current) = &self.current {
            current.set(connection.sender().cloned());
        }
        self.connection = Some(connection);
        let prefix = RequestId::mint().to_string();
        self.link.on(In::Connected(&prefix), self.now());
    }

    /// The keeper is told that the host leaves.
    fn leave(&mut self) {
        self.connection.iter().for_each(Connection::leave);
        self.pending_leave = None;
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

/// Begins an attempt to attach. `initialize`: what a fresh server has to hear.
fn attempt(mut connector: Connector, initialize: Option<Json>) -> Attempt {
    tokio::task::spawn_blocking(move || {
        let until = std::time::Instant::now() + ATTACH_WAIT;
        let attached = connector.door.attach(initialize, until);
        (connector, attached)
    })
}

/// The same for the first time. A keeper that lives and does not answer is waited for.
async fn attempt_waiting(mut connector: Connector) -> Attempted {
    loop {
        match attempt(connector, None).await {
            Ok((again, Err(NoBackend::Stalled(_)))) => connector = again,
            attempted => return attempted,
        }
    }
}

async fn attempted(attempt: &mut Option<Attempt>) -> Attempted {
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
        | NoBackend::Passing(_)
        | NoBackend::Ending(_)
        | NoBackend::Closed { .. } => Unreachable::Passing(sentence),
    }
}

async fn ring(alarm: &mut Alarm, time: Option<Instant>) {
    match time {
        Some(time) => alarm.ring(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until a keeper has answered that is asked.
async fn answered(asking: &mut Option<JoinHandle<()>>) {
    if let Some(asking) = asking {
        let _ = asking.await;
    }
}

/// Waits until the host has closed its end.
async fn host_left(connector: &mut Option<Connector>) {
    match connector
        .as_mut()
        .and_then(|connector| connector.leaving.as_mut())
    {
        // Its sender is the front's.
        Some(leaving) => drop(leaving.wait_for(|leaving| *leaving).await),
        None => std::future::pending().await,
    }
}

fn as_json(line: &Bytes) -> Option<Json> {
    Json::new(String::from_utf8(line.to_vec()).ok()?).ok()
}
