//! The decorations that hold now: an edit of the file has others put in their place.

use std::sync::{Arc, PoisonError, RwLock};

use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::owned::{Id, Message};

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Item, List, Target};
use crate::connection::Answer;
use crate::names::{Namespace, Origin};
use crate::status::Status;

/// A bundle in whose place another can be put. What is under way ends where it has begun.
#[derive(Debug)]
pub struct Current {
    now: RwLock<Arc<dyn Bundle>>,
}

impl Current {
    /// This one, so far.
    pub fn new(bundle: Arc<dyn Bundle>) -> Self {
        Self {
            now: RwLock::new(bundle),
        }
    }

    /// This one from now on.
    pub fn set(&self, bundle: Arc<dyn Bundle>) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = bundle;
    }

    fn now(&self) -> Arc<dyn Bundle> {
        self.now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Bundle for Current {
    fn status(&self) -> Status {
        self.now().status()
    }

    fn instructions(&self) -> String {
        self.now().instructions()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        let now = self.now();
        Box::pin(async move { now.ready().await })
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        let now = self.now();
        Box::pin(async move { now.list(list).await })
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        let now = self.now();
        Box::pin(async move { now.call(call).await })
    }

    fn tell(&self, message: Message) -> BoxFuture<'_, ()> {
        let now = self.now();
        Box::pin(async move { now.tell(message).await })
    }

    fn wait_for_owner<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, ()> {
        let now = self.now();
        Box::pin(async move { now.wait_for_owner(uri).await })
    }

    fn give_up(&self, id: &Id, why: &str) -> bool {
        self.now().give_up(id, why)
    }

    fn origin_of(&self, target: &Target) -> Option<Origin> {
        self.now().origin_of(target)
    }

    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String> {
        self.now().listed_as(namespace, own)
    }

    fn version(&self) -> u64 {
        self.now().version()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let now = self.now();
        Box::pin(async move { now.close().await })
    }
}
