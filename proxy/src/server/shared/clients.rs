//! Connections to a sharer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_process as process;
use mcp_sessiond_proto::backends::frame::{FrameBuffer, Kind};
use mcp_sessiond_proto::backends::{KEEPER_VERSION, RELAYED_MAX};
use mcp_sessiond_proto::hello::{Answer, Hello};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::losses::Host;
use super::{Reply, Request};
use crate::frames::{Frames, PendingFrame};
use crate::lines::Line;

/// How long a connection may take to say what it is for.
const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// How long nobody is let in when the system refuses.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes that may wait for a place. One that reads so little is dropped, so that the others need
/// not wait for it: four of the largest messages.
const UNREAD: usize = 4 * RELAYED_MAX;

/// What happens at the places.
pub(super) enum Event {
    Arrived(NewClient),
    Line(u64, Line),
    Left(u64),
    /// A place's host was told of so many ends of servers.
    Told(u64, usize),
    Status(ClientWriter),
}

/// Somebody who wants a place.
pub(super) struct NewClient {
    pub(super) place: u64,
    /// The host's first line.
    pub(super) first: Bytes,
    /// The host has had its answer to that.
    pub(super) again: bool,
    pub(super) host: Host,
    pub(super) writer: ClientWriter,
}

/// What writes to a place. Dropped, it writes what waits, and hangs up.
pub(super) struct ClientWriter {
    frames: mpsc::UnboundedSender<(Kind, Bytes)>,
    writing: JoinHandle<()>,
    unread: Arc<AtomicUsize>,
}

impl ClientWriter {
    fn new(mut half: OwnedWriteHalf) -> Self {
        let (frames, mut waiting) = mpsc::unbounded_channel::<(Kind, Bytes)>();
        let unread = Arc::new(AtomicUsize::new(0));
        let left = unread.clone();
        let writing = tokio::spawn(async move {
            let mut pending = PendingFrame::default();
            while let Some((kind, body)) = waiting.recv().await {
                let length = body.len();
                pending.put(kind, 0, body);
                if pending.write(&mut half).await.is_err() {
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
        unread <= UNREAD
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

    pub(super) fn reply(&self, reply: &Reply) {
        if let Ok(body) = serde_json::to_vec(reply) {
            self.put(Kind::Reply, body.into());
        }
    }
}

/// Accepts connections until it is dropped, and numbers the places.
pub(super) async fn receive(listener: UnixListener, key: String, events: mpsc::Sender<Event>) {
    let key: Arc<str> = key.into();
    let mut place = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                place += 1;
                let (key, events) = (key.clone(), events.clone());
                tokio::spawn(async move { drop(serve(stream, place, &key, &events).await) });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn serve(
    mut stream: UnixStream,
    place: u64,
    key: &str,
    events: &mpsc::Sender<Event>,
) -> io::Result<()> {
    // A process of another user gets no answer.
    if !process::is_ours(&stream) {
        return Ok(());
    }
    let hello = timeout(REQUEST_WAIT, Hello::read(&mut stream)).await?;
    let hello = hello.map_err(io::Error::other)?;
    let accepted = hello.accept_keeper(KEEPER_VERSION);
    let answer = accepted.err().unwrap_or(Answer::Welcome);
    let ours = Hello {
        version: KEEPER_VERSION,
        ..hello.reply(answer)
    };
    ours.write(&mut stream).await?;
    if answer != Answer::Welcome {
        return Ok(());
    }
    let (reader, half) = stream.into_split();
    let mut reader = Frames::new(reader, FrameBuffer::default());
    let writer = ClientWriter::new(half);
    let asked = match timeout(REQUEST_WAIT, reader.next()).await?? {
        Some(asked) if asked.kind == Kind::Request => asked,
        _ => return Ok(()),
    };
    let (again, host) = match serde_json::from_slice(asked.bytes()) {
        Ok(Request::Place {
            key: theirs,
            again,
            host,
        }) if theirs == key => (again, host),
        Ok(Request::Status {}) => {
            drop(events.send(Event::Status(writer)).await);
            return Ok(());
        }
        _ => {
            writer.reply(&Reply::Other {});
            return Ok(());
        }
    };
    let first = match timeout(REQUEST_WAIT, reader.next()).await?? {
        Some(said) if said.kind == Kind::Line => said.body,
        _ => return Ok(()),
    };
    let Line::Whole(first) = first else {
        let why = format!("its host begins with more than {RELAYED_MAX} bytes");
        writer.reply(&Reply::Own { why });
        return Ok(());
    };
    if events
        .send(Event::Arrived(NewClient {
            place,
            first,
            again,
            host,
            writer,
        }))
        .await
        .is_err()
    {
        return Ok(());
    }
    read(reader, place, events).await;
    drop(events.send(Event::Left(place)).await);
    Ok(())
}

async fn read(mut reader: Frames<OwnedReadHalf>, place: u64, events: &mpsc::Sender<Event>) {
    // How many ends of servers its host was told of so far.
    let mut heard = 0;
    while let Ok(Some(said)) = reader.next().await {
        let event = match said.kind {
            Kind::Line => Event::Line(place, said.body),
            Kind::Heard => {
                let more = said.number.saturating_sub(heard);
                heard += more;
                Event::Told(place, usize::try_from(more).unwrap_or(usize::MAX))
            }
            // Nothing is kept for it, and nothing else happens when it has left.
            Kind::Confirm | Kind::Leave => continue,
            _ => return,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}
