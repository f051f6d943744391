//! A filter: some is not listed and can't be called.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Item, List, Target, matches};
use crate::connection::Answer;
use crate::decorate::{Decorator, Filter, Rename, concerns, is_of};
use crate::names::{Named, Own, prefixed};

pub(super) struct Filtered {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) filter: Filter,
    /// How names are changed where the backend is one of several; none: this is there. Else what is
    /// kept out there is kept out here.
    pub(super) elsewhere: Option<Vec<Rename>>,
}

impl Filtered {
    /// Whether something that goes by these names is there.
    fn lets(&self, names: &[&str]) -> bool {
        let fits = |globs: &[super::Glob]| {
            globs
                .iter()
                .any(|glob| names.iter().any(|name| glob.fits(name)))
        };
        self.filter.only.as_deref().is_none_or(fits) && !fits(&self.filter.without)
    }

    /// Whether there is something of this name. `named`: what it is, if it is no resource.
    fn has(&self, named: Option<Named>, listed: &str, own: &Own) -> bool {
        let server = self.filter.server.as_deref();
        if !is_of(server, own) {
            return true;
        }
        if server.is_some() {
            return self.lets(&[&own.name]);
        }
        let elsewhere = named
            .map(|named| self.listed_elsewhere(named, own))
            .unwrap_or_default();
        let names: Vec<&str> = elsewhere
            .iter()
            .map(String::as_str)
            .chain([listed])
            .collect();
        self.lets(&names)
    }

    /// By which names something may be listed where this backend is one of several.
    fn listed_elsewhere(&self, named: Named, own: &Own) -> Vec<String> {
        let Some(renames) = &self.elsewhere else {
            return Vec::new();
        };
        let mut names: Vec<String> = prefixed(named, &own.backend, &own.name).into();
        for rename in renames {
            let new = |name: &String| rename.of(named).get(name).cloned();
            let renamed: Vec<String> = names.iter().filter_map(new).collect();
            names.extend(renamed);
        }
        names
    }

    /// Whether there is this resource. One that nobody lists is as the template that fits it best,
    /// of which it is one, and as its own URI.
    async fn has_resource(&self, target: &Target, uri: &str) -> Result<bool, Error> {
        self.inner.settled(uri).await;
        if !concerns(&*self.inner, self.filter.server.as_deref(), target) {
            return Ok(true);
        }
        let is_ours = |item: &&Item| is_of(self.filter.server.as_deref(), &item.own);
        let templates = self.inner.list(List::Templates).await?;
        let resources = self.inner.list(List::Resources).await?;
        if resources
            .iter()
            .chain(&templates)
            .filter(is_ours)
            .any(|item| item.name == uri)
        {
            return Ok(self.lets(&[uri]));
        }
        let fitting = templates
            .iter()
            .filter(is_ours)
            .filter_map(|item| Some((matches(&item.name, uri)?, item)));
        let best = fitting
            .max_by_key(|(length, _)| *length)
            .map(|(_, item)| &*item.name);
        Ok(self.lets(&[uri, best.unwrap_or(uri)]))
    }
}

impl Decorator for Filtered {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Box::pin(async move {
            let mut items = self.inner.list(list).await?;
            items.retain(|item| self.has(list.named(), &item.name, &item.own));
            Ok(items)
        })
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let has = match call.target.uri() {
                Some(uri) => self.has_resource(&call.target, uri).await?,
                None => {
                    call.target.named().is_none() || Decorator::whose(self, &call.target).is_some()
                }
            };
            if !has {
                return Err(Error::unknown(&call.target, &self.inner.status()));
            }
            self.inner.call(call).await
        })
    }

    fn whose(&self, target: &Target) -> Option<Own> {
        let own = self.inner.whose(target)?;
        let is_there = target
            .named()
            .is_none_or(|(named, listed)| self.has(Some(named), listed, &own));
        is_there.then_some(own)
    }

    fn listed_as(&self, named: Named, own: &Own) -> Option<String> {
        self.inner
            .listed_as(named, own)
            .filter(|listed| self.has(Some(named), listed, own))
    }
}
