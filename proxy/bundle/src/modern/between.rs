//! What stands between a host's end of a pipe and a server's, and translates.

use std::future::pending;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::connection::push;
use crate::lock::lock;
use crate::pipe::{Pipe, Receipt, TrackedLine, WAITING};

/// A line, and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// To the server.
    Server(Bytes),
    /// To the host.
    Host(Bytes),
    /// To the host: a question that was made of the server's answer to a call. Where that comes again,
    /// to a process that has not made the call, something else is made of it, so this is not stored
    /// as what the server has said.
    Question(Bytes),
}

/// What becomes of lines, without I/O.
pub(super) trait Translation: Send + 'static {
    /// The host's end has sent a line.
    fn on_host(&mut self, line: Bytes, now: Instant) -> Vec<Out>;

    /// The server's end has sent a line.
    fn on_server(&mut self, line: Bytes, now: Instant) -> Vec<Out>;

    /// When [`on_time`](Self::on_time) has something to do.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// It is as late as the [`deadline`](Self::deadline).
    fn on_time(&mut self, _: Instant) -> Vec<Out> {
        Vec::new()
    }

    /// The host sends nothing more.
    fn on_host_end(&mut self) -> Vec<Out> {
        Vec::new()
    }

    /// The server sends nothing more.
    fn on_server_end(&mut self) -> Vec<Out> {
        Vec::new()
    }
}

/// A translation, and what is notified when it may have another deadline.
struct Shared<T> {
    translation: Mutex<T>,
    has_deadline: Notify,
}

/// The pipe of a server, with a translation in between. Neither end waits for what the other one does
/// not read.
pub(super) fn translated(pipe: Pipe, translation: impl Translation) -> Pipe {
    let Pipe {
        to: server,
        from: of_server,
        end,
    } = pipe;
    let (to, of_host) = mpsc::channel(WAITING);
    let (host, from) = mpsc::channel(WAITING);
    let shared = Arc::new(Shared {
        translation: Mutex::new(translation),
        has_deadline: Notify::new(),
    });
    let from_server = FromServer {
        shared: shared.clone(),
        server: server.downgrade(),
        host,
    };
    tokio::spawn(forward_host(
        shared,
        of_host,
        server,
        from_server.host.downgrade(),
    ));
    tokio::spawn(from_server.forward(of_server));
    Pipe { to, from, end }
}

/// Forwards the host's lines, until either end is gone.
async fn forward_host<T: Translation>(
    shared: Arc<Shared<T>>,
    mut of_host: mpsc::Receiver<Bytes>,
    server: mpsc::Sender<Bytes>,
    host: mpsc::WeakSender<TrackedLine>,
) {
    loop {
        let line = tokio::select! {
            line = of_host.recv() => line,
            // Whoever sends more is to know it.
            () = server.closed() => return,
        };
        let is_end = line.is_none();
        let out = {
            let mut translation = lock(&shared.translation);
            let out = match line {
                Some(line) => translation.on_host(line, Instant::now()),
                None => translation.on_host_end(),
            };
            if translation.deadline().is_some() {
                shared.has_deadline.notify_one();
            }
            out
        };
        for out in out {
            match (out, host.upgrade()) {
                (Out::Server(line), _) => {
                    if server.send(line).await.is_err() {
                        return;
                    }
                }
                (Out::Host(line) | Out::Question(line), Some(host)) => {
                    let _ = host.send(TrackedLine::once(line)).await;
                }
                (Out::Host(_) | Out::Question(_), None) => return,
            }
        }
        if is_end {
            return;
        }
    }
}

/// The server's end.
struct FromServer<T> {
    shared: Arc<Shared<T>>,
    /// To the server, for as long as the host has something to ask.
    server: mpsc::WeakSender<Bytes>,
    host: mpsc::Sender<TrackedLine>,
}

impl<T: Translation> FromServer<T> {
    /// Forwards the server's lines, until either end is gone.
    async fn forward(self, mut of_server: mpsc::Receiver<TrackedLine>) {
        loop {
            let deadline = lock(&self.shared.translation).deadline();
            let due = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => pending().await,
                }
            };
            let line = tokio::select! {
                line = of_server.recv() => line,
                () = self.shared.has_deadline.notified() => continue,
                () = due => {
                    let out = lock(&self.shared.translation).on_time(Instant::now());
                    if self.send(out, Receipt::none()).await.is_none() {
                        return;
                    }
                    continue;
                }
            };
            let Some(TrackedLine { line, receipt }) = line else {
                let out = lock(&self.shared.translation).on_server_end();
                self.send(out, Receipt::none()).await;
                return;
            };
            let out = lock(&self.shared.translation).on_server(line, Instant::now());
            if self.send(out, receipt).await.is_none() {
                return;
            }
        }
    }

    /// Sends what came of a line of the server's, which was passed on with the last of it. None: the
    /// host is gone.
    async fn send(&self, out: Vec<Out>, receipt: Receipt) -> Option<()> {
        let mut receipt = Some(receipt);
        let last = out.iter().rposition(|out| !matches!(out, Out::Server(_)));
        for (at, out) in out.into_iter().enumerate() {
            let mut own = || receipt.take_if(|_| Some(at) == last).unwrap_or_default();
            let (line, receipt) = match out {
                // A server that reads nothing is read nevertheless.
                Out::Server(line) => {
                    if let Some(server) = self.server.upgrade() {
                        push(&server, line);
                    }
                    continue;
                }
                Out::Host(line) => (line, own()),
                Out::Question(line) => (line, own().unmarked()),
            };
            self.host.send(TrackedLine { line, receipt }).await.ok()?;
        }
        if let Some(receipt) = receipt {
            receipt.confirm();
        }
        Some(())
    }
}
