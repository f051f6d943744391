//! Lines between the host and the keeper, each way in a thread of its own that only waits for the
//! next line.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_jsonrpc::oversized::{Oversized, too_large};
use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::backends::frame::Kind;
use mcp_sessiond_relay::link::open::{Open, refusals};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::input_end::exit_within;
use super::probe::is_probe;
use super::raw::is_raw;
use crate::frames::{FrameSender, PendingLines};
use crate::id_prefix::IdPrefix;
use crate::lines::{CHUNK, Line, LineBuffer, is_transient, read_chunk, read_into};
use crate::server::attach::Attachment;
use crate::server::kept::{KeeperWatch, QUIET, QUIET_MAX, Releaser};
use crate::signals::ending_signal;
use crate::stderr::ServerStderr;

/// Carries lines.
pub struct Carrier {
    state: Mutex<State>,
    /// Notified when there is a keeper, or the host needs one.
    changed: Condvar,
    /// Notified when the host has asked something, if the thread that watches the keeper waits for
    /// that.
    asked: Condvar,
    output: Mutex<File>,
    /// The thread that reads the host writes here when the host has closed its end and waits for no
    /// answer; the other thread reads it. None: no socket pair could be made.
    leaving: Option<(UnixStream, UnixStream)>,
    /// Whether a large line was carried since memory was last given back.
    has_large_lines: AtomicBool,
}

/// How long nothing comes from the keeper until memory is given back: what was needed to start, or
/// for large lines.
const IDLE: Duration = Duration::from_secs(2);

/// From this length on, in bytes, a line leaves memory behind that is worth giving back.
const LARGE: usize = 64 * 1024;

/// How long this process may still pass on lines when the host has closed its end and waits for no
/// answer.
const LAST_LINES_WAIT: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    /// The way to the keeper, while there is one.
    keeper: Option<Arc<FrameSender>>,
    /// Why there is no keeper, if there won't be one soon.
    refusal: Option<String>,
    /// Whether the keeper has said that it ends on purpose.
    ended_on_purpose: bool,
    /// Whether the host has sent a line while there was no keeper.
    wanted: bool,
    open: Open,
    /// How the server is told from those that were lost before it, which may have asked under the
    /// same ids. None: it is the first one.
    id_prefix: Option<IdPrefix>,
    /// The host has closed its end.
    closed: bool,
    /// Whether the host has sent more than a probe: then somebody reads what is told.
    used: bool,
    /// What is told then.
    untold: Vec<Report>,
    /// How the keeper is asked whether it lives.
    watch: Option<KeeperWatch>,
    /// Counts what the host has asked and what has come from the keeper.
    activity: u64,
    /// Whether the thread that watches the keeper waits to be notified.
    is_unwatched: bool,
    /// The host gets no keeper's server any more.
    let_go: bool,
}

/// Tells the host's user something.
type Report = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Carrier {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Carrier")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Carrier {
    /// Will write to the host by `output`.
    pub fn new(output: File) -> Self {
        let leaving = UnixStream::pair().ok();
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            asked: Condvar::new(),
            output: Mutex::new(output),
            leaving,
            has_large_lines: AtomicBool::new(false),
        }
    }

    /// Tells the host's user something, once the host has sent more than a probe: a host may probe on
    /// a process of its own, whose standard error nobody reads.
    pub fn once_used(&self, report: Box<dyn FnOnce() + Send>) {
        let mut state = lock(&self.state);
        if state.used {
            drop(state);
            report();
        } else {
            state.untold.push(report);
        }
    }

    /// The host has sent more than a probe.
    pub fn note_use(&self) {
        let mut state = lock(&self.state);
        state.used = true;
        let untold = std::mem::take(&mut state.untold);
        drop(state);
        untold.into_iter().for_each(|report| report());
    }

    /// A keeper is attached: lets the host's lines through. The host's `initialize` goes first, if
    /// no former keeper has answered it.
    ///
    /// # Errors
    /// When the keeper is lost again.
    pub fn set_keeper(&self, keeper: Arc<FrameSender>) -> io::Result<()> {
        let mut state = lock(&self.state);
        if let Some(initialize) = state.open.unanswered() {
            let mut first = PendingLines::default();
            first.put(initialize.clone());
            keeper.send(&mut first)?;
        }
        state.keeper = Some(keeper);
        state.refusal = None;
        state.wanted = false;
        state.ended_on_purpose = false;
        self.changed.notify_all();
        Ok(())
    }

    /// From now on this is how the keeper is asked whether it lives.
    pub(crate) fn watch_by(&self, watch: Option<KeeperWatch>) {
        lock(&self.state).watch = watch;
    }

    /// Asks the keeper whether it lives while the host waits for something and nothing comes, and
    /// tells the user by `print` where it does not. Sleeps as long as the host waits for nothing.
    pub(crate) fn watch_keeper(&self, print: &dyn Fn(&str)) -> ! {
        let (mut patience, mut seen) = (QUIET, None);
        let mut state = lock(&self.state);
        loop {
            let watch = match &state.watch {
                Some(watch) if state.keeper.is_some() && !state.open.is_settled() => watch.clone(),
                _ => {
                    (patience, seen) = (QUIET, None);
                    state.is_unwatched = true;
                    state = self
                        .asked
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            if seen == Some(state.activity) {
                drop(state);
                // Nothing has come for that long, or longer.
                let quiet = Instant::now().checked_sub(QUIET);
                watch.check(quiet.unwrap_or_else(Instant::now), print);
                patience = (patience * 2).min(QUIET_MAX);
                state = lock(&self.state);
            } else {
                patience = QUIET;
            }
            seen = Some(state.activity);
            // What is asked meanwhile has not to wait for a long pause.
            state.is_unwatched = patience > QUIET;
            state = self
                .asked
                .wait_timeout(state, patience)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until a keeper is needed. That is at once, unless the former keeper has said that it
    /// ends on purpose: then it is when the host sends a line, since a stopped server stays stopped
    /// until it is used.
    pub fn wait_until_wanted(&self) {
        let mut state = lock(&self.state);
        while state.let_go
            || state.ended_on_purpose && !state.wanted && state.open.unanswered().is_none()
        {
            if state.closed {
                std::process::exit(0);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The host's `initialize`, as a fresh keeper has to know it.
    pub fn initialized(&self) -> Option<Json> {
        let state = lock(&self.state);
        let line = state.open.initialized()?;
        Json::new(String::from_utf8(line.to_vec()).ok()?).ok()
    }

    /// There may be no keeper for long: answers the host's requests with this reason.
    pub fn refuse(&self, why: &str) {
        let mut state = lock(&self.state);
        state.refusal = Some(why.to_owned());
        let unanswered = state.open.unanswered().cloned();
        if unanswered.is_some() {
            state.open.forget();
        }
        self.changed.notify_all();
        // A host that reads nothing holds up whoever writes to it, and nobody else.
        drop(state);
        if let Some(unanswered) = unanswered {
            self.answer_host(&refusals(&unanswered, why));
        }
    }

    /// Carries the host's lines to the current keeper, until the host closes its end. Then ends
    /// this process; if the host still waits for answers, releases the lease and waits for them,
    /// but not longer than `stop`.
    ///
    /// `lines` has what was read already. Where the host shows only now that it does not speak
    /// JSON-RPC, its bytes are given to `pass_through`, which ends this process.
    pub(super) fn forward_from_host(
        &self,
        mut input: File,
        mut lines: LineBuffer,
        releaser: Releaser,
        pass_through: impl FnOnce(&LineBuffer, File),
        stop: Duration,
    ) {
        let mut chunk = vec![0; CHUNK];
        let mut has_spoken = !lines.is_empty();
        loop {
            self.forward_lines(std::iter::from_fn(|| lines.next_line()));
            if !read_into(&mut input, &mut chunk, &mut lines) {
                break;
            }
            if !has_spoken && is_raw(lines.buffered()) {
                self.let_go();
                return pass_through(&lines, input);
            }
            has_spoken |= !lines.buffered().trim_ascii().is_empty();
        }
        self.forward_lines(lines.last_line().into_iter());
        let mut state = lock(&self.state);
        state.closed = true;
        send_leave(&state);
        if state.open.is_settled() {
            self.leave(state);
        }
        self.changed.notify_all();
        drop(state);
        // A daemon that hangs must not delay our exit.
        drop(
            std::thread::Builder::new()
                .name("release".into())
                .spawn(move || releaser.release()),
        );
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(output) => exit_within(&output.into(), stop),
            Err(_) => std::process::exit(0),
        }
    }

    /// Ends this process once the other thread has passed on all lines and confirmed them to the
    /// keeper, or after [`LAST_LINES_WAIT`].
    fn leave(&self, state: MutexGuard<'_, State>) -> ! {
        if let (Some(_), Some((tell, _))) = (&state.keeper, &self.leaving)
            && (&*tell).write_all(&[0]).is_ok()
        {
            drop(state);
            std::thread::sleep(LAST_LINES_WAIT);
        }
        std::process::exit(0);
    }

    /// Ends this process if the host has closed its end, waits for no answer and has got every
    /// line.
    fn leave_if_done(&self, reader: &UnixStream) {
        let state = lock(&self.state);
        if state.closed && state.open.is_settled() && !is_readable(reader) {
            std::process::exit(0);
        }
    }

    /// Notes whether a line leaves memory behind.
    fn note_size(&self, line: &[u8]) {
        if line.len() >= LARGE {
            self.has_large_lines.store(true, Ordering::Relaxed);
        }
    }

    /// Passes lines of the host on to the keeper, all that are there in one piece.
    fn forward_lines(&self, lines: impl Iterator<Item = Line>) {
        let mut passing = PendingLines::default();
        let mut to: Option<Arc<FrameSender>> = None;
        for line in lines {
            let Some(line) = self.readable(line) else {
                continue;
            };
            self.note_size(&line);
            self.note_use_of(&line);
            let Some((keeper, line)) = self.keeper_for(line) else {
                continue;
            };
            if !to
                .as_ref()
                .is_some_and(|former| Arc::ptr_eq(former, &keeper))
            {
                // A former keeper is lost, with all that it was not given.
                passing.clear();
                to = Some(keeper);
            }
            passing.put(line);
        }
        if let Some(keeper) = to {
            // If the keeper is lost, the calls are among those that the front answers in its place.
            let _ = keeper.send(&mut passing);
        }
    }

    fn note_use_of(&self, line: &Bytes) {
        let is_first = !lock(&self.state).used;
        if is_first && !is_probe(line) {
            self.note_use();
        }
    }

    /// A line of the host as the keeper can take it. None: it is too long, and the host got an
    /// error, if it waits for an answer.
    fn readable(&self, line: Line) -> Option<Bytes> {
        match line {
            Line::Whole(line) => Some(line),
            Line::Oversized { head, tail } => match Oversized::of_host(&head, &tail) {
                Oversized::Failed(line) => Some(line),
                Oversized::Refused(line) => {
                    self.answer_host(&[line]);
                    None
                }
                Oversized::Dropped => None,
            },
        }
    }

    /// The keeper, once there is one, and the line as it gets it. Notes the line's requests in the
    /// same step, so that they are answered if the keeper is lost. None: the line is about requests
    /// of a former server, or there is no keeper for long and the host got an error.
    fn keeper_for(&self, line: Bytes) -> Option<(Arc<FrameSender>, Bytes)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(keeper) = state.keeper.clone() {
                let line = match &state.id_prefix {
                    Some(id_prefix) => id_prefix.to_server(&line)?,
                    None => line,
                };
                state.open.from_host(&line);
                state.activity += 1;
                if state.is_unwatched && !state.open.is_settled() {
                    state.is_unwatched = false;
                    self.asked.notify_one();
                }
                return Some((keeper, line));
            }
            if let Some(why) = &state.refusal {
                let refusals = refusals(&line, why);
                drop(state);
                self.answer_host(&refusals);
                return None;
            }
            state.wanted = true;
            self.changed.notify_all();
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Carries the keeper's lines to the host, until the keeper is lost. Ends this process when the
    /// host has closed its end and waits for no answer.
    pub(crate) fn forward_from_keeper(&self, attachment: Attachment, mut stderr: ServerStderr) {
        let Attachment {
            mut reader,
            mut frames,
            sender,
            ..
        } = attachment;
        let mut chunk = vec![0; CHUNK];
        let mut passing: Vec<Bytes> = Vec::new();
        let mut gives_back = true;
        loop {
            let is_whole = {
                let mut state = lock(&self.state);
                loop {
                    let said = match frames.next_frame() {
                        Ok(Some(said)) => said,
                        Ok(None) => break true,
                        Err(_) => break false,
                    };
                    let line = match (said.kind, said.body) {
                        (Kind::Line, Line::Whole(line)) => line,
                        // With ids of the host's that are longer than any that was seen.
                        (Kind::Line, Line::Oversized { head, tail }) => too_large(&head, &tail),
                        (Kind::Ending, _) => {
                            state.ended_on_purpose = true;
                            continue;
                        }
                        (kind, Line::Whole(text)) if stderr.note(kind, &text, &sender) => continue,
                        _ => break false,
                    };
                    self.note_size(&line);
                    state.open.from_server(&line);
                    state.activity += 1;
                    passing.push(match &state.id_prefix {
                        Some(id_prefix) => id_prefix.to_host(&line),
                        None => line,
                    });
                }
            };
            if !passing.is_empty() {
                self.write_to_host(&passing);
                sender.pass_on(passing.len() as u64);
                passing.clear();
            }
            if !is_whole {
                return stderr.end();
            }
            self.leave_if_done(&reader);
            gives_back |= self.has_large_lines.swap(false, Ordering::Relaxed);
            if !self.wait_for(&reader, &mut gives_back) {
                continue;
            }
            match read_chunk(&mut reader, &mut chunk) {
                Some(read) => frames.room().extend_from_slice(&chunk[..read]),
                None => return stderr.end(),
            }
        }
    }

    /// Waits until the keeper has sent something, and gives memory back if that takes [`IDLE`].
    /// False: the host has closed its end.
    fn wait_for(&self, reader: &UnixStream, gives_back: &mut bool) -> bool {
        // recv(2) also wakes up when the other side has read; poll(2) does not.
        let mut awaited = vec![PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        if let Some((_, told)) = &self.leaving {
            awaited.push(PollFd::new(told.as_fd(), PollFlags::POLLIN));
        }
        let mut patience = PollTimeout::NONE;
        if *gives_back {
            patience = PollTimeout::try_from(IDLE).unwrap_or(PollTimeout::NONE);
        }
        while poll(&mut awaited, patience) == Ok(0) {
            mcp_sessiond_process::sys::give_back_memory();
            *gives_back = false;
            patience = PollTimeout::NONE;
        }
        awaited[0].any().unwrap_or(true)
    }

    /// The keeper is lost: answers every call that the host waits for with an error.
    pub fn keeper_lost(&self) {
        let mut state = lock(&self.state);
        state.keeper = None;
        state.id_prefix = Some(IdPrefix::mint());
        let answers = state.open.fail_all();
        let closed = state.closed;
        drop(state);
        self.answer_host(&answers);
        if closed {
            std::process::exit(0);
        }
    }

    /// The keeper's server is not for this host: no other one is started in its place.
    fn let_go(&self) {
        let mut state = lock(&self.state);
        send_leave(&state);
        state.let_go = true;
    }

    /// Tells the keeper that this front is about to leave.
    pub fn send_leave(&self) {
        send_leave(&lock(&self.state));
    }

    /// The same for a process that ends at once: waits so long for the end of a line that is on its
    /// way.
    pub(crate) fn send_leave_within(&self, patience: Duration) {
        let keeper = lock(&self.state).keeper.clone();
        if let Some(keeper) = keeper {
            keeper.leave_within(ending_signal(), patience);
        }
    }

    /// Writes lines to the host, as few pieces as can be.
    fn write_to_host(&self, lines: &[Bytes]) {
        let mut slices = framed(lines);
        let mut left = &mut slices[..];
        let mut output = lock(&self.output);
        while !left.is_empty() {
            // More than the system takes at once is no error: it writes what it takes.
            match output.write_vectored(left) {
                Ok(written @ 1..) => IoSlice::advance_slices(&mut left, written),
                Err(error) if is_transient(&error, &*output, PollFlags::POLLOUT) => {}
                Ok(0) | Err(_) => std::process::exit(0),
            }
        }
    }

    /// Writes a message of our own to the host. Ignores errors: the host has gone, or is about to
    /// end this process.
    fn answer_host(&self, answers: &[Bytes]) {
        if !answers.is_empty() {
            self.write_to_host(answers);
        }
    }
}

/// This end is orderly, whatever follows.
fn send_leave(state: &State) {
    if let Some(keeper) = &state.keeper {
        keeper.leave(ending_signal());
    }
}

fn is_readable(stream: &UnixStream) -> bool {
    let mut now = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    poll(&mut now, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Lines, each with its newline.
fn framed(lines: &[Bytes]) -> Vec<IoSlice<'_>> {
    lines
        .iter()
        .flat_map(|line| [IoSlice::new(line), IoSlice::new(b"\n")])
        .collect()
}
