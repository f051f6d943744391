//! MCP 2026-07-28, whose requests belong to no session: each says which version it speaks, is a
//! POST of its own, and is cancelled when its connection ends. Nothing of them is stored, since
//! nothing can be resumed. What is kept is the server, with all that its handles, tasks and request
//! states stand for.
//!
//! All requests of one caller go to one server. It belongs to a session of the service, of which
//! the client sees nothing. A server is asked once whether it speaks this version. If not, a client
//! that asks by `server/discover` is told that there is no such method, by which every client knows
//! that it has to begin with `initialize`; one that makes another request is told which versions
//! there are. Nothing is translated.
//!
//! - `envelope.rs`: what a POST says of itself. `params.rs`: arguments that are repeated in
//!   headers.
//! - `callers.rs`: the servers of all callers. `era.rs`: what a server speaks of which nothing is
//!   known.
//! - `server.rs`: one of them. `pending.rs`: requests that it was sent. `open_requests.rs`: to
//!   which of them a message of the server belongs. `usage.rs`: whether it is in use.
//! - `reply.rs`: the response.
//! - `forward.rs`: a server that speaks HTTP itself gets the requests as they came.

mod callers;
mod envelope;
mod era;
mod forward;
mod open_requests;
mod params;
mod pending;
mod reply;
mod server;
mod usage;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use mcp_sessiond_client::Caller;

pub use self::callers::{Callers, version_of};
use self::envelope::{Posted, Refused, VERSION, names_modern};
use crate::live;
use crate::refusal::Refusal;
use crate::settings::Target;

/// Whether a request is of this era by its headers. It supports only POST.
///
/// # Errors
/// 405.
pub fn only_posts(headers: &HeaderMap) -> Result<(), Refusal> {
    if !names_modern(headers) {
        return Ok(());
    }
    Err(Refusal::not_allowed(
        "POST",
        format!("MCP {VERSION} supports only POST"),
    ))
}

/// Carries out a POST of this era. None: it is of the era before.
pub async fn post(
    callers: &Arc<Callers>,
    shared: &Arc<live::Shared>,
    room: impl Fn() -> Result<(), Refusal>,
    caller: &Caller,
    headers: &HeaderMap,
    body: &Bytes,
) -> Option<Response<Body>> {
    let posted = envelope::read(headers, body).transpose()?;
    if let (Ok(posted), Target::Upstream(remote)) = (&posted, &shared.settings.target) {
        return Some(
            forward::forward(
                remote,
                &shared.settings.passed,
                posted,
                headers,
                body.clone(),
            )
            .await,
        );
    }
    let answered = async {
        match posted? {
            Posted::Request(request) => {
                let refused = |refusal| Refused {
                    refusal,
                    id: Some(request.id.clone()),
                };
                let asked = callers
                    .ask(shared, room, caller, &request, headers)
                    .await
                    .map_err(refused)?;
                Ok(reply::reply(asked).await)
            }
            Posted::Notification(line) => {
                if let Some(line) = line {
                    callers
                        .of(shared, room, caller, VERSION)
                        .await?
                        .notify(line)
                        .await?;
                }
                Ok(StatusCode::ACCEPTED.into_response())
            }
        }
    };
    Some(answered.await.unwrap_or_else(|Refused { refusal, id }| {
        refusal.answering(id.as_deref().unwrap_or("null"))
    }))
}
