//! What stands between a host's end of a pipe and a server's, and translates.

use std::future::pending;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::connection::push;
use crate::lock::lock;
use crate::pipe::{Pipe, Receipt, TrackedLine, WAITING};

/// A line, and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Out {
    Server(Bytes),
    Host(Bytes),
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

    /// The server's end is gone.
    fn on_end(&mut self) {}
}

/// The pipe of a server, with a translation in between. Neither end waits for what the other one does
/// not read.
pub(super) fn translated(pipe: Pipe, translation: impl Translation) -> Pipe {
    let Pipe {
        to: server,
        from: heard,
        end,
    } = pipe;
    let (to, wanted) = mpsc::channel(WAITING);
    let (said, from) = mpsc::channel(WAITING);
    let translation = Arc::new(Mutex::new(translation));
    let talking = Talking {
        translation: translation.clone(),
        server: server.downgrade(),
        said,
    };
    tokio::spawn(ask(translation, wanted, server, talking.said.downgrade()));
    tokio::spawn(talking.forward(heard));
    Pipe { to, from, end }
}

/// Forwards the host's lines to the server, until either of them is gone.
async fn ask<T: Translation>(
    translation: Arc<Mutex<T>>,
    mut wanted: mpsc::Receiver<Bytes>,
    server: mpsc::Sender<Bytes>,
    said: mpsc::WeakSender<TrackedLine>,
) {
    loop {
        let line = tokio::select! {
            line = wanted.recv() => line,
            // Whoever sends more is to know it.
            () = server.closed() => None,
        };
        let Some(line) = line else { return };
        let out = lock(&translation).on_host(line, Instant::now());
        for out in out {
            match (out, said.upgrade()) {
                (Out::Server(line), _) => {
                    if server.send(line).await.is_err() {
                        return;
                    }
                }
                (Out::Host(line), Some(said)) => {
                    let _ = said.send(TrackedLine::once(line)).await;
                }
                (Out::Host(_), None) => return,
            }
        }
    }
}

/// What the server says.
struct Talking<T> {
    translation: Arc<Mutex<T>>,
    /// The server, for as long as the host has something to ask.
    server: mpsc::WeakSender<Bytes>,
    said: mpsc::Sender<TrackedLine>,
}

impl<T: Translation> Talking<T> {
    /// Forwards the server's lines to the host, until either of them is gone.
    async fn forward(self, mut heard: mpsc::Receiver<TrackedLine>) {
        loop {
            let deadline = lock(&self.translation).deadline();
            let due = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => pending().await,
                }
            };
            let heard = tokio::select! {
                heard = heard.recv() => heard,
                () = due => {
                    let out = lock(&self.translation).on_time(Instant::now());
                    self.pass(out, Receipt::none()).await;
                    continue;
                }
            };
            let Some(TrackedLine { line, receipt }) = heard else {
                break;
            };
            let out = lock(&self.translation).on_server(line, Instant::now());
            if self.pass(out, receipt).await.is_none() {
                return;
            }
        }
        lock(&self.translation).on_end();
    }

    /// Passes on what came of a line of the server's, which was passed on with the last of it. None:
    /// the host is gone.
    async fn pass(&self, out: Vec<Out>, receipt: Receipt) -> Option<()> {
        let mut receipt = Some(receipt);
        let last = out.iter().rposition(|out| matches!(out, Out::Host(_)));
        for (at, out) in out.into_iter().enumerate() {
            match out {
                // A server that reads nothing is read nevertheless.
                Out::Server(line) => {
                    if let Some(server) = self.server.upgrade() {
                        push(&server, line);
                    }
                }
                Out::Host(line) => {
                    let receipt = receipt.take_if(|_| Some(at) == last).unwrap_or_default();
                    self.said.send(TrackedLine { line, receipt }).await.ok()?;
                }
            }
        }
        if let Some(receipt) = receipt {
            receipt.confirm();
        }
        Some(())
    }
}
