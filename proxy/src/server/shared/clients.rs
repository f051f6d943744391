//! Connections to a sharer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_process as process;
use mcp_sessiond_proto::backends::{ENDED_TOLD, RELAYED_MAX};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::losses::Host;
use super::{Reply, Request, VERSION};
use crate::lines::{Line, LineBuffer, Lines};

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
    /// The connection beside a place.
    Beside(u64, ClientWriter),
    /// A place's host was told of so many ends of servers.
    Told(u64, usize),
    /// The server has ended, and why.
    Ended(String),
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
    lines: mpsc::UnboundedSender<Bytes>,
    writing: JoinHandle<()>,
    unread: Arc<AtomicUsize>,
}

impl ClientWriter {
    fn new(mut half: OwnedWriteHalf) -> Self {
        let (lines, mut waiting) = mpsc::unbounded_channel::<Bytes>();
        let unread = Arc::new(AtomicUsize::new(0));
        let left = unread.clone();
        let writing = tokio::spawn(async move {
            while let Some(line) = waiting.recv().await {
                let written = async {
                    half.write_all(&line).await?;
                    half.write_all(b"\n").await
                };
                if written.await.is_err() {
                    return;
                }
                left.fetch_sub(line.len(), Ordering::Relaxed);
            }
        });
        Self {
            lines,
            writing,
            unread,
        }
    }

    /// A line for it. False: it has not read the former ones for too long.
    pub(super) fn put(&mut self, line: &Bytes) -> bool {
        let unread = self.unread.fetch_add(line.len(), Ordering::Relaxed);
        // Where it is gone, its reader says so.
        let _ = self.lines.send(line.clone());
        unread <= UNREAD
    }

    /// Hangs up at once, and forgets what waits.
    pub(super) fn cut(&self) {
        self.writing.abort();
    }

    /// Waits until everything was written, and hangs up.
    pub(super) async fn finish(self) {
        drop(self.lines);
        drop(self.writing.await);
    }

    pub(super) fn reply(&self, reply: &Reply) {
        if let Ok(line) = serde_json::to_vec(reply) {
            self.unread.fetch_add(line.len(), Ordering::Relaxed);
            let _ = self.lines.send(line.into());
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
    stream: UnixStream,
    place: u64,
    key: &str,
    events: &mpsc::Sender<Event>,
) -> io::Result<()> {
    // A process of another user gets no answer.
    if !process::is_ours(&stream) {
        return Ok(());
    }
    let (reader, half) = stream.into_split();
    let mut reader = Lines::from_parts(reader, LineBuffer::default());
    let writer = ClientWriter::new(half);
    let Some(Line::Whole(line)) = timeout(REQUEST_WAIT, reader.next()).await?? else {
        return Ok(());
    };
    let (again, host) = match serde_json::from_slice(&line) {
        Ok(Request::Place {
            version: VERSION,
            key: theirs,
            again,
            host,
        }) if theirs == key => (again, host),
        Ok(Request::Beside {
            version: VERSION,
            key: theirs,
            place,
        }) if theirs == key => {
            drop(events.send(Event::Beside(place, writer)).await);
            let (reader, lines) = reader.into_parts();
            read_told(reader, lines.buffered(), place, events).await;
            return Ok(());
        }
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
        Some(Line::Whole(first)) => first,
        Some(Line::Oversized { .. }) => {
            let why = format!("its host begins with more than {RELAYED_MAX} bytes");
            writer.reply(&Reply::Own { why });
            return Ok(());
        }
        None => return Ok(()),
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

async fn read(mut reader: Lines<OwnedReadHalf>, place: u64, events: &mpsc::Sender<Event>) {
    while let Ok(Some(line)) = reader.next().await {
        if events.send(Event::Line(place, line)).await.is_err() {
            return;
        }
    }
}

/// Reads what a front says beside its place. `first` has come with its request.
async fn read_told(
    mut reader: OwnedReadHalf,
    first: &[u8],
    place: u64,
    events: &mpsc::Sender<Event>,
) {
    let mut chunk = [0; 64];
    let mut bytes = first;
    loop {
        let told = bytes.iter().filter(|byte| **byte == ENDED_TOLD).count();
        if told > 0 && events.send(Event::Told(place, told)).await.is_err() {
            return;
        }
        match reader.read(&mut chunk).await {
            Ok(read @ 1..) => bytes = &chunk[..read],
            _ => return,
        }
    }
}
