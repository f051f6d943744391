//! Continuing where a former daemon's records end.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use mcp_sessiond_process::directory::{Directory, DirectoryError};
use mcp_sessiond_process::{self as process, ExitWatch, PinnedProcess};
use mcp_sessiond_proto::backends::KeeperName;
use mcp_sessiond_proto::paths;
use mcp_sessiond_registry::{BackendOf, Effect, KeeperRecord, Record, Records, Registry};
use tokio::sync::{Notify, mpsc};

use super::closes::Closes;
use super::{Charge, Dropped, Engine, LostRecords, Settings, State};
use crate::config::{Config, Loaded};
use crate::counters::Meters;
use crate::keepers;
use crate::ledger::{Ledger, LedgerError, Opened};
use crate::tokens::Tokens;

/// Why the daemon can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel does not tell which boot this is.
    #[error("could not read the id of this boot: {0}")]
    Boot(std::io::Error),
    /// `sessions.db` can't be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// `tokens/` can't be used.
    #[error("the directory of the token files: {0}; remove it, or fix it by hand")]
    Tokens(std::io::Error),
    /// `keepers/` can't be used.
    #[error("the directory of the keepers' sockets: {0}")]
    Keepers(#[from] DirectoryError),
    /// The kernel does not tell of exits.
    #[error("could not watch processes: {0}")]
    Exits(std::io::Error),
}

/// What tells this daemon's hosts from those of every other daemon that shares its storage: the
/// boot, which containers of one machine have in common, and the runtime directory, which no two
/// daemons do.
fn home(boot: &str, directory: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(directory)?;
    Ok(format!("{boot}/{:x}/{:x}", found.dev(), found.ino()))
}

/// Whether there is a token file of a host that lives and of which no session is on record.
fn tokens_unknown(tokens: &Tokens, records: &Records) -> bool {
    let known: HashSet<String> = records
        .sessions
        .values()
        .map(|session| session.file.to_string())
        .collect();
    let lives = |name: &str| {
        let mut parts = name.strip_prefix("token-")?.splitn(3, '-');
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let found = PinnedProcess::open(pid).ok()?;
        (found.id().start == start).then_some(())
    };
    let names = tokens.names().unwrap_or_default();
    names
        .iter()
        .any(|name| !known.contains(name) && lives(name).is_some())
}

/// Keepers that are not on record give back what they know, which is put on record. Returns how
/// many there are, and whether any keeper was on record that is not any more.
fn adopt(
    directory: &Path,
    config: &Config,
    records: &mut Records,
    ledger: &mut Ledger,
) -> (usize, bool) {
    let mut unknown = keepers::listening(directory);
    let known: HashSet<KeeperName> = records
        .keepers
        .values()
        .map(|(_, keeper)| keeper.name)
        .collect();
    unknown.retain(|name| !known.contains(name));
    let (adopted, is_unknown) = super::adopt::adopt(directory, &unknown, config, records);
    let mut save = |record| ledger.record(Effect::Save(record));
    for session in adopted.iter().filter_map(|id| records.sessions.get(id)) {
        let owner = records.owners.get(&session.owner).cloned();
        owner.map(Record::Owner).into_iter().for_each(&mut save);
        save(session.clone().into());
    }
    let is_new = |(_, keeper): &&(_, KeeperRecord)| !known.contains(&keeper.name);
    let new: Vec<_> = records.keepers.values().filter(is_new).collect();
    let is_of_service = |of: &Option<BackendOf>| of.as_ref().and_then(BackendOf::service).is_some();
    let of_services = new.iter().filter(|(of, _)| is_of_service(of)).count();
    if of_services > 0 {
        let services = records.services.values().cloned();
        services.map(Record::Service).for_each(&mut save);
    }
    for (of, keeper) in new {
        save(Record::Keeper(of.clone(), keeper.clone()));
    }
    (adopted.len() + of_services, is_unknown)
}

impl Engine {
    /// Finds leases and sessions again. Processes that have gone since are taken for exited, tokens
    /// are compared with their digests, and files and sockets that belong to nobody are deleted.
    /// The caller holds the directory's lock.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        directory: &Arc<Directory>,
        loaded: Loaded,
        meters: Arc<Meters>,
        dropped: mpsc::UnboundedSender<Dropped>,
        charges: mpsc::UnboundedSender<Charge>,
    ) -> Result<Self, StartError> {
        let tokens = Tokens::open(directory).map_err(StartError::Tokens)?;
        Directory::open(&paths::keepers(directory.path()))?;
        let boot = process::boot_id().map_err(StartError::Boot)?;
        let is_missing = Ledger::is_missing(directory.path());
        let had_records = Ledger::is_there(directory.path());
        let opened = Ledger::open(directory.path(), &boot)?;
        let missing = || is_missing.then(|| "it was missing".to_owned());
        let why = opened.lost().or_else(missing);
        let Opened {
            mut ledger,
            mut records,
            ..
        } = opened;
        // Version 1 has left token files, too, but no records.
        let has_unknown_token = had_records && tokens_unknown(&tokens, &records);
        let (adopted, has_unknown_keeper) =
            adopt(directory.path(), &loaded.config, &mut records, &mut ledger);
        // A database whose log was deleted, or is damaged, is sound, and says less than was recorded.
        let sign = match (has_unknown_token, has_unknown_keeper) {
            (true, _) => Some("it does not have the session of a token file"),
            (_, true) => Some("it does not have a keeper that was on record"),
            (false, false) => None,
        };
        let why = why.or_else(|| sign.map(str::to_owned));
        let loss = LostRecords {
            why,
            adopted,
            ended: 0,
        };
        let mut registry = Registry::restore(loaded.config.policy(), records);
        if loss.why.is_some()
            && let Ok(own) = PinnedProcess::own()
        {
            registry.records_lost(own.id().start);
        }
        let exits = ExitWatch::new().map_err(StartError::Exits)?;
        let engine = Self {
            state: Mutex::new(State::new(
                registry,
                ledger,
                exits,
                Closes::new(directory.path()),
            )),
            directory: directory.clone(),
            tokens: Arc::new(tokens),
            files: Mutex::default(),
            settings: RwLock::new(Arc::new(Settings::new(loaded))),
            deadline_changed: Notify::new(),
            changed: Notify::new(),
            began: Instant::now(),
            home: home(&boot, directory.path()).map_err(StartError::Boot)?,
            dropped,
            charges,
            servers: Mutex::default(),
            swept: Notify::new(),
            loss: Mutex::new(loss),
            meters,
        };
        engine.find_processes().map_err(StartError::Exits)?;
        engine.settle_tokens().map_err(StartError::Tokens)?;
        engine.settle_sockets();
        Ok(engine)
    }

    /// Watches the processes on record that are still there, and tells the registry of the others.
    fn find_processes(&self) -> std::io::Result<()> {
        let mut state = self.lock();
        let mut gone = Vec::new();
        for id in state.registry.processes() {
            match PinnedProcess::reopen(&id)? {
                Some(process) => state.exits.add(process)?,
                None => gone.push(id),
            }
        }
        state.tell_exits(&gone);
        state.closes.sweep();
        self.apply(&mut state);
        state.is_starting = false;
        Ok(())
    }

    /// A store that was cut off left one of two tokens: finds out which. Deletes what belongs to no
    /// session.
    fn settle_tokens(&self) -> std::io::Result<()> {
        let records = self.look(|registry| registry.sessions().cloned().collect::<Vec<_>>());
        for record in records.iter().filter(|record| record.former.is_some()) {
            self.settle_file(&record.id, record.file);
        }
        let keep: HashSet<String> = self.look(|registry| {
            let with_token = registry
                .sessions()
                .filter(|session| session.digest.is_some());
            with_token.map(|session| session.file.to_string()).collect()
        });
        let swept = self.tokens.sweep(&keep)?;
        if swept > 0 {
            tracing::info!(
                files = swept,
                "deleted token files that belong to no session"
            );
        }
        Ok(())
    }
}
