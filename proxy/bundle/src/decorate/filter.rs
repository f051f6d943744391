//! A filter: some is not listed and can't be called.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Item, List, Target, matches};
use crate::connection::Answer;
use crate::decorate::{Decorator, Filter, Rename, belongs_to, concerns};
use crate::names::{Namespace, Origin, prefixed};

pub(super) struct FilteredBundle {
    pub(super) inner: Arc<dyn Bundle>,
    pub(super) filter: Filter,
    /// How names are changed in the bundle of which this is one backend alone: what is
    /// filtered out there is filtered out here. None: this is that bundle.
    pub(super) bundle_renames: Option<Vec<Rename>>,
}

impl FilteredBundle {
    /// Whether something that goes by these names is there.
    fn allows(&self, names: &[&str]) -> bool {
        let fits = |globs: &[super::Glob]| {
            globs
                .iter()
                .any(|glob| names.iter().any(|name| glob.fits(name)))
        };
        self.filter.only.as_deref().is_none_or(fits) && !fits(&self.filter.without)
    }

    /// Whether something is listed under this name. `namespace`: none for a resource.
    fn has(&self, namespace: Option<Namespace>, listed: &str, own: &Origin) -> bool {
        let server = self.filter.server.as_deref();
        if !belongs_to(server, own) {
            return true;
        }
        if server.is_some() {
            return self.allows(&[&own.name]);
        }
        let bundle_renames = namespace
            .map(|namespace| self.names_in_bundle(namespace, own))
            .unwrap_or_default();
        let names: Vec<&str> = bundle_renames
            .iter()
            .map(String::as_str)
            .chain([listed])
            .collect();
        self.allows(&names)
    }

    /// By which names something may be listed where this backend is one of several.
    fn names_in_bundle(&self, namespace: Namespace, own: &Origin) -> Vec<String> {
        let Some(renames) = &self.bundle_renames else {
            return Vec::new();
        };
        let mut names: Vec<String> = prefixed(namespace, &own.backend, &own.name).into();
        for rename in renames {
            let new = |name: &String| rename.of(namespace).get(name).cloned();
            let renamed: Vec<String> = names.iter().filter_map(new).collect();
            names.extend(renamed);
        }
        names
    }

    /// Whether this resource is allowed. One that is in no list goes by the template that
    /// fits it best, and by its own URI.
    async fn has_resource(&self, target: &Target, uri: &str) -> Result<bool, Error> {
        self.inner.wait_for_owner(uri).await;
        if !concerns(&*self.inner, self.filter.server.as_deref(), target) {
            return Ok(true);
        }
        let is_ours = |item: &&Item| belongs_to(self.filter.server.as_deref(), &item.origin);
        let templates = self.inner.list(List::Templates).await?;
        let resources = self.inner.list(List::Resources).await?;
        if resources
            .iter()
            .chain(&templates)
            .filter(is_ours)
            .any(|item| item.name == uri)
        {
            return Ok(self.allows(&[uri]));
        }
        let fitting = templates
            .iter()
            .filter(is_ours)
            .filter_map(|item| Some((matches(&item.name, uri)?, item)));
        let best = fitting
            .max_by_key(|(length, _)| *length)
            .map(|(_, item)| &*item.name);
        Ok(self.allows(&[uri, best.unwrap_or(uri)]))
    }
}

impl Decorator for FilteredBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Box::pin(async move {
            let mut items = self.inner.list(list).await?;
            items.retain(|item| self.has(list.namespace(), &item.name, &item.origin));
            Ok(items)
        })
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let has = match call.target.uri() {
                Some(uri) => self.has_resource(&call.target, uri).await?,
                None => {
                    call.target.listed_name().is_none()
                        || Decorator::origin_of(self, &call.target).is_some()
                }
            };
            if !has {
                return Err(Error::unknown(&call.target, &self.inner.status()));
            }
            self.inner.call(call).await
        })
    }

    fn origin_of(&self, target: &Target) -> Option<Origin> {
        let own = self.inner.origin_of(target)?;
        let is_there = target
            .listed_name()
            .is_none_or(|(namespace, listed)| self.has(Some(namespace), listed, &own));
        is_there.then_some(own)
    }

    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String> {
        self.inner
            .listed_as(namespace, own)
            .filter(|listed| self.has(Some(namespace), listed, own))
    }
}
