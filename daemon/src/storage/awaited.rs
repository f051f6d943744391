//! A database that did not answer when the daemon started. Leases and tokens don't need it, so the daemon goes on, asks
//! again until there is one, and says `unavailable` until then.

use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future;

use super::{
    Answer, Change, Durable, Item, Key, Listed, Place, Record, Scan, Storage, StorageError, Usage, Version,
};

/// The pause before it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// A storage that will be there.
#[derive(Debug)]
struct Awaited {
    name: &'static str,
    arrived: OnceLock<Arc<dyn Storage>>,
    why: Mutex<String>,
}

/// Opens a storage; where it does not answer at the moment, goes on trying behind what is returned. `passes` tells why it does
/// not answer, of an error after which it may.
pub(super) async fn open<F, E>(
    name: &'static str,
    passes: impl FnOnce(&E) -> Option<String>,
    attempt: impl Fn() -> F + Send + 'static,
) -> Result<Arc<dyn Storage>, E>
where
    F: Future<Output = Result<Arc<dyn Storage>, E>> + Send,
    E: Display,
{
    let why = match attempt().await {
        Err(error) => passes(&error).ok_or(error)?,
        opened => return opened,
    };
    tracing::error!(storage = name, %why, "the storage does not answer; trying again");
    let awaited = Arc::new(Awaited { name, arrived: OnceLock::new(), why: Mutex::new(why) });
    let waiting = awaited.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PAUSE).await;
            match attempt().await {
                Ok(storage) => {
                    tracing::info!(storage = name, "the storage answers");
                    let _ = waiting.arrived.set(storage);
                    return;
                }
                Err(error) => *waiting.why.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string(),
            }
        }
    });
    Ok(awaited)
}

impl Awaited {
    fn get(&self) -> Result<&Arc<dyn Storage>, StorageError> {
        let why = || self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.arrived.get().ok_or_else(|| StorageError::Unavailable(why()))
    }

    fn with<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Storage) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.get() {
            Ok(storage) => call(&**storage),
            Err(error) => future::ready(Err(error)).boxed(),
        }
    }
}

impl Storage for Awaited {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), StorageError> {
        self.get()?.check()
    }

    fn read<'a>(&'a self, place: &'a Place, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        self.with(|storage| storage.read(place, keys))
    }

    fn scan<'a>(&'a self, place: &'a Place, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        self.with(|storage| storage.scan(place, scan))
    }

    fn commit<'a>(
        &'a self,
        place: &'a Place,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        self.with(|storage| storage.commit(place, expected, next, change))
    }

    fn settled(&self, place: &Place) -> Durable {
        self.get().map_or(Durable::Now, |storage| storage.settled(place))
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        self.with(|storage| storage.list(owner, after, most))
    }

    fn list_all<'a>(&'a self, after: Option<&'a Place>, most: usize) -> Answer<'a, Vec<Listed>> {
        self.with(|storage| storage.list_all(after, most))
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        self.with(|storage| storage.due(now_ms, most))
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        self.with(|storage| storage.count(owner, most))
    }

    fn usage(&self, owner: &str) -> Option<Usage> {
        self.arrived.get().and_then(|storage| storage.usage(owner))
    }
}
