//! Between contents and a backend: it can fail, lose answers, put off what a backend may put off,
//! and tell what is under way.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use mcp_sessiond_daemon::storage::{
    Answer, Change, Durable, Item, Key, Listed, MemoryUsage, Record, RecordId, Scan, Storage,
    StorageError, Version,
};

/// A storage through which everything goes.
#[derive(Debug)]
pub(super) struct Relay {
    inner: Arc<dyn Storage>,
    /// How many calls go well from now on.
    well: AtomicUsize,
    /// Whether a commit is made whose answer is lost.
    loses_answers: AtomicBool,
    /// Whether what is to be forgotten is, once something else is committed; else at once.
    forgets_late: AtomicBool,
    late: Mutex<Vec<(RecordId, Vec<Range<Key>>)>>,
    under_way: AtomicUsize,
}

/// Until a call has come to its end.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn unavailable() -> StorageError {
    StorageError::Unavailable("the case has it so".into())
}

impl Relay {
    /// To a backend, and as good as that.
    pub(super) fn new(inner: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            well: AtomicUsize::new(usize::MAX),
            loses_answers: AtomicBool::new(false),
            forgets_late: AtomicBool::new(false),
            late: Mutex::default(),
            under_way: AtomicUsize::new(0),
        })
    }

    /// So many calls go well, and none after them.
    pub(super) fn fail_after(&self, calls: usize) {
        self.well.store(calls, Ordering::SeqCst);
    }

    /// All calls go well again.
    pub(super) fn recover(&self) {
        self.loses_answers.store(false, Ordering::SeqCst);
        self.well.store(usize::MAX, Ordering::SeqCst);
    }

    /// Commits are made, and their answers lost.
    pub(super) fn lose_answers(&self) {
        self.loses_answers.store(true, Ordering::SeqCst);
    }

    /// What is to be forgotten stays for a while.
    pub(super) fn forget_late(&self) {
        self.forgets_late.store(true, Ordering::SeqCst);
    }

    /// Whether nothing is asked of the backend at the moment.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    fn begin(&self) -> Result<UnderWay<'_>, StorageError> {
        let left = |left: usize| {
            Some(if left == usize::MAX {
                left
            } else {
                left.saturating_sub(1)
            })
        };
        match self
            .well
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
        {
            Ok(0) => Err(unavailable()),
            _ => {
                self.under_way.fetch_add(1, Ordering::SeqCst);
                Ok(UnderWay(&self.under_way))
            }
        }
    }
}

impl Storage for Relay {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn check(&self) -> Result<(), StorageError> {
        self.inner.check()
    }

    fn file(&self) -> Option<std::path::PathBuf> {
        self.inner.file()
    }

    fn look_after(&self) {
        self.inner.look_after();
    }

    fn close(&self) -> futures::future::BoxFuture<'_, ()> {
        self.inner.close()
    }

    fn read<'a>(&'a self, place: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        async move {
            let _call = self.begin()?;
            self.inner.read(place, keys).await
        }
        .boxed()
    }

    fn scan<'a>(&'a self, place: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        async move {
            let _call = self.begin()?;
            self.inner.scan(place, scan).await
        }
        .boxed()
    }

    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        mut change: Change,
    ) -> Answer<'a, Durable> {
        async move {
            let _call = self.begin()?;
            if self.forgets_late.load(Ordering::SeqCst) && change.head.is_some() && !change.clear {
                let forget = std::mem::take(&mut change.forget);
                let due: Vec<_> = {
                    let mut late = self.late.lock().expect("no panic before");
                    late.push((place.clone(), forget));
                    // Those of four changes before.
                    let until = late.len().saturating_sub(4);
                    late.drain(..until).filter(|(of, _)| of == place).collect()
                };
                change.forget = due.into_iter().flat_map(|(_, ranges)| ranges).collect();
            }
            let durable = self.inner.commit(place, expected, next, change).await?;
            if self.loses_answers.load(Ordering::SeqCst) {
                durable.kept().await?;
                return Err(unavailable().unknown());
            }
            Ok(durable)
        }
        .boxed()
    }

    fn settled(&self, place: &RecordId) -> Durable {
        match self.begin() {
            Ok(_) => self.inner.settled(place),
            Err(error) => Durable::Later(async move { Err(error) }.boxed()),
        }
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        async move {
            let _call = self.begin()?;
            self.inner.list(owner, after, most).await
        }
        .boxed()
    }

    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>> {
        async move {
            let _call = self.begin()?;
            self.inner.list_all(after, most).await
        }
        .boxed()
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        async move {
            let _call = self.begin()?;
            self.inner.due(now_ms, most).await
        }
        .boxed()
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        async move {
            let _call = self.begin()?;
            self.inner.count(owner, most).await
        }
        .boxed()
    }

    fn usage(&self, owner: &str) -> Option<MemoryUsage> {
        self.inner.usage(owner)
    }
}
