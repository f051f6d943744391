//! Requests at a server: those of clients, and those by which `serve` itself asks for the list of
//! tools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use mcp_sessiond_client::Json;
use mcp_sessiond_http_session::substitute::{not_started, outcome_unknown, unread};
use mcp_sessiond_jsonrpc::message::LISTEN;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::envelope::Request;
use super::open_requests::{Delivery, Key, Messages, RequestKind, RequestMethod};
use super::params::Tools;
use super::server::{RequestGuard, Sending, Server};
use crate::backend::{Backend, Ended};
use crate::refusal::Refusal;

/// How long a call waits for the list of tools that `serve` asks for.
const LIST_WAIT: Duration = Duration::from_secs(10);
/// Pages of a server's list of tools that are read.
const PAGES_MAX: usize = 64;

/// A request that the server was sent. When this is dropped, it is cancelled.
#[derive(Debug)]
pub(super) struct PendingRequest {
    server: Arc<Server>,
    key: Key,
    id: Box<str>,
    messages: Messages,
    sending: Option<JoinHandle<Result<(), Ended>>>,
    is_listen: bool,
    backend: ShownBackend,
    /// None: the request is part of another one.
    _guard: Option<RequestGuard>,
}

/// The server that a request was sent to.
struct ShownBackend(Arc<dyn Backend>);

impl fmt::Debug for ShownBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.incarnation())
    }
}

/// Sends a server a client's request.
///
/// # Errors
/// When there is no server to take it; when its headers do not repeat the arguments that they
/// should.
pub(super) async fn send_request(
    guard: RequestGuard,
    request: &Request,
    headers: &HeaderMap,
) -> Result<PendingRequest, Refusal> {
    if let Some(tool) = &request.tool {
        if !guard.knows(tool) {
            // A server that is busy with something else gets the call all the same.
            drop(timeout(LIST_WAIT, list_tools(&guard, &request.meta)).await);
        }
        guard.check(tool, &request.arguments, headers)?;
    }
    let what = match &*request.method {
        LISTEN => RequestMethod::Listen,
        "tools/list" => RequestMethod::List {
            is_first_page: request.is_first_page,
        },
        _ => RequestMethod::Other,
    };
    let asked = RequestKind {
        what,
        wants_log: request.wants_log,
    };
    let mut waiting = PendingRequest::of(&guard, asked, &request.id, &request.line).await?;
    waiting._guard = Some(guard);
    Ok(waiting)
}

/// Asks the server for its tools, on behalf of a client that has not, once. A tool that is in no
/// list declares nothing.
async fn list_tools(server: &Arc<Server>, meta: &str) -> Result<(), Refusal> {
    let mut has_listed = server.has_listed().await;
    let mut meta: serde_json::Map<String, Value> = serde_json::from_str(meta).unwrap_or_default();
    meta.retain(|key, _| {
        !["progressToken", "io.modelcontextprotocol/logLevel"].contains(&key.as_str())
    });
    let mut params = json!({"_meta": meta});
    for page in 0..PAGES_MAX {
        if *has_listed {
            break;
        }
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
            .to_string();
        let what = RequestMethod::List {
            is_first_page: page == 0,
        };
        let mut waiting = PendingRequest::of(
            server,
            RequestKind {
                what,
                wants_log: false,
            },
            "1",
            &line.into(),
        )
        .await?;
        let Some(answer) = waiting.answer().await else {
            break;
        };
        match Tools::next_page(&answer) {
            Some(cursor) => params["cursor"] = Value::String(cursor),
            None => *has_listed = true,
        }
    }
    Ok(())
}

impl PendingRequest {
    async fn of(
        server: &Arc<Server>,
        asked: RequestKind,
        id: &str,
        line: &Bytes,
    ) -> Result<Self, Refusal> {
        let Sending {
            key,
            messages,
            sending,
            backend,
        } = server.send(asked, id, line).await?;
        let (sending, backend) = (Some(sending), ShownBackend(backend));
        let is_listen = asked.what == RequestMethod::Listen;
        Ok(Self {
            server: server.clone(),
            key,
            id: id.into(),
            messages,
            sending,
            is_listen,
            backend,
            _guard: None,
        })
    }

    /// Whether it is a subscription, which stays open.
    pub(super) fn is_listen(&self) -> bool {
        self.is_listen
    }

    /// How long the connection may be silent.
    pub(super) fn keep_alive(&self) -> Duration {
        self.server.keep_alive()
    }

    /// The next message. None: the server has ended, or the stream; there is no answer.
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        self.messages.next().await
    }

    /// The answer. None: there is none.
    pub(super) async fn answer(&mut self) -> Option<Json> {
        while let Some(sent) = self.next().await {
            if sent.is_answer {
                return Some(sent.message);
            }
        }
        None
    }

    /// What is answered in place of the server, which has ended.
    pub(super) async fn substitute(&mut self) -> Json {
        if self.messages.is_over() {
            return unread(&self.id);
        }
        let sent = match &mut self.sending {
            Some(sending) => sending.await.unwrap_or(Err(Ended {
                may_have_arrived: true,
            })),
            None => Ok(()),
        };
        self.sending = None;
        match sent {
            Err(Ended {
                may_have_arrived: false,
            }) => not_started(&self.id),
            _ => outcome_unknown(&self.id),
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let left = self.server.cancel_open(&self.key);
        let (Some(cancelled), Ok(runtime)) = (left, Handle::try_current()) else {
            return;
        };
        let (sending, backend, server) = (
            self.sending.take(),
            self.backend.0.clone(),
            self.server.clone(),
        );
        runtime.spawn(async move {
            if let Some(sending) = sending {
                drop(sending.await);
            }
            server
                .cancel(backend, cancelled, "the client has closed the connection")
                .await;
        });
    }
}
