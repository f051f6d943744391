//! [`Store`]: the storage as the daemon uses it. Its answers are timed, and it may not be there yet:
//! leases, tokens and backends don't need it, so the daemon starts all the same, tries again until
//! it can be opened, and says until then what is the matter.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use mcp_sessiond_proto::Lock as _;
use tokio::sync::watch;

use super::{
    Answer, Change, Durable, Item, Key, Listed, MemoryUsage, Record, RecordId, Scan, Storage,
    StorageError, Url, Version,
};
use crate::counters::Meters;

/// The first and the longest pause before it is tried again; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long the daemon's start waits for the storage. Hosts are waiting, and need other things of
/// it.
const START_WAIT: Duration = Duration::from_secs(1);

/// How long a call waits for the first attempt to open the storage.
const FIRST_ATTEMPT: Duration = Duration::from_secs(10);

/// A storage that is there, or will be.
pub struct Store {
    backend: OnceLock<Arc<dyn Storage>>,
    named: Mutex<Named>,
    /// What to open: it may be corrected as long as nothing was opened.
    wanted: watch::Sender<String>,
    /// How the last attempt to open it has ended. None: the first one is under way.
    attempted: watch::Sender<Option<Result<(), StorageError>>>,
    meters: Arc<Meters>,
}

/// What is known of the storage from its URL.
#[derive(Debug, Clone)]
struct Named {
    name: &'static str,
    is_shared: bool,
    redacted: String,
}

impl Named {
    fn of(url: &str) -> Self {
        let (name, is_shared) = Url::parse(url).map_or(("none", false), |url| url.backend());
        let redacted = if url.is_empty() {
            name.to_owned()
        } else {
            super::redacted(url)
        };
        Self {
            name,
            is_shared,
            redacted,
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Store({:?})", self.backend.get())
    }
}

impl Store {
    fn new(url: &str, meters: Arc<Meters>) -> Self {
        Self {
            backend: OnceLock::new(),
            named: Mutex::new(Named::of(url)),
            wanted: watch::Sender::new(url.to_owned()),
            attempted: watch::Sender::new(None),
            meters,
        }
    }

    /// A backend that is open.
    pub fn over(backend: Arc<dyn Storage>, meters: Arc<Meters>) -> Arc<Self> {
        let store = Self::new("", meters);
        let _ = store.backend.set(backend);
        Arc::new(store)
    }

    /// Opens a backend by `attempt`, which gets the URL. Where that fails, or takes long, it goes on
    /// behind what is returned.
    pub(super) async fn open<F>(
        url: &str,
        meters: Arc<Meters>,
        attempt: impl Fn(String) -> F + Send + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Result<Arc<dyn Storage>, StorageError>> + Send + 'static,
    {
        let store = Arc::new(Self::new(url, meters));
        tokio::spawn(store.clone().keep_trying(attempt));
        store.wait_for_attempt(START_WAIT).await;
        store
    }

    async fn keep_trying<F>(self: Arc<Self>, attempt: impl Fn(String) -> F)
    where
        F: Future<Output = Result<Arc<dyn Storage>, StorageError>> + Send + 'static,
    {
        let mut wanting = self.wanted.subscribe();
        let mut pause = PAUSE;
        let mut said = None;
        loop {
            let url = wanting.borrow_and_update().clone();
            let named = Named::of(&url);
            *self.named.locked() = named.clone();
            match attempt(url).await {
                Ok(backend) => {
                    if said.is_some() {
                        tracing::info!(
                            storage = named.name,
                            "the storage of the sessions' contents can be used now"
                        );
                    }
                    let _ = self.backend.set(backend);
                    self.attempted.send_replace(Some(Ok(())));
                    return;
                }
                Err(error) => {
                    if said.as_ref() != Some(&error) {
                        tracing::error!(
                            storage = named.name,
                            why = %error,
                            "the storage of the sessions' contents can't be used, and the daemon tries again; claims, tokens and backends don't need it"
                        );
                        said = Some(error.clone());
                    }
                    self.attempted.send_replace(Some(Err(error)));
                }
            }
            // Whoever corrects the configuration does not wait for the pause to end.
            if let Ok(Ok(())) = tokio::time::timeout(pause, wanting.changed()).await {
                pause = PAUSE;
            } else {
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Waits until the first attempt to open it has ended.
    async fn wait_for_attempt(&self, most: Duration) {
        let mut attempted = self.attempted.subscribe();
        let _ = tokio::time::timeout(most, attempted.wait_for(Option::is_some)).await;
    }

    /// Another `storage.url` was configured. It counts if no storage could be opened so far.
    pub fn want(&self, url: &str) {
        self.wanted.send_if_modified(|wanted| {
            let is_new = wanted != url;
            url.clone_into(wanted);
            is_new
        });
    }

    /// Whether the storage is open, so that another URL counts no more.
    pub fn is_open(&self) -> bool {
        self.backend.get().is_some()
    }

    /// The URL of the storage that is open, or that was tried last; without any password.
    pub fn redacted(&self) -> String {
        self.named.locked().redacted.clone()
    }

    /// Its name, as in `storage.url`: `memory`, `sqlite`, `postgres`, `dynamodb`.
    pub fn name(&self) -> &'static str {
        let backend = self.backend.get();
        backend.map_or_else(|| self.named.locked().name, |backend| backend.name())
    }

    /// Whether other daemons may change what is in here.
    pub fn is_shared(&self) -> bool {
        let backend = self.backend.get();
        backend.map_or_else(
            || self.named.locked().is_shared,
            |backend| backend.is_shared(),
        )
    }

    /// As [`Storage::check`].
    ///
    /// # Errors
    /// As there, and [`StorageError::Unusable`] while it can't be opened.
    pub fn check(&self) -> Result<(), StorageError> {
        // While it is being opened nothing is known to be wrong, and whoever calls waits.
        self.get().map_or(Ok(()), |backend| backend?.check())
    }

    /// As [`Storage::look_after`].
    pub fn look_after(&self) {
        if let Some(backend) = self.backend.get() {
            backend.look_after();
        }
    }

    /// As [`Storage::file`].
    pub fn file(&self) -> Option<PathBuf> {
        self.backend.get()?.file()
    }

    /// As [`Storage::close`].
    pub async fn close(&self) {
        if let Some(backend) = self.backend.get() {
            backend.close().await;
        }
    }

    /// As [`Storage::settled`].
    pub fn settled(&self, record: &RecordId) -> Durable {
        let backend = self.backend.get();
        backend.map_or(Durable::Now, |backend| backend.settled(record))
    }

    /// As [`Storage::usage`].
    pub fn usage(&self, owner: &str) -> Option<MemoryUsage> {
        self.backend.get()?.usage(owner)
    }

    /// The backend, if it is there. None: the first attempt to open it is still under way.
    fn get(&self) -> Option<Result<&dyn Storage, StorageError>> {
        if let Some(backend) = self.backend.get() {
            return Some(Ok(&**backend));
        }
        match &*self.attempted.borrow() {
            Some(Err(error)) => Some(Err(error.clone())),
            Some(Ok(())) | None => None,
        }
    }

    /// The backend, after the first attempt to open it.
    async fn opened(&self) -> Result<&dyn Storage, StorageError> {
        if let Some(backend) = self.get() {
            return backend;
        }
        self.wait_for_attempt(FIRST_ATTEMPT).await;
        self.get().unwrap_or_else(|| {
            let why = "it is still being opened".into();
            Err(StorageError::Unusable { why, passes: true })
        })
    }

    /// Makes a call. `operation` is one of [`crate::counters::OPERATIONS`].
    async fn call<'a, T>(
        &'a self,
        operation: &str,
        call: impl FnOnce(&'a dyn Storage) -> Answer<'a, T>,
    ) -> Result<T, StorageError> {
        let began = Instant::now();
        let answered = call(self.opened().await?).await;
        self.meters.stored(operation, began.elapsed());
        answered
    }

    /// As [`Storage::read`].
    ///
    /// # Errors
    /// As every method of [`Storage`].
    pub async fn read(
        &self,
        record: &RecordId,
        keys: &[Key],
    ) -> Result<Option<Record>, StorageError> {
        self.call("read", |backend| backend.read(record, keys))
            .await
    }

    /// As [`Storage::scan`].
    ///
    /// # Errors
    /// As every method of [`Storage`].
    pub async fn scan(&self, record: &RecordId, scan: &Scan) -> Result<Vec<Item>, StorageError> {
        self.call("scan", |backend| backend.scan(record, scan))
            .await
    }

    /// As [`Storage::commit`].
    ///
    /// # Errors
    /// As there.
    pub async fn commit(
        &self,
        record: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Result<Durable, StorageError> {
        let began = Instant::now();
        let committing = self.call("commit", |backend| {
            backend.commit(record, expected, next, change)
        });
        Ok(match committing.await? {
            Durable::Now => Durable::Now,
            Durable::Later(kept) => {
                let meters = self.meters.clone();
                Durable::Later(Box::pin(async move {
                    let kept = kept.await;
                    meters.stored("keep", began.elapsed());
                    kept
                }))
            }
        })
    }

    /// As [`Storage::list`].
    ///
    /// # Errors
    /// As every method of [`Storage`].
    pub async fn list(
        &self,
        owner: &str,
        after: &str,
        most: usize,
    ) -> Result<Vec<Listed>, StorageError> {
        self.call("list", |backend| backend.list(owner, after, most))
            .await
    }

    /// As [`Storage::list_all`].
    ///
    /// # Errors
    /// As every method of [`Storage`].
    pub async fn list_all(
        &self,
        after: Option<&RecordId>,
        most: usize,
    ) -> Result<Vec<Listed>, StorageError> {
        self.call("list_all", |backend| backend.list_all(after, most))
            .await
    }

    /// As [`Storage::due`].
    ///
    /// # Errors
    /// As every method of [`Storage`].
    pub async fn due(&self, now_ms: u64, most: usize) -> Result<Vec<Listed>, StorageError> {
        self.call("due", |backend| backend.due(now_ms, most)).await
    }

    /// As [`Storage::count`].
    ///
    /// # Errors
    /// As every method of [`Storage`].
    pub async fn count(&self, owner: &str, most: usize) -> Result<usize, StorageError> {
        self.call("count", |backend| backend.count(owner, most))
            .await
    }
}
