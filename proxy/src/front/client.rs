//! The client's end of a [`Driver`](super::drive::Driver): lines of whoever uses the server, the
//! host or a task of this process.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};

use bytes::Bytes;
use mcp_sessiond_bundle::{Receipt, TrackedLine};
use mcp_sessiond_jsonrpc::Oversized;
use tokio::sync::mpsc;

use super::raw::is_raw;
use super::standard::{Input, Output};
use crate::connection::Connection;
use crate::lines::{Line, LineBuffer};

/// Lines that are written at once: of each there are two pieces, and systems take 1,024.
const LINES_AT_ONCE: usize = 256;

/// A client.
#[derive(Debug)]
pub(crate) enum Client {
    /// By two channels. It reads nothing any more when it closes its end.
    Task(Task),
    /// The host, by standard input and output.
    Host(Box<Host>),
}

/// What comes of a client.
#[derive(Debug)]
pub(crate) enum FromClient {
    Line(Bytes),
    /// What was to be sent was sent, or more was read.
    Nothing,
    /// It will say nothing more.
    Closed,
    /// It reads nothing any more.
    Gone,
    /// It does not speak JSON-RPC.
    Raw,
}

#[derive(Debug)]
pub(crate) struct Task {
    lines: mpsc::Receiver<Bytes>,
    to: mpsc::Sender<TrackedLine>,
    unsent: VecDeque<TrackedLine>,
}

#[derive(Debug)]
pub(crate) struct Host {
    input: Input,
    output: Output,
    lines: LineBuffer,
    /// Lines, and how many of them are a server's.
    unsent: VecDeque<(TrackedLine, u64)>,
    /// Bytes of the first of them, and its newline, that were written.
    written: usize,
    /// How many lines of a server were written.
    passed: u64,
    /// Whether there was anything but blanks.
    has_spoken: bool,
    ended: Ended,
}

/// How much of the end of the input was dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    No,
    /// What stands behind the last newline is a line, too.
    Read,
    Told,
}

impl Client {
    pub(crate) fn task(lines: mpsc::Receiver<Bytes>, to: mpsc::Sender<TrackedLine>) -> Self {
        Self::Task(Task {
            lines,
            to,
            unsent: VecDeque::new(),
        })
    }

    /// The host, of which `lines` were read already. To be called in a runtime.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn host(input: File, output: File, lines: LineBuffer) -> io::Result<Self> {
        Ok(Self::Host(Box::new(Host {
            input: Input::new(input)?,
            output: Output::new(output)?,
            has_spoken: !lines.is_empty(),
            lines,
            unsent: VecDeque::new(),
            written: 0,
            passed: 0,
            ended: Ended::No,
        })))
    }

    /// Will send this line of the server, which has come by this connection: a task has its receipt,
    /// and of a host the lines are counted.
    pub(crate) fn pass(&mut self, line: Bytes, receipt: Receipt, by: Option<&Connection>) {
        match (self, by) {
            (Self::Task(task), Some(by @ Connection::Keeper(_))) => {
                let receipt = by.receipt();
                task.unsent.push_back(TrackedLine { line, receipt });
            }
            (Self::Task(task), _) => task.unsent.push_back(TrackedLine { line, receipt }),
            (Self::Host(host), _) => host.unsent.push_back((TrackedLine { line, receipt }, 1)),
        }
    }

    /// How many more lines of the server the host was given.
    pub(crate) fn take_passed(&mut self) -> u64 {
        match self {
            Self::Task(_) => 0,
            Self::Host(host) => std::mem::take(&mut host.passed),
        }
    }

    /// Lines that have come so far count no more: whoever has said them is gone.
    pub(crate) fn forget_passed(&mut self) {
        if let Self::Host(host) = self {
            host.passed = 0;
            host.unsent.iter_mut().for_each(|(_, count)| *count = 0);
        }
    }

    /// Will send this line.
    pub(crate) fn put(&mut self, line: TrackedLine) {
        match self {
            Self::Task(task) => task.unsent.push_back(line),
            Self::Host(host) => host.unsent.push_back((line, 0)),
        }
    }

    /// Whether all lines were sent.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Task(task) => task.unsent.is_empty(),
            Self::Host(host) => host.unsent.is_empty(),
        }
    }

    /// Sends what is to be sent, and reads if it `reads`, until something has come of either.
    /// Cancel-safe.
    pub(crate) async fn go_on(&mut self, reads: bool) -> FromClient {
        match self {
            Self::Task(task) => task.go_on(reads).await,
            Self::Host(host) => host.go_on(reads).await,
        }
    }

    /// A line that was read already.
    pub(crate) fn next_ready(&mut self) -> Option<FromClient> {
        match self {
            Self::Task(_) => None,
            Self::Host(host) => host.next_ready(),
        }
    }

    /// Waits until the host was given what was written.
    pub(crate) async fn finish(&mut self) {
        if let Self::Host(host) = self {
            host.output.finish().await;
        }
    }

    /// What the host has said that nobody has got, and where the rest comes from.
    pub(crate) fn into_rest(self) -> Option<(LineBuffer, File)> {
        match self {
            Self::Task(_) => None,
            Self::Host(host) => Some((host.lines, host.input.into_file())),
        }
    }
}

impl Task {
    async fn go_on(&mut self, reads: bool) -> FromClient {
        let Self { lines, to, unsent } = self;
        tokio::select! {
            biased;
            room = to.reserve(), if !unsent.is_empty() => match room {
                Ok(room) => {
                    if let Some(line) = unsent.pop_front() {
                        room.send(line);
                    }
                    FromClient::Nothing
                }
                Err(_) => {
                    unsent.clear();
                    FromClient::Gone
                }
            },
            line = lines.recv(), if reads => line.map_or(FromClient::Gone, FromClient::Line),
            () = to.closed() => FromClient::Gone,
        }
    }
}

impl Host {
    async fn go_on(&mut self, reads: bool) -> FromClient {
        if reads && let Some(ready) = self.next_ready() {
            return ready;
        }
        let Self {
            input,
            output,
            lines,
            unsent,
            written,
            ..
        } = self;
        let has_unsent = !unsent.is_empty();
        let slices = pieces(unsent, *written);
        tokio::select! {
            biased;
            sent = output.write(&slices), if has_unsent => match sent {
                Ok(sent @ 1..) => {
                    drop(slices);
                    self.sent(sent);
                    FromClient::Nothing
                }
                Ok(0) | Err(_) => {
                    drop(slices);
                    self.unsent.clear();
                    FromClient::Gone
                }
            },
            read = input.read(lines.room()), if reads && self.ended == Ended::No => {
                if !matches!(read, Ok(1..)) {
                    self.ended = Ended::Read;
                }
                FromClient::Nothing
            }
            else => std::future::pending().await,
        }
    }

    fn next_ready(&mut self) -> Option<FromClient> {
        if !self.has_spoken {
            if is_raw(self.lines.buffered()) {
                return Some(FromClient::Raw);
            }
            self.has_spoken = !self.lines.buffered().trim_ascii().is_empty();
        }
        loop {
            let line = match self.ended {
                Ended::No => self.lines.next_line()?,
                Ended::Read => match self.lines.next_line().or_else(|| self.lines.last_line()) {
                    Some(line) => line,
                    None => {
                        self.ended = Ended::Told;
                        return Some(FromClient::Closed);
                    }
                },
                Ended::Told => return None,
            };
            let line = match line {
                Line::Whole(line) => line,
                Line::Oversized { head, tail } => match Oversized::of_host(&head, &tail) {
                    // A server waits for it.
                    Oversized::Failed(line) => line,
                    Oversized::Refused(line) => {
                        self.unsent.push_back((TrackedLine::once(line), 0));
                        continue;
                    }
                    Oversized::Dropped => continue,
                },
            };
            return Some(FromClient::Line(line));
        }
    }

    /// So many bytes were written.
    fn sent(&mut self, sent: usize) {
        let mut left = self.written + sent;
        while let Some((TrackedLine { line, receipt }, count)) = self
            .unsent
            .pop_front_if(|(first, _)| first.line.len() < left)
        {
            left -= line.len() + 1;
            self.passed += count;
            receipt.confirm();
        }
        self.written = left;
    }
}

/// Lines, each with its newline, without so many bytes of the first.
fn pieces(lines: &VecDeque<(TrackedLine, u64)>, written: usize) -> Vec<IoSlice<'_>> {
    let mut skipped = written;
    let lines = lines.iter().take(LINES_AT_ONCE);
    let pieces = lines.flat_map(|(line, _)| [&line.line[..], b"\n"]);
    let rest = pieces.map(|piece| {
        let skip = skipped.min(piece.len());
        skipped -= skip;
        IoSlice::new(&piece[skip..])
    });
    rest.collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What becomes of the lines of a host by these two descriptors, until it closes its end.
    async fn lines(input: OwnedFd, output: OwnedFd) -> (Vec<Bytes>, Client) {
        let (input, output) = (File::from(input), File::from(output));
        let lines = LineBuffer::default();
        let mut client = Client::host(input, output, lines).expect("descriptors");
        let mut read = Vec::new();
        loop {
            match client.go_on(true).await {
                FromClient::Line(line) => read.push(line),
                FromClient::Nothing => {}
                FromClient::Closed => return (read, client),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_to_a_host_that_asks_and_fails_where_it_answers() {
        let (input, mut host) = io::pipe().expect("a pipe");
        let (mut refused, output) = io::pipe().expect("a pipe");
        let saying = std::thread::spawn(move || {
            let pad = "x".repeat(mcp_sessiond_proto::backends::RELAYED_MAX);
            for (id, of) in [(r#""a:3""#, "result"), ("4", "params")] {
                writeln!(
                    host,
                    r#"{{"jsonrpc":"2.0","id":{id},"{of}":{{"pad":"{pad}"}}}}"#
                )
                .expect("a reader");
            }
        });
        let (read, mut client) = lines(input.into(), output.into()).await;
        saying.join().expect("said");
        while !client.is_flushed() {
            client.go_on(false).await;
        }
        assert_eq!(client.take_passed(), 0, "no line of a server's");
        drop(client);
        let of = |line: &[u8]| {
            let line: serde_json::Value = serde_json::from_slice(line).expect("JSON");
            (line["id"].clone(), line["error"]["code"].clone())
        };
        let [failed] = &read[..] else {
            panic!("{} lines", read.len())
        };
        assert_eq!(of(failed), ("a:3".into(), (-32000).into()));
        let mut text = Vec::new();
        refused.read_to_end(&mut text).expect("readable");
        assert_eq!(of(&text), (4.into(), (-32600).into()));
    }

    /// The keeper that takes its place counts from its own first line.
    #[tokio::test]
    async fn lines_of_a_lost_keeper_count_for_no_other() {
        let (input, _host) = io::pipe().expect("a pipe");
        let (_reader, output) = io::pipe().expect("a pipe");
        let (input, output) = (OwnedFd::from(input).into(), OwnedFd::from(output).into());
        let mut client = Client::host(input, output, LineBuffer::default()).expect("descriptors");
        let flush = async |client: &mut Client| {
            while !client.is_flushed() {
                client.go_on(false).await;
            }
        };
        let line = || Bytes::from_static(b"{}");
        client.pass(line(), Receipt::none(), None);
        flush(&mut client).await;
        client.pass(line(), Receipt::none(), None);
        client.forget_passed();
        client.pass(line(), Receipt::none(), None);
        flush(&mut client).await;
        assert_eq!(client.take_passed(), 1);
    }

    #[tokio::test]
    async fn whatever_the_descriptors_are_each_line_passes_once_and_in_order() {
        let large = "y".repeat(300_000);
        let said: Vec<String> = (0..50)
            .map(|at| format!("{{\"at\":{at},\"{large}\":0}}"))
            .collect();
        for kind in ["pipes", "sockets", "files"] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = |name: &str| directory.path().join(name);
            let open = |name: &str| {
                let mut options = File::options();
                let options = options.read(true).write(true).create(true).truncate(false);
                options.open(path(name)).expect("a file")
            };
            let text = said.join("\n");
            type Ends = [Option<OwnedFd>; 4];
            let [input, output, host, reader]: Ends = match kind {
                "pipes" => {
                    let (input, host) = io::pipe().expect("a pipe");
                    let (reader, output) = io::pipe().expect("a pipe");
                    [input.into(), output.into(), host.into(), reader.into()].map(Some)
                }
                "sockets" => {
                    let (input, host) = UnixStream::pair().expect("a pair");
                    let (reader, output) = UnixStream::pair().expect("a pair");
                    [input, output, host, reader].map(|end| Some(end.into()))
                }
                _ => {
                    std::fs::write(path("input"), &text).expect("written");
                    [
                        Some(open("input").into()),
                        Some(open("output").into()),
                        None,
                        None,
                    ]
                }
            };
            let saying = std::thread::spawn(move || {
                if let Some(mut host) = host.map(File::from) {
                    host.write_all(text.as_bytes()).expect("a reader");
                }
            });
            let reading = std::thread::spawn(move || {
                let mut text = String::new();
                reader.map(|reader| File::from(reader).read_to_string(&mut text).expect("text"));
                text
            });
            let (read, mut client) = lines(input.expect("an end"), output.expect("an end")).await;
            assert!(read.iter().eq(&said), "{kind}");
            for line in read {
                client.pass(line, Receipt::none(), None);
            }
            while !client.is_flushed() {
                client.go_on(false).await;
            }
            client.finish().await;
            assert_eq!(client.take_passed(), said.len() as u64, "{kind}");
            drop(client);
            saying.join().expect("said");
            let mut written = reading.join().expect("read");
            if kind == "files" {
                written = std::fs::read_to_string(path("output")).expect("a file");
            }
            assert!(written.lines().eq(&said), "{kind}");
        }
    }
}
