//! The connection with a server that has a URL, and what is kept of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, ready};
use mcp_sessiond_proxy::front::bundle::{self, End, Pipe, Receipt, WAITING};
use mcp_sessiond_proxy::server::connector::{Connected, Connector, Hello, NoBackend};
use mcp_sessiond_proxy::server::remote::ResumeStore;
use mcp_sessiond_upstream::{Ids, News, Remote, RemoteError, SaveState, ServerMessage, connect};
use tokio::sync::mpsc;

/// How long nothing is written after that has failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Keeps what it gets in the state of the front's session.
struct InSession {
    store: ResumeStore,
    /// When it was found last that nothing can be kept. The user was told then.
    failed: Mutex<Option<Instant>>,
}

impl fmt::Debug for InSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(formatter)
    }
}

impl SaveState for InSession {
    fn keep(&self, values: BTreeMap<String, Option<String>>) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            // It comes again, and calls would wait for the daemon one after the other.
            if failed().is_some_and(|since| since.elapsed() < PAUSE) {
                return false;
            }
            match self.store.write(values).await {
                Ok(()) => {
                    *failed() = None;
                    true
                }
                Err(why) => {
                    if failed().replace(Instant::now()).is_none() {
                        self.store.print(&format_args!(
                            "what the next connection needs can't be stored now, and calls go on without it: {why}"
                        ));
                    }
                    false
                }
            }
        })
    }

    fn tell(&self, news: News) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match news {
                News::Lost(because) => self.store.lost(because).await,
                news => self.store.print(&news),
            }
        })
    }
}

/// Connects to a server that has a URL.
pub(super) struct RemoteConnector {
    pub(super) remote: Remote,
    pub(super) store: ResumeStore,
}

impl Connector for RemoteConnector {
    fn connect<'a>(
        &'a mut self,
        _: &'a Hello,
        _: Instant,
    ) -> BoxFuture<'a, Result<Connected, NoBackend>> {
        let (remote, store) = (self.remote.clone(), self.store.anew());
        Box::pin(async {
            let pipe = connected(remote, store).await;
            pipe.map(Connected::Pipe)
                .map_err(|why| NoBackend::BadEntry(why.to_string()))
        })
    }

    /// A connection ends with its pipe, and the next process goes on with its session.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

async fn connected(remote: Remote, store: ResumeStore) -> Result<Pipe, RemoteError> {
    let kept = match store.read().await {
        Ok(kept) => kept,
        Err(why) => {
            store.print(&format_args!(
                "what a previous connection has stored can't be read; a new session begins: {why}"
            ));
            BTreeMap::new()
        }
    };
    let keep = InSession {
        store,
        failed: Mutex::default(),
    };
    // The host counts its calls anew with each connection.
    let (connection, mut from) = connect(remote, Some(&kept), Arc::new(keep), Ids::Renamed).await?;
    let (said, lines) = mpsc::channel(WAITING);
    let (to, end) = (connection.channel(), connection.clone());
    tokio::spawn(async move {
        while let Some(ServerMessage { number, line, .. }) = from.recv().await {
            let connection = connection.clone();
            let receipt = Receipt::new(move || connection.confirm(number));
            if said
                .send(bundle::TrackedLine { line, receipt })
                .await
                .is_err()
            {
                return;
            }
        }
    });
    let end = End::new(|| Box::pin(async move { end.end_session().await }));
    Ok(Pipe {
        to,
        from: lines,
        end,
    })
}
