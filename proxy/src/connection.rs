//! A connection to a server: lines in both directions, whichever way they take.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, Receipt, TrackedLine};
use mcp_sessiond_jsonrpc::Oversized;
use mcp_sessiond_proto::backends::frame::{Frame, Kind};

use nix::sys::signal::Signal;

use crate::frames::{FrameSender, Frames, PendingFrames};
use crate::lines::Line;
use crate::server::connector::Attachment;
use crate::server::keeper_connector::KeeperWatch;
use crate::signals::leaving_now;
use crate::socket::SocketReader;
use crate::stderr::ServerStderr;

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Connection {
    /// To its keeper.
    Keeper(Box<ToKeeper>),
    /// By a task of this process.
    Pipe(ByPipe),
}

/// What comes from a server.
#[derive(Debug)]
pub(crate) enum FromServer {
    /// A line, with its receipt where it came by a pipe.
    Line(TrackedLine),
    /// Something that is not for the host, or what was to be sent was sent.
    Nothing,
    /// The connection has ended, and whether its keeper has said that it ends on purpose.
    Gone { on_purpose: bool },
}

/// The connection to a keeper.
#[derive(Debug)]
pub(crate) struct ToKeeper {
    reader: Frames,
    sender: Arc<FrameSender>,
    unsent: PendingFrames,
    /// How many lines have come.
    read: u64,
    watch: Option<KeeperWatch>,
    stderr: ServerStderr,
    on_purpose: bool,
    ends_with_front: Option<bool>,
}

/// The two ends of a pipe.
#[derive(Debug)]
pub(crate) struct ByPipe {
    pipe: Pipe,
    unsent: VecDeque<Bytes>,
}

impl Connection {
    /// To the keeper of this attachment. What its server writes to standard error goes to `stderr`.
    ///
    /// # Errors
    /// Those of the descriptor.
    pub(crate) fn to_keeper(attachment: Attachment, stderr: ServerStderr) -> io::Result<Self> {
        let Attachment {
            reader,
            frames,
            sender,
            watch,
            attached,
            ..
        } = attachment;
        Ok(Self::Keeper(Box::new(ToKeeper {
            reader: Frames::new(SocketReader::new(reader)?, frames),
            sender,
            unsent: PendingFrames::default(),
            read: 0,
            watch,
            stderr,
            on_purpose: false,
            ends_with_front: attached.ends_with_front,
        })))
    }

    /// Whether the server ends with this connection, where its host leaves in an orderly way. None: it
    /// has no keeper that says so.
    pub(crate) fn ends_with_front(&self) -> Option<bool> {
        match self {
            Self::Keeper(keeper) => keeper.ends_with_front,
            Self::Pipe(_) => None,
        }
    }

    pub(crate) fn by_pipe(pipe: Pipe) -> Self {
        let unsent = VecDeque::new();
        Self::Pipe(ByPipe { pipe, unsent })
    }

    /// Sends what is to be sent, and reads if it `reads`, until something has come of either.
    /// Cancel-safe.
    pub(crate) async fn go_on(&mut self, reads: bool) -> FromServer {
        match self {
            Self::Keeper(keeper) => keeper.go_on(reads).await,
            Self::Pipe(pipe) => pipe.go_on(reads).await,
        }
    }

    /// Will send this line.
    pub(crate) fn put(&mut self, line: Bytes) {
        match self {
            Self::Keeper(keeper) => keeper.unsent.put(Kind::Line, 0, line),
            Self::Pipe(ByPipe { unsent, .. }) => unsent.push_back(line),
        }
    }

    /// Whether all lines were sent.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Keeper(keeper) => keeper.unsent.is_empty(),
            Self::Pipe(ByPipe { unsent, .. }) => unsent.is_empty(),
        }
    }

    /// What has come already. It does not wait.
    pub(crate) fn next_ready(&mut self) -> Option<FromServer> {
        match self {
            Self::Keeper(keeper) => {
                let said = keeper.reader.next_buffered()?;
                Some(keeper.take(said))
            }
            Self::Pipe(ByPipe { pipe, .. }) => pipe.from.try_recv().ok().map(FromServer::Line),
        }
    }

    /// The same, and what the system has already.
    pub(crate) fn next_at_once(&mut self) -> Option<FromServer> {
        match self {
            Self::Keeper(keeper) => {
                let said = keeper.reader.next_at_once()?;
                Some(keeper.take(Ok(Some(said))))
            }
            Self::Pipe(_) => self.next_ready(),
        }
    }

    /// What says that the line which has come last was passed on.
    pub(crate) fn receipt(&self) -> Receipt {
        match self {
            Self::Keeper(keeper) => {
                let sender = keeper.sender.clone();
                Receipt::new(move || sender.pass_on(1))
            }
            Self::Pipe(_) => Receipt::none(),
        }
    }

    /// So many more lines were passed on, of which nobody has the receipt. The keeper hears of it
    /// with the next line, or by [`confirm`](Self::confirm).
    pub(crate) fn note_passed_on(&self, count: u64) {
        if let Self::Keeper(keeper) = self {
            keeper.sender.note_passed_on(count);
        }
    }

    /// The keeper hears how many lines were passed on, unless it has, and whether the client takes none.
    /// True: this is to be said once more, later. Never waits.
    pub(crate) fn confirm(&self) -> bool {
        match self {
            Self::Keeper(keeper) => keeper.sender.confirm_of(keeper.read),
            Self::Pipe(_) => false,
        }
    }

    /// The way to the keeper, for whoever ends this process.
    pub(crate) fn sender(&self) -> Option<&Arc<FrameSender>> {
        match self {
            Self::Keeper(keeper) => Some(&keeper.sender),
            Self::Pipe(_) => None,
        }
    }

    /// The server is told that its host leaves. Never waits.
    pub(crate) fn leave(&self) {
        if let Self::Keeper(keeper) = self {
            keeper.sender.leave(leaving_now());
        }
    }

    /// The host has closed its input: a server that ends with it gets the end of its own, behind
    /// the last line.
    pub(crate) fn close(&mut self) {
        if let Self::Keeper(keeper) = self
            && keeper.ends_with_front == Some(true)
        {
            keeper.unsent.put(Kind::Closed, 0, Bytes::new());
        }
    }

    /// A signal is for the server. Never waits.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Self::Keeper(keeper) = self
            && keeper.ends_with_front.is_some()
        {
            keeper.sender.signal(signal as u64);
        }
    }

    /// This front waits for nothing any more, but for a server that ends with it. Never waits.
    pub(crate) fn end(&self) {
        if let Self::Keeper(keeper) = self {
            keeper.sender.end();
        }
    }

    /// How the keeper is asked whether it lives.
    pub(crate) fn watch(&self) -> Option<&KeeperWatch> {
        match self {
            Self::Keeper(keeper) => keeper.watch.as_ref(),
            Self::Pipe(_) => None,
        }
    }
}

impl ByPipe {
    async fn go_on(&mut self, reads: bool) -> FromServer {
        let Self { pipe, unsent } = self;
        tokio::select! {
            biased;
            said = pipe.from.recv(), if reads => match said {
                Some(line) => FromServer::Line(line),
                None => FromServer::Gone { on_purpose: false },
            },
            room = pipe.to.reserve(), if !unsent.is_empty() => match room {
                Ok(room) => {
                    if let Some(line) = unsent.pop_front() {
                        room.send(line);
                    }
                    FromServer::Nothing
                }
                // As with a keeper.
                Err(_) => {
                    unsent.clear();
                    FromServer::Nothing
                }
            },
            else => std::future::pending().await,
        }
    }
}

impl Drop for ToKeeper {
    fn drop(&mut self) {
        self.sender.hang_up();
    }
}

impl ToKeeper {
    async fn go_on(&mut self, reads: bool) -> FromServer {
        let is_flushed = self.unsent.is_empty();
        tokio::select! {
            biased;
            said = self.reader.next(), if reads => self.take(said),
            sent = self.sender.send(&mut self.unsent), if !is_flushed => match sent {
                Ok(()) => FromServer::Nothing,
                // What the keeper has said last is still read. The end follows it.
                Err(_) => {
                    self.unsent.clear();
                    FromServer::Nothing
                }
            },
            else => std::future::pending().await,
        }
    }

    fn take(&mut self, said: io::Result<Option<Frame>>) -> FromServer {
        let said = said.ok().flatten().and_then(|said| self.read(said));
        said.unwrap_or_else(|| self.gone())
    }

    fn gone(&mut self) -> FromServer {
        self.stderr.end();
        FromServer::Gone {
            on_purpose: self.on_purpose,
        }
    }

    /// None: the keeper breaks the protocol.
    fn read(&mut self, said: Frame) -> Option<FromServer> {
        self.read += u64::from(said.kind == Kind::Line);
        let line = match (said.kind, said.body) {
            (Kind::Line, Line::Whole(line)) => line,
            // With ids of the host's that are longer than any that was seen.
            (Kind::Line, Line::Oversized { head, tail }) => {
                match Oversized::of_server(&head, &tail) {
                    Oversized::Failed(answer) => answer,
                    Oversized::Refused(answer) => {
                        self.unsent.put(Kind::Line, 0, answer);
                        return Some(FromServer::Nothing);
                    }
                    Oversized::Dropped => return Some(FromServer::Nothing),
                }
            }
            (Kind::Ending, _) => {
                self.on_purpose = true;
                return Some(FromServer::Nothing);
            }
            (kind, Line::Whole(text)) if self.stderr.note(kind, &text, &self.sender) => {
                return Some(FromServer::Nothing);
            }
            _ => return None,
        };
        Some(FromServer::Line(TrackedLine::once(line)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use mcp_sessiond_proto::backends::frame::{FrameBuffer, frame};

    use super::*;
    use crate::stderr::Stderr;

    /// A keeper that ends writes the last answers first. That its host reads nothing just then, and
    /// has said something more, takes none of them away.
    #[tokio::test]
    async fn what_a_keeper_has_said_last_is_read_where_nothing_can_be_sent_to_it() {
        let (ours, mut keeper) = UnixStream::pair().expect("a pair");
        let sender = Arc::new(FrameSender::new(ours.try_clone().expect("a descriptor")));
        let reader = SocketReader::new(ours).expect("watched");
        let mut connection = Connection::Keeper(Box::new(ToKeeper {
            reader: Frames::new(reader, FrameBuffer::default()),
            sender,
            unsent: PendingFrames::default(),
            read: 0,
            watch: None,
            stderr: Stderr::new().expect("a thread").of_server(None),
            on_purpose: false,
            ends_with_front: None,
        }));
        for (kind, body) in [
            (Kind::Line, &b"[1]"[..]),
            (Kind::Line, b"[2]"),
            (Kind::Ending, b""),
        ] {
            io::Write::write_all(&mut keeper, &frame(kind, 0, body)).expect("room");
        }
        drop(keeper);
        connection.put(Bytes::from_static(b"{}"));
        let reads_nothing = connection.go_on(false).await;
        assert!(
            matches!(reads_nothing, FromServer::Nothing),
            "{reads_nothing:?}"
        );
        assert!(connection.is_flushed());
        let mut said = Vec::new();
        let on_purpose = loop {
            match connection.go_on(true).await {
                FromServer::Line(TrackedLine { line, .. }) => said.push(line),
                FromServer::Nothing => {}
                FromServer::Gone { on_purpose } => break on_purpose,
            }
        };
        assert_eq!(said, ["[1]", "[2]"]);
        assert!(on_purpose);
    }
}
