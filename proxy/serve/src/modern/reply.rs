//! The response to a request: one message, or a stream of events (MCP 2026-07-28, Streamable HTTP,
//! "Receiving Messages"). Its body is dropped when the client has hung up, and the request is
//! cancelled by that.

use std::cell::OnceCell;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use mcp_sessiond_client::Json;
use mcp_sessiond_http_session::sse::COMMENT;
use mcp_sessiond_jsonrpc::message::Line;
use tokio::time::timeout;

use super::envelope;
use super::open_requests::Delivery;
use super::pending::PendingRequest;
use crate::response::{event_stream, json};

/// Waits for the first message, and answers: with that message, if it is the answer; else with a
/// stream.
pub(super) async fn reply(mut waiting: PendingRequest) -> Response<Body> {
    match timeout(waiting.keep_alive(), waiting.next()).await {
        Ok(Some(Delivery {
            message,
            is_answer: true,
        })) => whole(&message),
        Ok(Some(sent)) => stream(waiting, Some(sent)),
        Ok(None) => {
            let substitute = waiting.substitute().await;
            whole(&substitute)
        }
        // It takes long, and comments keep the connection alive meanwhile.
        Err(_) => stream(waiting, None),
    }
}

fn whole(message: &Json) -> Response<Body> {
    let copy = OnceCell::new();
    let read = Line::of(message.as_str().as_bytes(), &copy).message();
    let code = read.and_then(|message| message.error_code());
    let mut response = json(message.as_str().to_owned());
    if let Some(code) = code {
        *response.status_mut() = envelope::status(code);
    }
    response
}

fn stream(waiting: PendingRequest, first: Option<Delivery>) -> Response<Body> {
    let parts = futures::stream::unfold((Some(waiting), first), async |(waiting, first)| {
        let mut waiting = waiting?;
        let sent = match first {
            Some(sent) => Some(sent),
            None => match timeout(waiting.keep_alive(), waiting.next()).await {
                Ok(sent) => sent,
                Err(_) => {
                    return Some((
                        Bytes::from_static(COMMENT.as_bytes()),
                        (Some(waiting), None),
                    ));
                }
            },
        };
        match sent {
            Some(Delivery {
                message,
                is_answer: true,
            }) => Some((event(&message), (None, None))),
            Some(Delivery {
                message,
                is_answer: false,
            }) => Some((event(&message), (Some(waiting), None))),
            // A client that listens knows by the end alone that it has to listen again.
            None if waiting.is_listen() => None,
            None => {
                let substitute = waiting.substitute().await;
                Some((event(&substitute), (None, None)))
            }
        }
    });
    event_stream(parts)
}

fn event(message: &Json) -> Bytes {
    format!("event: message\ndata: {}\n\n", message.as_str()).into()
}
