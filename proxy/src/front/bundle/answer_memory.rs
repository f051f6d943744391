//! Where it is remembered what servers have told of themselves, for those that are started at the
//! first call: in the daemon, by what a server is and by the words of its host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{Known, KnownStore};
use mcp_sessiond_client::{Json, Options, SessionError};
use mcp_sessiond_proto::Error;
use tokio::sync::watch;
use tokio::time::timeout;

use super::daemon_value::{DAEMON_WAIT, DaemonValue};
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
pub(crate) struct AnswerMemory {
    options: Options,
    /// What is to be written, by its place; none: it is being written.
    unwritten: Mutex<BTreeMap<String, Option<Known>>>,
    /// How many writers are under way.
    writing: watch::Sender<usize>,
}

impl AnswerMemory {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            options,
            unwritten: Mutex::default(),
            writing: watch::Sender::default(),
        })
    }

    /// What is remembered of the server with this identity, where this process runs.
    pub(crate) fn of(self: &Arc<Self>, identity: &str) -> ServerAnswers {
        let what = format!("{identity}\n{}", launch_env::fingerprint());
        ServerAnswers {
            memory: self.clone(),
            what,
        }
    }

    /// Waits until what was to be remembered is, or can't be.
    pub(crate) async fn flush(&self) {
        let mut writing = self.writing.subscribe();
        // Its sender is this object's.
        let _ = timeout(DAEMON_WAIT, writing.wait_for(|writing| *writing == 0)).await;
    }

    fn slot(&self, what: &str) -> Option<DaemonValue> {
        DaemonValue::new(SERVICE, what, KEY, IDLE, self.options.clone())
    }

    async fn read(&self, what: &str) -> Result<Option<Known>, SessionError> {
        let Some(slot) = self.slot(what) else {
            return Ok(None);
        };
        let Some(session) = slot.existing_session().await? else {
            return Ok(None);
        };
        let value = session.entry(&slot.key).await?.value;
        Ok(value.and_then(|json| Known::read(json.as_str())))
    }

    async fn write(&self, what: &str, known: &Known) -> Result<(), SessionError> {
        let Some(slot) = self.slot(what) else {
            return Ok(());
        };
        // What is too large replaces what was there all the same: that is no longer right.
        let text = known.write().unwrap_or_else(|| "null".to_owned());
        let Ok(json) = Json::new(text) else {
            return Ok(());
        };
        let session = slot.session().await?;
        match session.set(&slot.key, &json).await {
            Err(SessionError::Refused(Error::QuotaExceeded { .. })) => {
                session.remove(&slot.key).await
            }
            set => set.map(drop),
        }
    }

    /// What is to be written next at a place. None: it is written.
    fn next(&self, slot: &str) -> Option<Known> {
        let mut unwritten = self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let next = unwritten.get_mut(slot)?.take();
        if next.is_none() {
            unwritten.remove(slot);
        }
        next
    }
}

/// What is remembered of one server.
#[derive(Debug)]
pub(crate) struct ServerAnswers {
    memory: Arc<AnswerMemory>,
    what: String,
}

impl ServerAnswers {
    fn slot(&self, words: &str) -> String {
        format!("{}\n{words}", self.what)
    }
}

impl KnownStore for ServerAnswers {
    fn load<'a>(&'a self, words: &'a str) -> BoxFuture<'a, Option<Known>> {
        Box::pin(async move {
            let slot = self.slot(words);
            timeout(DAEMON_WAIT, self.memory.read(&slot))
                .await
                .ok()?
                .ok()
                .flatten()
        })
    }

    fn save(&self, words: String, known: Known) {
        let (memory, slot) = (self.memory.clone(), self.slot(&words));
        let mut unwritten = memory
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Whoever writes there writes this next.
        if unwritten.insert(slot.clone(), Some(known)).is_some() {
            return;
        }
        drop(unwritten);
        memory.writing.send_modify(|writing| *writing += 1);
        tokio::spawn(async move {
            while let Some(known) = memory.next(&slot) {
                // Without it the server is started with its host.
                let _ = timeout(DAEMON_WAIT, memory.write(&slot, &known)).await;
            }
            memory.writing.send_modify(|writing| *writing -= 1);
        });
    }
}
