//! The sessions that this process serves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mcp_sessiond_proto::SessionId;
use tokio::sync::watch;
use tokio::time::sleep;

use super::live::Live;
use super::readers::Readers;
use super::transport::DurableTransport;
use crate::session::Session;
use crate::tower::Refusal;

/// How often it is looked which servers nobody uses, and which work.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// What came of a restore; None: nothing yet.
type Restored = watch::Receiver<Option<Result<(), Refusal>>>;

#[derive(Default)]
struct Servers {
    lives: HashMap<SessionId, Arc<Live>>,
    restoring: HashMap<SessionId, Restored>,
    /// Whether somebody tends them.
    is_watched: bool,
}

/// Servers by their sessions' ids, and who reads what they say.
pub(super) struct Table {
    servers: Mutex<Servers>,
    pub(super) readers: Readers,
    idle: Duration,
}

impl Table {
    pub(super) fn new(idle: Duration) -> Arc<Self> {
        Arc::new(Self {
            servers: Mutex::default(),
            readers: Readers::default(),
            idle,
        })
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server of a session, which may not be initialised yet.
    pub(super) fn live(&self, id: &SessionId) -> Option<Arc<Live>> {
        self.servers().lives.get(id).cloned()
    }

    /// The server of a session, where it can be used.
    pub(super) fn ready(&self, id: &SessionId) -> Option<Arc<Live>> {
        self.live(id).filter(|live| live.is_ready())
    }

    /// A place for a new server. What was in it is closed.
    pub(super) fn insert(self: &Arc<Self>, session: &Session) -> DurableTransport {
        let (live, arriving) = Live::new(session);
        let transport = DurableTransport::new(live.clone(), arriving);
        let mut servers = self.servers();
        let former = servers.lives.insert(session.id().clone(), live);
        if !std::mem::replace(&mut servers.is_watched, true) {
            tokio::spawn(release_idle_servers(Arc::downgrade(self)));
        }
        drop(servers);
        if let Some(former) = former {
            former.close();
        }
        transport
    }

    /// Restores a session, once: whoever needs it meanwhile waits for the same.
    pub(super) async fn restore<F>(
        self: &Arc<Self>,
        id: &SessionId,
        restore: F,
    ) -> Result<(), Refusal>
    where
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let mut restored = {
            let mut servers = self.servers();
            match servers.restoring.get(id) {
                Some(restored) => restored.clone(),
                // Since the caller has looked, somebody else's restore has ended.
                None if servers.lives.get(id).is_some_and(|live| live.is_ready()) => return Ok(()),
                None => {
                    let (tell, restored) = watch::channel(None);
                    servers.restoring.insert(id.clone(), restored.clone());
                    let (table, id) = (self.clone(), id.clone());
                    // In a task of its own: the client that needs it may hang up, and others need
                    // it, too.
                    tokio::spawn(async move {
                        // In another one: what the server's author wrote may panic, and others wait
                        // for what comes of it.
                        let result = tokio::spawn(restore)
                            .await
                            .unwrap_or_else(|_| Err(Refusal::failed()));
                        if result.is_err() {
                            table.release(&id);
                        }
                        table.servers().restoring.remove(&id);
                        tell.send_replace(Some(result));
                    });
                    restored
                }
            }
        };
        let result = restored
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|result| result.clone());
        result.unwrap_or_else(|| Err(Refusal::failed()))
    }

    /// Ends the server of a session, which stays.
    pub(super) fn release(&self, id: &SessionId) {
        let live = self.servers().lives.remove(id);
        if let Some(live) = live {
            live.close();
        }
    }

    /// Lets servers go that nobody has used for long, and says of the sessions of those that work
    /// that they are in use.
    pub(super) async fn release_idle(&self) {
        let (mut busy, mut idle) = (Vec::new(), Vec::new());
        // At one go: while something is waited for, a session may get another server.
        self.servers().lives.retain(|_, live| {
            let is_idle = !live.is_busy() && live.idle() > self.idle;
            if is_idle {
                idle.push(live.clone());
            } else if live.is_busy() {
                busy.push(live.clone());
            }
            !is_idle
        });
        for live in idle {
            live.close();
        }
        for live in busy {
            let _ = live.session().touch().await;
        }
    }

    /// A server has ended by itself.
    pub(super) fn is_gone(&self, id: &SessionId) {
        let mut servers = self.servers();
        // Its session may have another one by now.
        if servers.lives.get(id).is_some_and(|live| live.is_closed()) {
            servers.lives.remove(id);
        }
    }

    /// The session has ended.
    pub(super) fn end(&self, id: &SessionId) {
        self.release(id);
        self.readers.end(id);
    }
}

/// Tends the servers as long as there is a table.
async fn release_idle_servers(table: Weak<Table>) {
    loop {
        sleep(CHECK_EVERY).await;
        let Some(table) = table.upgrade() else { return };
        table.release_idle().await;
    }
}
