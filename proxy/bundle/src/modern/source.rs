//! A server of either era, as one of 2025-11-25.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::translation::{Out, Translation};
use crate::connection::push;
use crate::lock::lock;
use crate::pipe::{Pipe, Receipt, Source, TrackedLine, WAITING};
use crate::status::Failure;

/// A server that speaks MCP 2025-11-25, 2026-07-28, or both. To the bundle it speaks 2025-11-25.
#[derive(Debug)]
pub struct EitherEra {
    inner: Arc<dyn Source>,
    /// It is asked by `server/discover` first: it has ended on an `initialize`.
    discovers: Arc<AtomicBool>,
}

impl EitherEra {
    /// Stands around a server.
    pub fn of(inner: Arc<dyn Source>) -> Arc<Self> {
        let discovers = Arc::default();
        Arc::new(Self { inner, discovers })
    }
}

impl Source for EitherEra {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity()
    }

    fn is_running(&self) -> BoxFuture<'_, bool> {
        self.inner.is_running()
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            let Pipe {
                to: server,
                from: heard,
                end,
            } = self.inner.open().await?;
            let (to, wanted) = mpsc::channel(WAITING);
            let (said, from) = mpsc::channel(WAITING);
            let translation = Translation::new(self.discovers.load(Ordering::Relaxed));
            let translation = Arc::new(Mutex::new(translation));
            let talking = Talking {
                translation: translation.clone(),
                server: server.downgrade(),
                said,
                discovers: self.discovers.clone(),
            };
            tokio::spawn(ask(translation, wanted, server, talking.said.downgrade()));
            tokio::spawn(talking.forward(heard));
            Ok(Pipe { to, from, end })
        })
    }
}

/// Forwards the bundle's lines to the server, until either of them is gone.
async fn ask(
    translation: Arc<Mutex<Translation>>,
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
        let out = lock(&translation).on_bundle(line, Instant::now());
        for out in out {
            match (out, said.upgrade()) {
                (Out::Server(line), _) => {
                    if server.send(line).await.is_err() {
                        return;
                    }
                }
                (Out::Bundle(line), Some(said)) => {
                    let _ = said.send(TrackedLine::once(line)).await;
                }
                (Out::Bundle(_), None) => return,
            }
        }
    }
}

/// What the server says.
struct Talking {
    translation: Arc<Mutex<Translation>>,
    /// The server, for as long as the bundle has something to ask.
    server: mpsc::WeakSender<Bytes>,
    said: mpsc::Sender<TrackedLine>,
    discovers: Arc<AtomicBool>,
}

impl Talking {
    /// Forwards the server's lines to the bundle, until either of them is gone.
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
        if lock(&self.translation).is_beginning() {
            // It may end on what it was asked by; the next one is asked by the other.
            self.discovers.fetch_not(Ordering::Relaxed);
        }
    }

    /// Passes on what came of a line of the server's, which was passed on with the last of it. None:
    /// the bundle is gone.
    async fn pass(&self, out: Vec<Out>, receipt: Receipt) -> Option<()> {
        let mut receipt = Some(receipt);
        let last = out.iter().rposition(|out| matches!(out, Out::Bundle(_)));
        for (at, out) in out.into_iter().enumerate() {
            match out {
                // A server that reads nothing is read nevertheless.
                Out::Server(line) => {
                    if let Some(server) = self.server.upgrade() {
                        push(&server, line);
                    }
                }
                Out::Bundle(line) => {
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
