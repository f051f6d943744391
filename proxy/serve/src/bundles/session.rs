//! The bundle of one session, as its server.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_bundle::decorate::{CallEntry, CallLog, Current, decorate};
use mcp_sessiond_bundle::modern::EitherEra;
use mcp_sessiond_bundle::{
    Backends, BundleServer, BundleStore, Message, Receipt, Source, TrackedLine, WAITING,
};
use mcp_sessiond_client::{RequestId, Session};
use mcp_sessiond_http_session::handshake::Handshake;
use mcp_sessiond_http_session::messages::{Id, answered_ids};
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_proxy::front::bundle::report::Report;
use mcp_sessiond_proxy::front::bundle::{Server, identities};
use mcp_sessiond_proxy::server::remote::{ResumeStore, StoreUsers};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::source::{InheritedCalls, KeeperSource, Links, RunningServer, noting_losses};
use super::{Common, Listing};
use crate::backend::{Backend, Ended, Losses, ServerLine, ServerLoss};
use crate::stderr::warn;

/// The id of the `initialize` that a former process had sent, and that the bundle of this one gets
/// from us.
const ID: &str = r#""mcp-sessiond-again""#;

/// How long what is under way may take when the servers have ended.
const END_WAIT: Duration = Duration::from_secs(5);

/// A bundle that serves one session.
pub(super) struct BundleBackend {
    common: Arc<Common>,
    session: Session,
    era: String,
    speaker: BundleServer,
    spoken: tokio::sync::Mutex<mpsc::Receiver<TrackedLine>>,
    /// What was handed out and not confirmed, by number.
    unconfirmed: Mutex<VecDeque<(u64, Receipt)>>,
    number: AtomicU64,
    bundle: Arc<OnceLock<Arc<Backends>>>,
    links: Arc<Links>,
    losses: Losses,
    /// The calls that a former process has sent.
    inherited: Vec<Id>,
    continues: AtomicBool,
    is_ending: AtomicBool,
    is_over: watch::Sender<bool>,
}

impl BundleBackend {
    /// A bundle of these servers, which begins when it is sent `initialize`. `found` are those that
    /// run, and what was lost of others.
    pub(super) fn new(
        common: Arc<Common>,
        session: Session,
        era: String,
        memory: Arc<dyn BundleStore>,
        listing: Arc<Listing>,
        (found, losses): (HashMap<String, RunningServer<Vec<Id>>>, Losses),
    ) -> Arc<Self> {
        let (out, spoken) = mpsc::channel(WAITING);
        let inherited = found
            .values()
            .flat_map(RunningServer::calls)
            .cloned()
            .collect();
        let with_calls = |found: RunningServer<Vec<Id>>| {
            found.map(|ids| InheritedCalls::new(ids, &out, &common.is_leaving))
        };
        let found: HashMap<String, RunningServer<InheritedCalls>> = found
            .into_iter()
            .map(|(name, found)| (name, with_calls(found)))
            .collect();
        let links: Arc<Links> = Arc::default();
        let (id, of) = (session.id().clone(), session.reference());
        let sources = {
            let (common, links, found) = (common.clone(), links.clone(), Mutex::new(found));
            let losses = losses.clone();
            let of = of.clone();
            let users = StoreUsers::default();
            move |servers: &[Server]| {
                let source = |server: &Server| -> Arc<dyn Source> {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    let (name, print) = (&server.name, |what: &dyn fmt::Display| warn(what));
                    let store = ResumeStore::of(common.stores.clone(), of.clone(), name, print)
                        .on_loss(noting_losses(server, &common.service, &id, &losses));
                    EitherEra::of(Arc::new(KeeperSource {
                        found: Mutex::new(found.remove(name)),
                        server: server.clone(),
                        session: id.clone(),
                        store: users.share(store),
                        common: common.clone(),
                        links: links.clone(),
                        losses: losses.clone(),
                    }))
                };
                servers.iter().map(source).collect::<Vec<_>>()
            }
        };
        let bundle: Arc<OnceLock<Arc<Backends>>> = Arc::default();
        let is_over = watch::Sender::new(false);
        let speaker = BundleServer::new(out, {
            let (common, bundle, is_over) = (common.clone(), bundle.clone(), is_over.subscribe());
            move |handshake, host| {
                let first = sources(&listing.servers);
                let settings = common.settings.clone();
                let backends = Arc::new(Backends::start(first, handshake, host, memory, settings));
                let current = Arc::new(Current::new(decorate(
                    backends.clone(),
                    &listing.decorations,
                    &log(),
                )));
                let daemon = (common.control.clone(), of.clone());
                let report = Report::new(Some(daemon), |line| warn(line)).by_shared_connection();
                tokio::spawn(report.follow(Arc::downgrade(&backends)));
                let follower = ListFollower {
                    common,
                    backends: Arc::downgrade(&backends),
                    current: Arc::downgrade(&current),
                    listing,
                };
                tokio::spawn(follower.follow(sources, is_over));
                let _ = bundle.set(backends);
                current
            }
        });
        Arc::new(Self {
            common,
            session,
            era,
            speaker,
            spoken: tokio::sync::Mutex::new(spoken),
            unconfirmed: Mutex::default(),
            number: AtomicU64::new(0),
            bundle,
            links,
            losses,
            inherited,
            continues: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_over,
        })
    }

    /// Goes on where a former process was, with its handshake.
    pub(super) async fn go_on(&self, handshake: &Handshake) {
        let params = &handshake.initialize;
        let line = answers::request(ID, "initialize", params.get());
        self.continues.store(true, Ordering::SeqCst);
        self.speaker.receive(&line).await;
        // Else a client that lists something now would miss what it had before.
        if let Some(bundle) = self.speaker.bundle() {
            bundle.ready().await;
        }
    }

    fn unconfirmed(&self) -> MutexGuard<'_, VecDeque<(u64, Receipt)>> {
        self.unconfirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn spoken(&self) -> Option<TrackedLine> {
        let mut is_over = self.is_over.subscribe();
        let mut spoken = self.spoken.lock().await;
        tokio::select! {
            biased;
            line = spoken.recv() => line,
            _ = is_over.wait_for(|is_over| *is_over) => None,
        }
    }
}

impl Backend for BundleBackend {
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
        async move {
            if self.is_ending.load(Ordering::SeqCst) {
                return Err(Ended {
                    may_have_arrived: false,
                });
            }
            let messages = Message::read(&line);
            self.speaker.receive(&line).await;
            // A call that no keeper knows has an unknown outcome. What has no answer has to be
            // safe.
            if !messages.iter().any(is_call) {
                let _ = timeout(self.common.hold, self.links.flushed()).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<ServerLine>> {
        async {
            loop {
                let TrackedLine { line, receipt } = self.spoken().await?;
                if self.continues() && answered_ids(&line).iter().any(|id| **id == *ID) {
                    continue;
                }
                let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
                self.unconfirmed().push_back((number, receipt));
                return Some(ServerLine {
                    number,
                    line,
                    stream: None,
                });
            }
        }
        .boxed()
    }

    fn confirm(&self, number: u64) {
        let stored: Vec<_> = {
            let mut unconfirmed = self.unconfirmed();
            let count = unconfirmed
                .iter()
                .take_while(|(of, _)| *of <= number)
                .count();
            unconfirmed.drain(..count).collect()
        };
        stored
            .into_iter()
            .for_each(|(_, receipt)| receipt.confirm());
    }

    fn mark(&self, number: u64) -> String {
        let unconfirmed = self.unconfirmed();
        let receipt = unconfirmed.iter().find(|(of, _)| *of == number);
        // What the bundle itself says comes once.
        receipt
            .and_then(|(_, receipt)| receipt.mark())
            .map_or_else(|| RequestId::mint().to_string(), str::to_owned)
    }

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>> {
        std::future::ready(Ok(self.inherited.clone())).boxed()
    }

    fn losses(&self) -> Vec<ServerLoss> {
        self.losses.take()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async {
            if self.is_ending.swap(true, Ordering::SeqCst) {
                return;
            }
            self.common.end(&self.session, &self.era);
            if let Some(bundle) = self.bundle.get() {
                bundle.end().await;
            }
            let _ = timeout(END_WAIT, self.speaker.close()).await;
            self.is_over.send_replace(true);
        }
        .boxed()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        self.links.gone().boxed()
    }

    fn incarnation(&self) -> &str {
        &self.era
    }

    fn continues(&self) -> bool {
        self.continues.load(Ordering::SeqCst)
    }

    fn knows_all(&self) -> bool {
        false
    }
}

fn is_call(message: &Message) -> bool {
    matches!(message, Message::Request { .. })
}

/// Notes calls on standard error, where a decoration asks for it.
struct StderrCallLog;

impl CallLog for StderrCallLog {
    fn note(&self, call: CallEntry) {
        warn(call);
    }
}

fn log() -> Arc<dyn CallLog> {
    Arc::new(StderrCallLog)
}

/// Follows the edits of the list.
struct ListFollower {
    common: Arc<Common>,
    backends: Weak<Backends>,
    current: Weak<Current>,
    listing: Arc<Listing>,
}

impl ListFollower {
    async fn follow(
        mut self,
        sources: impl Fn(&[Server]) -> Vec<Arc<dyn Source>>,
        mut is_over: watch::Receiver<bool>,
    ) {
        let mut edits = self.common.listing.clone();
        loop {
            // It may have been edited before this one was made.
            let now = self.common.listing();
            let (Some(backends), Some(current)) = (self.backends.upgrade(), self.current.upgrade())
            else {
                return;
            };
            let are_others = now.decorations != self.listing.decorations;
            // Before the servers that they are for.
            if are_others {
                current.set(decorate(backends.clone(), &now.decorations, &log()));
            }
            let (running, wanted) = (identities(&self.listing.servers), identities(&now.servers));
            let order = |listing: &Listing| {
                listing
                    .servers
                    .iter()
                    .map(|server| server.name.clone())
                    .collect::<Vec<_>>()
            };
            if running != wanted || order(&self.listing) != order(&now) {
                backends.set_sources(sources(&now.servers), |name| {
                    running.get(name) == wanted.get(name)
                });
            }
            self.listing = now;
            if are_others {
                backends.tell_changed().await;
            }
            drop((backends, current));
            tokio::select! {
                edited = edits.changed() => if edited.is_err() { return },
                // Also when it is gone.
                _ = is_over.wait_for(|is_over| *is_over) => return,
            }
        }
    }
}
