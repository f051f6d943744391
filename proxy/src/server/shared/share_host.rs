//! The process that has a shared server: a front to its keeper, and the server to everybody else.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::ops::ControlFlow;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use mcp_sessiond_client::{ClaimRequest, Label, Named, Options, SessionId, Start};
use mcp_sessiond_process::executable;
use mcp_sessiond_process::signals::not_ignored;
use mcp_sessiond_process::socket::{self, Listener};
use mcp_sessiond_proto::backends::StopReason;
use mcp_sessiond_proto::backends::frame::{Frame, Kind};
use mcp_sessiond_proto::paths;
use mcp_sessiond_relay::multiplexer::{Effect, Multiplexer};
use nix::sys::signal::Signal;
use signal_hook_tokio::Signals;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::clients::{ClientWriter, Event, NewClient, receive};
use super::losses::{Host, Losses, Source};
use super::{Reply, Report, Shared};
use crate::frames::{FrameSender, Frames, PendingLines};
use crate::keeper::launch;
use crate::lines::Line;
use crate::memory::{forbid_core_dumps, give_back_once_started};
use crate::notices::CarriedLoss;
use crate::server::attach::{Attachment, NoBackend, attach_first};
use crate::server::kept::{Door, Stopper};
use crate::signals::GivenMask;
use crate::waits::{Tell, Waits};

/// Events of places that wait to be dealt with. More keep their places waiting.
const EVENTS: usize = 64;

/// Bytes that may wait for the server. More keep all places waiting.
const BACKLOG: usize = 4 * 1024 * 1024;

/// How long nobody may come to a sharer that has just been started: whoever has started it comes at
/// once.
const FIRST: Duration = Duration::from_secs(20);

/// How long a claim waits, and the server's keeper may take.
const WAITS: Waits = Waits {
    first_line: Duration::ZERO,
    keeper: Duration::from_secs(2),
    stop: Duration::from_secs(2),
    // The first call may be another host's than the one that has used the server.
    tell: Tell::Log,
};

/// How long places may take to read what was said last.
const FAREWELL: Duration = Duration::from_secs(1);

/// The longest sleep when no deadline is set.
const QUIET: Duration = Duration::from_secs(24 * 3600);

/// Starts the sharer proper, which is no child of the front then, and passes its report and its
/// errand on.
pub fn launch() -> ExitCode {
    let report = start().unwrap_or_else(|error| Report::Failed {
        sentence: error.to_string(),
        passing: true,
    });
    write(&report);
    if matches!(report, Report::Ready {}) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(70)
    }
}

fn start() -> io::Result<Report> {
    mcp_sessiond_process::sys::keep_only_standard_streams()?;
    let mut sharer = Command::new(executable::own().ok_or(io::ErrorKind::NotFound)?)
        .args(["share", "--detached"])
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = sharer.stdout.take() {
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line)?;
    }
    serde_json::from_str(&line)
        .map_err(|_| io::Error::other("it ended before it had said anything"))
}

/// Reports on standard output. Whoever waited may have been killed; that is no reason to end.
fn write(report: &Report) {
    let mut output = io::stdout();
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}

/// Reads its errand from standard input, gets the server, reports, and shares it until nobody uses
/// it any more.
pub fn run() -> ExitCode {
    let _ = nix::unistd::setsid();
    // A host may have blocked it.
    let mask = GivenMask::unblock(&[Signal::SIGTERM]);
    match open(mask) {
        Ok(opened) => {
            forbid_core_dumps();
            write(&Report::Ready {});
            let _ = launch::close_report_pipe();
            opened.share();
            ExitCode::SUCCESS
        }
        Err(report) => {
            write(&report);
            ExitCode::from(70)
        }
    }
}

/// A sharer that has its server.
struct ReadyHost {
    shared: Shared,
    listener: Listener,
    stopper: Stopper,
    session: SessionId,
    attachment: Attachment,
}

fn failed(error: &dyn std::fmt::Display, passing: bool) -> Report {
    Report::Failed {
        sentence: error.to_string(),
        passing,
    }
}

fn open(mask: GivenMask) -> Result<ReadyHost, Report> {
    let mut errand = Vec::new();
    io::stdin()
        .read_to_end(&mut errand)
        .map_err(|error| failed(&error, false))?;
    let shared: Shared = serde_json::from_slice(&errand).map_err(|error| failed(&error, false))?;
    let directory = paths::directory().map_err(|error| failed(&error, false))?;
    let path = shared.socket(&directory);
    if socket::is_served(&path) {
        return Err(failed(&"another one is there", true));
    }
    let program = shared.program();
    let name: Label = format!("shared {}", shared.key.get(..16).unwrap_or_default())
        .parse()
        .map_err(|error| failed(&error, false))?;
    // Not what the words of the command stand for: a secret among them may have been renewed.
    let named = Named {
        name,
        command: shared.key.clone(),
        take: false,
    };
    let shown = Some(program.display_name());
    let claim = ClaimRequest {
        named: Some(named),
        program: shown,
        ..ClaimRequest::default()
    };
    let options = Options::default().start(Start::Never);
    let (environment, cwd) = shared.launch_env();
    let home = std::env::home_dir().filter(|home| home.is_dir());
    let door =
        Door::new(options, claim, program, mask, WAITS).map_err(|error| failed(&error, false))?;
    let mut door = door.with_launch_env(environment, cwd.or(home));
    let attachment = loop {
        match attach_first(&mut door, WAITS) {
            Err(NoBackend::Stalled(_)) => {
                // One that only does not answer is waited for here until it hangs.
                if let Some(keeper) = door.stalled_keeper() {
                    return Err(Report::Stalled { keeper });
                }
            }
            attached => break attached,
        }
    };
    let attachment = attachment.map_err(|why| match why {
        NoBackend::NoProgram { code, sentence } => Report::NoProgram { code, sentence },
        NoBackend::NoSession(..) => failed(&why, false),
        NoBackend::Passing(_)
        | NoBackend::Ending(_)
        | NoBackend::Taken(_)
        | NoBackend::Closed { .. }
        | NoBackend::Stalled(_) => failed(&why, true),
    })?;
    let session = door
        .session()
        .ok_or_else(|| failed(&"it has no session", true))?;
    // The lease is the right to the path.
    let listener = Listener::bind(&path).map_err(|error| failed(&error, false))?;
    Ok(ReadyHost {
        shared,
        listener,
        stopper: door.stopper(),
        session,
        attachment,
    })
}

impl ReadyHost {
    fn share(self) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        else {
            return;
        };
        let _ = runtime.block_on(self.serve());
        runtime.shutdown_background();
    }

    async fn serve(self) -> io::Result<()> {
        tokio::spawn(give_back_once_started());
        let Self {
            shared,
            listener,
            stopper,
            session,
            attachment,
        } = self;
        let Attachment {
            reader,
            frames,
            sender: keeper,
            attached,
            loss,
            ..
        } = attachment;
        let placed = listener.try_clone()?;
        let listener = UnixListener::from_std(listener.into())?;
        reader.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(reader)?.into_split();
        let (sender, events) = mpsc::channel(EVENTS);
        tokio::spawn(receive(listener, shared.key.clone(), sender));
        let began = Instant::now();
        let mut losses = Losses::default();
        let loss = loss.filter(|loss| !loss.because.is_wanted());
        if let Some(loss) = &loss {
            losses.note(loss.because.sentence().to_owned(), Source::Daemon, began);
        }
        for why in attached.ended {
            losses.note(why, Source::Keeper, began);
        }
        let mut sharer = ShareHost {
            losses,
            loss,
            seats: BTreeMap::new(),
            many: Multiplexer::new(attached.resumed),
            session,
            began,
            unused_until: Some(began + FIRST),
            linger: shared.linger,
            writers: BTreeMap::new(),
            passing: PendingLines::default(),
            waiting: VecDeque::new(),
            backlog: 0,
            keeper,
        };
        let reader = Frames::new(reader, frames);
        let over = sharer.carry(reader, writer, events).await?;
        placed.unlink();
        let is_alone = sharer.writers.is_empty();
        // What has been said is still read.
        let told = std::mem::take(&mut sharer.writers)
            .into_values()
            .map(ClientWriter::finish);
        drop(timeout(FAREWELL, futures::future::join_all(told)).await);
        if over == EndReason::Unused || over == EndReason::Signal && is_alone {
            // The lease, which is the right to the path, ends with this process, and not only when the
            // server is gone.
            stopper.stop_for(StopReason::Asked).await;
        }
        Ok(())
    }
}

/// Why it ends.
#[derive(PartialEq, Eq)]
enum EndReason {
    /// Nobody has used the server for its linger time.
    Unused,
    /// The keeper is gone, and the server with it.
    KeeperLost,
    /// By a signal. The server waits for the next sharer.
    Signal,
}

/// What a place's host was told of ends of servers.
struct Seat {
    host: Host,
    /// How many ends it need not be told of, and was told of before.
    told: usize,
    /// How many ends it was sent; none before it is welcome.
    sent: Option<usize>,
}

struct ShareHost {
    many: Multiplexer,
    losses: Losses,
    /// What the daemon has to hear of once a host was told.
    loss: Option<CarriedLoss>,
    seats: BTreeMap<u64, Seat>,
    session: SessionId,
    began: Instant,
    /// When to end, while nobody is there.
    unused_until: Option<Instant>,
    linger: Duration,
    writers: BTreeMap<u64, ClientWriter>,
    /// The line on its way to the server.
    passing: PendingLines,
    /// Lines for the server.
    waiting: VecDeque<Bytes>,
    /// Bytes of them.
    backlog: usize,
    /// The way to the keeper.
    keeper: Arc<FrameSender>,
}

impl ShareHost {
    async fn carry(
        &mut self,
        mut reader: Frames<OwnedReadHalf>,
        writer: OwnedWriteHalf,
        mut events: mpsc::Receiver<Event>,
    ) -> io::Result<EndReason> {
        let mut terminate = Signals::new(not_ignored(&[Signal::SIGTERM]))?;
        loop {
            if self.apply_effects().is_break() {
                return Ok(EndReason::KeeperLost);
            }
            if self.passing.is_empty()
                && let Some(line) = self.waiting.pop_front()
            {
                self.backlog = self.backlog.saturating_sub(line.len());
                self.passing.put(line);
            }
            let is_busy = !self.passing.is_empty();
            let keeper = self.keeper.clone();
            let unused_until = self.unused_until.unwrap_or_else(|| Instant::now() + QUIET);
            tokio::select! {
                biased;
                Some(_) = terminate.next() => return Ok(EndReason::Signal),
                said = reader.next() => match said {
                    Ok(Some(said)) => if !self.note(said) {
                        return Ok(EndReason::KeeperLost);
                    },
                    Ok(None) | Err(_) => return Ok(EndReason::KeeperLost),
                },
                sent = keeper.send_by(&writer, &mut self.passing), if is_busy => {
                    if sent.is_err() {
                        return Ok(EndReason::KeeperLost);
                    }
                }
                Some(event) = events.recv(), if self.backlog < BACKLOG => self.read_into(event),
                () = sleep_until(unused_until), if self.unused_until.is_some() => return Ok(EndReason::Unused),
            }
        }
    }

    /// Takes in what the keeper says. False: that breaks the protocol.
    fn note(&mut self, said: Frame) -> bool {
        let now = self.now();
        match (said.kind, said.body) {
            (Kind::Line, line) => {
                match line {
                    Line::Whole(line) => self.many.from_server(&line, now),
                    Line::Oversized { head, tail } => {
                        self.many.oversized_from_server(&head, &tail, now);
                    }
                }
                self.keeper.pass_on(1);
            }
            // It is shown to no host: it may be about another one. The keeper remembers the last of
            // it.
            (Kind::Stderr, _) => {}
            (Kind::Loss, Line::Whole(why)) => {
                let why = String::from_utf8_lossy(&why).into_owned();
                self.losses.note(why, Source::Keeper, Instant::now());
                self.send_ends();
            }
            // The keeper's end follows. A stopped server stays stopped until it is used.
            (Kind::Ending, _) => {
                // Who waits for a welcome takes nothing else for one, and has its connection's end.
                for (place, writer) in &self.writers {
                    if self.many.is_shared_by(*place) {
                        let _ = writer.put(Kind::Ending, Bytes::new());
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn read_into(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Arrived(NewClient {
                place,
                first,
                again,
                host,
                writer,
            }) => {
                self.writers.insert(place, writer);
                if self.seats.values().any(|seat| seat.host == host) {
                    self.losses.note_several(host);
                }
                let seat = Seat {
                    host,
                    told: 0,
                    sent: None,
                };
                self.seats.insert(place, seat);
                self.unused_until = None;
                self.many.arrive(place, first, again);
            }
            Event::Line(place, Line::Whole(line)) => self.many.from_client(place, &line, now),
            Event::Line(place, Line::Oversized { head, tail }) => {
                self.many.oversized_from_client(place, &head, &tail, now);
            }
            Event::Left(place) => self.leave(place),
            Event::Told(place, count) => self.note_told(place, count),
            Event::Status(writer) => {
                let (session, places) = (self.session.clone(), self.many.clients());
                writer.reply(&Reply::Status {
                    session,
                    places,
                    withheld: self.many.withheld(),
                });
            }
        }
    }

    /// Sends those who are there what they have not been sent of the ends of servers.
    fn send_ends(&mut self) {
        let count = self.losses.count();
        for (place, seat) in &mut self.seats {
            if let (Some(sent), Some(writer)) = (&mut seat.sent, self.writers.get(place)) {
                for why in self.losses.from(*sent) {
                    // A host that does not read is cut off by its messages.
                    let _ = writer.put(Kind::Loss, why.to_owned().into());
                }
                *sent = count;
            }
        }
    }

    /// A place's host was told of so many more ends. The keeper and the daemon need not remember
    /// them from then on.
    fn note_told(&mut self, place: u64, count: usize) {
        let Some(seat) = self.seats.get_mut(&place) else {
            return;
        };
        seat.told = seat.told.saturating_add(count).min(seat.sent.unwrap_or(0));
        for source in self.losses.tell(seat.host, seat.told) {
            match source {
                Source::Keeper => self.keeper.heard(1),
                Source::Daemon => {
                    if let Some(loss) = self.loss.take() {
                        drop(tokio::task::spawn_blocking(move || loss.told()));
                    }
                }
            }
        }
    }

    /// What a place's host has to be told as it comes.
    fn welcome(&mut self, place: u64) -> Reply {
        let count = self.losses.count();
        let ended = self.seats.get_mut(&place).map(|seat| {
            let ended = self.losses.untold(seat.host, Instant::now());
            (seat.told, seat.sent) = (count - ended.len(), Some(count));
            ended
        });
        let ended = ended.unwrap_or_default();
        Reply::Welcome { ended }
    }

    fn leave(&mut self, place: u64) {
        self.seats.remove(&place);
        if self.writers.remove(&place).is_some() {
            let now = self.now();
            self.many.leave(place, now);
            if self.writers.is_empty() {
                self.unused_until = Some(Instant::now() + self.linger);
            }
        }
    }

    /// Breaks where the server is as good as gone.
    fn apply_effects(&mut self) -> ControlFlow<()> {
        loop {
            let deeds = self.many.effects();
            if deeds.is_empty() {
                return ControlFlow::Continue(());
            }
            for deed in deeds {
                match deed {
                    Effect::ToServer(line) => {
                        self.backlog += line.len();
                        self.waiting.push_back(line);
                    }
                    Effect::Admit(place) => {
                        let welcome = self.welcome(place);
                        self.tell(place, &welcome);
                    }
                    Effect::Own(place, why) => {
                        self.tell(place, &Reply::Own { why });
                        self.leave(place);
                    }
                    Effect::Later(place, why) => {
                        self.tell(place, &Reply::Later { why });
                        self.leave(place);
                    }
                    Effect::End => return ControlFlow::Break(()),
                    Effect::ToClient(place, line) => {
                        let Some(writer) = self.writers.get_mut(&place) else {
                            continue;
                        };
                        // Nobody else waits for one that does not read.
                        if !writer.put(Kind::Line, line) {
                            writer.cut();
                            self.leave(place);
                        }
                    }
                }
            }
        }
    }

    fn tell(&mut self, place: u64, reply: &Reply) {
        if let Some(writer) = self.writers.get_mut(&place) {
            writer.reply(reply);
        }
    }
}
