//! The server that all requests of one caller share.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use mcp_sessiond_client::{RequestId, Session, SessionId};
use mcp_sessiond_http_session::messages::to_server;
use mcp_sessiond_jsonrpc::{answers, code};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::open_requests::{Cancelled, Effects, Key, Messages, OpenRequests, RequestKind};
use super::params::Tools;
use super::usage::{Entry, Usage};
use crate::backend::{Backend, Ended, ServerLine, ServerLoss, Slot};
use crate::live::handshake::EarlyLines;
use crate::live::{Shared, terminate};
use crate::refusal::Refusal;
use crate::send_budget::SendBudget;
use crate::stderr::warn;

/// How long a server may say something of a request that was cancelled.
const CANCEL_WAIT: Duration = Duration::from_secs(60);
/// How long the result of a subscription may take that the server has ended.
const RESULT_WAIT: Duration = Duration::from_secs(1);
/// The server of a caller, and the requests that are open.
pub(super) struct Server {
    shared: Arc<Shared>,
    session: Session,
    state: Mutex<State>,
    backend: Slot,
    /// Bytes that wait for the server.
    send_budget: SendBudget,
    /// Whether this process has asked the server for its tools.
    has_listed: tokio::sync::Mutex<bool>,
    /// What the keys of this process begin with, and the number of the last one.
    keys: (String, AtomicU64),
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Server({})", self.session.id())
    }
}

#[derive(Debug)]
struct State {
    open: OpenRequests,
    tools: Tools,
    /// The incarnation of the server that runs.
    running: Option<String>,
    usage: Usage,
}

/// A request that is being sent.
pub(super) struct Sending {
    pub(super) key: Key,
    /// What comes for its client.
    pub(super) messages: Messages,
    /// Whether the server has got it.
    pub(super) sending: JoinHandle<Result<(), Ended>>,
    pub(super) backend: Arc<dyn Backend>,
}

impl Server {
    /// A session with a server that has said that it speaks this era.
    pub(super) fn new(shared: Arc<Shared>, session: Session) -> Arc<Self> {
        let state = State {
            open: OpenRequests::default(),
            tools: Tools::default(),
            running: None,
            usage: Usage::new(Instant::now()),
        };
        let keys = (RequestId::mint().to_string(), AtomicU64::new(0));
        let (state, backend) = (Mutex::new(state), Slot::default());
        Arc::new(Self {
            shared,
            session,
            state,
            backend,
            send_budget: SendBudget::default(),
            has_listed: tokio::sync::Mutex::default(),
            keys,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests are open, if this is its session.
    pub(super) fn requests(&self, of: &SessionId) -> Option<usize> {
        (self.session.id() == of).then(|| self.state().open.count())
    }

    /// The client of a request has gone. None: the request was answered.
    pub(super) fn cancel_open(&self, key: &str) -> Option<Cancelled> {
        self.state().open.cancel(key)
    }

    /// Whether a list of the server's had this tool.
    pub(super) fn knows(&self, tool: &str) -> bool {
        self.state().tools.knows(tool)
    }

    /// Checks that the headers of a call repeat its arguments.
    ///
    /// # Errors
    /// When one is missing, or says something else.
    pub(super) fn check(
        &self,
        tool: &str,
        arguments: &Value,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        self.state().tools.check(tool, arguments, headers)
    }

    /// Whether this process has asked the server for its tools. Others wait for whoever does.
    pub(super) async fn has_listed(&self) -> tokio::sync::MutexGuard<'_, bool> {
        self.has_listed.lock().await
    }

    /// How long a connection may be silent.
    pub(super) fn keep_alive(&self) -> Duration {
        self.shared.settings.keep_alive
    }

    /// Whether the session has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state().usage.has_ended()
    }

    /// The server goes on here. `early`: what it has said before.
    pub(super) async fn adopt(self: &Arc<Self>, backend: Arc<dyn Backend>, early: EarlyLines) {
        let mut slot = self.backend.lock().await;
        self.start_reading(&backend, early);
        *slot = Some(backend);
    }

    fn start_reading(self: &Arc<Self>, backend: &Arc<dyn Backend>, early: EarlyLines) {
        self.state().running = Some(backend.incarnation().to_owned());
        tokio::spawn(self.clone().read_server(backend.clone(), early));
    }

    /// The server: the one that runs, or else a new one. It needs no handshake.
    async fn server(self: &Arc<Self>) -> Result<Arc<dyn Backend>, Refusal> {
        let mut slot = self.backend.lock().await;
        if let Some(backend) = &*slot {
            return Ok(backend.clone());
        }
        if self.has_ended() {
            return Err(Refusal::unknown_session());
        }
        let backend = self.shared.backends.backend(&self.session).await;
        let backend = backend.inspect_err(|refusal| {
            if *refusal == Refusal::unknown_session() {
                self.close();
            }
        })?;
        // The connections of these are gone with the process that had them, and that cancels a
        // request.
        for id in backend.open_calls().await.unwrap_or_default() {
            let former = self.state().open.add_former(&id);
            if let Some(cancelled) = former {
                let reason = "the connection of the client is gone";
                tokio::spawn(self.clone().cancel(backend.clone(), cancelled, reason));
            }
        }
        self.start_reading(&backend, Vec::new());
        *slot = Some(backend.clone());
        Ok(backend)
    }

    /// Sends the server a request.
    ///
    /// # Errors
    /// When there is no server to take it, or too much waits for it.
    pub(super) async fn send(
        self: &Arc<Self>,
        asked: RequestKind,
        id: &str,
        line: &Bytes,
    ) -> Result<Sending, Refusal> {
        loop {
            let backend = self.server().await?;
            let share = self.send_budget.take(line.len())?;
            let key: Key = format!(
                "{}-{}",
                self.keys.0,
                self.keys.1.fetch_add(1, Ordering::Relaxed)
            )
            .into();
            let messages = {
                let mut state = self.state();
                if state.running.as_deref() != Some(backend.incarnation()) {
                    // It has ended meanwhile.
                    continue;
                }
                state.open.add(key.clone(), id, asked)
            };
            let line = to_server(line, &key);
            // In a task of its own: what cancels it comes after it.
            let sending = tokio::spawn({
                let backend = backend.clone();
                async move {
                    let sent = backend.send(line).await;
                    drop(share);
                    sent
                }
            });
            return Ok(Sending {
                key,
                messages,
                sending,
                backend,
            });
        }
    }

    /// Passes a notification on.
    ///
    /// # Errors
    /// When there is no server to take it.
    pub(super) async fn notify(self: &Arc<Self>, line: Bytes) -> Result<(), Refusal> {
        let server = self.server().await?;
        server
            .send(line)
            .await
            .map_err(|_| Refusal::for_now("the server has ended, and is started again"))
    }

    async fn read_server(self: Arc<Self>, backend: Arc<dyn Backend>, early: EarlyLines) {
        for line in early {
            self.on_line(&backend, &line);
        }
        while let Some(line) = backend.next().await {
            self.on_line(&backend, &line);
        }
        {
            let mut state = self.state();
            if state.running.as_deref() == Some(backend.incarnation()) {
                state.running = None;
                state.open.clear();
            }
        }
        self.backend.forget(backend.incarnation()).await;
        backend.end().await;
    }

    fn on_line(self: &Arc<Self>, backend: &Arc<dyn Backend>, line: &ServerLine) {
        self.log_losses(&**backend);
        let effects = {
            let mut state = self.state();
            let State { open, tools, .. } = &mut *state;
            open.route(&line.line, tools)
        };
        backend.confirm(line.number);
        if effects.is_empty() {
            return;
        }
        tokio::spawn(self.clone().apply(backend.clone(), effects));
    }

    /// Says what was lost before this server. Clients of this era are told in the log alone.
    fn log_losses(&self, backend: &dyn Backend) {
        for ServerLoss { what, confirm, .. } in backend.losses() {
            warn(format_args!("session {}: {what}", self.session.id()));
            confirm();
        }
    }

    async fn apply(self: Arc<Self>, backend: Arc<dyn Backend>, effects: Effects) {
        let Effects {
            cancel,
            refuse,
            end,
        } = effects;
        for id in refuse {
            let _ = backend.send(no_requests(&id).into()).await;
        }
        for cancelled in cancel {
            tokio::spawn(self.clone().cancel(
                backend.clone(),
                cancelled,
                "the client does not read",
            ));
        }
        if !end.is_empty() {
            sleep(RESULT_WAIT).await;
            end.iter().for_each(|key| self.state().open.forget(key));
        }
    }

    /// Tells the server that a request is cancelled.
    pub(super) async fn cancel(
        self: Arc<Self>,
        backend: Arc<dyn Backend>,
        cancelled: Cancelled,
        reason: &'static str,
    ) {
        let _ = backend
            .send(answers::cancelled(&cancelled.id, reason))
            .await;
        sleep(CANCEL_WAIT).await;
        self.state().open.forget(&cancelled.key);
    }

    /// A request comes for this server, which is not ended before the request is over. None: it has
    /// ended.
    pub(super) async fn guard_request(self: &Arc<Self>) -> Option<RequestGuard> {
        loop {
            let entry = self.state().usage.start_request(Instant::now());
            match entry {
                Entry::Granted => return Some(RequestGuard(self.clone())),
                // Whoever ends it has the slot.
                Entry::Waits => drop(self.backend.lock().await),
                Entry::Ended => return None,
            }
        }
    }

    /// Ends the session if nobody has used it for too long. Tells the daemon of one that is in use.
    pub(super) async fn check_idle(&self) {
        let mut slot = self.backend.lock().await;
        if self
            .state()
            .usage
            .start_ending(Instant::now(), self.shared.settings.idle)
        {
            // Without the daemon it goes on: the session would be found again, and with it the
            // server.
            if terminate(&self.session).await.is_err() {
                return self.state().usage.cancel_ending();
            }
            self.close();
            if let Some(backend) = slot.take() {
                backend.end().await;
            }
            return self.shared.backends.forget(self.session.id());
        }
        drop(slot);
        if let Err(error) = self.session.touch().await
            && Refusal::from(error) == Refusal::unknown_session()
        {
            drop(self.end().await);
        }
    }

    /// Ends the session, and its server.
    ///
    /// # Errors
    /// When the daemon could not be told. Then the session goes on.
    pub(super) async fn end(&self) -> Result<(), Refusal> {
        terminate(&self.session).await?;
        self.close();
        self.backend.end().await;
        self.shared.backends.forget(self.session.id());
        Ok(())
    }

    /// Lets go of the session: its clients' connections end. Its server goes on, for the process
    /// that serves the name next.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.usage.end();
        state.running = None;
        state.open.clear();
    }
}

/// The answer to a request of the server's own.
fn no_requests(id: &str) -> String {
    let why = "a server of MCP 2026-07-28 sends no requests";
    answers::error(id, code::NO_METHOD, why, None)
}

/// A request that is not over. The server is not ended for want of use before this is dropped.
pub(super) struct RequestGuard(Arc<Server>);

impl fmt::Debug for RequestGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Deref for RequestGuard {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.state().usage.finish_request(Instant::now());
    }
}
