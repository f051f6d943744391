//! The connection to a keeper: frames of the protocol of its socket. It reconnects when the
//! connection breaks.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_proto::backends::frame::{Frame, Kind};
use mcp_sessiond_proto::backends::{Attach, Attached, KeeperReply, KeeperRequest};
use mcp_sessiond_proto::{Epoch, Error, KeeperName, ServiceName, SessionId};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use super::Service;
use crate::frames::{Frames, PendingFrames};
use crate::keeper::dial::{DialError, Dialled, dial_waiting, ping};
use crate::keeper::silence::{Silence, stalled_sentence};
use crate::lines::Line;
use crate::notices::print;
use crate::server::keeper_connector::PingTimer;
use crate::socket::{self, SocketWriter};
use crate::stderr::ServerStderr;

/// How long one attempt to attach may take.
const ATTEMPT: Duration = Duration::from_secs(4);

/// The pause after a failed attempt. It doubles up to the maximum.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A line of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number, from 1, in the order of the backend's lines. A line that is sent again keeps its
    /// number.
    pub number: u64,
    /// The line, without its newline: a message, or a batch.
    pub line: Bytes,
}

/// Where the keeper is, and what the front shows it to attach.
#[derive(Debug, Clone)]
pub(super) struct KeeperAddress {
    pub(super) directory: PathBuf,
    pub(super) keeper: KeeperName,
    pub(super) service: ServiceName,
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
    /// The name of the server in its list, where the session has several.
    pub(super) name: Option<String>,
}

/// A request to the keeper.
#[derive(Debug)]
pub(super) enum Input {
    /// Take this line.
    Send(Bytes, Acknowledge),
    /// The lines up to this number are confirmed.
    Confirm(u64),
    /// A client was told of one more end of the server, the oldest first.
    Heard,
    /// List the calls that you know.
    Calls(oneshot::Sender<Vec<Value>>),
    /// End.
    End,
}

/// The backend and its keeper are gone, or another process serves the session now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server is gone")]
pub struct Gone {
    /// Whether the line may have reached the backend: it was written, and the keeper had no time to
    /// acknowledge it.
    pub may_have_arrived: bool,
}

/// Where it is told whether the keeper has taken a line.
type Acknowledge = oneshot::Sender<Result<(), Gone>>;

/// A connection to a keeper that has accepted this front, and what has to be repeated after a
/// reconnect.
#[derive(Debug)]
pub(super) struct Link {
    address: KeeperAddress,
    /// What has the daemon end a keeper that hangs.
    service: Service,
    incarnation: u64,
    connection: Connection,
    /// The lines that the keeper has not acknowledged; the number of the last one that it has; and
    /// whether the first of `sends` was written on this connection.
    sends: VecDeque<(Bytes, Acknowledge)>,
    taken: u64,
    is_sent: bool,
    /// Whether it was written on this connection or a former one.
    is_written: bool,
    calls: VecDeque<oneshot::Sender<Vec<Value>>>,
    /// The newest line that the caller has confirmed, and the newest that it was given.
    confirmed: u64,
    handed_on: u64,
    /// The ends of the server.
    ends: Arc<Ends>,
    /// Ends that the keeper has told on this connection and the former ones and that clients were not
    /// told of; those of which they were on this connection.
    unheard: u64,
    heard: u64,
    is_ending: bool,
    /// Frames to write, and their numbers, which go before messages.
    lane: VecDeque<(Kind, u64)>,
    /// Where the backend's standard error goes.
    stderr: ServerStderr,
}

#[derive(Debug)]
struct Connection {
    reader: Frames,
    writer: SocketWriter,
    pending: PendingFrames,
}

/// Why the server has ended, each time, for people: what the caller has not taken.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<Vec<String>>);

impl Ends {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what came since the last time.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }
}

/// What happened.
enum Event {
    Input(Option<Input>),
    Frame(io::Result<Option<Frame>>),
    Written(io::Result<()>),
    /// Nothing has come for long.
    Quiet,
    /// The keeper has answered whether it lives, or has not.
    Pinged(Result<(), DialError>),
}

/// How a connection ends.
enum ConnectionEnd {
    /// It broke.
    Broken,
    /// The caller has dropped the [`Backend`](super::Backend).
    Dropped,
    /// The keeper ends.
    ByKeeper,
}

impl Link {
    /// Attaches.
    pub(super) async fn open(
        address: KeeperAddress,
        service: Service,
        silence: &mut Silence,
        until: Instant,
    ) -> Result<(Self, Attached), DialError> {
        let (connection, attached) = Connection::open(&address, silence, until).await?;
        let stderr = service.0.stderr.of_server(address.name.as_deref());
        let mut link = Self {
            address,
            service,
            incarnation: attached.incarnation,
            connection,
            sends: VecDeque::new(),
            taken: attached.taken,
            is_sent: false,
            is_written: false,
            calls: VecDeque::new(),
            confirmed: 0,
            handed_on: 0,
            ends: Arc::default(),
            unheard: 0,
            heard: 0,
            is_ending: false,
            lane: VecDeque::new(),
            stderr,
        };
        link.note_ends(&attached.ended);
        Ok((link, attached))
    }

    /// The ends of the server of which clients are to be told.
    pub(super) fn ends(&self) -> Arc<Ends> {
        self.ends.clone()
    }

    /// On a new connection the keeper repeats what it has not heard that clients were told.
    fn note_ends(&mut self, ended: &[String]) {
        let known = usize::try_from(self.unheard).unwrap_or(usize::MAX);
        let new = ended.get(known..).unwrap_or_default();
        self.ends.lock().extend_from_slice(new);
        self.unheard = ended.len() as u64;
        self.heard = 0;
    }

    /// Carries lines until the keeper is gone, or the caller has dropped the backend. Drops
    /// `is_gone` once the backend is gone.
    pub(super) async fn run(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
        messages: mpsc::UnboundedSender<Message>,
        is_gone: watch::Sender<()>,
    ) {
        loop {
            match self.forward(&mut inputs, &messages).await {
                ConnectionEnd::Dropped => return,
                // The keeper acknowledges what it has taken before it says that it ends.
                ConnectionEnd::ByKeeper => {
                    self.give_up(false);
                    drop((inputs, messages));
                    // It closes the connection once the backend is gone.
                    while let Ok(Some(said)) = self.connection.reader.next().await {
                        self.note_stderr(said.kind, said.bytes());
                    }
                    self.stderr.end();
                    return drop(is_gone);
                }
                ConnectionEnd::Broken => {
                    self.stderr.end();
                    if !self.reconnect(&messages).await {
                        return self.give_up(true);
                    }
                }
            }
        }
    }

    async fn forward(
        &mut self,
        inputs: &mut mpsc::UnboundedReceiver<Input>,
        messages: &mpsc::UnboundedSender<Message>,
    ) -> ConnectionEnd {
        // It begins again and again while the keeper has no line to take.
        let mut ping_timer = PingTimer::start();
        let mut asking: Option<JoinHandle<Result<(), DialError>>> = None;
        loop {
            if !self.is_sent {
                ping_timer = PingTimer::start();
            }
            self.put_next();
            let Connection {
                reader,
                writer,
                pending,
            } = &mut self.connection;
            let is_empty = pending.is_empty();
            let event = tokio::select! {
                biased;
                said = reader.next() => Event::Frame(said),
                input = inputs.recv() => Event::Input(input),
                written = pending.write(writer), if !is_empty => Event::Written(written),
                answer = answered(&mut asking), if asking.is_some() => Event::Pinged(answer),
                () = sleep_until(ping_timer.due()), if self.is_sent && asking.is_none() => Event::Quiet,
            };
            if matches!(event, Event::Frame(_)) {
                ping_timer = PingTimer::start();
            }
            match event {
                Event::Input(None) => return ConnectionEnd::Dropped,
                Event::Quiet => asking = Some(self.ping(ping_timer.quiet_since().into_std())),
                Event::Pinged(answer) => {
                    asking = None;
                    ping_timer.back_off();
                    if matches!(answer, Err(DialError::Hung)) {
                        let KeeperAddress {
                            session, keeper, ..
                        } = &self.address;
                        // Its connection ends with it.
                        drop(self.service.end_hung(session, *keeper).await);
                    }
                }
                Event::Input(Some(input)) => self.handle(input),
                Event::Written(Ok(())) => self.is_written = self.is_sent,
                Event::Written(Err(_)) | Event::Frame(Ok(None) | Err(_)) => {
                    return ConnectionEnd::Broken;
                }
                Event::Frame(Ok(Some(said))) => {
                    if let Some(end) = self.note(said, messages) {
                        return end;
                    }
                }
            }
        }
    }

    /// Takes in what the keeper says. Returns how the connection ends, if it does by that.
    fn note(
        &mut self,
        said: Frame,
        messages: &mpsc::UnboundedSender<Message>,
    ) -> Option<ConnectionEnd> {
        match (said.kind, said.body) {
            (Kind::Line, Line::Whole(line)) => {
                let number = said.number;
                // After a reconnect the keeper repeats lines.
                if number > self.handed_on {
                    self.handed_on = number;
                    if messages.send(Message { number, line }).is_err() {
                        return Some(ConnectionEnd::Dropped);
                    }
                }
            }
            (Kind::Taken, _) => self.note_taken(said.number),
            (Kind::Calls, Line::Whole(calls)) => {
                if let Some(told) = self.calls.pop_front() {
                    let _ = told.send(serde_json::from_slice(&calls).unwrap_or_default());
                }
            }
            (Kind::Ending, _) => return Some(ConnectionEnd::ByKeeper),
            (kind, Line::Whole(text)) if self.note_stderr(kind, &text) => {}
            _ => return Some(ConnectionEnd::Broken),
        }
        None
    }

    /// Prints what the backend writes to its standard error, and why one has ended. False: it is
    /// something else.
    fn note_stderr(&mut self, kind: Kind, text: &[u8]) -> bool {
        match kind {
            Kind::Stderr => self.stderr.push(text),
            Kind::Loss => {
                let why = String::from_utf8_lossy(text);
                // The keeper of a server of a list names it.
                let name = self.address.name.as_deref().unwrap_or_default();
                let unnamed = why
                    .strip_prefix(name)
                    .and_then(|why| why.strip_prefix(": "));
                let why = unnamed.unwrap_or(&why).to_owned();
                self.stderr.tell_loss(&why, || {});
                self.unheard += 1;
                self.ends.lock().push(why);
            }
            _ => return false,
        }
        true
    }

    /// Asks the keeper, from which nothing has come since then, whether it lives.
    fn ping(&self, since: Instant) -> JoinHandle<Result<(), DialError>> {
        let (directory, keeper) = (self.address.directory.clone(), self.address.keeper);
        tokio::spawn(async move {
            ping(&directory, keeper, "a server", since, |what| print(&what)).await
        })
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Send(line, taken) => self.sends.push_back((line, taken)),
            Input::Confirm(number) => {
                if number > self.confirmed {
                    self.confirmed = number;
                    self.lane.retain(|(kind, _)| *kind != Kind::Confirm);
                    self.lane.push_back((Kind::Confirm, number));
                }
            }
            Input::Heard => {
                self.unheard = self.unheard.saturating_sub(1);
                self.heard += 1;
                self.lane.retain(|(kind, _)| *kind != Kind::Heard);
                self.lane.push_back((Kind::Heard, self.heard));
            }
            Input::Calls(told) => {
                self.calls.push_back(told);
                self.lane.push_back((Kind::Calls, 0));
            }
            Input::End => {
                self.is_ending = true;
                self.lane.push_back((Kind::End, 0));
            }
        }
    }

    /// Writes the next frame: a message only after the keeper has acknowledged the one before.
    fn put_next(&mut self) {
        let pending = &mut self.connection.pending;
        if !pending.is_empty() {
            return;
        }
        if let Some((kind, number)) = self.lane.pop_front() {
            pending.put(kind, number, Bytes::new());
        } else if let (false, Some((line, _))) = (self.is_sent, self.sends.front()) {
            self.is_sent = true;
            pending.put(Kind::Line, self.taken + 1, line.clone());
        }
    }

    fn note_taken(&mut self, number: u64) {
        while self.taken < number {
            self.taken += 1;
            (self.is_sent, self.is_written) = (false, false);
            if let Some((_, taken)) = self.sends.pop_front() {
                // The caller may have dropped its future.
                let _ = taken.send(Ok(()));
            }
        }
    }

    /// The keeper takes no line any more. `is_cut` says whether it may have taken one without our
    /// knowledge.
    fn give_up(&mut self, is_cut: bool) {
        for (at, (_, taken)) in self.sends.drain(..).enumerate() {
            let may_have_arrived = at == 0 && self.is_written && is_cut;
            let _ = taken.send(Err(Gone { may_have_arrived }));
        }
        self.calls.clear();
    }

    /// Attaches again. False: the keeper is gone, or another process has leased the service.
    async fn reconnect(&mut self, messages: &mpsc::UnboundedSender<Message>) -> bool {
        let mut pause = PAUSE;
        let mut silence = Silence::of(self.address.keeper);
        loop {
            if messages.is_closed() {
                return false;
            }
            match Connection::open(&self.address, &mut silence, Instant::now() + ATTEMPT).await {
                Ok((_, attached)) if attached.incarnation != self.incarnation => return false,
                Ok((connection, attached)) => {
                    self.connection = connection;
                    self.note_taken(attached.taken);
                    self.note_ends(&attached.ended);
                    // The keeper says up to which line it has taken them: it has not taken this
                    // one.
                    (self.is_sent, self.is_written) = (false, false);
                    self.lane.clear();
                    if self.confirmed > 0 {
                        self.lane.push_back((Kind::Confirm, self.confirmed));
                    }
                    self.lane
                        .extend(self.calls.iter().map(|_| (Kind::Calls, 0)));
                    if self.is_ending {
                        self.lane.push_back((Kind::End, 0));
                    }
                    return true;
                }
                Err(error) if is_final(&error) => return false,
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Waits until a keeper has answered that is asked whether it lives.
async fn answered(asking: &mut Option<JoinHandle<Result<(), DialError>>>) -> Result<(), DialError> {
    match asking {
        Some(asking) => asking.await.map_err(io::Error::other)?,
        None => Ok(()),
    }
}

/// Whether another attempt is useless.
fn is_final(error: &DialError) -> bool {
    match error {
        // The keeper is gone for good: no other keeper listens on its socket.
        DialError::Io(error) => {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            )
        }
        DialError::Refused(Error::Unavailable { .. })
        | DialError::Silent
        | DialError::Stalled(_)
        | DialError::Busy => false,
        // Whoever asks for the backend next has the daemon end a keeper that hangs.
        DialError::Hung
        | DialError::Gone
        | DialError::Refused(_)
        | DialError::Hello(_)
        | DialError::Unidentified(_)
        | DialError::Closed { .. }
        | DialError::Answer => true,
    }
}

impl Connection {
    async fn open(
        address: &KeeperAddress,
        silence: &mut Silence,
        until: Instant,
    ) -> Result<(Self, Attached), DialError> {
        let KeeperAddress {
            directory,
            service,
            session,
            epoch,
            ..
        } = address.clone();
        let attach = Attach {
            session,
            epoch,
            initialize: None,
            service: Some(service),
            continues: true,
            refuses_after_loss: false,
            lost_is_told: false,
            lost: None,
        };
        let request = KeeperRequest::Attach(attach);
        let notice = |silence: &mut Silence| {
            if let Some(pid) = silence.notice() {
                print(&stalled_sentence("a server", pid, &pid));
            }
        };
        let dialled = dial_waiting(&directory, &request, until, silence, notice).await;
        let Dialled {
            stream,
            frames,
            reply: KeeperReply::Attached(attached),
        } = dialled?
        else {
            return Err(DialError::Answer);
        };
        let (reader, writer) = socket::halves(stream)?;
        let connection = Self {
            reader: Frames::new(reader, frames),
            writer,
            pending: PendingFrames::default(),
        };
        Ok((connection, attached))
    }
}
