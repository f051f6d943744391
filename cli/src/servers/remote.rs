//! A server that has a URL: `wrap -- https://…`, `wrap @NAME` where the entry has a `url`, and one
//! of those of `wrap --all`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, ready};
use mcp_sessiond_proxy::front::bundle::{self, End, Failure, FailureCode, Pipe, Receipt, WAITING};
use mcp_sessiond_proxy::server::connector::{Connected, Connector, Hello, NoBackend};
use mcp_sessiond_proxy::server::remote::{RemoteServer, ResumeStore};
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

    fn tell(&self, news: News) {
        self.store.print(&news);
    }
}

/// The server of this name.
///
/// # Errors
/// [`FailureCode::BadEntry`]. That the server can't be reached, or wants a login, is told by its
/// answer to `initialize`.
pub(crate) fn server(
    name: &str,
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<RemoteServer, Failure> {
    let remote = Remote::new(name, url, headers.clone())
        .map_err(|why| Failure::new(FailureCode::BadEntry, why.to_string()))?;
    Ok(RemoteServer::new(url, headers, |store| {
        Box::new(RemoteConnector { remote, store })
    }))
}

/// Connects to a server that has a URL.
struct RemoteConnector {
    remote: Remote,
    store: ResumeStore,
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

/// What people know a server by that is in no file: its URL, without what may be secret in it.
pub(crate) fn redacted_url(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = plain.split_once("//").unwrap_or(("", plain));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_secrets() {
        assert_eq!(
            redacted_url("https://a:b@x.org:1/mcp?key=c#d"),
            "https://x.org:1/mcp"
        );
        assert_eq!(redacted_url("http://x.org"), "http://x.org");
    }
}
