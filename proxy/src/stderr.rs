//! What a front prints to standard error: the server's lines and its own. Hosts write them to the
//! server's log, or do not read them; so a thread of its own writes them, and nothing else ever
//! waits for that.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::lines::CHUNK;

/// Pieces of text that wait to be written. Beyond that our own are dropped, and the server's wait
/// with the keeper.
const WAITING: usize = 64;

/// Prints to standard error.
#[derive(Debug, Clone)]
pub(crate) struct Stderr(SyncSender<Vec<u8>>);

impl Stderr {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new() -> io::Result<Self> {
        let mut errors = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (sender, texts) = sync_channel::<Vec<u8>>(WAITING);
        let writing = move || {
            // A host that has closed it gets nothing.
            for text in texts {
                let _ = errors.write_all(&text);
            }
        };
        std::thread::Builder::new()
            .name("stderr".into())
            .spawn(writing)?;
        Ok(Self(sender))
    }

    /// Prints a sentence of our own, in one line.
    pub(crate) fn print(&self, what: &dyn std::fmt::Display) {
        let _ = self.0.try_send(sentence(what).into_bytes());
    }

    /// Copies what the server writes to its standard error, until the keeper is lost.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn copy_from(&self, from: &UnixStream) -> io::Result<()> {
        let (mut from, sender) = (from.try_clone()?, self.0.clone());
        let reading = move || {
            let mut chunk = vec![0; CHUNK];
            while let Ok(read @ 1..) = from.read(&mut chunk) {
                if sender.send(chunk[..read].to_vec()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("errors".into())
            .spawn(reading)
            .map(drop)
    }
}

/// A sentence as it stands on standard error.
pub(crate) fn sentence(what: &dyn std::fmt::Display) -> String {
    format!("mcp-sessiond: {}\n", what.to_string().replace('\n', " "))
}
