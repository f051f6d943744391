//! What a backend is to a bundle: a source that can be opened, and then two channels of
//! messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::object::Object;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::status::{FailedStart, Failure};

/// Messages that may wait in a channel. A full one keeps its sender waiting, and nothing is
/// dropped.
pub const WAITING: usize = 64;

/// Confirms that a message was passed on, or stored, and need not come again.
#[derive(Default)]
pub struct Receipt {
    confirm: Option<Box<dyn FnOnce() + Send>>,
    mark: Option<String>,
}

impl Receipt {
    /// `confirm` is called then.
    pub fn new(confirm: impl FnOnce() + Send + 'static) -> Self {
        Self {
            confirm: Some(Box::new(confirm)),
            mark: None,
        }
    }

    /// The same for a message that has this mark whenever it comes again, and that no other message
    /// has.
    pub fn marked(mark: String, confirm: impl FnOnce() + Send + 'static) -> Self {
        Self {
            mark: Some(mark),
            ..Self::new(confirm)
        }
    }

    /// The same for a message that comes once.
    #[must_use]
    pub(crate) fn unmarked(self) -> Self {
        Self { mark: None, ..self }
    }

    /// For a message that comes once, whatever becomes of it.
    pub fn none() -> Self {
        Self::default()
    }

    /// The mark by which the message is recognised when it comes again.
    pub fn mark(&self) -> Option<&str> {
        self.mark.as_deref()
    }

    /// The message need not come again.
    pub fn confirm(self) {
        if let Some(confirm) = self.confirm {
            confirm();
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Receipt")
    }
}

/// A line on its way, of a backend or to the host: a message or a batch, without its newline.
#[derive(Debug)]
pub struct TrackedLine {
    /// The line.
    pub line: Bytes,
    /// To be confirmed once the line was passed on.
    pub receipt: Receipt,
}

impl TrackedLine {
    /// A line that comes once.
    pub fn once(line: Bytes) -> Self {
        Self {
            line,
            receipt: Receipt::none(),
        }
    }
}

/// A connection to a backend. It is over when `from` ends.
#[derive(Debug)]
pub struct Pipe {
    /// Messages to the backend.
    pub to: mpsc::Sender<Bytes>,
    /// Messages from the backend, in its order.
    pub from: mpsc::Receiver<TrackedLine>,
    /// Ends the backend; dropped without, it may live on.
    pub end: End,
}

/// How a backend is ended.
pub struct End(Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send + Sync>);

impl End {
    /// The future is over when the backend is gone.
    pub fn new(end: impl FnOnce() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Box::new(end))
    }

    /// For a backend that ends when its pipe is dropped.
    pub fn by_drop() -> Self {
        Self::new(|| Box::pin(std::future::ready(())))
    }

    /// Begins to end the backend. The future is over when it is gone.
    pub fn run(self) -> BoxFuture<'static, ()> {
        (self.0)()
    }
}

impl fmt::Debug for End {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("End")
    }
}

/// How to connect to a backend.
pub trait Source: Send + Sync {
    /// The backend's name, which no other one of the bundle has.
    fn name(&self) -> &str;

    /// Distinguishes it from another server that had its name in a former process. None:
    /// there was no other.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Starts the backend, or finds it, and connects to it. Called again after a failure.
    ///
    /// # Errors
    /// [`Failure`]: what was wrong.
    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>>;

    /// Whether the backend runs already, so that [`open`](Self::open) only connects to it.
    fn is_running(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }
}

impl fmt::Debug for dyn Source {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Source({:?})", self.name())
    }
}

/// The host of a bundle: it gets every message that is not the answer to a call. The next
/// message of the backend waits until this one was taken.
pub trait Host: Send + Sync {
    /// Takes a message: a notification, a request that the host answers by
    /// [`tell`](crate::Bundle::tell), or the answer to a request of a former process.
    fn receive(&self, message: crate::Message, receipt: Receipt) -> BoxFuture<'_, ()>;
}

/// No host: every message is dropped.
impl Host for () {
    fn receive(&self, _: crate::Message, receipt: Receipt) -> BoxFuture<'_, ()> {
        receipt.confirm();
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Host")
    }
}

/// What the host has sent that a server which is started again has to get again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// The parameters of the last `logging/setLevel`.
    pub level: Option<Object>,
    /// The URIs that the host has subscribed to, by server.
    pub subscriptions: BTreeMap<String, BTreeSet<String>>,
    /// What each of these servers was then, as [`Source::identity`] has it.
    #[serde(default)]
    pub servers: BTreeMap<String, String>,
}

impl Told {
    pub(crate) fn forget(&mut self, server: &str) {
        self.subscriptions.remove(server);
        self.servers.remove(server);
    }
}

/// Where the names of tools and prompts are stored, and which servers have failed. Several processes
/// may do so at once.
pub trait BundleStore: Send + Sync {
    /// What was stored last.
    fn load(&self) -> BoxFuture<'_, crate::Names>;

    /// Stores these, unless another process has stored others since this one has loaded or
    /// saved: then those are returned.
    fn save(&self, names: crate::Names) -> BoxFuture<'_, Option<crate::Names>>;

    /// The servers that could not be used when they were started last, by name.
    fn failed(&self) -> BoxFuture<'_, BTreeMap<String, FailedStart>> {
        Box::pin(std::future::ready(BTreeMap::new()))
    }

    /// Stores these. Of several processes the last one counts.
    fn keep_failed(&self, _: BTreeMap<String, FailedStart>) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What the host has sent a former process of this session.
    fn told(&self) -> BoxFuture<'_, Told> {
        Box::pin(std::future::ready(Told::default()))
    }

    /// Stores what the host has sent, for a process that comes after this one.
    fn keep_told(&self, _: Told) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Nothing is stored.
impl BundleStore for () {
    fn load(&self) -> BoxFuture<'_, crate::Names> {
        Box::pin(std::future::ready(crate::Names::default()))
    }

    fn save(&self, _: crate::Names) -> BoxFuture<'_, Option<crate::Names>> {
        Box::pin(std::future::ready(None))
    }
}

impl fmt::Debug for dyn BundleStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("BundleStore")
    }
}
