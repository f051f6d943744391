//! A server that is started at the first call. Until then it is answered for from what it has said
//! last; then it is started, and the host is told which of its lists are others now.
//!
//! - `known`: what is remembered. `state`: what is answered from it, and what is watched, without
//!   I/O.

mod known;
mod state;

use std::collections::BTreeSet;
use std::future::pending;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::lock;
use crate::bundle::Handshake;
use crate::message::{Id, Message, Outcome};
use crate::pipe::{End, Pipe, Said, Source, WAITING};
use crate::status::{Failure, FailureCode};
pub use known::{KNOWN_MAX, Known, words, words_of_discover};
use known::{Page, Pages};
use state::{Asleep, News, OWN, State};

/// Lines of the host that may wait for the server to start. Later ones wait in the channel.
const HELD_MAX: usize = 256;

/// Where it is remembered what a server has told. Several processes may do so at once: the last one
/// counts.
pub trait Recall: Send + Sync {
    /// What it has told a host with these [`words`].
    fn load<'a>(&'a self, words: &'a str) -> BoxFuture<'a, Option<Known>>;

    /// Remembers this, soon. Nobody waits for it.
    fn save(&self, words: String, known: Known);
}

impl std::fmt::Debug for dyn Recall {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Recall")
    }
}

/// A backend that is started at the first call, if it is known what it would say until then. One
/// that runs already is connected at once, and so is one of which nothing is known: what it says
/// then is remembered.
#[derive(Debug, Clone)]
pub struct Lazy {
    inner: Arc<dyn Source>,
    recall: Arc<dyn Recall>,
    handshake: Option<Handshake>,
    /// The parameters of the host's `server/discover`, which was answered from memory.
    discover: Option<Option<Box<RawValue>>>,
    limit: Option<Duration>,
}

impl Lazy {
    /// Stands around a backend, for a host that will introduce itself by `handshake`. None: it
    /// speaks otherwise, so the backend is started at once, and what it says is remembered where
    /// the host introduces itself later.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Source>,
        recall: Arc<dyn Recall>,
        handshake: Option<Handshake>,
    ) -> Self {
        Self {
            inner,
            recall,
            handshake,
            discover: None,
            limit: None,
        }
    }

    /// The host has begun with `server/discover`, and was answered from memory: the backend gets
    /// that, too, before `initialize`, so that it has heard all that its host has said.
    #[must_use]
    pub fn after_discover(self, params: Option<Box<RawValue>>) -> Self {
        Self {
            discover: Some(params),
            ..self
        }
    }

    /// How long the backend may take until it is initialised, at the first call.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// What the backend has said last, if it is not connected at once. A host never calls one that
    /// has nothing, so that is not from memory: it may have something by now, after a login for
    /// instance.
    async fn known(&self, words: &str) -> Option<Known> {
        let known = self.recall.load(words).await.filter(Known::is_callable)?;
        (!self.inner.is_running().await).then_some(known)
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
            let words = self.handshake.as_ref().map(|handshake| words(&handshake.0));
            let known = match &words {
                Some(words) => self.known(words).await,
                None => None,
            };
            let (backend, known) = match known {
                Some(known) => (None, known),
                None => (Some(self.inner.open().await?), Known::default()),
            };
            let state = State::new(words, known, backend.is_some());
            let (to, wanted) = mpsc::channel(WAITING);
            let (said, from) = mpsc::channel(WAITING);
            let nonce = RandomState::new().build_hasher().finish();
            let between = Arc::new(Between {
                lazy: self.clone(),
                state: Mutex::new(state),
                said,
                end: Mutex::default(),
                nonce,
            });
            let (stop, stopped) = oneshot::channel::<()>();
            let own = between.clone();
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = own.carry(wanted, backend) => {}
                    Ok(()) = stopped => {}
                }
            });
            let end = End::new(move || {
                Box::pin(async move {
                    let _ = stop.send(());
                    let _ = task.await;
                    between.end().await;
                })
            });
            Ok(Pipe { to, from, end })
        })
    }
}

/// What is between the host's pipe and the backend's.
#[derive(Debug)]
struct Between {
    lazy: Lazy,
    state: Mutex<State>,
    /// To the host.
    said: mpsc::Sender<Said>,
    /// How the backend is ended, once it was opened.
    end: Mutex<Option<End>>,
    nonce: u64,
}

/// A backend that was started, or why there is none.
type Woken = Result<mpsc::Sender<Bytes>, String>;

impl Between {
    /// Carries lines until one of both ends is gone.
    async fn carry(self: &Arc<Self>, wanted: mpsc::Receiver<Bytes>, backend: Option<Pipe>) {
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
        heard: &mpsc::Sender<mpsc::Receiver<Said>>,
    ) -> mpsc::Sender<Bytes> {
        let Pipe { to, from, end } = pipe;
        *lock(&self.end) = Some(end);
        // It is read as long as this task lives.
        let _ = heard.send(from).await;
        to
    }

    async fn end(&self) {
        let end = lock(&self.end).take();
        if let Some(end) = end {
            end.run().await;
        }
    }

    async fn host_to_backend(
        self: &Arc<Self>,
        mut wanted: mpsc::Receiver<Bytes>,
        mut to: Option<mpsc::Sender<Bytes>>,
        heard: mpsc::Sender<mpsc::Receiver<Said>>,
    ) {
        if let Some(to) = &to {
            // What comes of it is seen at `initialize`.
            self.discover(to).await;
        }
        let mut waking: Option<BoxFuture<'_, Woken>> = None;
        let mut held: Vec<Bytes> = Vec::new();
        let mut tasks = JoinSet::new();
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
                        if lock(&self.state).watch(&line) && to.send(line).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    let step = lock(&self.state).asleep(&line);
                    match step {
                        Asleep::Answer(line) => self.tell(line).await,
                        Asleep::Drop => {}
                        Asleep::Wait if waking.is_none() => {}
                        Asleep::Wait => held.push(line),
                        Asleep::Wake => {
                            held.push(line);
                            if waking.is_none() {
                                waking = Some(Box::pin(self.wake(&heard)));
                            }
                        }
                    }
                }
                woken = woken => {
                    waking = None;
                    let held = std::mem::take(&mut held);
                    match woken {
                        Ok(backend) => {
                            for line in held {
                                if lock(&self.state).watch(&line) && backend.send(line).await.is_err() {
                                    return;
                                }
                            }
                            let (own, asking) = (self.clone(), backend.clone());
                            tasks.spawn(async move { own.mend(&asking).await });
                            to = Some(backend);
                        }
                        Err(why) => {
                            for line in held.iter().flat_map(|line| state::refusals(line, &why)) {
                                self.tell(line).await;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Tells the host something of ours.
    async fn tell(&self, line: Bytes) {
        // Where nobody hears it, nobody waits for it.
        let _ = self.said.send(Said::once(line)).await;
    }

    /// Starts the backend, and introduces the host to it.
    async fn wake(&self, heard: &mpsc::Sender<mpsc::Receiver<Said>>) -> Woken {
        let waking = self.started(heard);
        let woken = match self.lazy.limit {
            Some(limit) => timeout(limit, waking).await.unwrap_or_else(|_| {
                Err(format!("it was not ready within {} s", limit.as_secs_f32()))
            }),
            None => waking.await,
        };
        if woken.is_err() {
            self.end().await;
        }
        woken
    }

    async fn started(&self, heard: &mpsc::Sender<mpsc::Receiver<Said>>) -> Woken {
        let pipe =
            self.lazy
                .inner
                .open()
                .await
                .map_err(|Failure { code, message }| match code {
                    FailureCode::NotFound => {
                        format!("{message}; install it, or correct its command")
                    }
                    _ => message,
                })?;
        let to = self.connect(pipe, heard).await;
        let gone = || {
            "it ended before it was initialised; what it has said is in the host's log of it"
                .to_owned()
        };
        if self
            .discover(&to)
            .await
            .is_some_and(|outcome| outcome.is_ok())
        {
            return Err("it speaks MCP 2026-07-28 now; reconnect to it".to_owned());
        }
        let params = self
            .lazy
            .handshake
            .as_ref()
            .map(|handshake| handshake.0.clone());
        let told = lock(&self.state).known.version();
        match self.ask(&to, "initialize", params).await.ok_or_else(gone)? {
            Err(error) => {
                // The next host is to hear that from the server itself.
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
        // Where it is gone again, what follows is told so.
        let _ = to
            .send(Message::notification("notifications/initialized").write())
            .await;
        let level = lock(&self.state).level.take();
        if let Some(level) = level {
            // Nobody waits for that.
            let (line, _) = lock(&self.state).ask(self.nonce, state::set_level(), Some(level));
            let _ = to.send(line).await;
        }
        lock(&self.state).is_awake = true;
        Ok(to)
    }

    /// Asks the backend what its host has asked, if that was `server/discover`. One that has an
    /// answer to it is not known any more.
    async fn discover(&self, to: &mpsc::Sender<Bytes>) -> Option<Outcome> {
        let params = self.lazy.discover.as_ref()?;
        let outcome = self.ask(to, "server/discover", params.clone()).await?;
        if outcome.is_ok() {
            self.lazy
                .recall
                .save(words_of_discover(params.as_deref()), Known::default());
        }
        Some(outcome)
    }

    fn forget(&self) {
        let words = lock(&self.state).words.clone();
        if let Some(words) = words {
            self.lazy.recall.save(words, Known::default());
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

    /// Tells the host which of the lists that it got are others now.
    async fn mend(&self, to: &mpsc::Sender<Bytes>) {
        let mut told = std::mem::take(&mut lock(&self.state).told);
        told.sort_unstable();
        told.dedup();
        let mut changed = BTreeSet::new();
        for list in told {
            let mut pages = Pages::default();
            let mut cursor = None;
            let now = loop {
                let Some(page) = self
                    .ask(to, list.method(), state::behind(cursor.take()))
                    .await
                else {
                    return;
                };
                match pages.add(list, &page) {
                    Page::More(next) => cursor = Some(next),
                    Page::Whole(outcome) => break Some(outcome),
                    Page::Failed => break None,
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
        if let Some((words, known)) = news {
            self.lazy.recall.save(words, known);
        }
    }

    /// Passes on what the backend says. One that is lost before it was initialised may be followed
    /// by another.
    async fn backend_to_host(&self, mut hears: mpsc::Receiver<mpsc::Receiver<Said>>) {
        while let Some(mut from) = hears.recv().await {
            while let Some(said) = from.recv().await {
                if let Some(said) = self.heard(said)
                    && self.said.send(said).await.is_err()
                {
                    return;
                }
            }
            let mut state = lock(&self.state);
            state.lose();
            if state.is_awake {
                return;
            }
        }
    }

    /// Hears a line of the backend. None: it was for us.
    fn heard(&self, said: Said) -> Option<Said> {
        let is_waiting = lock(&self.state).is_waiting();
        // An answer to a former process of ours comes when nobody waits for it any more.
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
                let (was_asked, news) = lock(&self.state).hear(&id, &outcome);
                is_ours = was_asked || is_own(&id);
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

fn is_own(id: &Id) -> bool {
    id.as_json()
        .strip_prefix('"')
        .is_some_and(|text| text.starts_with(OWN))
}
