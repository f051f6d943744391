//! Other names for tools and prompts.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Item, List, Target};
use crate::connection::Answer;
use crate::decorate::{Decorator, Rename, is_of};
use crate::names::{Named, Own, digested};

/// The name that is given is its bearer's alone, whoever is there at the moment: a name must not
/// pass from one backend's tool to another's because the first is away. So who was listed by such a
/// name has one with a digest, which depends on nothing but himself.
pub(super) struct Renamed {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) rename: Rename,
}

impl Renamed {
    /// By which name something is listed here.
    fn outer(&self, named: Named, listed: &str, own: &Own) -> String {
        let names = self.rename.of(named);
        let server = self.rename.server.as_deref();
        let former = if server.is_some() { &own.name } else { listed };
        match names.get(former).filter(|_| is_of(server, own)) {
            Some(new) => new.clone(),
            None if names.values().any(|new| new == listed) => displaced(own),
            None => listed.to_owned(),
        }
    }

    /// By which name the inner bundle lists what is called `name` here.
    fn listed(&self, named: Named, name: &str) -> Option<String> {
        let names = self.rename.of(named);
        if let Some((former, _)) = names.iter().find(|(_, new)| *new == name) {
            return match &self.rename.server {
                None => self
                    .inner
                    .whose(&target(named, former))
                    .map(|_| former.clone()),
                Some(server) => {
                    let own = Own {
                        backend: server.clone(),
                        name: former.clone(),
                    };
                    self.inner.listed_as(named, &own)
                }
            };
        }
        let is_it = |listed: &str| {
            let own = self.inner.whose(&target(named, listed));
            own.is_some_and(|own| self.outer(named, listed, &own) == name)
        };
        let displaced = names.values().map(|new| &**new);
        std::iter::once(name)
            .chain(displaced)
            .find(|listed| is_it(listed))
            .map(str::to_owned)
    }
}

fn target(named: Named, name: &str) -> Target {
    match named {
        Named::Tool => Target::Tool(name.to_owned()),
        Named::Prompt => Target::Prompt(name.to_owned()),
    }
}

fn displaced(own: &Own) -> String {
    digested(
        &format!("{}_{}", own.backend, own.name),
        &own.backend,
        &own.name,
    )
}

impl Decorator for Renamed {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Box::pin(async move {
            let items = self.inner.list(list).await?;
            let Some(named) = list.named() else {
                return Ok(items);
            };
            let renamed = items.into_iter().map(|item| {
                let name = self.outer(named, &item.name, &item.own);
                item.renamed(list, &name)
            });
            Ok(renamed.collect())
        })
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        let Some((named, name)) = call.target.named() else {
            return self.inner.call(call);
        };
        match self.listed(named, name) {
            Some(listed) => self.inner.call(call.renamed(&listed)),
            None => {
                let unknown = Error::unknown(&call.target, &self.inner.status());
                Box::pin(std::future::ready(Err(unknown)))
            }
        }
    }

    fn whose(&self, asked: &Target) -> Option<Own> {
        match asked.named() {
            Some((named, name)) => self.inner.whose(&target(named, &self.listed(named, name)?)),
            None => self.inner.whose(asked),
        }
    }

    fn listed_as(&self, named: Named, own: &Own) -> Option<String> {
        Some(self.outer(named, &self.inner.listed_as(named, own)?, own))
    }
}
