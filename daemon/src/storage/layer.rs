//! What stands before a storage: it says what comes before and after a call, and hands out the
//! storage that answers it.

use std::fmt;
use std::path::PathBuf;

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};

use super::{
    Answer, Change, Durable, Item, Key, Listed, MemoryUsage, Record, RecordId, Scan, Storage,
    StorageError, Version,
};

/// A layer before a storage, which is a storage by that.
pub trait Layer: Send + Sync + fmt::Debug {
    /// The storage behind it. None: it is not there yet.
    fn behind(&self) -> Option<&dyn Storage>;

    /// As [`Storage::name`].
    fn name(&self) -> &'static str;

    /// As [`Storage::is_shared`].
    fn is_shared(&self) -> bool;

    /// As [`Storage::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self) -> Result<(), StorageError>;

    /// Makes a call of the storage behind it. `operation` is the name of the call.
    fn call<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce(&'a dyn Storage) -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T>;

    /// As [`Storage::commit`].
    fn commit<'a>(
        &'a self,
        record: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        self.call("commit", move |storage| {
            storage.commit(record, expected, next, change)
        })
    }
}

impl<L: Layer> Storage for L {
    fn name(&self) -> &'static str {
        Layer::name(self)
    }

    fn is_shared(&self) -> bool {
        Layer::is_shared(self)
    }

    fn check(&self) -> Result<(), StorageError> {
        Layer::check(self)
    }

    fn look_after(&self) {
        if let Some(storage) = self.behind() {
            storage.look_after();
        }
    }

    fn file(&self) -> Option<PathBuf> {
        self.behind()?.file()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let closing = self.behind().map(Storage::close);
        closing.unwrap_or_else(|| future::ready(()).boxed())
    }

    fn read<'a>(&'a self, record: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        self.call("read", move |storage| storage.read(record, keys))
    }

    fn scan<'a>(&'a self, record: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        self.call("scan", move |storage| storage.scan(record, scan))
    }

    fn commit<'a>(
        &'a self,
        record: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        Layer::commit(self, record, expected, next, change)
    }

    fn settled(&self, record: &RecordId) -> Durable {
        self.behind()
            .map_or(Durable::Now, |storage| storage.settled(record))
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        self.call("list", move |storage| storage.list(owner, after, most))
    }

    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>> {
        self.call("list_all", move |storage| storage.list_all(after, most))
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        self.call("due", move |storage| storage.due(now_ms, most))
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        self.call("count", move |storage| storage.count(owner, most))
    }

    fn usage(&self, owner: &str) -> Option<MemoryUsage> {
        self.behind()?.usage(owner)
    }
}
