//! Lists that are made once, and kept until one changes.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use crate::bundle::{Bundle, Error};
use crate::call::{Item, List};
use crate::decorate::Decorator;
use crate::lock::lock;

/// A list, and the version that it was made at.
type CachedList = (u64, Arc<[Item]>);

pub(super) struct CachedBundle {
    inner: Arc<dyn Bundle>,
    lists: Mutex<[Option<CachedList>; 4]>,
}

impl CachedBundle {
    pub(super) fn new(inner: Arc<dyn Bundle>) -> Self {
        Self {
            inner,
            lists: Mutex::default(),
        }
    }
}

impl Decorator for CachedBundle {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Box::pin(async move {
            // Asked for before the list, which may be newer then, but never older.
            let version = self.inner.version();
            let kept = lock(&self.lists)[list as usize].clone();
            if let Some((_, items)) = kept.filter(|(of, _)| *of == version) {
                return Ok(items.to_vec());
            }
            let items = self.inner.list(list).await?;
            lock(&self.lists)[list as usize] = Some((version, items.clone().into()));
            Ok(items)
        })
    }
}
