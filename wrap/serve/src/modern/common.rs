//! The server that all requests of one caller share.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use mcp_sessiond_client::{Json, RequestId, Session, SessionId};
use mcp_sessiond_relay::message::LISTEN;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::envelope::Request;
use super::open::{Asked, Cancelled, Key, Messages, Open, Sent, Todo, What};
use super::params::Tools;
use super::unsent::Unsent;
use crate::backend::{Backend, Ended};
use crate::live::handshake::Early;
use crate::live::{Shared, terminated};
use crate::refusal::Refusal;
use crate::said::{not_started, to_server, unknown, unread};

/// How long a call waits for the list of tools that `serve` asks for.
const LIST_WAIT: Duration = Duration::from_secs(10);
/// How long a server may say something of a request that was cancelled.
const CANCEL_WAIT: Duration = Duration::from_secs(60);
/// How long the result of a subscription may take that the server has ended.
const RESULT_WAIT: Duration = Duration::from_secs(1);
/// Pages of a server's list of tools that are read.
const PAGES_MAX: usize = 64;

/// The server of a caller, and the requests that are open.
pub(super) struct Common {
    shared: Arc<Shared>,
    session: Session,
    state: Mutex<State>,
    backend: tokio::sync::Mutex<Option<Arc<dyn Backend>>>,
    /// Bytes that wait for the server.
    unsent: Arc<AtomicUsize>,
    /// Whether this process has asked the server for its tools.
    has_listed: tokio::sync::Mutex<bool>,
    /// What the keys of this process begin with, and the number of the last one.
    keys: (String, AtomicU64),
}

impl fmt::Debug for Common {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Common({})", self.session.id())
    }
}

#[derive(Debug)]
struct State {
    open: Open,
    tools: Tools,
    /// The incarnation of the server that runs.
    running: Option<String>,
    /// When a request last came or ended.
    active: Instant,
    ended: bool,
}

/// A request that the server was sent. When this is dropped, it is cancelled.
#[derive(Debug)]
pub(super) struct Waiting {
    common: Arc<Common>,
    key: Key,
    id: Box<str>,
    messages: Messages,
    sending: Option<JoinHandle<Result<(), Ended>>>,
    is_listen: bool,
    backend: WhichBackend,
}

/// The server that a request was sent to.
struct WhichBackend(Arc<dyn Backend>);

impl fmt::Debug for WhichBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.incarnation())
    }
}

impl Common {
    /// A session with a server that has said that it speaks this era.
    #[must_use]
    pub(super) fn new(shared: Arc<Shared>, session: Session) -> Arc<Self> {
        let state = State {
            open: Open::default(),
            tools: Tools::default(),
            running: None,
            active: Instant::now(),
            ended: false,
        };
        let keys = (RequestId::mint().to_string(), AtomicU64::new(0));
        let (state, backend) = (Mutex::new(state), tokio::sync::Mutex::new(None));
        Arc::new(Self {
            shared,
            session,
            state,
            backend,
            unsent: Arc::default(),
            has_listed: tokio::sync::Mutex::default(),
            keys,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests are open, if this is its session.
    #[must_use]
    pub(super) fn requests(&self, of: &SessionId) -> Option<usize> {
        (self.session.id() == of).then(|| self.state().open.count())
    }

    /// Whether the session has ended.
    #[must_use]
    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// The server goes on here. `early`: what it has said before.
    pub(super) async fn take(self: &Arc<Self>, backend: Arc<dyn Backend>, early: Early) {
        let mut slot = self.backend.lock().await;
        self.run(&backend, early);
        *slot = Some(backend);
    }

    fn run(self: &Arc<Self>, backend: &Arc<dyn Backend>, early: Early) {
        self.state().running = Some(backend.incarnation().to_owned());
        tokio::spawn(self.clone().pump(backend.clone(), early));
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
        // The connections of these are gone with the process that had them, and that cancels a request.
        for id in backend.open_calls().await.unwrap_or_default() {
            let former = self.state().open.add_former(&id);
            if let Some(cancelled) = former {
                let reason = "the connection of the client is gone";
                tokio::spawn(self.clone().cancel(backend.clone(), cancelled, reason));
            }
        }
        self.run(&backend, Vec::new());
        *slot = Some(backend.clone());
        Ok(backend)
    }

    /// Sends the server a request.
    ///
    /// # Errors
    /// When there is no server to take it; when its headers do not repeat the arguments that they should.
    pub(super) async fn ask(
        self: &Arc<Self>,
        request: &Request,
        headers: &HeaderMap,
    ) -> Result<Waiting, Refusal> {
        if let Some(tool) = &request.tool {
            if !self.state().tools.knows(tool) {
                // A server that is busy with something else gets the call all the same.
                drop(timeout(LIST_WAIT, self.list_tools(&request.meta)).await);
            }
            self.state().tools.check(tool, &request.arguments, headers)?;
        }
        let what = match &*request.method {
            LISTEN => What::Listen,
            "tools/list" => What::List { is_first_page: request.is_first_page },
            _ => What::Other,
        };
        self.send(Asked { what, wants_log: request.wants_log }, &request.id, &request.line).await
    }

    async fn send(self: &Arc<Self>, asked: Asked, id: &str, line: &Bytes) -> Result<Waiting, Refusal> {
        loop {
            let backend = self.server().await?;
            let unsent = Unsent::take(&self.unsent, line.len())?;
            let key: Key = format!("{}-{}", self.keys.0, self.keys.1.fetch_add(1, Ordering::Relaxed)).into();
            let messages = {
                let mut state = self.state();
                state.active = Instant::now();
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
                    drop(unsent);
                    sent
                }
            });
            return Ok(Waiting {
                common: self.clone(),
                key,
                id: id.into(),
                messages,
                sending: Some(sending),
                is_listen: asked.what == What::Listen,
                backend: WhichBackend(backend),
            });
        }
    }

    /// Passes a notification on.
    ///
    /// # Errors
    /// When there is no server to take it.
    pub(super) async fn notify(self: &Arc<Self>, line: Bytes) -> Result<(), Refusal> {
        let server = self.server().await?;
        server.send(line).await.map_err(|_| Refusal::for_now("the server has ended, and is started again"))
    }

    /// Asks the server for its tools, on behalf of a client that has not, once. A tool that is in no list declares nothing.
    async fn list_tools(self: &Arc<Self>, meta: &str) -> Result<(), Refusal> {
        let mut has_listed = self.has_listed.lock().await;
        let mut meta: serde_json::Map<String, Value> = serde_json::from_str(meta).unwrap_or_default();
        meta.retain(|key, _| !["progressToken", "io.modelcontextprotocol/logLevel"].contains(&key.as_str()));
        let mut params = json!({"_meta": meta});
        for page in 0..PAGES_MAX {
            if *has_listed {
                break;
            }
            let line =
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}).to_string();
            let what = What::List { is_first_page: page == 0 };
            let mut waiting = self.send(Asked { what, wants_log: false }, "1", &line.into()).await?;
            let Some(answer) = waiting.answer().await else { break };
            match Tools::next_page(&answer) {
                Some(cursor) => params["cursor"] = Value::String(cursor),
                None => *has_listed = true,
            }
        }
        Ok(())
    }

    async fn pump(self: Arc<Self>, backend: Arc<dyn Backend>, early: Early) {
        for (number, line) in early {
            self.hear(&backend, number, &line);
        }
        while let Some((number, line)) = backend.next().await {
            self.hear(&backend, number, &line);
        }
        {
            let mut state = self.state();
            if state.running.as_deref() == Some(backend.incarnation()) {
                state.running = None;
                state.open.clear();
            }
        }
        let mut slot = self.backend.lock().await;
        if slot.as_ref().is_some_and(|held| held.incarnation() == backend.incarnation()) {
            *slot = None;
        }
        drop(slot);
        backend.end().await;
    }

    fn hear(self: &Arc<Self>, backend: &Arc<dyn Backend>, number: u64, line: &Bytes) {
        let todo = {
            let mut state = self.state();
            let State { open, tools, .. } = &mut *state;
            open.hear(line, tools)
        };
        backend.confirm(number);
        if todo.is_empty() {
            return;
        }
        tokio::spawn(self.clone().work_off(backend.clone(), todo));
    }

    async fn work_off(self: Arc<Self>, backend: Arc<dyn Backend>, todo: Todo) {
        let Todo { cancel, refuse, end } = todo;
        for id in refuse {
            let _ = backend.send(no_requests(&id).into()).await;
        }
        for cancelled in cancel {
            tokio::spawn(self.clone().cancel(backend.clone(), cancelled, "the client does not read"));
        }
        if !end.is_empty() {
            sleep(RESULT_WAIT).await;
            end.iter().for_each(|key| self.state().open.forget(key));
        }
    }

    /// Tells the server that a request is cancelled.
    async fn cancel(self: Arc<Self>, backend: Arc<dyn Backend>, cancelled: Cancelled, reason: &'static str) {
        let _ = backend.send(cancellation(&cancelled.id, reason).into()).await;
        sleep(CANCEL_WAIT).await;
        self.state().open.forget(&cancelled.key);
    }

    /// Ends the session if nobody has used it for too long. Tells the daemon of one that is in use.
    pub(super) async fn look(&self) {
        let is_idle = {
            let mut state = self.state();
            if state.open.count() > 0 {
                state.active = Instant::now();
            }
            let is_idle = state.active.elapsed() >= self.shared.settings.idle;
            // From now on requests go to another server.
            state.ended |= is_idle;
            is_idle
        };
        if is_idle {
            drop(self.end().await);
        } else if let Err(error) = self.session.touch().await
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
        terminated(&self.session).await?;
        self.close();
        let backend = self.backend.lock().await.take();
        if let Some(backend) = backend {
            backend.end().await;
        }
        Ok(())
    }

    /// Lets go of the session: its clients' connections end. Its server goes on, for the process that serves the name next.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.ended = true;
        state.running = None;
        state.open.clear();
    }
}

impl Waiting {
    /// Whether it is a subscription, which stays open.
    #[must_use]
    pub(super) fn is_listen(&self) -> bool {
        self.is_listen
    }

    /// How long the connection may be silent.
    #[must_use]
    pub(super) fn keep_alive(&self) -> Duration {
        self.common.shared.settings.keep_alive
    }

    /// The next message. None: the server has ended, or the stream; there is no answer.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        self.messages.next().await
    }

    async fn answer(&mut self) -> Option<Json> {
        while let Some(sent) = self.next().await {
            if sent.is_answer {
                return Some(sent.message);
            }
        }
        None
    }

    /// What is answered in place of the server, which has ended.
    pub(super) async fn lost(&mut self) -> Json {
        if self.messages.is_over() {
            return unread(&self.id);
        }
        let sent = match &mut self.sending {
            Some(sending) => sending.await.unwrap_or(Err(Ended { may_have_arrived: true })),
            None => Ok(()),
        };
        self.sending = None;
        match sent {
            Err(Ended { may_have_arrived: false }) => not_started(&self.id),
            _ => unknown(&self.id),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let open = {
            let mut state = self.common.state();
            state.active = Instant::now();
            state.open.leave(&self.key)
        };
        let (Some(cancelled), Ok(runtime)) = (open, Handle::try_current()) else { return };
        let (sending, backend, common) = (self.sending.take(), self.backend.0.clone(), self.common.clone());
        runtime.spawn(async move {
            if let Some(sending) = sending {
                drop(sending.await);
            }
            common.cancel(backend, cancelled, "the client has closed the connection").await;
        });
    }
}

/// Tells the server that a request is cancelled, by the id that it was sent under, as JSON.
fn cancellation(id: &str, reason: &str) -> String {
    let reason = Value::from(reason);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":{reason}}}}}"#
    )
}

/// The answer to a request of the server's own.
fn no_requests(id: &str) -> String {
    let error = json!({"code": -32601, "message": "a server of MCP 2026-07-28 sends no requests"});
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}
