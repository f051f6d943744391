//! The engine of the daemon: feeds the registry with facts, in one order, and carries out its
//! effects.
//!
//! Everything that happens to the registry happens under one lock, in which exits are taken in
//! first. So an exit that the kernel knows of is known to every decision that comes after it.

mod access;
mod adopt;
mod backends;
mod claim;
mod closes;
mod facts;
mod faults;
mod inspect;
mod key_churn;
mod services;
mod start;
mod state;
mod tokens;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Instant;

use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_process::{ProcessId, StartTime, Table};
use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{Error, Loss};
use mcp_sessiond_registry::{Effect, Millis, RecordKey, Registry, TokenFile};
use tokio::sync::{Notify, mpsc};

use crate::config::{Config, Loaded};
use crate::counters::Meters;
use crate::storage::RecordId;
use crate::tokens::Tokens;
use faults::LostRecords;
use state::{Answer, State};

pub use access::{Instances, home_of};
pub use backends::Charge;
pub use start::StartError;

/// The registry, the ledger, the token files and the processes, as one.
#[derive(Debug)]
pub struct Engine {
    state: Mutex<State>,
    directory: Arc<Directory>,
    tokens: Arc<Tokens>,
    /// One lock a token file: who writes, reads or deletes it has it.
    files: Mutex<HashMap<FileName, Weak<FileLock>>>,
    settings: RwLock<Arc<Settings>>,
    /// Tells [`Engine::run`] that there may be a new deadline.
    deadline_changed: Notify,
    /// Wakes the task that waits in `Engine::changed`: the registry was told something, and may be
    /// idle now.
    changed: Notify,
    began: Instant,
    /// What tells its hosts from those of other daemons: the boot, and the runtime directory.
    home: String,
    /// Takes in what has ended, whose contents have to go.
    dropped: mpsc::UnboundedSender<Dropped>,
    /// Takes in the keepers that have to end, and the backends that have lost theirs.
    charges: mpsc::UnboundedSender<Charge>,
    /// What the backends of keepers were started with.
    servers: Mutex<HashMap<ProcessId, ServerDigest>>,
    /// Something of a backend is gone.
    swept: Notify,
    /// What was lost at the start.
    loss: Mutex<LostRecords>,
    /// What is counted and measured.
    pub meters: Arc<Meters>,
}

type FileLock = tokio::sync::Mutex<()>;

/// What the name of a token file is made of. Two hosts that differ in nothing else have files of
/// the same names.
type FileName = (u32, StartTime, u32);

/// The configuration in force, and what is made of it once.
#[derive(Debug)]
pub struct Settings {
    /// The configuration and its sources.
    pub loaded: Loaded,
    /// Launchers, adopters and variables.
    pub table: Table,
}

/// What has ended, as far as leases and tokens are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dropped {
    /// A session of a host that lives.
    Session(RecordId),
    /// A host, with all that it owned.
    Owner(String),
}

impl Settings {
    fn new(loaded: Loaded) -> Self {
        Self {
            table: loaded.config.table(),
            loaded,
        }
    }
}

impl Engine {
    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts a new configuration in force, for what comes from now on.
    pub fn configure(&self, loaded: Loaded) {
        let policy = loaded.config.policy();
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(Settings::new(loaded));
        self.tell(|registry| registry.set_policy(policy));
    }

    /// How long the daemon has been up.
    pub fn now(&self) -> Millis {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Carries out what exits and deadlines bring, until it is dropped.
    ///
    /// # Errors
    /// When the operating system no longer tells of exits.
    pub async fn run(&self) -> std::io::Result<()> {
        use std::os::fd::AsFd;
        let watched = self.lock().exits.as_fd().try_clone_to_owned()?;
        let exits = mcp_sessiond_process::sys::when_readable(watched)?;
        loop {
            let deadline = self.tell(|registry| registry.next_deadline());
            let next =
                deadline.map(|deadline| self.began + std::time::Duration::from_millis(deadline));
            let timer = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                readable = exits.readable() => readable?.clear_ready(),
                () = self.deadline_changed.notified() => {}
                () = timer => {}
            }
            let now = self.now();
            self.tell(|registry| registry.passed(now));
        }
    }

    /// Reads the registry, after every exit known by now.
    pub fn look<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        self.tell(|registry| look(registry))
    }

    /// Reads the registry as it is, for who has been let in already: whatever has exited since is
    /// found out when it matters, at the next change.
    fn peek<T>(&self, peek: impl FnOnce(&Registry) -> T) -> T {
        peek(&self.lock().registry)
    }

    /// Returns when the records' writer has ended: nothing can be put on record any more.
    pub async fn records_ended(&self) {
        let ended = self.lock().ledger.ended();
        ended.await;
    }

    /// Looks whether the records are still where they are kept, and has them put back.
    pub fn look_after_records(&self) {
        self.lock().ledger.look_after();
    }

    /// The database of the records.
    pub fn records_file(&self) -> std::path::PathBuf {
        self.directory.path().join(crate::ledger::FILE)
    }

    /// Nothing is put on record any more.
    pub async fn close_records(&self) {
        let closing = self.lock().ledger.close();
        closing.await;
    }

    /// Waits until everything that was put on record so far is kept.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`].
    pub async fn recorded(&self) -> Result<(), Error> {
        let kept = self.lock().ledger.waiter();
        kept.kept().await.map_err(in_doubt)
    }

    /// Whether nothing depends on the daemon.
    pub fn is_idle(&self) -> bool {
        self.peek(Registry::is_idle)
    }

    /// Returns once the registry was told something since the last return: it may have become idle.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Tells the registry something, after every exit known by now, and carries out the effects.
    fn tell<T>(&self, tell: impl FnOnce(&mut Registry) -> T) -> T {
        let mut state = self.lock();
        state.take_in_exits(self.now());
        let told = tell(&mut state.registry);
        self.apply(&mut state);
        self.changed.notify_one();
        told
    }

    /// The same, for a change that is answered only once it is kept.
    async fn tell_and_keep<T>(
        &self,
        tell: impl FnOnce(&mut Registry) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (told, kept) = {
            let mut state = self.lock();
            state.take_in_exits(self.now());
            let told = tell(&mut state.registry);
            self.apply(&mut state);
            (told, state.ledger.waiter())
        };
        let told = told?;
        kept.kept().await?;
        Ok(told)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn apply(&self, state: &mut State) {
        let effects = state.registry.take_effects();
        if effects.is_empty() {
            return;
        }
        for effect in effects {
            match effect {
                Effect::Answer(ticket, lease) => {
                    if let Some(answer) = state.answers.remove(&ticket) {
                        // The caller may be gone; the lease is its process's all the same.
                        let _ = answer.send(Answer {
                            lease,
                            kept: state.ledger.waiter(),
                        });
                    }
                }
                Effect::Unreachable {
                    session,
                    server,
                    host,
                    loss,
                } => match loss.map(Loss::sentence) {
                    Some(why) => {
                        tracing::warn!(%session, server, host, why, "a session that nobody can resume has ended");
                    }
                    None => {
                        tracing::info!(%session, server, host, "a session that nobody can resume has ended");
                    }
                },
                Effect::DeleteToken(file) => self.delete_later(file),
                Effect::EndKeeper(keeper) => self.end_keeper(state, &keeper),
                Effect::SweepBackend(keeper) => self.sweep_backend(state, keeper),
                Effect::EndContents(owner, session) => {
                    // Nobody takes them in when the daemon is about to exit. The next one finds
                    // them.
                    let _ = self
                        .dropped
                        .send(Dropped::Session(self.place(Some(owner), &session)));
                }
                recorded => {
                    match &recorded {
                        Effect::Drop(RecordKey::Claimant(process)) => state.unwatch(process),
                        Effect::Drop(RecordKey::Owner(host)) => {
                            state.key_churn.forget(*host);
                            let _ = self.dropped.send(Dropped::Owner(self.owner(*host)));
                        }
                        _ => {}
                    }
                    state.ledger.record(recorded);
                }
            }
        }
    }

    /// Deletes the token of a session that has ended, once whoever is writing it is done.
    fn delete_later(&self, file: TokenFile) {
        let lock = self.file(file);
        let tokens = self.tokens.clone();
        tokio::spawn(async move {
            let _writing = lock.lock().await;
            if let Err(error) = tokens.delete(file) {
                tracing::warn!(%file, %error, "could not delete the token file of a session that has ended");
            }
        });
    }

    fn file(&self, file: TokenFile) -> Arc<FileLock> {
        let name = (file.host.pid, file.host.start, file.number);
        let mut files = self.files.locked();
        if let Some(lock) = files.get(&name).and_then(Weak::upgrade) {
            return lock;
        }
        // Now and then, so that those that nobody uses don't pile up.
        if files.len().is_power_of_two() {
            files.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::<FileLock>::default();
        files.insert(name, Arc::downgrade(&lock));
        lock
    }
}

/// What could not be put on record so far, and may be yet, where doing it again does not come to
/// the same.
fn in_doubt(error: Error) -> Error {
    match error {
        Error::Unavailable {
            sentence,
            retry_after_ms,
        } => Error::OutcomeUnknown {
            sentence,
            retry_after_ms,
        },
        other => other,
    }
}

impl Config {
    /// When a claim that comes at `now` stops waiting.
    fn claim_deadline(&self, now: Millis, asked: Option<u32>) -> Millis {
        now + asked.map_or(self.claim_wait_ms, |asked| {
            u64::from(asked).min(self.claim_wait_ms)
        })
    }
}
