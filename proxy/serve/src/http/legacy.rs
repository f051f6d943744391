//! The transport HTTP with SSE of MCP 2024-11-05: one stream of events, which carries everything
//! that the server says, and an address to post to. A client can't resume the stream, so its
//! session ends with it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use bytes::Bytes;
use futures::StreamExt as _;
use mcp_sessiond_client::{Caller, RequestId};
use tokio::sync::{OnceCell, mpsc};
use tokio::time::timeout;

use super::accept::{EVENTS, is_json, takes};
use super::{Server, admitted, body};
use crate::live::Began;
use crate::refusal::Refusal;
use crate::said::{self, Posted, PostedKind, posted};
use crate::served::{Parts, Served};
use crate::tail::COMMENT;

/// The path of the stream.
const STREAM: &str = "/sse";
/// The path to post to.
const MESSAGES: &str = "/message";
/// Events that wait for a connection.
const WAITING_MAX: usize = 64;

/// The open streams, by the ids in the addresses to post to.
struct Streams {
    table: Server,
    open: Mutex<HashMap<String, Arc<Connection>>>,
}

struct Connection {
    caller: Caller,
    out: mpsc::Sender<Bytes>,
    served: OnceCell<Served>,
}

/// The routes of this transport.
pub(super) fn router(table: &Server) -> Router {
    let streams = Arc::new(Streams {
        table: table.clone(),
        open: Mutex::default(),
    });
    Router::new()
        .route(STREAM, get(stream))
        .route(MESSAGES, post(message))
        .layer(middleware::from_fn_with_state(
            table.shared().settings.clone(),
            admitted,
        ))
        .with_state(streams)
}

impl Streams {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The response's body. When its connection ends, it is dropped, and ends the session.
struct Open {
    streams: Arc<Streams>,
    key: String,
    events: mpsc::Receiver<Bytes>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let connection = self.streams.open().remove(&self.key);
        if let Some(served) = connection.and_then(|connection| connection.served.get().cloned()) {
            tokio::spawn(async move { served.end().await });
        }
    }
}

async fn stream(
    State(streams): State<Arc<Streams>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    takes(&headers, &[EVENTS])?;
    let (out, events) = mpsc::channel(WAITING_MAX);
    let key = RequestId::mint().to_string();
    let first = format!("event: endpoint\ndata: {MESSAGES}?sessionId={key}\n\n");
    drop(out.try_send(first.into()));
    let connection = Connection {
        caller,
        out,
        served: OnceCell::new(),
    };
    streams.open().insert(key.clone(), Arc::new(connection));
    let open = Open {
        streams,
        key,
        events,
    };
    let keep_alive = open.streams.table.shared().settings.keep_alive;
    let parts = futures::stream::unfold(open, move |mut open| async move {
        let part = match timeout(keep_alive, open.events.recv()).await {
            Ok(part) => part?,
            Err(_) => COMMENT.into(),
        };
        Some((Ok::<_, Infallible>(part), open))
    });
    let mut response = Response::new(Body::from_stream(parts));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    Ok(response)
}

async fn message(
    State(streams): State<Arc<Streams>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    sent: Body,
) -> Result<StatusCode, Refusal> {
    is_json(&headers)?;
    let settings = &streams.table.shared().settings;
    let (messages, is_batch) = posted(&body(sent, settings.peer_wait).await?)?;
    let named = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix("sessionId="));
    let connection = streams.open().get(named.unwrap_or_default()).cloned();
    let connection = connection.ok_or_else(Refusal::unknown_session)?;
    if connection.caller != caller {
        return Err(crate::who::bound_to_another());
    }
    // In a task of its own, which goes on when the client hangs up.
    let carried =
        tokio::spawn(async move { connection.carry(&streams.table, messages, is_batch).await });
    carried
        .await
        .unwrap_or_else(|_| Err(Refusal::invalid("`serve` has failed at this request")))?;
    Ok(StatusCode::ACCEPTED)
}

impl Connection {
    async fn carry(
        self: &Arc<Self>,
        table: &Server,
        messages: Vec<Posted>,
        is_batch: bool,
    ) -> Result<(), Refusal> {
        if let [
            Posted {
                kind: PostedKind::Initialize(id, params),
                ..
            },
        ] = &messages[..]
        {
            if self.served.initialized() {
                return Err(Refusal::invalid("this session has begun already"));
            }
            let answer = match table.begin(self.caller.clone(), params.clone()).await? {
                Began::Refused(error) => said::error(id, &error),
                Began::Session(served) => {
                    let answer = said::result(id, &served.record().result);
                    if self.out.is_closed() || self.served.set(served.clone()).is_err() {
                        return served.end().await;
                    }
                    self.forward(served.listen().await?);
                    answer
                }
            };
            drop(
                self.out
                    .send(format!("event: message\ndata: {answer}\n\n").into())
                    .await,
            );
            return Ok(());
        }
        let served = self
            .served
            .get()
            .ok_or_else(|| Refusal::invalid("`initialize` comes first, and alone"))?;
        if messages
            .iter()
            .any(|message| matches!(message.kind, PostedKind::Call(_)))
        {
            let calls: Vec<_> = messages
                .iter()
                .filter_map(|message| message.kind.call().cloned())
                .collect();
            match served.call(messages, is_batch).await {
                Ok(parts) => self.forward(parts),
                // Some clients give up their session at a status that tells of an error.
                Err(refusal) => {
                    for id in calls {
                        let error = said::refused(&id, &refusal);
                        let part = format!("event: message\ndata: {}\n\n", error.as_str());
                        drop(self.out.send(part.into()).await);
                    }
                }
            }
            Ok(())
        } else {
            served.post(messages).await
        }
    }

    /// Copies the messages of a stream to the client's only one.
    fn forward(&self, mut parts: Parts) {
        let out = self.out.clone();
        tokio::spawn(async move {
            while let Some(part) = parts.next().await {
                // Comments and events without data serve to resume a stream.
                if part.starts_with(b"event: message") && out.send(part).await.is_err() {
                    return;
                }
            }
        });
    }
}
