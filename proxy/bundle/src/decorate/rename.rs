//! Other names for tools and prompts.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Item, List, Target};
use crate::connection::Answer;
use crate::decorate::{Decorator, Rename, belongs_to};
use crate::names::{Namespace, Origin, digested};

/// A name that is given belongs to one tool, whichever backends run at the moment: it must not
/// pass from one backend's tool to another's because the first is away. What was listed under
/// such a name gets one with a digest, which depends on its own backend and name alone.
pub(super) struct RenamedBundle {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) rename: Rename,
}

impl RenamedBundle {
    /// By which name something is listed here.
    fn outer(&self, namespace: Namespace, listed: &str, own: &Origin) -> String {
        let names = self.rename.of(namespace);
        let server = self.rename.server.as_deref();
        let former = if server.is_some() { &own.name } else { listed };
        match names.get(former).filter(|_| belongs_to(server, own)) {
            Some(new) => new.clone(),
            None if names.values().any(|new| new == listed) => displaced(own),
            None => listed.to_owned(),
        }
    }

    /// By which name the inner bundle lists what is called `name` here.
    fn listed(&self, namespace: Namespace, name: &str) -> Option<String> {
        let names = self.rename.of(namespace);
        if let Some((former, _)) = names.iter().find(|(_, new)| *new == name) {
            return match &self.rename.server {
                None => self
                    .inner
                    .origin_of(&target(namespace, former))
                    .map(|_| former.clone()),
                Some(server) => {
                    let own = Origin {
                        backend: server.clone(),
                        name: former.clone(),
                    };
                    self.inner.listed_as(namespace, &own)
                }
            };
        }
        let is_it = |listed: &str| {
            let own = self.inner.origin_of(&target(namespace, listed));
            own.is_some_and(|own| self.outer(namespace, listed, &own) == name)
        };
        let displaced = names.values().map(|new| &**new);
        std::iter::once(name)
            .chain(displaced)
            .find(|listed| is_it(listed))
            .map(str::to_owned)
    }
}

fn target(namespace: Namespace, name: &str) -> Target {
    match namespace {
        Namespace::Tool => Target::Tool(name.to_owned()),
        Namespace::Prompt => Target::Prompt(name.to_owned()),
    }
}

fn displaced(own: &Origin) -> String {
    digested(
        &format!("{}_{}", own.backend, own.name),
        &own.backend,
        &own.name,
    )
}

impl Decorator for RenamedBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Box::pin(async move {
            let items = self.inner.list(list).await?;
            let Some(namespace) = list.namespace() else {
                return Ok(items);
            };
            let renamed = items.into_iter().map(|item| {
                let name = self.outer(namespace, &item.name, &item.origin);
                item.renamed(list, &name)
            });
            Ok(renamed.collect())
        })
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        let Some((namespace, name)) = call.target.listed_name() else {
            return self.inner.call(call);
        };
        match self.listed(namespace, name) {
            Some(listed) => self.inner.call(call.renamed(&listed)),
            None => {
                let unknown = Error::unknown(&call.target, &self.inner.status());
                Box::pin(std::future::ready(Err(unknown)))
            }
        }
    }

    fn origin_of(&self, asked: &Target) -> Option<Origin> {
        match asked.listed_name() {
            Some((namespace, name)) => self
                .inner
                .origin_of(&target(namespace, &self.listed(namespace, name)?)),
            None => self.inner.origin_of(asked),
        }
    }

    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String> {
        Some(self.outer(namespace, &self.inner.listed_as(namespace, own)?, own))
    }
}
