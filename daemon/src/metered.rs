//! A storage whose answers are timed.

use std::sync::Arc;
use std::time::Instant;

use crate::counters::{Meters, us_since};
use crate::storage::{Answer, Change, Durable, Layer, RecordId, Storage, StorageError, Version};

/// A storage, and where its times are taken down.
#[derive(Debug)]
pub struct Metered {
    storage: Arc<dyn Storage>,
    meters: Arc<Meters>,
}

impl Metered {
    /// Times this storage.
    pub fn new(storage: Arc<dyn Storage>, meters: Arc<Meters>) -> Self {
        Self { storage, meters }
    }
}

impl Layer for Metered {
    fn behind(&self) -> Option<&dyn Storage> {
        Some(&*self.storage)
    }

    fn name(&self) -> &'static str {
        self.storage.name()
    }

    fn is_shared(&self) -> bool {
        self.storage.is_shared()
    }

    fn check(&self) -> Result<(), StorageError> {
        self.storage.check()
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce(&'a dyn Storage) -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        let began = Instant::now();
        let answer = call(&*self.storage);
        Box::pin(async move {
            let answered = answer.await;
            self.meters.stored(operation, us_since(began));
            answered
        })
    }

    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        let began = Instant::now();
        let committing = self.call("commit", move |storage| {
            storage.commit(place, expected, next, change)
        });
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
}
