//! A server that is started at the first call. Until then the host is answered from what the
//! server has said last; then it is started, and the host is told which of its lists have
//! changed.
//!
//! - `known`: what is remembered. `state`: what is answered from it, and what is watched, without
//!   I/O.

pub(super) mod known;
pub(super) mod state;

use std::collections::BTreeSet;
use std::future::pending;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::owned::{Message, Outcome};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bundle::Handshake;
use crate::lock::lock;
use crate::pages::{Page, Pages, behind};
use crate::pipe::{End, Pipe, Source, TrackedLine, WAITING};
use crate::status::{Failure, FailureCode};
pub use known::{KNOWN_MAX, Known, initialize_key};
use state::{Effect, News, OWN, State};

/// Lines of the host that may wait for the server to start. Later ones wait in the channel.
const HELD_MAX: usize = 256;

/// Where the answers of servers are stored. Several processes may do so at once: the last one
/// counts.
pub trait KnownStore: Send + Sync {
    /// What it has answered a host with this [`initialize_key`].
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Known>>;

    /// Stores this in the background.
    fn save(&self, key: String, known: Known);

    /// Nothing is answered from here for a host with this key, and the backend is started with it.
    fn unused(&self, key: Option<&str>, why: Unused);

    /// The backend could not be started, and nobody has called it yet.
    fn failed(&self, why: &str);
}

/// Why a backend is started with its host, which waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unused {
    /// The host did not begin with `initialize`.
    NoInitialize,
    /// Nothing is known of the backend for this host.
    Unknown,
    /// The last time there was nothing that a host could call.
    NothingToCall,
}

impl std::fmt::Debug for dyn KnownStore {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("KnownStore")
    }
}

/// When a backend is started for which the host is answered from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waking {
    /// At the first call.
    AtFirstCall,
    /// Once the host is initialised.
    AtStart,
}

/// A backend that is started at the first call, or once the host is initialised, if its answers until
/// then are known. One that runs already is connected at once, and so is one of which nothing is known:
/// its answers are stored then.
#[derive(Debug, Clone)]
pub struct Lazy {
    inner: Arc<dyn Source>,
    store: Arc<dyn KnownStore>,
    handshake: Option<Handshake>,
    waking: Waking,
    limit: Option<Duration>,
    turns: Option<Arc<Semaphore>>,
}

impl Lazy {
    /// Stands around a backend, for a host that will send this `initialize`. None: the host
    /// begins otherwise, so the backend is started at once, and its answers are stored if
    /// the host sends `initialize` later.
    pub fn new(
        inner: Arc<dyn Source>,
        store: Arc<dyn KnownStore>,
        handshake: Option<Handshake>,
        waking: Waking,
    ) -> Self {
        Self {
            inner,
            store,
            handshake,
            waking,
            limit: None,
            turns: None,
        }
    }

    /// How many backends are started at once that nobody waits for yet.
    #[must_use]
    pub fn in_turn(self, turns: Arc<Semaphore>) -> Self {
        Self {
            turns: Some(turns),
            ..self
        }
    }

    /// How long the backend may take until it is initialised.
    pub fn within(self, limit: Duration) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// What the backend has said last, if it is not connected at once. A host never calls one that
    /// has nothing, so that is not from memory: it may have something by now, after a login for
    /// instance.
    async fn known(&self, key: Option<&str>) -> Option<Known> {
        let known = match key {
            Some(key) => self.store.load(key).await.ok_or(Unused::Unknown),
            None => Err(Unused::NoInitialize),
        };
        let known = known.and_then(|known| match known.is_callable() {
            true => Ok(known),
            false if known.is_initialized() => Err(Unused::NothingToCall),
            false => Err(Unused::Unknown),
        });
        // One that runs is not started.
        if self.inner.is_running().await {
            return None;
        }
        known.map_err(|why| self.store.unused(key, why)).ok()
    }
}

impl Source for Lazy {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity()
    }

    fn is_running(&self) -> BoxFuture<'_, bool> {
        self.inner.is_running()
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            let key = self
                .handshake
                .as_ref()
                .map(|handshake| initialize_key(&handshake.0));
            let (backend, known) = match self.known(key.as_deref()).await {
                Some(known) => (None, known),
                None => (Some(self.inner.open().await?), Known::default()),
            };
            let state = State::new(key, known, backend.is_some());
            let (to, wanted) = mpsc::channel(WAITING);
            let (said, from) = mpsc::channel(WAITING);
            let nonce = RandomState::new().build_hasher().finish();
            let ending = Ending::default();
            let between = Arc::new(Between {
                lazy: self.clone(),
                state: Mutex::new(state),
                said,
                end: ending.clone(),
                nonce,
            });
            let (stop, stopped) = oneshot::channel::<()>();
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = between.forward(wanted, backend) => {}
                    Ok(()) = stopped => {}
                }
            });
            // It has no part in `said`, whose end is the pipe's.
            let end = End::new(move || {
                Box::pin(async move {
                    let _ = stop.send(());
                    let _ = task.await;
                    end(&ending).await;
                })
            });
            Ok(Pipe { to, from, end })
        })
    }
}

/// Stands between the host's pipe and the backend's.
#[derive(Debug)]
struct Between {
    lazy: Lazy,
    state: Mutex<State>,
    /// To the host.
    said: mpsc::Sender<TrackedLine>,
    /// How the backend is ended, once it was opened.
    end: Ending,
    nonce: u64,
}

/// How a backend is ended that was opened.
type Ending = Arc<Mutex<Option<End>>>;

/// A backend that was started, or why there is none.
type Started = Result<mpsc::Sender<Bytes>, String>;

async fn end(ending: &Ending) {
    let end = lock(ending).take();
    if let Some(end) = end {
        end.run().await;
    }
}

impl Between {
    /// Forwards lines until either end is gone.
    async fn forward(self: &Arc<Self>, wanted: mpsc::Receiver<Bytes>, backend: Option<Pipe>) {
        let (heard, hears) = mpsc::channel(1);
        let to = match backend {
            Some(pipe) => Some(self.connect(pipe, &heard).await),
            None => None,
        };
        tokio::select! {
            () = self.host_to_backend(wanted, to, heard) => {}
            () = self.backend_to_host(hears) => {}
        }
    }

    async fn connect(
        &self,
        pipe: Pipe,
        heard: &mpsc::Sender<mpsc::Receiver<TrackedLine>>,
    ) -> mpsc::Sender<Bytes> {
        let Pipe { to, from, end } = pipe;
        *lock(&self.end) = Some(end);
        // It is read as long as this task lives.
        let _ = heard.send(from).await;
        to
    }

    async fn host_to_backend(
        self: &Arc<Self>,
        mut wanted: mpsc::Receiver<Bytes>,
        mut to: Option<mpsc::Sender<Bytes>>,
        heard: mpsc::Sender<mpsc::Receiver<TrackedLine>>,
    ) {
        let mut waking: Option<BoxFuture<'_, Started>> = None;
        let mut held: Vec<Bytes> = Vec::new();
        let mut tasks = JoinSet::new();
        let mut wakes_early = self.lazy.waking == Waking::AtStart;
        loop {
            let woken = async {
                match &mut waking {
                    Some(waking) => waking.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                line = wanted.recv(), if held.len() < HELD_MAX => {
                    let Some(line) = line else { return };
                    if let Some(to) = &to {
                        if lock(&self.state).watch(&line) {
                            // Where it can't be sent, the end follows what the backend has said last.
                            let _ = to.send(line).await;
                        }
                        continue;
                    }
                    let effect = lock(&self.state).on_line(&line);
                    match effect {
                        Effect::Answer(line) => self.tell(line).await,
                        Effect::Drop => {}
                        Effect::Hold if waking.is_none() => {}
                        Effect::Hold => held.push(line),
                        Effect::Start => {
                            held.push(line);
                            if waking.is_none() {
                                waking = Some(Box::pin(self.start(&heard)));
                            }
                        }
                    }
                    if wakes_early && waking.is_none() && lock(&self.state).initialized {
                        wakes_early = false;
                        waking = Some(Box::pin(self.start_in_turn(&heard)));
                    }
                }
                woken = woken => {
                    waking = None;
                    let held = std::mem::take(&mut held);
                    match woken {
                        Ok(backend) => {
                            for line in held {
                                if lock(&self.state).watch(&line) {
                                    let _ = backend.send(line).await;
                                }
                            }
                            let (own, asking) = (self.clone(), backend.clone());
                            tasks.spawn(async move { own.correct_lists(&asking).await });
                            to = Some(backend);
                        }
                        Err(why) => {
                            if held.is_empty() {
                                self.lazy.store.failed(&why);
                            }
                            for line in held.iter().flat_map(|line| state::refusals(line, &why)) {
                                self.tell(line).await;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Sends the host a message of our own.
    async fn tell(&self, line: Bytes) {
        // If it can't be sent, the host is gone.
        let _ = self.said.send(TrackedLine::once(line)).await;
    }

    /// The same, not beside too many others: nobody waits for it yet.
    async fn start_in_turn(&self, heard: &mpsc::Sender<mpsc::Receiver<TrackedLine>>) -> Started {
        let _turn = match &self.lazy.turns {
            // It is never closed.
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        self.start(heard).await
    }

    /// Starts the backend, and initialises it for the host.
    async fn start(&self, heard: &mpsc::Sender<mpsc::Receiver<TrackedLine>>) -> Started {
        let waking = self.open_and_initialize(heard);
        let woken = match self.lazy.limit {
            Some(limit) => timeout(limit, waking).await.unwrap_or_else(|_| {
                Err(format!("it was not ready within {} s", limit.as_secs_f32()))
            }),
            None => waking.await,
        };
        if woken.is_err() {
            end(&self.end).await;
        }
        woken
    }

    async fn open_and_initialize(
        &self,
        heard: &mpsc::Sender<mpsc::Receiver<TrackedLine>>,
    ) -> Started {
        let pipe =
            self.lazy
                .inner
                .open()
                .await
                .map_err(|Failure { code, message, .. }| match code {
                    FailureCode::NotFound => {
                        format!("{message}; install it, or correct its command")
                    }
                    _ => message,
                })?;
        let to = self.connect(pipe, heard).await;
        let gone = || {
            "it ended before it was initialised; what it wrote is in the host's log of it"
                .to_owned()
        };
        let params = self
            .lazy
            .handshake
            .as_ref()
            .map(|handshake| handshake.0.clone());
        let told = lock(&self.state).known.version();
        match self.ask(&to, "initialize", params).await.ok_or_else(gone)? {
            Err(error) => {
                // The next host gets this error from the server itself.
                self.forget();
                return Err(format!("it refused to be initialised: {}", error.message));
            }
            Ok(result) => {
                let mut now = Known::default();
                now.initialized(result.clone());
                if now.version() != told {
                    self.forget();
                    let [now, told] = [now.version(), told].map(Option::unwrap_or_default);
                    return Err(format!(
                        "it speaks version {now} of MCP now, and no longer {told}; reconnect to it"
                    ));
                }
                lock(&self.state).known.initialized(result);
            }
        }
        // If it is gone again, the next message shows it.
        let _ = to
            .send(Message::notification("notifications/initialized").write())
            .await;
        let level = lock(&self.state).level.take();
        if let Some(level) = level {
            // The answer is not needed.
            let (line, _) = lock(&self.state).ask(self.nonce, state::set_level(), Some(level));
            let _ = to.send(line).await;
        }
        lock(&self.state).is_started = true;
        Ok(to)
    }

    fn forget(&self) {
        let key = lock(&self.state).key.clone();
        if let Some(key) = key {
            self.lazy.store.save(key, Known::default());
        }
    }

    /// Asks the backend something. None: it is gone.
    async fn ask(
        &self,
        to: &mpsc::Sender<Bytes>,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Option<Outcome> {
        let (line, answer) = lock(&self.state).ask(self.nonce, method, params);
        to.send(line).await.ok()?;
        answer.await.ok()
    }

    /// Tells the host which of the lists that it got have changed.
    async fn correct_lists(&self, to: &mpsc::Sender<Bytes>) {
        let mut told = std::mem::take(&mut lock(&self.state).lists_from_memory);
        told.sort_unstable();
        told.dedup();
        let mut changed = BTreeSet::new();
        for list in told {
            let mut pages = Pages::default();
            let mut cursor = None;
            let now = loop {
                let Some(page) = self.ask(to, list.method(), behind(cursor.take())).await else {
                    return;
                };
                match pages.add(list, &page) {
                    Page::More(next) => cursor = Some(next),
                    Page::Whole(outcome) => break Some(outcome),
                    Page::TooMany | Page::Failed(_) => break None,
                }
            };
            let mut state = lock(&self.state);
            if !state.known.has_same(list, now.as_ref()) {
                changed.insert(list.changed());
            }
            state.known.set_list(list, now);
        }
        let news = lock(&self.state).news();
        self.remember(news);
        for method in changed {
            self.tell(Message::notification(method).write()).await;
        }
    }

    fn remember(&self, news: Option<News>) {
        if let Some((key, known)) = news {
            self.lazy.store.save(key, known);
        }
    }

    /// Passes on what the backend says. One that is lost before it was initialised may be followed
    /// by another.
    async fn backend_to_host(&self, mut hears: mpsc::Receiver<mpsc::Receiver<TrackedLine>>) {
        while let Some(mut from) = hears.recv().await {
            while let Some(said) = from.recv().await {
                if let Some(said) = self.filter_line(said)
                    && self.said.send(said).await.is_err()
                {
                    return;
                }
            }
            let mut state = lock(&self.state);
            state.on_server_lost();
            if state.is_started {
                return;
            }
        }
    }

    /// Looks at a line of the backend. None: it was an answer to a request of our own.
    fn filter_line(&self, said: TrackedLine) -> Option<TrackedLine> {
        let is_waiting = lock(&self.state).is_waiting();
        // It may answer a request of a former process, which no one waits for.
        let may_be_own = || {
            said.line
                .windows(OWN.len())
                .take(OWN_WITHIN)
                .any(|part| part == OWN.as_bytes())
        };
        if !is_waiting && !may_be_own() {
            return Some(said);
        }
        let messages = Message::read(&said.line);
        let is_one = messages.len() == 1;
        let mut is_ours = false;
        for message in messages {
            if let Message::Answer { id, outcome } = message {
                let (was_asked, news) = lock(&self.state).on_answer(&id, &outcome);
                is_ours = was_asked || id.begins_with(OWN);
                self.remember(news);
            }
        }
        if is_ours && is_one {
            said.receipt.confirm();
            return None;
        }
        Some(said)
    }
}

/// Where in a line an id of ours may be, if the rest of the message stands behind it.
const OWN_WITHIN: usize = 256;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// A backend that reads nothing any more.
    #[derive(Debug)]
    struct Deaf(Mutex<Option<mpsc::Receiver<TrackedLine>>>);

    impl Source for Deaf {
        fn name(&self) -> &'static str {
            "deaf"
        }

        fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
            let from = lock(&self.0).take().expect("opened once");
            let (to, _) = mpsc::channel(1);
            let end = End::by_drop();
            std::future::ready(Ok(Pipe { to, from, end })).boxed()
        }
    }

    struct Nothing;

    impl KnownStore for Nothing {
        fn load<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Option<Known>> {
            std::future::ready(None).boxed()
        }

        fn save(&self, _key: String, _known: Known) {}

        fn unused(&self, _key: Option<&str>, _why: Unused) {}

        fn failed(&self, _why: &str) {}
    }

    #[tokio::test]
    async fn what_a_backend_has_said_last_arrives_where_nothing_can_be_sent_to_it() {
        let (said, from) = mpsc::channel(1);
        let backend = Arc::new(Deaf(Mutex::new(Some(from))));
        let lazy = Lazy::new(backend, Arc::new(Nothing), None, Waking::AtFirstCall);
        let mut pipe = lazy.open().await.expect("opened");
        // The first one was dealt with by the time there is room for the last.
        for _ in 0..=WAITING + 1 {
            let ping = Message::notification("notifications/cancelled").write();
            pipe.to.send(ping).await.expect("it listens");
        }
        let line = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let last = TrackedLine::once(line.clone());
        said.send(last).await.expect("it listens");
        drop(said);
        assert_eq!(pipe.from.recv().await.map(|said| said.line), Some(line));
        assert!(pipe.from.recv().await.is_none());
    }
}
