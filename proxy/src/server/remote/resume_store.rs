//! What is kept of the connection to a server elsewhere: values in the session's state. The next
//! front of the session, or the next `serve`, finds them.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_client::{Control, Loss, Options, SessionError};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::state::{
    ListStateRequest, ReadStateRequest, STATE_KEYS_MAX, StateEntry, StateWrite, WriteStateRequest,
};
use mcp_sessiond_proto::types::LeaseRef;
use mcp_sessiond_proto::{Json, StateKey};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::signals::Leaving;
use crate::stderr::Stderr;

/// How long to wait for the daemon: as long as a host waits for us.
const DAEMON_WAIT: Duration = Duration::from_secs(2);

/// Values that are read at once: a call takes 3 MiB.
const READ_MAX: usize = 3;

/// What the values of a server begin with, and how many hexadecimal digits say which server that
/// is.
const PREFIX: &str = "remote-server";
const DIGEST: usize = 16;

/// Prints a line on our standard error.
type Print = dyn Fn(&dyn Display) + Send + Sync;

/// Takes up what is lost of the session with the server. Returns once that can't be forgotten.
type OnLoss = dyn Fn(Loss) -> BoxFuture<'static, ()> + Send + Sync;

/// Values by their keys, and how to print. Clones share the values.
#[derive(Clone)]
pub struct ResumeStore {
    /// None: there is no session, and nothing is kept.
    state: Option<Arc<SessionState>>,
    name: String,
    stderr: Arc<Print>,
    /// None: it is printed.
    on_loss: Option<Arc<OnLoss>>,
    /// Which use of the store this is. What an earlier one would write is not written any more.
    user: u64,
    newest: Arc<AtomicU64>,
    /// Whether the host has closed its end. The session is the next front's then.
    leaving: watch::Receiver<Leaving>,
}

/// Who uses the stores of a session last, by the server's name. An edited entry is another server
/// of the same name, and has the store of the former one, which may still be ending.
#[derive(Debug, Clone, Default)]
pub struct StoreUsers(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl StoreUsers {
    /// The store, for its newest user: what earlier ones would still write is dropped.
    pub fn share(&self, store: ResumeStore) -> ResumeStore {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = users.entry(store.name.clone()).or_default().clone();
        ResumeStore { newest, ..store }
    }
}

struct SessionState {
    control: Control,
    of: SessionRef,
    prefix: String,
}

impl fmt::Debug for ResumeStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ResumeStore({:?})", self.name)
    }
}

impl ResumeStore {
    /// That of the server of this name, in the session with this lease, if there is one.
    pub(crate) fn new(
        options: &Options,
        lease: Option<&LeaseRef>,
        name: &str,
        stderr: Stderr,
        leaving: watch::Receiver<Leaving>,
    ) -> Self {
        let print = move |what: &dyn Display| stderr.print(what);
        let Some(LeaseRef { session, epoch }) = lease else {
            return Self::empty(name, print);
        };
        let of = SessionRef {
            session: session.clone(),
            service: None,
            epoch: Some(*epoch),
            caller: None,
        };
        Self {
            leaving,
            ..Self::of(Self::control(options), of, name, print)
        }
    }

    /// The way to the daemon, which stores may share.
    pub fn control(options: &Options) -> Control {
        Control::new(options.clone().timeout(DAEMON_WAIT))
    }

    /// That of the server of this name, in this session. `print` says something on standard error.
    pub fn of(
        control: Control,
        session: SessionRef,
        name: &str,
        print: impl Fn(&dyn Display) + Send + Sync + 'static,
    ) -> Self {
        let digest = Sha256::digest(name);
        let digest: String = digest
            .iter()
            .take(DIGEST / 2)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let state = SessionState {
            control,
            of: session,
            prefix: format!("{PREFIX}/{digest}/"),
        };
        Self {
            state: Some(Arc::new(state)),
            ..Self::empty(name, print)
        }
    }

    /// One that keeps nothing, of the server of this name.
    pub fn empty(name: &str, print: impl Fn(&dyn Display) + Send + Sync + 'static) -> Self {
        let (_, leaving) = watch::channel(Leaving::No);
        let stderr = Arc::new(print);
        Self {
            state: None,
            name: name.to_owned(),
            stderr,
            on_loss: None,
            user: 0,
            newest: Arc::default(),
            leaving,
        }
    }

    /// The same, where what is lost of the session with the server is not printed, but taken up.
    pub fn on_loss(
        self,
        on_loss: impl Fn(Loss) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        let on_loss: Option<Arc<OnLoss>> = Some(Arc::new(on_loss));
        Self { on_loss, ..self }
    }

    /// The session with the server is lost. Returns once its user was told, or is told by a next
    /// process if this one is killed.
    pub async fn lost(&self, because: Loss) {
        match &self.on_loss {
            Some(on_loss) => on_loss(because).await,
            None => self.print(&because.notice()),
        }
    }

    /// The same for a new use of it.
    pub fn anew(&self) -> Self {
        Self {
            user: self.newest.fetch_add(1, Ordering::SeqCst) + 1,
            ..self.clone()
        }
    }

    /// Whether another use of it has begun since.
    fn is_superseded(&self) -> bool {
        self.newest.load(Ordering::SeqCst) != self.user
    }

    /// Says something about the server on standard error.
    pub fn print(&self, what: &dyn Display) {
        (self.stderr)(&format_args!("{}: {what}", self.name));
    }

    /// Whether there is a session.
    pub fn keeps(&self) -> bool {
        self.state.is_some()
    }

    /// All values.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn read(&self) -> Result<BTreeMap<String, String>, SessionError> {
        let Some(state) = &self.state else {
            return Ok(BTreeMap::new());
        };
        let keys = state.keys().await?;
        let mut values = BTreeMap::new();
        for keys in keys.chunks(READ_MAX) {
            let request = ReadStateRequest {
                of: state.of.clone(),
                keys: keys.to_vec(),
            };
            let read = state.control.ask(Client::read_state, request);
            values.extend(read.await?.into_iter().filter_map(
                |StateEntry { key, value, .. }| {
                    Some((
                        key.as_str().strip_prefix(&state.prefix)?.to_owned(),
                        value?.as_str().to_owned(),
                    ))
                },
            ));
        }
        Ok(values)
    }

    /// Writes values, which are JSON, by their keys; where there is none, the key goes.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn write(
        &self,
        values: BTreeMap<String, Option<String>>,
    ) -> Result<(), SessionError> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let writes: Vec<StateWrite> = values
            .into_iter()
            .filter_map(|(key, value)| state.one(&key, value))
            .collect();
        for writes in writes.chunks(STATE_KEYS_MAX) {
            if *self.leaving.borrow() > Leaving::No || self.is_superseded() {
                return Ok(());
            }
            let request = WriteStateRequest {
                of: state.of.clone(),
                writes: writes.to_vec(),
                request: None,
            };
            let written = state.control.ask(Client::write_state, request);
            written.await?;
        }
        Ok(())
    }
}

impl SessionState {
    async fn keys(&self) -> Result<Vec<StateKey>, SessionError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let request = ListStateRequest {
                of: self.of.clone(),
                after: after.take(),
            };
            let page = self.control.ask(Client::list_state, request);
            let page = page.await?;
            let is_last = page.len() < PAGE_MAX;
            after = page.last().map(|last| last.key.clone());
            all.extend(
                page.into_iter()
                    .map(|known| known.key)
                    .filter(|key| key.as_str().starts_with(&self.prefix)),
            );
            if is_last {
                return Ok(all);
            }
        }
    }

    /// None where it can't be written: keys are short, and values are JSON.
    fn one(&self, key: &str, value: Option<String>) -> Option<StateWrite> {
        let key: StateKey = format!("{}{key}", self.prefix).parse().ok()?;
        match value {
            Some(value) => Some(StateWrite::new(key, Json::new(value).ok()?)),
            None => Some(StateWrite::remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_edited_server_keeps_is_not_removed_by_the_end_of_the_former_one() {
        let users = StoreUsers::default();
        let store = |name: &str| users.share(ResumeStore::empty(name, |_| {}));
        let former = store("a").anew();
        let (edited, other) = (store("a"), store("b").anew());
        assert!(!former.is_superseded(), "nobody uses it in its state yet");
        let edited = edited.anew();
        assert!(former.is_superseded());
        assert!(!edited.is_superseded() && !other.is_superseded());
        let again = edited.anew();
        assert!(edited.is_superseded() && !again.is_superseded());
    }
}
