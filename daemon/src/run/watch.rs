//! Why the daemon ends by itself: its directory or socket was replaced, or nothing needs it. It
//! waits for events and does not poll, if the system reports them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_process::changes::Changes;
use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_process::socket::Listener;
use tokio::time::Instant;

use crate::rpc::Daemon;

/// How often the daemon looks where the system reports no changes, and the pause before it checks
/// whether it is still needed.
const LOOK: Duration = Duration::from_secs(1);

/// How long after the first change the daemon looks: a directory is deleted one file at a time.
const SETTLE: Duration = Duration::from_millis(250);

/// The directory, the socket and the databases, where clients and the daemon look for them.
pub(super) struct SocketWatch {
    directory: Arc<Directory>,
    socket: Listener,
    /// None: the system can't report changes.
    changes: Option<Changes>,
    /// When to look, if a look is due.
    due: Option<Instant>,
}

impl SocketWatch {
    pub(super) fn new(directory: Arc<Directory>, socket: Listener) -> Self {
        let changes = Changes::new().inspect_err(|error| {
            tracing::info!(%error, "the system can't report changes in the daemon's directory; the daemon looks once a second");
        });
        Self {
            directory,
            socket,
            changes: changes.ok(),
            due: Some(Instant::now()),
        }
    }

    /// Returns when there may be something to look at. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        if self.due.is_none() {
            if let Some(changes) = &self.changes
                && changes.wait().await.is_err()
            {
                self.changes = None;
            }
            self.due = Some(Instant::now() + SETTLE);
        }
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
    }

    /// Checks the directory and the socket, and restores missing database files. Returns why the
    /// daemon has to stop, if it has to.
    pub(super) fn look(&mut self, daemon: &Daemon) -> Option<&'static str> {
        // Watch first, then look: so the next look sees what changes during this one.
        let watched = self.watch(daemon);
        self.due = watched.is_none().then(|| Instant::now() + LOOK);
        if !self.directory.is_in_place() || !self.socket.is_in_place() {
            return Some("its directory or socket has been replaced");
        }
        daemon.engine.look_after_records();
        daemon.contents.store().look_after();
        None
    }

    /// Watches everything. None: the system can't report all changes.
    fn watch(&mut self, daemon: &Daemon) -> Option<()> {
        let changes = self.changes.as_mut()?;
        changes.take();
        changes.watch_directory(self.directory.path()).ok()?;
        let store = daemon.contents.store();
        let contents = store.file();
        // The database is not open yet, and may be another file by then.
        if contents.is_none() && store.check().is_err() {
            return None;
        }
        for database in [Some(daemon.engine.records_file()), contents]
            .into_iter()
            .flatten()
        {
            changes.watch_directory(database.parent()?).ok()?;
            let mut index = database.into_os_string();
            index.push("-shm");
            changes.watch_file(&PathBuf::from(index)).ok()?;
        }
        Some(())
    }
}

/// Returns when nothing needs this daemon, which a client has started, any more.
pub(super) async fn nothing_needs(daemon: &Daemon) {
    let mut since = None;
    loop {
        if daemon.connections.open() > 0 || !daemon.engine.is_idle() {
            since = None;
            tokio::select! {
                () = daemon.connections.closed.notified() => {}
                () = daemon.engine.changed() => {}
            }
        } else if daemon.contents.would_be_lost() {
            since = None;
        } else {
            let since = *since.get_or_insert_with(Instant::now);
            let patience =
                Duration::from_millis(daemon.engine.settings().loaded.config.idle_exit_ms);
            // Not at the first look: the client that started the daemon is about to connect.
            if since.elapsed() >= patience.max(LOOK) {
                return;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
