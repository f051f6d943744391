//! Starting and ending the backend.

use std::io;
use std::time::Duration;

use futures::StreamExt as _;
use mcp_sessiond_client::Control;
use mcp_sessiond_process::{PinnedProcess, note};
use mcp_sessiond_proto::backends::frame::Kind;
use mcp_sessiond_proto::backends::{EndingRequest, StartedRequest, ended_sentence};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::end_note::EndNote;
use mcp_sessiond_proto::facts::{LearnRequest, Learned};
use mcp_sessiond_proto::{Loss, paths};
use nix::unistd::Pid;
use signal_hook_tokio::Signals;
use tokio::time::timeout;

use super::{End, Keeper, LAST_LINES_WAIT};
use crate::keeper::backend::Backend;
use crate::keeper::children::StopMode;
use crate::keeper::program_change::ProgramFile;
use crate::keeper::sources::Sources;
use crate::lines::{Line, PendingLine};

impl Keeper {
    pub(super) fn backend_ended(&mut self, why: &str) {
        let Some(backend) = self.take_last_output() else {
            return;
        };
        let now = self.now();
        self.relay
            .backend_exited(why, self.ring.error_line().as_deref(), now);
        // Kill the processes that it has left behind.
        self.take_down(backend, StopMode::Terminate);
    }

    /// The backend has exited: its last output goes where the output before went.
    pub(super) fn take_last_output(&mut self) -> Option<Backend> {
        let mut backend = self.backend.take()?;
        let (lines, rest) = backend.remaining_lines();
        for line in lines {
            self.take_line(line);
        }
        if let Some(rest) = rest {
            self.take_last_line(rest);
        }
        let last_words = backend.remaining_stderr();
        if !last_words.is_empty() {
            self.push_stderr(&last_words);
        }
        self.pending_line = PendingLine::default();
        Some(backend)
    }

    /// A line of a backend's output.
    pub(super) fn take_line(&mut self, line: Line) {
        let now = self.now();
        match line {
            Line::Whole(line) => self.relay.from_backend(line, now),
            Line::Oversized { head, tail } => {
                self.relay.oversized_from_backend(&head, &tail, now);
            }
        }
    }

    /// The last output of a backend, without a newline at its end.
    pub(super) fn take_last_line(&mut self, line: Line) {
        let now = self.now();
        match line {
            Line::Whole(line) => self.relay.last_from_backend(line, now),
            // An oversized line without its end can't be answered.
            Line::Oversized { .. } => {}
        }
    }

    /// Ends the running backend, which can't be used any more; another one is started when the
    /// relay says so.
    pub(super) fn replace(&mut self, why: &str) {
        self.retire(self.graceful());
        let now = self.now();
        self.relay.backend_exited(why, None, now);
    }

    /// A user asks for a fresh backend. It starts once the host has the answers that it waits for,
    /// and the running backend is gone.
    pub(super) fn restart_by_hand(&mut self) {
        let now = self.now();
        if let Some(sharing) = self.sharing.as_mut().filter(|_| self.backend.is_some()) {
            sharing.note_restart();
        }
        self.relay.restart(now);
    }

    pub(super) fn retire(&mut self, stop_mode: StopMode) {
        self.pending_line = PendingLine::default();
        if let Some(backend) = self.backend.take() {
            self.take_down(backend, stop_mode);
        }
    }

    fn take_down(&mut self, backend: Backend, stop_mode: StopMode) {
        let (children, stop_wait) = (self.children.clone(), self.stop_wait());
        self.retiring
            .spawn(async move { backend.take_down(&children, stop_mode, stop_wait).await });
    }

    /// The way in which hosts end a server.
    pub(super) fn graceful(&self) -> StopMode {
        StopMode::Graceful { signal: None }
    }

    pub(super) fn stop_wait(&self) -> Duration {
        Duration::from_millis(self.kept.stop_wait_ms)
    }

    pub(super) fn restart(&mut self) {
        if let Err(error) = self.start_backend() {
            let now = self.now();
            self.relay
                .backend_exited(&format!("it could not be started: {error}"), None, now);
        }
    }

    pub(super) fn start_backend(&mut self) -> io::Result<()> {
        let now = self.now();
        let why = self.relay.last_error().map(str::to_owned);
        self.relay.backend_started(now);
        self.ring.begin();
        self.program_file = ProgramFile::of(&self.program);
        let backend = Backend::start(&self.program, &self.children, &self.mask)?;
        // Not before: nobody waits for it.
        let script = self.program_file.as_ref().map(ProgramFile::path);
        let script = script.filter(|_| self.program.has_sources && self.sharing.is_none());
        self.sources = script.map(|script| Sources::of(script.to_owned()));
        let pid = backend.pid;
        self.backend = Some(backend);
        self.tell_started(pid, why);
        Ok(())
    }

    /// Without this the daemon can't clean up after the keeper if both were killed.
    fn tell_started(&mut self, backend: Pid, why: Option<String>) {
        let request = StartedRequest {
            session: self.context.session.clone(),
            keeper: self.context.keeper,
            pid: backend.as_raw().unsigned_abs(),
            why,
        };
        self.notify_daemon(
            |control| async move { control.ask(Client::backend_started, request).await },
        );
    }

    /// The backend was a launcher, and has left another process in its place.
    pub(super) fn goes_on_in_another(&mut self) -> bool {
        let Some(backend) = &mut self.backend else {
            return false;
        };
        let goes_on = backend.go_on_in_another(&self.children);
        let pid = backend.pid;
        if goes_on {
            self.tell_started(pid, None);
        }
        goes_on
    }

    /// Tells the daemon what was seen of servers of this command, for other keepers and fronts.
    pub(super) fn tell_learned(&mut self, learned: Learned) {
        let Some(server) = self.context.server.clone() else {
            return;
        };
        let request = LearnRequest { server, learned };
        self.notify_daemon(|control| async move { control.ask(Client::learn_fact, request).await });
    }

    /// Tells the daemon something. Only the end of the keeper waits for the answer.
    pub(super) fn notify_daemon<F>(&mut self, tell: impl FnOnce(Control) -> F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let (control, telling) = (self.control.clone(), tell(self.control.clone()));
        while self.telling.try_join_next().is_some() {}
        self.telling.spawn(async move {
            drop(telling.await);
            control.hang_up();
        });
    }

    /// Tells the daemon the latest counts, and why this keeper is about to end, so that the daemon
    /// can tell the next front.
    fn final_report(&self, why: End) -> impl Future<Output = ()> + Send + use<> {
        let (control, counts) = (self.control.clone(), self.counts_report());
        let (session, keeper) = (self.context.session.clone(), self.context.keeper);
        let loss = self.loss_of(why);
        async move {
            counts.await;
            let Some(why) = loss else { return };
            let request = EndingRequest {
                session,
                keeper,
                why,
            };
            drop(control.ask(Client::backend_ending, request).await);
            control.hang_up();
        }
    }

    /// What becomes of the backend by this end, which may be no loss. None: its owner is gone, or it
    /// can't be known.
    fn loss_of(&self, why: End) -> Option<Option<Loss>> {
        let loss = match why {
            End::Lingered if self.closed.is_some() => Some(Loss::Abandoned),
            // Nobody has ever had it.
            End::Lingered if self.last.1.is_none() && self.continues() => None,
            End::Lingered => Some(Loss::Lingered),
            End::Signal => Some(Loss::Stopped),
            End::SessionEnded => self.relay.is_used().then_some(Loss::Stopped),
            // Its host has ended it.
            End::FrontLeft => self.rule.resume.loss().filter(|_| self.relay.is_used()),
            End::Dropped => self.relay.is_used().then_some(Loss::Edited),
            End::HostGone | End::SocketGone => return None,
        };
        Some(loss)
    }

    /// Why it ends, for people. Whoever has it end has left that behind; else it is left now, for a
    /// daemon that does not hear it.
    fn note_end(&self, why: End) -> String {
        let found = paths::directory().ok().zip(PinnedProcess::own().ok());
        let Some((directory, own)) = found else {
            return why.sentence().to_owned();
        };
        let path = EndNote::path(&directory, own.id().pid, own.id().start.0);
        let left = note::read(&path).filter(|_| why == End::Signal);
        if let Some(Ok(EndNote { why, .. })) = left.map(|left| serde_json::from_str(&left)) {
            return why;
        }
        if let Some(because) = self.loss_of(why) {
            let why = why.sentence().to_owned();
            if let Ok(note) = serde_json::to_string(&EndNote { because, why }) {
                let _ = note::leave(&path, &note);
            }
        }
        why.sentence().to_owned()
    }

    /// Adds a line of our own to the backend's standard error.
    pub(super) fn log_line(&mut self, text: &str) {
        self.end_line();
        self.push_stderr(own_line(text).as_bytes());
    }

    /// What the server has written last may have no end, and is no part of a line of our own.
    fn end_line(&mut self) {
        if self.is_in_line {
            self.push_stderr(b"\n");
        }
    }

    /// The server has ended by itself: its front is told why, and tells its host.
    pub(super) fn tell_loss(&mut self, why: &str) {
        self.end_line();
        self.ring.push(own_line(&ended_sentence(why)).as_bytes());
        if let Some(sharing) = &mut self.sharing {
            sharing.tell_loss(why);
        }
        if let Some(front) = &mut self.front {
            front.put(Kind::Loss, 0, why.to_owned());
        }
    }

    pub(super) fn push_stderr(&mut self, text: &[u8]) {
        self.ring.push(text);
        if let Some(last) = text.last() {
            self.is_in_line = *last != b'\n';
        }
        if let Some(front) = &mut self.front {
            front.forward_stderr(text);
        }
    }

    /// Begins the keeper's end. A connected host still gets the answers that come in time.
    pub(super) fn begin_end(&mut self, why: End) {
        if self.ending.is_none() {
            let now = self.now();
            self.relay.wind_down(now);
        }
        self.ending = Some(why);
    }

    /// Tells the front, and takes the backend down.
    pub(super) async fn end(mut self, why: End, signals: &mut Signals) {
        let now = self.now();
        // As its host has ended the last front, if that is gone.
        let signal = self.signal.filter(|_| self.front.is_none());
        // At the same time as the rest: a daemon that does not answer must not delay the end of the
        // backend.
        let telling = tokio::spawn(timeout(LAST_LINES_WAIT, self.final_report(why)));
        let sentence = self.note_end(why);
        // What its host has done is no news to it.
        if why != End::FrontLeft {
            self.log_line(&format!("the server is stopped: {sentence}"));
        }
        self.relay.stopping("stopped", now);
        // The connection of a front of a service stays until the backend is gone, so that the front
        // knows when that is.
        let mut left = None;
        if self.continues() {
            left = self.end_continuing_front().await;
        } else if self.sharing.is_some() {
            self.pass_on_shared();
            let sharing = self.sharing.take();
            let ending = sharing.map(|sharing| sharing.end(why.is_asked()));
            let _ = timeout(LAST_LINES_WAIT, futures::future::OptionFuture::from(ending)).await;
        } else if let Some(front) = &mut self.front {
            let last_lines = async {
                while front.write_lane().await.is_ok() {
                    let Some(line) = self.relay.pull_front() else {
                        break;
                    };
                    front.hand_out(line);
                }
                if why.is_asked() {
                    // No other one is started before it is needed.
                    front.put(Kind::Ending, 0, "");
                    let _ = front.write_lane().await;
                }
            };
            let _ = timeout(LAST_LINES_WAIT, last_lines).await;
            // It may be gone already, and nobody else says how it has left.
            self.detach();
        }
        let mut told = std::mem::take(&mut self.telling);
        self.retire(StopMode::Graceful { signal });
        let (children, mut retiring) = (&self.children, self.retiring);
        let down = async {
            while retiring.join_next().await.is_some() {}
            let _ = telling.await;
            let all_told = async { while told.join_next().await.is_some() {} };
            let _ = timeout(LAST_LINES_WAIT, all_told).await;
        };
        tokio::pin!(down);
        loop {
            tokio::select! {
                () = &mut down => return drop(left),
                Some(_) = signals.next() => children.reap(),
            }
        }
    }
}

/// A line of our own in the backend's standard error.
fn own_line(text: &str) -> String {
    format!("mcp-sessiond: {text}\n")
}
