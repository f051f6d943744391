//! What is stored beside names. What the host has told its backends: the level of their logs, and
//! subscriptions; it is sent again to a backend that is started again. And which backends could not
//! be used: the next host does not wait for these.

use std::collections::BTreeSet;

use futures::future::{OptionFuture, join_all};
use mcp_sessiond_jsonrpc::object::{Object, raw};
use tokio::time::timeout;

use crate::backend::{Backend, LiveBackend};
use crate::bundle::Error;
use crate::call::{Call, Target};
use crate::connection::Answer;
use crate::core::Core;
use crate::lock::lock;
use crate::pipe::{Receipt, Told};
use crate::status::{FailedStart, Failure};

impl Core {
    /// Loads what was stored.
    pub(crate) async fn load_names(&self) {
        let load = || async {
            let memory = &self.memory;
            let (names, told, failed) = tokio::join!(memory.load(), memory.told(), memory.failed());
            if let Some(unsettled) = &mut *lock(&self.unsettled) {
                unsettled.clone_from(&names);
            }
            (*lock(&self.names), *lock(&self.told)) = (names, told);
            *lock(&self.failed) = failed;
            self.forget_replaced(&lock(&self.replaced));
        };
        self.loaded.get_or_init(load).await;
    }

    /// Why a backend could not be used when it was started last.
    pub(crate) fn failed_start(&self, backend: &Backend) -> Option<Failure> {
        let failed = lock(&self.failed).get(backend.name()).cloned();
        failed
            .filter(|failed| failed.identity == backend.source.identity())
            .map(|failed| failed.why)
    }

    /// Stores whether a backend can be used that was started.
    pub(crate) async fn note_start(&self, backend: &Backend, why: Option<&Failure>) {
        if self.failed_start(backend).as_ref() == why {
            return;
        }
        let _turn = self.keeping.lock().await;
        let failed = {
            let name = backend.name().to_owned();
            let mut failed = lock(&self.failed);
            match why.cloned() {
                Some(why) => {
                    let identity = backend.source.identity();
                    drop(failed.insert(name, FailedStart { identity, why }));
                }
                None => drop(failed.remove(&name)),
            }
            let is_there = |name: &str| self.backends().iter().any(|now| now.name() == name);
            failed.retain(|name, _| is_there(name));
            failed.clone()
        };
        self.memory.keep_failed(failed).await;
    }

    /// Forgets what was told to the former servers of these names.
    pub(crate) fn forget_told(&self, of: &BTreeSet<String>) {
        // Noted first: what was stored may just be loading.
        lock(&self.replaced).extend(of.iter().cloned());
        self.forget_replaced(of);
    }

    fn forget_replaced(&self, of: &BTreeSet<String>) {
        let mut told = lock(&self.told);
        of.iter().for_each(|name| told.forget(name));
    }

    /// Stores what the host has said, before it is answered.
    async fn keep_told(&self, change: impl FnOnce(&mut Told)) {
        let _turn = self.keeping.lock().await;
        let told = {
            let mut told = lock(&self.told);
            change(&mut told);
            told.clone()
        };
        self.memory.keep_told(told).await;
    }

    /// Notes what a backend was told, and has answered with a result.
    pub(crate) async fn note_told(&self, backend: &Backend, live: &LiveBackend, target: &Target) {
        let (uri, is_wanted) = match target {
            Target::Subscribe(uri) => (uri, true),
            Target::Unsubscribe(uri) => (uri, false),
            _ => return,
        };
        if is_wanted {
            lock(&live.subscriptions).insert(uri.clone());
        } else {
            lock(&live.subscriptions).remove(uri);
        }
        let name = backend.name();
        self.keep_told(|told| {
            // The name may belong to another server by now.
            if !self
                .backends()
                .iter()
                .any(|now| std::ptr::eq(&raw const **now, backend))
            {
                return;
            }
            let subscriptions = told.subscriptions.entry(name.to_owned()).or_default();
            if is_wanted {
                subscriptions.insert(uri.clone());
            } else {
                subscriptions.remove(uri);
            }
            if let Some(identity) = backend.source.identity() {
                told.servers.insert(name.to_owned(), identity);
            }
        })
        .await;
    }

    /// Sends a backend that was started again what the host has sent before. It may be slow
    /// to answer, or never do.
    pub(crate) async fn replay(&self, backend: &Backend, live: &LiveBackend) {
        let (level, subscriptions) = {
            let mut told = lock(&self.told);
            if told.servers.get(backend.name()).cloned() != backend.source.identity() {
                told.forget(backend.name());
            }
            (
                told.level.clone(),
                told.subscriptions
                    .get(backend.name())
                    .cloned()
                    .unwrap_or_default(),
            )
        };
        let level = level.filter(|_| live.has("logging"));
        let level = level.map(|level| {
            live.connection
                .request_own(Target::Level.method(), Some(level.write()))
        });
        let subscribed = subscriptions.into_iter().map(|uri| async {
            let mut params = Object::default();
            params.set_text("uri", &uri);
            let answer = live
                .connection
                .request_own("resources/subscribe", Some(params.write()))
                .await;
            if let Some(Ok(_)) = answer {
                lock(&live.subscriptions).insert(uri);
            }
        });
        tokio::join!(OptionFuture::from(level), join_all(subscribed));
    }

    /// Sets the level of all that have logs.
    pub(crate) async fn set_level(&self, call: Call) -> Result<Answer, Error> {
        let level = call.params.as_deref().and_then(Object::read);
        self.keep_told(|told| told.level = Some(level.unwrap_or_default()))
            .await;
        let live = self.all_live();
        let asked = live
            .iter()
            .filter(|(_, live)| live.has("logging"))
            .map(|(_, live)| {
                live.connection
                    .request_own(Target::Level.method(), call.params.clone())
            })
            .map(|asked| timeout(self.settings.init_timeout, asked));
        // One that does not answer in time has not refused.
        let answers = join_all(asked).await;
        let refused = answers
            .into_iter()
            .filter_map(Result::ok)
            .flatten()
            .find_map(Result::err);
        let outcome = refused.map_or_else(|| Ok(raw(&Object::default())), Err);
        Ok(Answer {
            outcome,
            receipt: Receipt::none(),
        })
    }
}
