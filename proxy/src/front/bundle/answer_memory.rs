//! Where it is remembered what servers have told of themselves, for those that are started at the
//! first call: in the daemon, by what a server is and by the words of its host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{Known, Recall};
use mcp_sessiond_client::{Json, Options, SessionError};
use mcp_sessiond_proto::Error;
use tokio::sync::watch;
use tokio::time::timeout;

use super::daemon_value::{PATIENCE, Place};
use crate::launch_env;

/// The service whose sessions hold what servers have told, one for each server and each way in
/// which hosts introduce themselves.
const SERVICE: &str = "answers-of-servers";

/// The key of the answers.
const KEY: &str = "answers";

/// What nobody has asked for that long is forgotten: such a server is started with its host once. A
/// month is longer than a holiday, and keeps what is left of edited command lines from piling up.
const IDLE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Remembers, for all servers of this process.
#[derive(Debug)]
pub(crate) struct Memory {
    options: Options,
    /// What is to be written, by its place; none: it is being written.
    unwritten: Mutex<BTreeMap<String, Option<Known>>>,
    /// How many writers are under way.
    writing: watch::Sender<usize>,
}

impl Memory {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            options,
            unwritten: Mutex::default(),
            writing: watch::Sender::default(),
        })
    }

    /// What is remembered of the server with this identity, where this process runs.
    pub(crate) fn of(self: &Arc<Self>, identity: &str) -> OfServer {
        let what = format!("{identity}\n{}", launch_env::fingerprint());
        OfServer {
            memory: self.clone(),
            what,
        }
    }

    /// Waits until what was to be remembered is, or can't be.
    pub(crate) async fn written(&self) {
        let mut writing = self.writing.subscribe();
        // Its sender is this object's.
        let _ = timeout(PATIENCE, writing.wait_for(|writing| *writing == 0)).await;
    }

    fn place(&self, what: &str) -> Option<Place> {
        Place::new(SERVICE, what, KEY, IDLE, self.options.clone())
    }

    async fn read(&self, what: &str) -> Result<Option<Known>, SessionError> {
        let Some(place) = self.place(what) else {
            return Ok(None);
        };
        let Some(session) = place.found().await? else {
            return Ok(None);
        };
        let value = session.entry(&place.key).await?.value;
        Ok(value.and_then(|json| Known::read(json.as_str())))
    }

    async fn write(&self, what: &str, known: &Known) -> Result<(), SessionError> {
        let Some(place) = self.place(what) else {
            return Ok(());
        };
        // What is too large replaces what was there all the same: that is no longer right.
        let text = known.write().unwrap_or_else(|| "null".to_owned());
        let Ok(json) = Json::new(text) else {
            return Ok(());
        };
        let session = place.session().await?;
        match session.set(&place.key, &json).await {
            Err(SessionError::Refused(Error::QuotaExceeded { .. })) => {
                session.remove(&place.key).await
            }
            set => set.map(drop),
        }
    }

    /// What is to be written next at a place. None: it is written.
    fn next(&self, place: &str) -> Option<Known> {
        let mut unwritten = self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let next = unwritten.get_mut(place)?.take();
        if next.is_none() {
            unwritten.remove(place);
        }
        next
    }
}

/// What is remembered of one server.
#[derive(Debug)]
pub(crate) struct OfServer {
    memory: Arc<Memory>,
    what: String,
}

impl OfServer {
    fn place(&self, words: &str) -> String {
        format!("{}\n{words}", self.what)
    }
}

impl Recall for OfServer {
    fn load<'a>(&'a self, words: &'a str) -> BoxFuture<'a, Option<Known>> {
        Box::pin(async move {
            let place = self.place(words);
            timeout(PATIENCE, self.memory.read(&place))
                .await
                .ok()?
                .ok()
                .flatten()
        })
    }

    fn save(&self, words: String, known: Known) {
        let (memory, place) = (self.memory.clone(), self.place(&words));
        let mut unwritten = memory
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Whoever writes there writes this next.
        if unwritten.insert(place.clone(), Some(known)).is_some() {
            return;
        }
        drop(unwritten);
        memory.writing.send_modify(|writing| *writing += 1);
        tokio::spawn(async move {
            while let Some(known) = memory.next(&place) {
                // Without it the server is started with its host.
                let _ = timeout(PATIENCE, memory.write(&place, &known)).await;
            }
            memory.writing.send_modify(|writing| *writing -= 1);
        });
    }
}
