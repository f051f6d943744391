//! The connection of one client to a backend that hosts share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use mcp_sessiond_proto::backends::frame::Kind;
use mcp_sessiond_proto::backends::{KeeperReply, relayed_max};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::frames::{Frames, PendingFrames};
use crate::lines::Line;
use crate::socket::SocketWriter;

/// How many of the largest messages may wait for a client. One that reads so little is cut off, so
/// that the others need not wait for it.
const UNREAD: usize = 4;

/// What a client does.
pub(in crate::keeper) enum Event {
    /// It has sent a message.
    Line(u64, Line),
    /// Its host was told of so many ends of backends.
    Told(u64, usize),
    /// It is gone.
    Left(u64),
}

/// What writes to a client. Dropped, it writes what waits, and hangs up.
pub(super) struct ClientWriter {
    frames: mpsc::UnboundedSender<(Kind, Bytes)>,
    writing: JoinHandle<()>,
    unread: Arc<AtomicUsize>,
}

impl ClientWriter {
    pub(super) fn new(half: SocketWriter) -> Self {
        let (frames, mut waiting) = mpsc::unbounded_channel::<(Kind, Bytes)>();
        let unread = Arc::new(AtomicUsize::new(0));
        let left = unread.clone();
        let writing = tokio::spawn(async move {
            let mut pending = PendingFrames::default();
            while let Some((kind, body)) = waiting.recv().await {
                let length = body.len();
                pending.put(kind, 0, body);
                if pending.write(&half).await.is_err() {
                    return;
                }
                left.fetch_sub(length, Ordering::Relaxed);
            }
        });
        Self {
            frames,
            writing,
            unread,
        }
    }

    /// A frame for it. False: it has not read the former ones for too long.
    pub(super) fn put(&self, kind: Kind, body: Bytes) -> bool {
        let unread = self.unread.fetch_add(body.len(), Ordering::Relaxed);
        // Where it is gone, its reader says so.
        let _ = self.frames.send((kind, body));
        unread <= UNREAD * relayed_max()
    }

    pub(super) fn reply(&self, reply: &KeeperReply) {
        if let Ok(body) = serde_json::to_vec(reply) {
            self.put(Kind::Reply, body.into());
        }
    }

    /// Hangs up at once, and forgets what waits.
    pub(super) fn cut(&self) {
        self.writing.abort();
    }

    /// Waits until everything was written, and hangs up.
    pub(super) async fn finish(self) {
        drop(self.frames);
        drop(self.writing.await);
    }
}

/// Reads what a client says until it is gone.
pub(super) async fn read(mut reader: Frames, client: u64, events: mpsc::Sender<Event>) {
    // How many ends of backends its host was told of so far.
    let mut heard = 0;
    while let Ok(Some(said)) = reader.next().await {
        let event = match said.kind {
            Kind::Line => Event::Line(client, said.body),
            Kind::Heard => {
                let more = said.number.saturating_sub(heard);
                heard += more;
                Event::Told(client, usize::try_from(more).unwrap_or(usize::MAX))
            }
            // Nothing is kept for it, and nothing else happens when it has left.
            Kind::Confirm | Kind::Leave => continue,
            _ => break,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
    drop(events.send(Event::Left(client)).await);
}
