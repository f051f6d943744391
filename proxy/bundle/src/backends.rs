//! The bundle itself: its backends, and what the trait `Bundle` does with them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::future::{BoxFuture, join_all};
use mcp_sessiond_jsonrpc::owned::{Id, Message};
use tokio::sync::{OnceCell, Semaphore, watch};
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::bundle::{Bundle, Error, Handshake, Settings};
use crate::call::{Call, Item, List, Target};
use crate::connection::Answer;
use crate::core::{CallGuard, Core};
use crate::life;
use crate::lock::lock;
use crate::names::{Names, Namespace, Origin};
use crate::pipe::{BundleStore, Host, Source};
use crate::roots::Roots;
use crate::status::{BackendState, Failure, FailureCode, Status};

/// A bundle: its backends, and by which names they are known.
#[derive(Debug)]
pub struct Backends {
    core: Arc<Core>,
    tasks: Mutex<JoinSet<()>>,
}

impl Backends {
    /// Begins to start all backends.
    pub fn start(
        sources: Vec<Arc<dyn Source>>,
        handshake: Handshake,
        host: Arc<dyn Host>,
        memory: Arc<dyn BundleStore>,
        settings: Settings,
    ) -> Self {
        let core = Arc::new(Core {
            slots: Semaphore::new(settings.init_concurrency.max(1)),
            settings,
            handshake,
            host,
            memory,
            states: watch::Sender::new(()),
            backends: RwLock::default(),
            names: Mutex::default(),
            unsettled: Mutex::new(Some(Names::default())),
            loaded: OnceCell::new(),
            naming: tokio::sync::Mutex::default(),
            running: watch::Sender::default(),
            is_closed: watch::Sender::default(),
            told: Mutex::default(),
            replaced: Mutex::default(),
            failed: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            version: AtomicU64::new(0),
            tokens: Mutex::default(),
            roots: Roots::default(),
            nonce: RandomState::new().build_hasher().finish(),
        });
        let bundle = Self {
            core,
            tasks: Mutex::default(),
        };
        bundle.set_sources(sources, |_| true);
        bundle
    }

    /// These are the backends from now on. Those that were there stay as they are, unless `is_same`
    /// says that they are not what they were; who is not in the list is ended. A bundle that was
    /// closed has none any more.
    pub fn set_sources(&self, sources: Vec<Arc<dyn Source>>, is_same: impl Fn(&str) -> bool) {
        self.replace(sources, is_same, true);
    }

    fn replace(
        &self,
        sources: Vec<Arc<dyn Source>>,
        is_same: impl Fn(&str) -> bool,
        forgets: bool,
    ) {
        let core = &self.core;
        let mut tasks = lock(&self.tasks);
        if core.has_closed() {
            return;
        }
        while tasks.try_join_next().is_some() {}
        let mut backends = core
            .backends
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut former = std::mem::take(&mut *backends);
        for source in sources {
            let at = former
                .iter()
                .position(|backend| backend.name() == source.name() && is_same(backend.name()));
            backends.push(match at {
                Some(at) => former.swap_remove(at),
                None => {
                    let backend = Arc::new(Backend::new(source, core.states.clone()));
                    tasks.spawn(life::run(core.clone(), backend.clone()));
                    backend
                }
            });
        }
        drop(backends);
        if forgets {
            core.forget_told(
                &former
                    .iter()
                    .map(|backend| backend.name().to_owned())
                    .collect(),
            );
        }
        core.change();
        core.states.send_replace(());
        for backend in former {
            backend.removed.notify_one();
        }
    }

    /// Notified with each change of [`Bundle::status`]. It ends with the bundle.
    pub fn states(&self) -> watch::Receiver<()> {
        self.core.states.subscribe()
    }

    /// Tells the host that the lists have changed, though no backend has said so.
    pub async fn tell_changed(&self) {
        self.core.tell_changed(List::ALL).await;
    }

    /// Ends all backends, and waits until they are gone.
    pub async fn end(&self) {
        // It may be begun again with the same servers.
        self.replace(Vec::new(), |_| false, false);
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }
}

impl Bundle for Backends {
    fn status(&self) -> Status {
        self.core.status()
    }

    fn instructions(&self) -> String {
        let live = self.core.all_live();
        let own = live.iter().filter_map(|(backend, live)| {
            Some(format!(
                "# {}\n\n{}",
                backend.name(),
                live.instructions.as_deref()?.trim()
            ))
        });
        let missing = self.status().missing().join("\n");
        own.chain((!missing.is_empty()).then_some(missing))
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let backends = self.core.backends();
            let all = join_all(backends.iter().map(|backend| backend.wait_until_tried()));
            let _ = tokio::time::timeout(self.core.settings.ready_wait, all).await;
            self.core.settle_names().await;
        })
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        let listed = CallGuard::begin(&self.core).map(|_| self.core.listed(list));
        Box::pin(std::future::ready(listed))
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(self.core.call(call))
    }

    fn wait_for_owner<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.core.wait_for_owner(uri))
    }

    fn tell(&self, message: Message) -> BoxFuture<'_, ()> {
        self.core.tell(message);
        Box::pin(std::future::ready(()))
    }

    fn give_up(&self, id: &Id, why: &str) -> bool {
        self.core.give_up(id, why)
    }

    fn origin_of(&self, target: &Target) -> Option<Origin> {
        self.core.origin_of(target)
    }

    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String> {
        lock(&self.core.names)
            .listed_as(namespace, own)
            .map(str::to_owned)
    }

    fn version(&self) -> u64 {
        self.core.version.load(Ordering::SeqCst)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.core.is_closed.send_replace(true);
            self.core.change();
            // It can't fail: the sender is in this object.
            let _ = self
                .core
                .running
                .subscribe()
                .wait_for(|running| *running == 0)
                .await;
            let mut tasks = std::mem::take(&mut *lock(&self.tasks));
            // One that is just being made ready must not be so afterwards.
            tasks.shutdown().await;
            for backend in self.core.backends() {
                let closed = Failure::new(FailureCode::NotStarted, "the session was closed");
                backend.set(BackendState::Failed(closed), None);
                drop(backend.take_end());
            }
        })
    }
}
