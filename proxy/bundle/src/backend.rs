//! One backend of a bundle: its handshake, its lists, and its state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::Message;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::call::{Item, List};
use crate::connection::Connection;
use crate::lock::lock;
use crate::pace::Pace;
use crate::pages::{Page, Pages, behind};
use crate::pipe::{End, Source};
use crate::status::{BackendState, Failure, FailureCode};

/// The versions of MCP that a bundle speaks, the newest first.
pub(crate) const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// One backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) source: Arc<dyn Source>,
    state: watch::Sender<BackendState>,
    /// Notified with each state of any backend of the bundle.
    states: watch::Sender<()>,
    live: Mutex<Option<Arc<LiveBackend>>>,
    /// Notified when it has left the bundle.
    pub(crate) removed: Notify,
    /// The notifications of changed lists that came before it was ready.
    pub(crate) early: Mutex<BTreeSet<&'static str>>,
    /// How to end what `source` has opened last.
    end: Mutex<Option<End>>,
}

/// A backend that can be used.
#[derive(Debug)]
pub(crate) struct LiveBackend {
    /// The backend's name.
    name: String,
    pub(crate) connection: Connection,
    pub(crate) instructions: Option<String>,
    capabilities: Object,
    lists: Mutex<[Arc<[Item]>; 4]>,
    /// Lists that it has answered with an error, and has not given since.
    refused: Mutex<BTreeMap<List, Failure>>,
    /// Lists that have more pages than these, which were fetched.
    cut: Mutex<BTreeMap<List, usize>>,
    /// Whether those that were refused are asked for again.
    pub(crate) is_retried: AtomicBool,
    /// How often lists are fetched, by the notification that says that they have changed.
    paces: Mutex<BTreeMap<&'static str, Pace>>,
    /// URIs that the host has subscribed to.
    pub(crate) subscriptions: Mutex<BTreeSet<String>>,
}

impl Backend {
    pub(crate) fn new(source: Arc<dyn Source>, states: watch::Sender<()>) -> Self {
        Self {
            source,
            state: watch::Sender::default(),
            states,
            live: Mutex::default(),
            removed: Notify::new(),
            early: Mutex::default(),
            end: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.source.name()
    }

    pub(crate) fn state(&self) -> BackendState {
        self.state.borrow().clone()
    }

    /// Sets its state. Only one that is ready has a connection.
    pub(crate) fn set(&self, state: BackendState, live: Option<Arc<LiveBackend>>) {
        *lock(&self.live) = live;
        self.state.send_replace(state);
        self.states.send_replace(());
    }

    /// The connection, while there is one.
    pub(crate) fn live(&self) -> Option<Arc<LiveBackend>> {
        lock(&self.live).clone()
    }

    /// It was opened, and this is how it is ended.
    pub(crate) fn set_end(&self, end: End) {
        *lock(&self.end) = Some(end);
    }

    /// Begins to end what was opened last, once. It is ended completely, even if this future is dropped,
    /// which is over when it is gone.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        let ending = self.take_end().map(|end| tokio::spawn(end.run()));
        async move {
            if let Some(ending) = ending {
                let _ = ending.await;
            }
        }
    }

    /// Takes the way to end what was opened last: it is not ended by this any more.
    pub(crate) fn take_end(&self) -> Option<End> {
        lock(&self.end).take()
    }

    /// Whether it was not tried to the end yet.
    pub(crate) fn is_new(&self) -> bool {
        self.state.borrow().is_new()
    }

    /// Waits until it was tried to the end for the first time.
    pub(crate) async fn wait_until_tried(&self) {
        // It can't fail: the sender is in this object.
        let _ = self
            .state
            .subscribe()
            .wait_for(|state| !state.is_new())
            .await;
    }

    /// Waits until this connection, which is over, is not its own any more.
    pub(crate) async fn wait_until_lost(&self, former: &Arc<LiveBackend>) {
        let is_other =
            |_: &BackendState| self.live().is_none_or(|live| !Arc::ptr_eq(&live, former));
        // Its sender is this object's.
        let _ = self.state.subscribe().wait_for(is_other).await;
    }

    /// Waits for it, if it is being started.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(crate) async fn ready(&self) -> Result<Arc<LiveBackend>, Failure> {
        self.wait_until_tried().await;
        self.live().ok_or_else(|| match self.state() {
            BackendState::Failed(failure) => failure,
            _ => Failure::new(FailureCode::Exited, "it is being started again"),
        })
    }
}

impl LiveBackend {
    /// Initialises a backend that is connected, and gets all its lists. After `enough` a list that has
    /// begun to come is cut.
    ///
    /// # Errors
    /// What it refused, or that it is gone.
    pub(crate) async fn initialize(
        name: &str,
        connection: Connection,
        handshake: &RawValue,
        enough: Instant,
    ) -> Result<Self, Failure> {
        let refused = |error: RpcError| {
            if error.is_not_the_servers() {
                return Failure::new(FailureCode::Unreachable, error.message);
            }
            Failure::new(
                FailureCode::Refused,
                format!("it refused to be initialised: {}", error.message),
            )
        };
        let result = connection
            .request_own("initialize", Some(handshake.to_owned()))
            .await
            .ok_or_else(exited_early)?;
        let result = Object::read(&result.map_err(refused)?).ok_or_else(|| {
            let why = "its answer to `initialize` is not an object";
            Failure::new(FailureCode::Refused, why)
        })?;
        // Where it says none, the one that it was asked for counts.
        let version = result.text("protocolVersion");
        if let Some(version) = version.filter(|version| !VERSIONS.contains(&&**version)) {
            let why = format!(
                "it speaks version {version:?} of MCP; a bundle speaks {}",
                VERSIONS.join(", ")
            );
            return Err(Failure::new(FailureCode::Refused, why));
        }
        connection
            .tell(&Message::notification("notifications/initialized"))
            .await;
        let live = Self {
            name: name.to_owned(),
            connection,
            instructions: result
                .text("instructions")
                .filter(|text| !text.trim().is_empty()),
            capabilities: result.object("capabilities").unwrap_or_default(),
            lists: Mutex::new(std::array::from_fn(|_| Arc::from([]))),
            refused: Mutex::default(),
            cut: Mutex::default(),
            is_retried: AtomicBool::new(false),
            paces: Mutex::default(),
            subscriptions: Mutex::default(),
        };
        for list in List::ALL {
            match live.fetch(list, enough).await {
                Err(why) if why.code != FailureCode::Refused => return Err(why),
                // Its other lists may be of use.
                _ => {}
            }
        }
        let is_empty = List::ALL.iter().all(|list| live.list(*list).is_empty());
        match live.refused().into_iter().next() {
            Some((_, why)) if is_empty => Err(why),
            _ => Ok(live),
        }
    }

    /// Lists that it has answered with an error, and why.
    pub(crate) fn refused(&self) -> BTreeMap<List, Failure> {
        lock(&self.refused).clone()
    }

    /// Whether it has declared a capability.
    pub(crate) fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some()
    }

    /// What it has listed last.
    pub(crate) fn list(&self, list: List) -> Arc<[Item]> {
        lock(&self.lists)[list as usize].clone()
    }

    /// Gets a list, all pages of it, but of a long one no page after `enough`. One that it refuses
    /// stays as it was.
    pub(crate) async fn fetch(&self, list: List, enough: Instant) -> Result<(), Failure> {
        let fetched = self.pages(list, enough).await;
        let mut refused = lock(&self.refused);
        match &fetched {
            Err(why) if why.code == FailureCode::Refused => drop(refused.insert(list, why.clone())),
            _ => drop(refused.remove(&list)),
        }
        fetched
    }

    async fn pages(&self, list: List, enough: Instant) -> Result<(), Failure> {
        if !self.has(list.capability()) {
            return Ok(());
        }
        let (mut pages, mut cursor) = (Pages::default(), None);
        let (whole, cut) = loop {
            let params = behind(cursor.take());
            let asked = self.connection.request_own(list.method(), params);
            let page = match pages.count() {
                0 => asked.await,
                count => match timeout_at(enough, asked).await {
                    Ok(page) => page,
                    Err(_) => break (pages.so_far(list), Some(count)),
                },
            };
            match pages.add(list, &page.ok_or_else(exited_early)?) {
                Page::More(next) => cursor = Some(next),
                Page::TooMany => break (pages.so_far(list), Some(pages.count())),
                Page::Whole(Ok(whole)) => break (whole, None),
                Page::Whole(Err(_)) => return Ok(()),
                Page::Failed(why) => {
                    let why = format!("{}: {why}", list.method());
                    let why = Failure::new(FailureCode::Refused, why);
                    return Err(why.without_name(&self.name));
                }
            }
        };
        let items = Object::read(&whole).and_then(|whole| whole.array(list.key()));
        let items = items.iter().flatten();
        let items = items.filter_map(|item| Item::read(&self.name, list, item));
        lock(&self.lists)[list as usize] = items.collect();
        let mut all = lock(&self.cut);
        match cut {
            Some(pages) => drop(all.insert(list, pages)),
            None => drop(all.remove(&list)),
        }
        Ok(())
    }

    /// What is missing of its lists: what there is to say of it behind its name.
    pub(crate) fn missing_of_lists(&self) -> Vec<String> {
        let refused = self.refused().into_values();
        let refused = refused.map(|why| format!("did not give one of its lists: {why}"));
        let cut = lock(&self.cut).clone();
        let cut = cut.into_iter().map(|(list, pages)| {
            let method = list.method();
            format!("has more in {method} than is listed: it was cut after page {pages}")
        });
        refused.chain(cut).collect()
    }

    pub(crate) fn pace<T>(&self, method: &'static str, does: impl FnOnce(&mut Pace) -> T) -> T {
        does(lock(&self.paces).entry(method).or_default())
    }
}

pub(crate) fn exited_early() -> Failure {
    Failure::new(FailureCode::Exited, "it ended before it was ready")
}
