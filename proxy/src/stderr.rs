//! What a front prints to standard error: the server's lines and its own. Hosts write them to the
//! server's log, or do not read them; so a thread of its own writes them, and nothing else ever
//! waits for that.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use mcp_sessiond_proto::backends::{ENDED_LINE, ENDED_TOLD};
use mcp_sessiond_proto::text::printable;
use nix::sys::socket::{MsgFlags, send};

use crate::lines::CHUNK;
use crate::named_lines::NamedLines;

/// Pieces of text that wait to be written. Beyond that our own are dropped, and the server's wait
/// with the keeper.
const WAITING: usize = 64;

/// Prints to standard error.
#[derive(Debug, Clone)]
pub(crate) struct Stderr(SyncSender<Text>);

/// A piece of text, and what is done once it was written.
struct Text {
    bytes: Vec<u8>,
    written: Option<Box<dyn FnOnce() + Send>>,
}

impl Stderr {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new() -> io::Result<Self> {
        let mut errors = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (sender, texts) = sync_channel::<Text>(WAITING);
        let writing = move || {
            // A host that has closed it gets nothing.
            for Text { bytes, written } in texts {
                let is_written = errors.write_all(&bytes).is_ok();
                if let Some(written) = written.filter(|_| is_written) {
                    // A daemon that hangs must not hold up what is printed next.
                    drop(
                        std::thread::Builder::new()
                            .name("confirm".into())
                            .spawn(written),
                    );
                }
            }
        };
        std::thread::Builder::new()
            .name("stderr".into())
            .spawn(writing)?;
        Ok(Self(sender))
    }

    /// Prints a sentence of our own, in one line.
    pub(crate) fn print(&self, what: &dyn std::fmt::Display) {
        self.print_and(what, None);
    }

    /// The same, and then does something, once it was written.
    pub(crate) fn print_then(
        &self,
        what: &dyn std::fmt::Display,
        written: impl FnOnce() + Send + 'static,
    ) {
        self.print_and(what, Some(Box::new(written)));
    }

    fn print_and(&self, what: &dyn std::fmt::Display, written: Option<Box<dyn FnOnce() + Send>>) {
        let bytes = sentence(what).into_bytes();
        let _ = self.0.try_send(Text { bytes, written });
    }

    /// Copies what the server writes to its standard error, until the keeper is lost. `name`: that of
    /// the server, where it is one of several.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn copy_from(&self, from: &UnixStream, name: Option<&str>) -> io::Result<()> {
        let (from, sender) = (Arc::new(from.try_clone()?), self.0.clone());
        let mut lines = NamedLines::of(name);
        let reading = move || {
            let mut chunk = vec![0; CHUNK];
            let mut marks = Marks::of(lines.as_named(ENDED_LINE));
            while let Ok(read @ 1..) = (&*from).read(&mut chunk) {
                let bytes = lines.push(&chunk[..read]);
                let written: Option<Box<dyn FnOnce() + Send>> = match marks.count(&bytes) {
                    0 => None,
                    ends => {
                        let keeper = from.clone();
                        Some(Box::new(move || confirm_ends(&keeper, ends)))
                    }
                };
                if sender.send(Text { bytes, written }).is_err() {
                    return;
                }
            }
            let (bytes, written) = (lines.end(), None);
            drop(sender.send(Text { bytes, written }));
        };
        std::thread::Builder::new()
            .name("errors".into())
            .spawn(reading)
            .map(drop)
    }
}

/// Tells a keeper that its front's host was told of so many ends of a server.
pub(crate) fn confirm_ends(keeper: &UnixStream, ends: usize) {
    // What does not arrive is told once more by the next front.
    let _ = send(
        keeper.as_raw_fd(),
        &vec![ENDED_TOLD; ends],
        MsgFlags::MSG_DONTWAIT,
    );
}

/// Finds the keeper's lines that tell of the end of a server, wherever they are cut.
struct Marks {
    /// With this they begin.
    mark: Vec<u8>,
    tail: Vec<u8>,
}

impl Marks {
    fn of(mark: Vec<u8>) -> Self {
        let tail = Vec::new();
        Self { mark, tail }
    }

    /// How many come to their mark in this piece.
    fn count(&mut self, bytes: &[u8]) -> usize {
        let mark = &self.mark[..];
        self.tail.extend_from_slice(bytes);
        let found = memchr::memmem::find_iter(&self.tail, mark).count();
        // A mark that is whole is not counted again.
        let after = memchr::memmem::rfind(&self.tail, mark).map_or(0, |at| at + mark.len());
        let keep = self.tail.len().saturating_sub(mark.len() - 1).max(after);
        self.tail.drain(..keep);
        found
    }
}

/// A sentence as it stands on standard error.
pub(crate) fn sentence(what: &dyn std::fmt::Display) -> String {
    let text = what.to_string().replace('\n', " ");
    // Names, titles and commands are anybody's.
    format!("mcp-sessiond: {}\n", printable(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_an_end_is_counted_once_wherever_it_is_cut() {
        let line = format!("x\n{ENDED_LINE}exit status: 1); more\n");
        let text = line.repeat(3);
        for cut in 1..text.len() {
            let mut marks = Marks::of(ENDED_LINE.into());
            let pieces = text.as_bytes().chunks(cut);
            assert_eq!(
                pieces.map(|piece| marks.count(piece)).sum::<usize>(),
                3,
                "{cut}"
            );
        }
    }
}
