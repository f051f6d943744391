//! What a front prints to standard error: the server's lines and its own. Hosts write them to the
//! server's log, or do not read them; so a thread of its own writes them, and nothing else ever
//! waits for that.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use mcp_sessiond_proto::backends::ended_sentence;
use mcp_sessiond_proto::backends::frame::Kind;
use mcp_sessiond_proto::text::printable;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::frames::FrameSender;
use crate::named_lines::NamedLines;

/// Bytes of text that wait to be written. What comes while more wait is dropped.
const WAITING: usize = 4 * 1024 * 1024;

/// Prints to standard error.
#[derive(Debug, Clone)]
pub(crate) struct Stderr {
    texts: Sender<Text>,
    /// Bytes that wait. Whoever prints adds to them, and the thread that writes takes away.
    waiting: Arc<AtomicUsize>,
}

/// Is done once a text was written.
type Written = Box<dyn FnOnce() + Send>;

/// A piece of text, and what is done once it was written.
struct Text {
    bytes: Vec<u8>,
    written: Option<Written>,
}

/// Texts of which somebody is yet to hear that they were written.
static UNHEARD: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// One of them, until this is dropped.
struct Unheard(());

impl Unheard {
    fn begin() -> Self {
        Self::change(|unheard| *unheard += 1);
        Self(())
    }

    fn change(change: impl FnOnce(&mut usize)) {
        change(&mut UNHEARD.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        Self::change(|unheard| *unheard -= 1);
        UNHEARD.1.notify_all();
    }
}

/// How long a front that leaves waits for whoever is to hear what was written: a host may read
/// nothing, and a daemon may hang.
const HEARD_WAIT: Duration = Duration::from_millis(250);

/// Waits until all have heard that their texts were written. A loss whose line was read, and whose
/// reader ended before it could say so, would be told again.
pub(crate) fn until_heard() {
    let unheard = UNHEARD.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = |unheard: &mut usize| *unheard > 0;
    drop(UNHEARD.1.wait_timeout_while(unheard, HEARD_WAIT, waits));
}

impl Stderr {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new() -> io::Result<Self> {
        let mut errors = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (texts, received) = channel::<Text>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = waiting.clone();
        let writing = move || {
            // A host that has closed it gets nothing.
            for Text { bytes, written } in received {
                let is_written = errors.write_all(&bytes).is_ok();
                left.fetch_sub(bytes.len(), Ordering::Relaxed);
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
        Ok(Self { texts, waiting })
    }

    /// Prints a sentence of our own, in one line.
    pub(crate) fn print(&self, what: &dyn std::fmt::Display) {
        self.put(sentence(what).into_bytes(), None);
    }

    /// The same, and then does something, once it was written.
    pub(crate) fn print_then(
        &self,
        what: &dyn std::fmt::Display,
        written: impl FnOnce() + Send + 'static,
    ) {
        let unheard = Unheard::begin();
        let written = move || {
            written();
            drop(unheard);
        };
        self.put(sentence(what).into_bytes(), Some(Box::new(written)));
    }

    /// The same, and waits until it was written, but no longer than this: a host may read nothing.
    pub(crate) fn print_within(
        &self,
        within: Duration,
        what: &dyn std::fmt::Display,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (written, is_written) = oneshot::channel();
        self.print_then(what, move || {
            let _ = written.send(());
        });
        async move { drop(timeout(within, is_written).await) }
    }

    /// Prints what a server writes to its standard error. `name`: the server's, where it is one of
    /// several.
    pub(crate) fn of_server(&self, name: Option<&str>) -> ServerStderr {
        ServerStderr {
            stderr: self.clone(),
            name: name.map(str::to_owned),
            lines: NamedLines::of(name),
            skipped: 0,
        }
    }

    /// Never waits. False: too much waits already.
    fn put(&self, bytes: Vec<u8>, written: Option<Written>) -> bool {
        let length = bytes.len();
        if self.waiting.fetch_add(length, Ordering::Relaxed) > WAITING {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
            return false;
        }
        self.texts.send(Text { bytes, written }).is_ok()
    }
}

/// Says things about one server, of several by its name.
#[derive(Debug, Clone)]
pub(crate) struct NamedStderr {
    pub(crate) name: Option<String>,
    pub(crate) stderr: Stderr,
}

impl NamedStderr {
    /// For the host's only server.
    pub(crate) fn of_one(stderr: Stderr) -> Self {
        Self { name: None, stderr }
    }

    pub(crate) fn print(&self, what: &dyn std::fmt::Display) {
        match &self.name {
            Some(name) => self.stderr.print(&format_args!("{name}: {what}")),
            None => self.stderr.print(what),
        }
    }

    pub(crate) fn print_then(
        &self,
        what: &dyn std::fmt::Display,
        written: impl FnOnce() + Send + 'static,
    ) {
        match &self.name {
            Some(name) => self
                .stderr
                .print_then(&format_args!("{name}: {what}"), written),
            None => self.stderr.print_then(what, written),
        }
    }
    /// Prints what the server writes to its standard error.
    pub(crate) fn of_server(&self) -> ServerStderr {
        self.stderr.of_server(self.name.as_deref())
    }
}

/// Prints what one server writes to its standard error, and what its keeper tells of it.
#[derive(Debug)]
pub(crate) struct ServerStderr {
    stderr: Stderr,
    name: Option<String>,
    lines: NamedLines,
    /// How many bytes were dropped since the last that were printed.
    skipped: u64,
}

impl ServerStderr {
    /// More of it. Never waits.
    pub(crate) fn push(&mut self, text: &[u8]) {
        let bytes = self.lines.push(text);
        self.put(bytes, text.len());
    }

    /// No more comes from this keeper.
    pub(crate) fn end(&mut self) {
        let bytes = self.lines.end();
        let length = bytes.len();
        self.put(bytes, length);
    }

    /// Takes in what a keeper says of this kind; once the end of a server was told, the keeper hears
    /// so. False: it says something else. Never waits.
    pub(crate) fn note(&mut self, kind: Kind, text: &[u8], sender: &Arc<FrameSender>) -> bool {
        match kind {
            Kind::Stderr => self.push(text),
            Kind::Loss => {
                let sender = sender.clone();
                self.tell_loss(&String::from_utf8_lossy(text), move || sender.heard(1));
            }
            _ => return false,
        }
        true
    }

    /// The server has ended, and why. `written` is called once that was written.
    pub(crate) fn tell_loss(&self, why: &str, written: impl FnOnce() + Send + 'static) {
        let sentence = ended_sentence(why);
        match &self.name {
            Some(name) => self
                .stderr
                .print_then(&format_args!("{name}: {sentence}"), written),
            None => self.stderr.print_then(&sentence, written),
        }
    }

    fn put(&mut self, bytes: Vec<u8>, length: usize) {
        if bytes.is_empty() {
            return;
        }
        let text = match self.skipped {
            0 => bytes,
            skipped => [not_read(skipped).as_bytes(), &bytes].concat(),
        };
        if self.stderr.put(text, None) {
            self.skipped = 0;
        } else {
            self.skipped += length as u64;
        }
    }
}

/// What stands where so many bytes of a server's standard error were dropped.
pub(crate) fn not_read(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!("\n[{bytes} bytes of standard error were not read in time]\n"),
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
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Whoever has to hear of the text is slow; the one that leaves asks meanwhile.
    #[test]
    fn who_leaves_waits_until_it_was_heard_that_a_text_was_written() {
        static IS_HEARD: AtomicBool = AtomicBool::new(false);
        let stderr = Stderr::new().expect("a thread");
        let (begins, has_begun) = channel();
        let (release, released) = channel();
        stderr.print_then(&"a test of what is heard", move || {
            begins.send(()).expect("a test");
            released.recv().expect("a test");
            IS_HEARD.store(true, Ordering::SeqCst);
        });
        has_begun.recv().expect("it was written");
        assert!(!IS_HEARD.load(Ordering::SeqCst));
        // Nobody hears of it in time: it is not waited for any longer.
        until_heard();
        assert!(!IS_HEARD.load(Ordering::SeqCst));
        let leaving = std::thread::spawn(|| {
            until_heard();
            IS_HEARD.load(Ordering::SeqCst)
        });
        release.send(()).expect("a test");
        assert!(leaving.join().expect("it left"), "it waited");
    }
}
