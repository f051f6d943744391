//! The host's end of a front that has a runtime: threads that read and write its lines, and wait
//! for signals.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, Receipt, TrackedLine, WAITING};
use mcp_sessiond_jsonrpc::Oversized;
use nix::poll::PollFlags;
use tokio::sync::{mpsc, oneshot, watch};

use super::client::Client;
use super::drive::Driver;
use super::input_end::{InputEnd, exit_within, wait_until_unread};
use super::leave::LAST_WORDS;
use crate::closed;
use crate::connection::Connection;
use crate::lines::{CHUNK, Line, LineBuffer, is_transient, read_into};
use crate::server::kept::Releaser;
use crate::signals::{die_of, note_signal, when_told_to_end};

/// The host's end of a front that has a runtime.
pub(crate) struct Host {
    pub(crate) client: Client,
    out: mpsc::Sender<TrackedLine>,
    output: File,
}

impl Host {
    /// Reads the host's lines, after those that were read already, and writes to it, in threads of
    /// their own. This process ends within `stop` once the host has closed its end.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn follow(input: File, lines: LineBuffer, stop: Duration) -> io::Result<Self> {
        let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
        let (until_unread, until_end) = (output.try_clone()?, output.try_clone()?);
        let (out, spoken) = mpsc::channel(WAITING);
        let (heard, from_host) = mpsc::channel(WAITING);
        let too_large = out.clone();
        std::thread::Builder::new()
            .name("to-host".into())
            .spawn(move || write(output, spoken))?;
        let reading = move || {
            read(input, lines, &heard, &too_large);
            drop((heard, too_large));
            exit_within(&until_end, stop)
        };
        std::thread::Builder::new()
            .name("from-host".into())
            .spawn(reading)?;
        let client = Client::new(from_host, out.clone());
        let output = until_unread;
        Ok(Self {
            client,
            out,
            output,
        })
    }

    /// Carries lines between the host and this pipe, and ends this process when all is said, or the
    /// host has closed its end and reads nothing any more. `close` follows the last line, and then
    /// `leave`, also where nobody reads that line.
    pub(crate) async fn carry(
        self,
        driver: impl FnOnce(Client) -> Driver,
        pipe: Pipe,
        mut leaving: watch::Receiver<bool>,
        close: impl AsyncFnOnce(Option<Connection>),
        leave: impl Future<Output = ()>,
    ) -> ! {
        let Self {
            client,
            out,
            output,
        } = self;
        let carried = async {
            let connection = driver(client).run_by_pipe(pipe).await;
            written(&out).await;
            close(connection).await;
        };
        let gone = async {
            // Its sender is the front's.
            let _ = leaving.wait_for(|leaving| *leaving).await;
            let _ = tokio::task::spawn_blocking(move || wait_until_unread(&output)).await;
        };
        tokio::select! {
            () = carried => {}
            () = gone => {}
        }
        leave.await;
        // Threads still wait for what never comes.
        std::process::exit(0)
    }
}

/// What a front does that has a session when its host has closed its end, and whether a conversation
/// had begun. `marks`: where there is no keeper that could tell it.
pub(crate) fn farewell(
    leave: watch::Sender<bool>,
    releaser: Option<Releaser>,
    marks: bool,
) -> impl FnOnce(bool) + Send + 'static {
    move |has_begun| {
        if marks && has_begun {
            closed::mark();
        }
        leave.send_replace(true);
        if let Some(releaser) = releaser {
            // A daemon that hangs must not delay our exit.
            drop(
                std::thread::Builder::new()
                    .name("release".into())
                    .spawn(move || releaser.release()),
            );
        }
    }
}

/// Waits until everything so far was written to the host.
async fn written(out: &mpsc::Sender<TrackedLine>) {
    let (done, is_done) = oneshot::channel();
    let receipt = Receipt::new(move || {
        let _ = done.send(());
    });
    let line = Bytes::new();
    if out.send(TrackedLine { line, receipt }).await.is_ok() {
        let _ = is_done.await;
    }
}

/// What happens at the end of the input of a front that has a runtime.
pub(crate) fn input_end(leave: watch::Sender<bool>) -> InputEnd {
    InputEnd {
        leave: Box::new(move || _ = leave.send_replace(true)),
        exits: Box::new(|| true),
    }
}

/// Reads the host's lines, until the host closes its end.
fn read(
    mut input: File,
    mut lines: LineBuffer,
    heard: &mpsc::Sender<Bytes>,
    out: &mpsc::Sender<TrackedLine>,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        while let Some(line) = lines.next_line() {
            if !pass_on(line, heard, out) {
                return;
            }
        }
        if !read_into(&mut input, &mut chunk, &mut lines) {
            break;
        }
    }
    if let Some(line) = lines.last_line() {
        pass_on(line, heard, out);
    }
}

fn pass_on(line: Line, heard: &mpsc::Sender<Bytes>, out: &mpsc::Sender<TrackedLine>) -> bool {
    match line {
        Line::Whole(line) => heard.blocking_send(line).is_ok(),
        Line::Oversized { head, tail } => match Oversized::of_host(&head, &tail) {
            Oversized::Refused(line) => out
                .blocking_send(TrackedLine {
                    line,
                    receipt: Receipt::none(),
                })
                .is_ok(),
            // A server waits for it.
            Oversized::Failed(line) => heard.blocking_send(line).is_ok(),
            Oversized::Dropped => true,
        },
    }
}

/// Writes lines to the host, and confirms those that it has. An empty one is none.
fn write(mut output: File, mut spoken: mpsc::Receiver<TrackedLine>) {
    while let Some(TrackedLine { line, receipt }) = spoken.blocking_recv() {
        let whole = if line.is_empty() {
            Vec::new()
        } else {
            [&line[..], b"\n"].concat()
        };
        let mut left = &whole[..];
        while !left.is_empty() {
            match output.write(left) {
                Ok(written @ 1..) => left = &left[written..],
                Err(error) if is_transient(&error, &output, PollFlags::POLLOUT) => {}
                // The host is gone.
                Ok(0) | Err(_) => std::process::exit(0),
            }
        }
        receipt.confirm();
    }
}

/// Ends this process by a signal that asks it to, once the keepers were told that this is orderly.
pub(crate) fn signals(leave: watch::Sender<bool>) -> io::Result<()> {
    when_told_to_end(move |signal| {
        closed::mark();
        note_signal(signal);
        leave.send_replace(true);
        // Long enough for a few bytes to each of them; the host may have no patience for more.
        std::thread::sleep(LAST_WORDS);
        die_of(signal)
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn what_is_too_large_is_refused_to_a_host_that_asks_and_fails_where_it_answers() {
        let (input, mut host) = io::pipe().expect("a pipe");
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
        let (heard, mut from_host) = mpsc::channel(4);
        let (out, mut spoken) = mpsc::channel(4);
        read(
            File::from(OwnedFd::from(input)),
            LineBuffer::default(),
            &heard,
            &out,
        );
        saying.join().expect("said");
        let read = |line: &[u8]| {
            let line: serde_json::Value = serde_json::from_slice(line).expect("JSON");
            (line["id"].clone(), line["error"]["code"].clone())
        };
        assert_eq!(
            read(&from_host.try_recv().expect("for the server")),
            ("a:3".into(), (-32000).into())
        );
        assert_eq!(
            read(&spoken.try_recv().expect("for the host").line),
            (4.into(), (-32600).into())
        );
        assert!(from_host.try_recv().is_err() && spoken.try_recv().is_err());
    }
}
