//! A storage that may not be there yet. Leases, tokens and backends don't need it, so the daemon
//! starts all the same, tries again until it can be opened, and says until then what is the matter.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future;
use mcp_sessiond_proto::Lock as _;
use tokio::sync::watch;

use super::layer::Layer;
use super::{Answer, Storage, StorageError, Url};

/// The first and the longest pause before it is tried again; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long the daemon's start waits for the storage. Hosts are waiting, and need other things of
/// it.
const START_WAIT: Duration = Duration::from_secs(1);

/// How long a call waits for the first attempt to open the storage.
const FIRST_ATTEMPT: Duration = Duration::from_secs(10);

/// How far it has come.
#[derive(Debug, Clone)]
enum Phase {
    /// The first attempt is under way.
    Opening,
    /// It could not be opened, and is tried again.
    Failed(NotOpen),
    /// It is there.
    Open,
}

/// Why it could not be opened, as [`StorageError::Unusable`] has it.
#[derive(Debug, Clone)]
pub(super) struct NotOpen {
    pub(super) why: String,
    pub(super) passes: bool,
}

impl From<NotOpen> for StorageError {
    fn from(NotOpen { why, passes }: NotOpen) -> Self {
        Self::Unusable { why, passes }
    }
}

/// A storage that is there, or will be.
#[derive(Debug)]
struct Awaited {
    named: Arc<Mutex<Named>>,
    arrived: OnceLock<Arc<dyn Storage>>,
    phase: watch::Receiver<Phase>,
}

/// What is known of the storage from its URL.
#[derive(Debug, Clone)]
struct Named {
    name: &'static str,
    is_shared: bool,
    redacted: String,
}

/// What to open: it may be corrected as long as nothing was opened.
#[derive(Debug)]
pub struct Opener {
    wanted: watch::Sender<String>,
    named: Arc<Mutex<Named>>,
}

impl Opener {
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
        self.wanted.is_closed()
    }

    /// The URL of the storage that is open, or that was tried last; without any password.
    pub fn redacted(&self) -> String {
        self.named.locked().redacted.clone()
    }
}

/// Opens a storage by `attempt`, which is told the URL. Where that fails, or takes long, it goes on
/// behind what is returned.
pub(super) async fn open<F>(
    url: &str,
    attempt: impl Fn(String) -> F + Send + 'static,
) -> (Arc<dyn Storage>, Opener)
where
    F: Future<Output = Result<Arc<dyn Storage>, NotOpen>> + Send + 'static,
{
    let named = Arc::new(Mutex::new(Named::of(url)));
    let (wanted, wanting) = watch::channel(url.to_owned());
    let (tell, phase) = watch::channel(Phase::Opening);
    let awaited = Arc::new(Awaited {
        named: named.clone(),
        arrived: OnceLock::new(),
        phase,
    });
    tokio::spawn(keep_trying(awaited.clone(), attempt, wanting, tell));
    let mut first = awaited.phase.clone();
    let settled = first.wait_for(|phase| !matches!(phase, Phase::Opening));
    let _ = tokio::time::timeout(START_WAIT, settled).await;
    let storage = awaited.arrived.get().cloned().unwrap_or(awaited);
    (storage, Opener { wanted, named })
}

async fn keep_trying<F>(
    awaited: Arc<Awaited>,
    attempt: impl Fn(String) -> F,
    mut wanting: watch::Receiver<String>,
    tell: watch::Sender<Phase>,
) where
    F: Future<Output = Result<Arc<dyn Storage>, NotOpen>> + Send + 'static,
{
    let mut pause = PAUSE;
    let mut said = String::new();
    loop {
        let url = wanting.borrow_and_update().clone();
        let named = Named::of(&url);
        *awaited.named.locked() = named.clone();
        match attempt(url).await {
            Ok(storage) => {
                if !said.is_empty() {
                    tracing::info!(
                        storage = named.name,
                        "the storage of the sessions' contents can be used now"
                    );
                }
                let _ = awaited.arrived.set(storage);
                tell.send_replace(Phase::Open);
                return;
            }
            Err(error) => {
                if said != error.why {
                    tracing::error!(
                        storage = named.name,
                        why = %error.why,
                        "the storage of the sessions' contents can't be used, and the daemon tries again; claims, tokens and backends don't need it"
                    );
                    said.clone_from(&error.why);
                }
                tell.send_replace(Phase::Failed(error));
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

impl Awaited {
    fn named(&self) -> Named {
        self.named.locked().clone()
    }

    /// The storage, if it is there. None: the first attempt to open it is still under way.
    fn get(&self) -> Option<Result<&Arc<dyn Storage>, StorageError>> {
        if let Some(storage) = self.arrived.get() {
            return Some(Ok(storage));
        }
        match &*self.phase.borrow() {
            Phase::Failed(error) => Some(Err(error.clone().into())),
            Phase::Opening | Phase::Open => None,
        }
    }

    /// The storage, after the first attempt to open it.
    async fn opened(&self) -> Result<&Arc<dyn Storage>, StorageError> {
        let mut phase = self.phase.clone();
        let settled = phase.wait_for(|phase| !matches!(phase, Phase::Opening));
        let _ = tokio::time::timeout(FIRST_ATTEMPT, settled).await;
        self.get().unwrap_or_else(|| {
            let why = "it is still being opened".into();
            Err(StorageError::Unusable { why, passes: true })
        })
    }
}

impl Layer for Awaited {
    fn behind(&self) -> Option<&dyn Storage> {
        self.arrived.get().map(|storage| &**storage)
    }

    fn name(&self) -> &'static str {
        self.named().name
    }

    fn is_shared(&self) -> bool {
        self.named().is_shared
    }

    fn check(&self) -> Result<(), StorageError> {
        // While it is being opened nothing is known to be wrong, and whoever calls waits.
        self.get().map_or(Ok(()), |storage| storage?.check())
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        _: &'static str,
        call: impl FnOnce(&'a dyn Storage) -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        match self.get() {
            Some(Ok(storage)) => call(&**storage),
            Some(Err(error)) => future::ready(Err(error)).boxed(),
            None => async move { call(&**self.opened().await?).await }.boxed(),
        }
    }
}
