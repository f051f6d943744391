//! What a backend is to a bundle: somebody who can be connected, and then two channels of messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::object::Object;
use crate::status::Failure;

/// Messages that may wait in a channel. A full one keeps its sender waiting, and nothing is
/// dropped.
pub const WAITING: usize = 64;

/// Says that a message was passed on, or kept, and need not come again.
#[derive(Default)]
pub struct Receipt {
    confirm: Option<Box<dyn FnOnce() + Send>>,
    mark: Option<String>,
}

impl Receipt {
    /// What is called then.
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

    /// For a message that comes once, whatever becomes of it.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// By which the message is known when it comes again.
    #[must_use]
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

/// A line of the backend: a message or a batch, without its newline.
#[derive(Debug)]
pub struct Said {
    /// The line.
    pub line: Bytes,
    /// What to do with it once it was passed on.
    pub receipt: Receipt,
}

impl Said {
    /// A line that comes once.
    #[must_use]
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
    pub from: mpsc::Receiver<Said>,
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
    #[must_use]
    pub fn by_drop() -> Self {
        Self::new(|| Box::pin(std::future::ready(())))
    }

    /// Ends the backend, and waits until it is gone.
    pub async fn run(self) {
        (self.0)().await;
    }
}

impl fmt::Debug for End {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("End")
    }
}

/// Somebody who can be connected.
pub trait Source: Send + Sync {
    /// The backend's name, which no other one of the bundle has.
    fn name(&self) -> &str;

    /// What tells it from another server that had its name in a former process. None: there was no
    /// other.
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

/// The host of a bundle: it hears what no call was answered with. The next message of the backend
/// waits until this one was heard.
pub trait Host: Send + Sync {
    /// Hears a message: a notification, a request that the host answers by
    /// [`tell`](crate::Bundle::tell), or the answer to a request of a former process.
    fn hear(&self, message: crate::Message, receipt: Receipt) -> BoxFuture<'_, ()>;
}

/// Nobody.
impl Host for () {
    fn hear(&self, _: crate::Message, receipt: Receipt) -> BoxFuture<'_, ()> {
        receipt.confirm();
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Host")
    }
}

/// What the host has said that a server which is started again has to hear again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// The parameters of the last `logging/setLevel`.
    pub level: Option<Object>,
    /// The URIs that the host has subscribed to, by the server that it was told of them.
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

/// Where the names are remembered that were given. Several processes may do so at once.
pub trait Memory: Send + Sync {
    /// What was remembered last.
    fn load(&self) -> BoxFuture<'_, crate::Names>;

    /// Remembers these, unless another process has remembered others since this one has loaded or
    /// saved: then those are returned.
    fn save(&self, names: crate::Names) -> BoxFuture<'_, Option<crate::Names>>;

    /// What the host has told a former process of this session.
    fn told(&self) -> BoxFuture<'_, Told> {
        Box::pin(std::future::ready(Told::default()))
    }

    /// Keeps what the host has told, for a process that comes after this one.
    fn keep_told(&self, _: Told) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Nowhere.
impl Memory for () {
    fn load(&self) -> BoxFuture<'_, crate::Names> {
        Box::pin(std::future::ready(crate::Names::default()))
    }

    fn save(&self, _: crate::Names) -> BoxFuture<'_, Option<crate::Names>> {
        Box::pin(std::future::ready(None))
    }
}

impl fmt::Debug for dyn Memory {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Memory")
    }
}
