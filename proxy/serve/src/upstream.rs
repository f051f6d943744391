//! A server that speaks Streamable HTTP itself, and forgets its sessions when it restarts.
//!
//! No keeper holds the server. For each session there is a connection of the package `upstream`,
//! which the next process takes over: what it needs for that is in the session's state before
//! `serve` passes on a message that depends on it. If the server has forgotten the session, the
//! connection repeats the handshake to it, and answers the calls that were open "outcome unknown".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_client::{Control, Error, Options, Session, SessionError, SessionId, StreamId};
use mcp_sessiond_http_session::messages::Id;
use mcp_sessiond_jsonrpc::id_prefix::parts;
use mcp_sessiond_proxy::server::remote::ResumeStore;
use mcp_sessiond_proxy::server::service::{self, NotLeased, Service};
use mcp_sessiond_upstream::{
    Connection, Ids, News, NotTaken, Remote, SaveState, ServerMessage, StreamHint, connect,
};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, Backends, Ended, Losses, PAUSE, ServerLine, ServerLoss};
use crate::keeper_backend::claim;
use crate::passed_headers::PassedHeaders;
use crate::refusal::{Refusal, elsewhere, no_server};
use crate::settings::Settings;
use crate::stderr::warn;

/// How long one attempt to connect may take.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The server at this URL.
///
/// # Errors
/// One sentence, where there can't be one.
pub fn server_at(url: &str) -> Result<Remote, String> {
    if url.to_ascii_lowercase().starts_with("https://") {
        let message = "`serve` does not speak TLS to a server: give the http:// URL of the server itself, or \
             of a proxy that speaks TLS for it";
        return Err(message.into());
    }
    Remote::direct(url).map_err(|error| error.to_string())
}

/// The sessions of one server.
#[derive(Debug)]
pub struct Upstreams {
    /// Held, so that no other process serves the name.
    service: Service,
    remote: Remote,
    /// What each caller shows the server.
    passed: Arc<PassedHeaders>,
    /// By which the daemon is told what the next process needs of the connections.
    stores: Control,
    hold: Duration,
}

impl Upstreams {
    /// Takes the right to serve the name.
    ///
    /// # Errors
    /// Where another process has it, or there is no daemon.
    pub async fn of(settings: &Settings, remote: &Remote) -> Result<Self, NotLeased> {
        let control = Options::default().start(settings.start.clone());
        let options = service::Options {
            control: Some(control),
            ..service::Options::default()
        };
        let service = Service::lease(settings.service.clone(), options).await?;
        Ok(Self {
            service,
            remote: remote.clone(),
            passed: settings.passed.clone(),
            // An answer waits until it is written how far its stream has come: nobody else may miss a
            // daemon that was killed meanwhile.
            stores: ResumeStore::control(&Options::default().start(settings.start.clone())),
            hold: settings.hold,
        })
    }

    async fn connect(&self, session: &Session) -> Result<Upstream, Refusal> {
        // The name is leased again, too, if the daemon has lost its records.
        if !claim(&self.service, session).await? {
            return Err(elsewhere());
        }
        let losses = Losses::default();
        losses
            .note_recorded(&self.service, session.id(), None)
            .await;
        let state = InSession {
            store: ResumeStore::of(
                self.stores.clone(),
                session.reference(),
                "upstream",
                |what| {
                    warn(what);
                },
            ),
            service: self.service.clone(),
            session: session.id().clone(),
            losses: losses.clone(),
        };
        let kept = state.store.read().await?;
        let remote = self.shown(session).map_err(no_server)?;
        let connected = connect(remote, Some(&kept), Arc::new(state), Ids::Same);
        let (connection, messages) = connected.await.map_err(no_server)?;
        if !connection.is_begun() {
            // A wrong path is told by the first request.
            reach(&self.remote, self.hold).await?;
        }
        Ok(Upstream {
            connection,
            messages: Mutex::new(messages),
            losses,
        })
    }

    /// The server, as the session's caller asks it.
    fn shown(&self, session: &Session) -> Result<Remote, String> {
        let remote = self.remote.clone();
        if self.passed.is_empty() {
            return Ok(remote);
        }
        let caller = session.reference().caller;
        let sent = caller.and_then(|caller| self.passed.of(&caller));
        let sent =
            sent.ok_or("what its client shows it is no longer known: the next request brings it")?;
        let text = |(name, value): (HeaderName, HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let headers = sent.into_iter().filter_map(text);
        remote
            .with_headers(headers)
            .map_err(|error| error.to_string())
    }
}

/// Makes sure that something listens where the server should be. One that was there may be restarting.
async fn reach(remote: &Remote, hold: Duration) -> Result<(), Refusal> {
    let until = Instant::now() + hold;
    loop {
        let connected = timeout(CONNECT_WAIT, TcpStream::connect(remote.address())).await;
        let why = match connected {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        if !remote.was_reached() || Instant::now() + PAUSE >= until {
            return Err(no_server(format_args!("{remote} can't be reached: {why}")));
        }
        sleep(PAUSE).await;
    }
}

impl Backends for Upstreams {
    fn backend<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>> {
        async move {
            let backend: Arc<dyn Backend> = Arc::new(self.connect(session).await?);
            Ok(backend)
        }
        .boxed()
    }

    fn claim<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool, Refusal>> {
        claim(&self.service, session).boxed()
    }
}

/// One session with the server.
#[derive(Debug)]
struct Upstream {
    connection: Connection,
    messages: Mutex<mpsc::Receiver<ServerMessage>>,
    losses: Losses,
}

impl Backend for Upstream {
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
        async {
            let sent = self.connection.send(line).await;
            sent.map_err(|NotTaken { may_have_arrived }| Ended { may_have_arrived })
        }
        .boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<ServerLine>> {
        async {
            let ServerMessage {
                number,
                line,
                stream,
            } = self.messages.lock().await.recv().await?;
            let stream = stream.and_then(|stream| match stream {
                StreamHint::Standalone => Some(StreamId::standalone()),
                StreamHint::Call(id) => parts(&id)?.0.parse().ok(),
            });
            Some(ServerLine {
                number,
                line,
                stream,
            })
        }
        .boxed()
    }

    fn confirm(&self, number: u64) {
        self.connection.confirm(number);
    }

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>> {
        std::future::ready(Ok(self.connection.open_calls().to_vec())).boxed()
    }

    fn losses(&self) -> Vec<ServerLoss> {
        self.losses.take()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async {
            self.connection.close();
            self.connection.end_session().await;
        }
        .boxed()
    }

    fn incarnation(&self) -> &str {
        self.connection.incarnation()
    }

    fn continues(&self) -> bool {
        self.connection.is_begun()
    }

    fn outlasts(&self) -> bool {
        self.connection.outlasts()
    }
}

/// Stores what it gets in the state of a session, for as long as that takes.
#[derive(Debug)]
struct InSession {
    store: ResumeStore,
    service: Service,
    session: SessionId,
    losses: Losses,
}

impl InSession {
    async fn write(&self, values: BTreeMap<String, Option<String>>) -> Result<(), SessionError> {
        loop {
            match self.store.write(values.clone()).await {
                Err(error)
                    if error.passes()
                        || matches!(error.refusal(), Some(Error::WriteFailed { .. })) =>
                {
                    sleep(PAUSE).await;
                }
                written => return written,
            }
        }
    }
}

impl SaveState for InSession {
    fn keep(&self, values: BTreeMap<String, Option<String>>) -> BoxFuture<'_, bool> {
        async {
            let written = self.write(values).await;
            if let Err(error) = &written
                && !error.is_over()
            {
                warn(format_args!(
                    "the state of the server of session {} is not stored, so a kill of `serve` would lose its open calls: {error}",
                    self.session
                ));
            }
            written.is_ok()
        }
        .boxed()
    }

    fn tell(&self, news: News) -> BoxFuture<'_, ()> {
        async move {
            let (service, session) = (&self.service, &self.session);
            match news {
                // Whoever tells the client says so here, too.
                News::Lost(because) => self.losses.record(service, session, None, because).await,
                news => warn(format_args!("session {session}: {news}")),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_served_is_refused() {
        assert!(server_at("http://[::1]:3000/mcp?key=secret").is_ok());
        for wrong in [
            "https://example.org/mcp",
            "HTTPS://example.org/mcp",
            "http://user:pass@localhost/",
            "localhost:3000",
            "/mcp",
            "ftp://a/",
            "http://",
        ] {
            server_at(wrong).expect_err(wrong);
        }
        let refused = server_at("https://example.org/mcp").expect_err("TLS");
        assert!(refused.contains("http:// URL"), "{refused}");
    }
}
