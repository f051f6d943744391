//! A storage whose answers are timed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;

use crate::counters::{Meters, us_since};
use crate::storage::{
    Answer, Change, Durable, Key, Listed, Place, Record, Scan, Storage, StorageError, Usage,
    Version,
};

/// A storage, and where its times are taken down.
#[derive(Debug)]
pub struct Metered {
    storage: Arc<dyn Storage>,
    meters: Arc<Meters>,
}

impl Metered {
    /// Times this storage.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, meters: Arc<Meters>) -> Self {
        Self { storage, meters }
    }

    fn timed<'a, T: 'a>(&'a self, operation: &'static str, answer: Answer<'a, T>) -> Answer<'a, T> {
        let began = Instant::now();
        Box::pin(async move {
            let answered = answer.await;
            self.meters.stored(operation, us_since(began));
            answered
        })
    }
}

impl Storage for Metered {
    fn name(&self) -> &'static str {
        self.storage.name()
    }

    fn is_shared(&self) -> bool {
        self.storage.is_shared()
    }

    fn check(&self) -> Result<(), StorageError> {
        self.storage.check()
    }

    fn look_after(&self) {
        self.storage.look_after();
    }

    fn file(&self) -> Option<PathBuf> {
        self.storage.file()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.storage.close()
    }

    fn read<'a>(&'a self, place: &'a Place, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        self.timed("read", self.storage.read(place, keys))
    }

    fn scan<'a>(
        &'a self,
        place: &'a Place,
        scan: &'a Scan,
    ) -> Answer<'a, Vec<crate::storage::Item>> {
        self.timed("scan", self.storage.scan(place, scan))
    }

    fn commit<'a>(
        &'a self,
        place: &'a Place,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        let began = Instant::now();
        let committing = self.timed("commit", self.storage.commit(place, expected, next, change));
        Box::pin(async move {
            Ok(match committing.await? {
                Durable::Now => Durable::Now,
                Durable::Later(kept) => {
                    let meters = self.meters.clone();
                    Durable::Later(Box::pin(async move {
                        let kept = kept.await;
                        meters.stored("keep", us_since(began));
                        kept
                    }))
                }
            })
        })
    }

    fn settled(&self, place: &Place) -> Durable {
        self.storage.settled(place)
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        self.timed("list", self.storage.list(owner, after, most))
    }

    fn list_all<'a>(&'a self, after: Option<&'a Place>, most: usize) -> Answer<'a, Vec<Listed>> {
        self.timed("list_all", self.storage.list_all(after, most))
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        self.timed("due", self.storage.due(now_ms, most))
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        self.timed("count", self.storage.count(owner, most))
    }

    fn usage(&self, owner: &str) -> Option<Usage> {
        self.storage.usage(owner)
    }
}
