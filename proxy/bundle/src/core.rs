//! What the tasks of a bundle share: its backends, the names of their tools and prompts, and
//! which backend a call is for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use mcp_sessiond_jsonrpc::owned::{Id, Message};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::backend::{Backend, LiveBackend};
use crate::bundle::{Error, Handshake, Settings};
use crate::call::{Call, Item, List, Target, matches};
use crate::connection::{Answer, NoAnswer};
use crate::lock::lock;
use crate::names::{Names, Namespace, Origin};
use crate::pipe::{BundleStore, Host, Receipt, Told};
use crate::roots::Roots;
use crate::status::{BackendState, FailedStart, Failure, FailureCode, Status};

/// How often names are given again because another process has given some, before they are not
/// remembered.
const SAVES_MAX: usize = 16;

/// What the tasks of a bundle share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) handshake: Handshake,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) memory: Arc<dyn BundleStore>,
    /// Notified with each state of a backend, and with each edit of the list.
    pub(crate) states: watch::Sender<()>,
    /// In the order of the file.
    pub(crate) backends: RwLock<Vec<Arc<Backend>>>,
    pub(crate) names: Mutex<Names>,
    /// The names that were remembered, until the host is answered for the first time.
    pub(crate) unsettled: Mutex<Option<Names>>,
    /// Whether the names that were remembered have been asked for.
    pub(crate) loaded: OnceCell<()>,
    /// Held while names are given and remembered.
    pub(crate) naming: tokio::sync::Mutex<()>,
    pub(crate) slots: Semaphore,
    /// Calls under way; none once it was closed and they are answered.
    pub(crate) running: watch::Sender<usize>,
    pub(crate) is_closed: watch::Sender<bool>,
    /// What a backend that is started again has to hear again.
    pub(crate) told: Mutex<Told>,
    /// Names that belonged to another server before. What a former process has remembered
    /// of these is not used.
    pub(crate) replaced: Mutex<BTreeSet<String>>,
    /// The backends that could not be used when they were started last.
    pub(crate) failed: Mutex<BTreeMap<String, FailedStart>>,
    /// Held while one of these is stored.
    pub(crate) keeping: tokio::sync::Mutex<()>,
    /// How often what is listed has changed.
    pub(crate) version: AtomicU64,
    /// The progress tokens of calls under way, and at which backend each is.
    pub(crate) tokens: Mutex<Vec<(Id, String)>>,
    pub(crate) roots: Roots,
    /// Tells the ids of our requests from those of another process.
    pub(crate) nonce: u64,
}

/// A call under way.
pub(crate) struct CallGuard<'a>(&'a watch::Sender<usize>);

impl<'a> CallGuard<'a> {
    pub(crate) fn begin(core: &'a Core) -> Result<Self, Error> {
        // Counted first, so that `close` waits for this call, or this call sees that the
        // bundle was closed.
        core.running.send_modify(|running| *running += 1);
        let running = Self(&core.running);
        if core.has_closed() {
            Err(Error::Closed)
        } else {
            Ok(running)
        }
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

/// The progress token of a call under way.
struct TokenGuard<'a>(&'a Mutex<Vec<(Id, String)>>, Option<(Id, String)>);

impl<'a> TokenGuard<'a> {
    fn of(core: &'a Core, call: &Call, backend: &Backend) -> Self {
        let token = call
            .object("_meta")
            .and_then(|meta| Id::read(meta.get("progressToken")?));
        let token = token.map(|token| (token, backend.name().to_owned()));
        lock(&core.tokens).extend(token.clone());
        Self(&core.tokens, token)
    }
}

impl Drop for TokenGuard<'_> {
    fn drop(&mut self) {
        let Some(token) = &self.1 else { return };
        let mut tokens = lock(self.0);
        if let Some(at) = tokens.iter().position(|one| one == token) {
            tokens.swap_remove(at);
        }
    }
}

impl Core {
    pub(crate) fn backends(&self) -> Vec<Arc<Backend>> {
        self.backends
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn backend(&self, name: &str) -> Option<Arc<Backend>> {
        self.backends()
            .into_iter()
            .find(|backend| backend.name() == name)
    }

    pub(crate) fn all_live(&self) -> Vec<(Arc<Backend>, Arc<LiveBackend>)> {
        let live = self
            .backends()
            .into_iter()
            .filter_map(|backend| backend.live().map(|live| (backend, live)));
        live.collect()
    }

    /// Waits until it is being closed.
    pub(crate) async fn closed(&self) {
        // It can't fail: the sender is in this object.
        let _ = self
            .is_closed
            .subscribe()
            .wait_for(|is_closed| *is_closed)
            .await;
    }

    /// Waits until each backend has had its turn but those that could not be used the last time.
    pub(crate) async fn all_begun(&self) {
        let mut states = self.states.subscribe();
        let is_waiting = |backend: &Arc<Backend>| {
            backend.state() == BackendState::NeverTried && self.failed_start(backend).is_none()
        };
        while self.backends().iter().any(is_waiting) {
            // It can't fail: the sender is in this object.
            let _ = states.changed().await;
        }
    }

    /// Gives names to these backends, the first first.
    fn assign(&self, names: &mut Names, all: &[(&str, &LiveBackend)]) -> bool {
        let mut has_changed = false;
        for (backend, live) in all {
            for list in List::ALL {
                let Some(namespace) = list.namespace() else {
                    continue;
                };
                let items = live.list(list);
                let own = items.iter().map(|item| &*item.name);
                has_changed |= names.assign(namespace, self.settings.names, backend, own);
            }
        }
        has_changed
    }

    /// The same, and remembers them: as they are then.
    async fn named(&self, mut names: Names, all: &[(&str, &LiveBackend)]) -> Names {
        let file: BTreeSet<String> = self
            .backends()
            .iter()
            .map(|backend| backend.name().to_owned())
            .collect();
        for _ in 0..SAVES_MAX {
            let was_freed = names.retain(|backend| file.contains(backend));
            let was_given = self.assign(&mut names, all);
            if !was_freed && !was_given {
                break;
            }
            // Another process may have given one of these names to another backend.
            match self.memory.save(names.clone()).await {
                Some(theirs) => names = theirs,
                None => break,
            }
        }
        self.assign(&mut names, all);
        names
    }

    /// Whether the host was answered, and names are given once.
    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.unsettled).is_none()
    }

    /// The host is about to be answered: gives the names once more that were given so far, in the
    /// order of the file. Of two tools of one name that of the first server in the file keeps it,
    /// whichever has started faster.
    pub(crate) async fn settle_names(&self) {
        let _turn = self.naming.lock().await;
        let Some(remembered) = lock(&self.unsettled).take() else {
            return;
        };
        let live = self.all_live();
        let all: Vec<(&str, &LiveBackend)> = live
            .iter()
            .map(|(backend, live)| (backend.name(), &**live))
            .collect();
        let names = self.named(remembered, &all).await;
        *lock(&self.names) = names;
        self.change();
    }

    /// Gives names to what a backend has, and remembers them before anybody sees them. Before the host
    /// was answered nobody sees them, and they are given once more.
    pub(crate) async fn give_names(&self, backend: &str, live: &LiveBackend) {
        let _turn = self.naming.lock().await;
        // The names of the others, too: another process may have freed them, or given
        // them to another backend.
        let others = self.all_live();
        let others = others.iter().filter(|(other, _)| other.name() != backend);
        let all: Vec<(&str, &LiveBackend)> = others
            .map(|(other, live)| (other.name(), &**live))
            .chain([(backend, live)])
            .collect();
        let of_others = |names: &Names| {
            let others = all.iter().filter(|(other, _)| *other != backend);
            let listed = |(other, _): &(&str, &LiveBackend)| {
                [Namespace::Tool, Namespace::Prompt]
                    .map(|namespace| names.listed_owned(namespace, other))
            };
            others.map(listed).collect::<Vec<_>>()
        };
        let mut names = lock(&self.names).clone();
        if lock(&self.unsettled).is_some() {
            self.assign(&mut names, &all);
        } else {
            names = self.named(names, &all).await;
        }
        let have_others_moved = {
            let mut current = lock(&self.names);
            let former = of_others(&current);
            *current = names;
            former != of_others(&current)
        };
        self.change();
        if have_others_moved {
            self.tell_changed([List::Tools, List::Prompts]).await;
        }
    }

    /// What was listed before may not be so any more.
    pub(crate) fn change(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Tells the host that lists have changed.
    pub(crate) async fn tell_changed(&self, lists: impl IntoIterator<Item = List>) {
        self.change();
        let changed: BTreeSet<&str> = lists.into_iter().map(List::changed).collect();
        for method in changed {
            self.host
                .receive(Message::notification(method), Receipt::none())
                .await;
        }
    }

    pub(crate) fn listed(&self, list: List) -> Vec<Item> {
        let names = lock(&self.names).clone();
        let mut seen = BTreeSet::new();
        let mut items = Vec::new();
        for (backend, live) in self.all_live() {
            let listed = list
                .namespace()
                .map(|namespace| names.listed(namespace, backend.name()));
            for item in live.list(list).iter() {
                let item = match &listed {
                    Some(listed) => match listed.get(&*item.name) {
                        Some(name) => item.clone().renamed(list, name),
                        None => continue,
                    },
                    None => item.clone(),
                };
                if seen.insert(item.name.clone()) {
                    items.push(item);
                }
            }
        }
        items
    }

    fn unknown(&self, target: &Target) -> Error {
        Error::unknown(target, &self.status())
    }

    pub(crate) fn status(&self) -> Status {
        let states = self
            .backends()
            .iter()
            .map(|backend| (backend.name().to_owned(), backend.state()))
            .collect();
        let live = self.all_live();
        let lists = live.iter().flat_map(|(backend, live)| {
            let missing = live.missing_of_lists().into_iter();
            missing.map(|what| (backend.name().to_owned(), what))
        });
        Status::of(self.has_closed(), states, lists.collect())
    }

    pub(crate) fn has_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// The backend that a call is for, and the name there.
    pub(crate) fn origin_of(&self, target: &Target) -> Option<Origin> {
        if let Some((namespace, name)) = target.listed_name() {
            return lock(&self.names).origin(namespace, name).cloned();
        }
        let own = |backend: &Backend| Origin {
            backend: backend.name().to_owned(),
            name: target.name().to_owned(),
        };
        if *target == Target::Level {
            return None;
        }
        if let [backend] = &self.backends()[..] {
            return Some(own(backend));
        }
        owner_of_uri(&self.with_resources(), target.uri()?).map(|(backend, _)| own(backend))
    }

    fn with_resources(&self) -> Vec<(Arc<Backend>, Arc<LiveBackend>)> {
        let mut live = self.all_live();
        live.retain(|(_, live)| live.has("resources") || live.has("completions"));
        live
    }

    /// Whether a backend answers a call that was made at another one, or reports its
    /// progress.
    pub(crate) fn is_misdirected(&self, backend: &Backend, message: &Message) -> bool {
        match message {
            Message::Request { .. } => false,
            Message::Answer { id, .. } => {
                !self.settings.has_former
                    || self.all_live().iter().any(|(other, live)| {
                        other.name() != backend.name() && live.connection.has_requested(id)
                    })
            }
            Message::Notification { method, .. } if method == "notifications/progress" => {
                let token = message
                    .params()
                    .and_then(|params| Id::read(params.get("progressToken")?));
                let tokens = lock(&self.tokens);
                let mut of = tokens
                    .iter()
                    .filter(|(one, _)| Some(one) == token.as_ref())
                    .peekable();
                of.peek().is_some() && of.all(|(_, name)| name != backend.name())
            }
            Message::Notification { .. } => false,
        }
    }

    /// Cancels a call. Its answer is dropped. False: no backend has got it.
    pub(crate) fn give_up(&self, id: &Id, why: &str) -> bool {
        self.all_live()
            .iter()
            .any(|(_, live)| live.connection.give_up(id, why))
    }

    pub(crate) async fn call(&self, call: Call) -> Result<Answer, Error> {
        let _running = CallGuard::begin(self)?;
        if let Some((namespace, name)) = call.target.listed_name() {
            let own = lock(&self.names).origin(namespace, name).cloned();
            let own = own.ok_or_else(|| self.unknown(&call.target))?;
            let backend = self
                .backend(&own.backend)
                .ok_or_else(|| self.unknown(&call.target))?;
            let called = call.target.clone();
            let made = self.call_backend(&backend, call.renamed(&own.name)).await;
            return made.map_err(|error| match error {
                // By the name that the host knows.
                Error::Unknown { .. } => self.unknown(&called),
                error => error,
            });
        }
        match &call.target {
            Target::Level => self.set_level(call).await,
            Target::Other(method) => match &self.backends()[..] {
                [backend] => self.call_backend(backend, call).await,
                _ => {
                    let message =
                        format!("Method not found: {method}; there are several servers here");
                    Err(Error::Refused(RpcError::new(code::NO_METHOD, message)))
                }
            },
            _ => self.with_resource(call).await,
        }
    }

    /// Another server may have the backend's name since a tool or prompt of it was listed.
    fn check_listed(
        &self,
        backend: &Backend,
        live: &LiveBackend,
        target: &Target,
    ) -> Result<(), Error> {
        let Some((namespace, name)) = target.listed_name() else {
            return Ok(());
        };
        let Some(list) = List::ALL
            .into_iter()
            .find(|list| list.namespace() == Some(namespace))
        else {
            return Ok(());
        };
        if live.list(list).iter().any(|item| item.name == name) {
            return Ok(());
        }
        Err(match live.refused().remove(&list) {
            Some(why) => Error::NotAvailable {
                backend: backend.name().to_owned(),
                why,
            },
            None => self.unknown(target),
        })
    }

    /// Makes a call at a backend.
    async fn call_backend(&self, backend: &Backend, call: Call) -> Result<Answer, Error> {
        let name = || backend.name().to_owned();
        let away = |why| Error::NotAvailable {
            backend: name(),
            why,
        };
        let mut live = backend.ready().await.map_err(away)?;
        let _token = TokenGuard::of(self, &call, backend);
        let Call { id, target, params } = call;
        self.check_listed(backend, &live, &target)?;
        let mut answer = live
            .connection
            .request(id.clone(), target.method(), params.clone())
            .await;
        if self.settings.retry_at_once && matches!(answer, Err(NoAnswer::NotSent)) {
            backend.wait_until_lost(&live).await;
            live = backend.ready().await.map_err(away)?;
            self.check_listed(backend, &live, &target)?;
            answer = live.connection.request(id, target.method(), params).await;
        }
        let answer = answer.map_err(|why| match why {
            NoAnswer::Lost => Error::Lost { backend: name() },
            NoAnswer::NotSent => Error::NotAvailable {
                backend: name(),
                why: Failure::new(FailureCode::Exited, "it has ended"),
            },
            NoAnswer::Refused(error) => Error::Refused(error),
        })?;
        if answer.outcome.is_ok() {
            self.note_told(backend, &live, &target).await;
        }
        Ok(answer)
    }

    /// Waits until a backend has this URI, or all were tried.
    pub(crate) async fn wait_for_owner(&self, uri: &str) {
        while owner_of_uri(&self.with_resources(), uri).is_none() {
            let is_new = |backend: &&Arc<Backend>| backend.is_new();
            match self.backends().iter().find(is_new) {
                Some(backend) => backend.wait_until_tried().await,
                None => return,
            }
        }
    }

    /// Makes a call about a resource: at the backend that lists it; else at the one with a
    /// fitting template; else, where it is only read, at each in turn, since a tool may
    /// have returned a URI that is in no list.
    async fn with_resource(&self, call: Call) -> Result<Answer, Error> {
        let uri = call.target.uri().unwrap_or_default().to_owned();
        self.wait_for_owner(&uri).await;
        let with_resources = self.with_resources();
        if let Some((backend, _)) = owner_of_uri(&with_resources, &uri) {
            return self.call_backend(backend, call).await;
        }
        if let [(backend, _)] = &with_resources[..] {
            return self.call_backend(backend, call).await;
        }
        if !matches!(call.target, Target::Read(_)) {
            return Err(self.unknown(&call.target));
        }
        for (backend, _) in &with_resources {
            match self.call_backend(backend, call.clone()).await {
                Ok(answer) if answer.outcome.is_ok() => return Ok(answer),
                Ok(answer) => answer.receipt.confirm(),
                Err(lost @ Error::Lost { .. }) => return Err(lost),
                Err(_) => {}
            }
        }
        Err(self.unknown(&call.target))
    }

    /// Passes a message of the host to the backend that it concerns; to all, where that
    /// can't be known.
    pub(crate) fn tell(&self, message: Message) {
        let mut message = message;
        let all = self.all_live();
        match &mut message {
            Message::Request { .. } => return,
            Message::Answer { id, outcome } => {
                if self.roots.answer(id, outcome) {
                    return;
                }
                for (backend, live) in &all {
                    if let Some(own) = id.without_prefix(backend.name()) {
                        *id = own;
                        return live.connection.push(message.write());
                    }
                }
                return;
            }
            Message::Notification { method, params } => {
                let read = || Object::read(params.as_deref()?);
                match &**method {
                    "notifications/initialized" => return,
                    "notifications/cancelled" => {
                        let id = read().and_then(|params| Id::read(params.get("requestId")?));
                        let asked = |live: &LiveBackend| {
                            id.as_ref()
                                .is_some_and(|id| live.connection.is_waiting_for(id))
                        };
                        if let Some((_, live)) = all.iter().find(|(_, live)| asked(live)) {
                            return live.connection.push(message.write());
                        }
                    }
                    "notifications/progress" => {
                        let Some(mut of) = read() else { return };
                        let token = of.get("progressToken").and_then(Id::read);
                        for (backend, live) in &all {
                            if let Some(own) = token
                                .as_ref()
                                .and_then(|token| token.without_prefix(backend.name()))
                            {
                                of.set("progressToken", own.raw());
                                *params = Some(of.write());
                                return live.connection.push(message.write());
                            }
                        }
                        return;
                    }
                    _ => {}
                }
            }
        }
        let line = message.write();
        all.iter()
            .for_each(|(_, live)| live.connection.push(line.clone()));
    }
}

/// The backend that lists this URI or template; else the one where it is subscribed; else the
/// one whose template fits best, of equally good ones the first.
fn owner_of_uri<'a>(
    live: &'a [(Arc<Backend>, Arc<LiveBackend>)],
    uri: &str,
) -> Option<&'a (Arc<Backend>, Arc<LiveBackend>)> {
    let lists = |live: &LiveBackend| {
        [List::Resources, List::Templates]
            .iter()
            .any(|list| live.list(*list).iter().any(|item| item.name == uri))
    };
    let best = |live: &LiveBackend| {
        live.list(List::Templates)
            .iter()
            .filter_map(|item| matches(&item.name, uri))
            .max()
    };
    let templated = || {
        let fitting = live
            .iter()
            .rev()
            .filter_map(|found| Some((best(&found.1)?, found)));
        fitting
            .max_by_key(|(length, _)| *length)
            .map(|(_, found)| found)
    };
    let listed = live.iter().find(|(_, live)| lists(live));
    listed
        .or_else(|| {
            live.iter()
                .find(|(_, live)| lock(&live.subscriptions).contains(uri))
        })
        .or_else(templated)
}
