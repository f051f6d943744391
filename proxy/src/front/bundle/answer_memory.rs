//! Where it is remembered what servers have told of themselves, for those that are started at the
//! first call: in the daemon, by what a server is and by the words of its host.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{Known, KnownStore, Unused};
use mcp_sessiond_client::{Json, Options, SessionError};
use mcp_sessiond_proto::Error;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;

use super::daemon_value::{DAEMON_WAIT, DaemonValue};
use crate::launch_env::LaunchPlace;
use crate::stderr::Stderr;

/// The service whose sessions hold what servers have told, one for each server and each way in
/// which hosts introduce themselves.
const SERVICE: &str = "answers-of-servers";

/// The key of the answers.
const KEY: &str = "answers";

/// The key of how a server was started last, for people who wonder why it is not known.
const LAST_START: &str = "last_start";

/// How a server was started when its answers were stored last.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastStart {
    place: LaunchPlace,
    /// How its host has introduced itself.
    words: String,
}

/// What nobody has asked for that long is forgotten: such a server is started with its host once. A
/// month is longer than a holiday, and keeps what is left of edited command lines from piling up.
const IDLE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Remembers, for all servers of this process.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    options: Options,
    stderr: Stderr,
    /// What is to be written, by its place; none: it is being written.
    unwritten: Mutex<BTreeMap<String, Option<Known>>>,
    /// How many writers are under way.
    writing: watch::Sender<usize>,
}

impl AnswerMemory {
    /// Will say on `stderr` why answers are not used.
    pub(crate) fn new(options: Options, stderr: Stderr) -> Arc<Self> {
        Arc::new(Self {
            options,
            stderr,
            unwritten: Mutex::default(),
            writing: watch::Sender::default(),
        })
    }

    /// What is remembered of the server with this identity, where this process runs. People know
    /// it as `name`; none: it is the only one.
    pub(crate) fn of(self: &Arc<Self>, identity: &str, name: Option<String>) -> ServerAnswers {
        let place = LaunchPlace::own();
        let what = format!("{identity}\n{}", place.fingerprint());
        ServerAnswers {
            memory: self.clone(),
            identity: identity.to_owned(),
            name,
            place,
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

    /// How the server with this identity was started last.
    async fn last_start(&self, identity: &str) -> Option<LastStart> {
        let slot = self.last_start_slot(identity)?;
        let session = slot.existing_session().await.ok()??;
        let value = session.entry(&slot.key).await.ok()?.value?;
        serde_json::from_str(value.as_str()).ok()
    }

    async fn note_start(&self, identity: &str, start: &LastStart) -> Result<(), SessionError> {
        let text = serde_json::to_string(start).unwrap_or_default();
        let (Some(slot), Ok(json)) = (self.last_start_slot(identity), Json::new(text)) else {
            return Ok(());
        };
        let session = slot.session().await?;
        session.set(&slot.key, &json).await.map(drop)
    }

    fn last_start_slot(&self, identity: &str) -> Option<DaemonValue> {
        let what = format!("last start of {identity}");
        DaemonValue::new(SERVICE, &what, LAST_START, IDLE, self.options.clone())
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
#[derive(Debug, Clone)]
pub(crate) struct ServerAnswers {
    memory: Arc<AnswerMemory>,
    identity: String,
    name: Option<String>,
    place: LaunchPlace,
    what: String,
}

impl ServerAnswers {
    fn slot(&self, words: &str) -> String {
        format!("{}\n{words}", self.what)
    }

    fn print(&self, why: &str) {
        self.say(&format_args!("is started now, and the host waits: {why}"));
    }

    fn say(&self, what: &dyn Display) {
        let of = self.name.as_ref();
        let of = of.map_or_else(String::new, |name| format!("{name}: "));
        let stderr = &self.memory.stderr;
        stderr.print(&format_args!("{of}the server {what}"));
    }

    /// Why nothing is known for a host with these words.
    async fn why_unknown(&self, words: &str) -> String {
        let last = timeout(DAEMON_WAIT, self.memory.last_start(&self.identity)).await;
        let Some(LastStart {
            place,
            words: former,
        }) = last.ok().flatten()
        else {
            return "nothing is remembered of it yet".to_owned();
        };
        match self.place.difference(&place) {
            Some(difference) => difference,
            None if former != words => {
                "the host introduces itself in another way than that of the last time (its name, capabilities or version of MCP)"
                    .to_owned()
            }
            None => "what it had answered was too large to be remembered, or was forgotten".to_owned(),
        }
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
        let (identity, start) = (
            self.identity.clone(),
            LastStart {
                place: self.place.clone(),
                words,
            },
        );
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
            let _ = timeout(DAEMON_WAIT, memory.note_start(&identity, &start)).await;
            memory.writing.send_modify(|writing| *writing -= 1);
        });
    }

    fn failed(&self, why: &str) {
        self.say(&format_args!(
            "can't be started: {why}; its first call tries again"
        ));
    }

    fn unused(&self, key: Option<&str>, why: Unused) {
        match (key, why) {
            (Some(words), Unused::Unknown) => {
                let (this, words) = (self.clone(), words.to_owned());
                tokio::spawn(async move { this.print(&this.why_unknown(&words).await) });
            }
            (_, Unused::NothingToCall) => {
                self.print("the last time it had no tools, prompts, resources or templates");
            }
            (_, Unused::NoInitialize | Unused::Unknown) => {
                self.print("its host began with another message than `initialize`, and no answer to that is remembered");
            }
        }
    }
}
