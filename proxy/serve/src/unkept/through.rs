//! `serve --upstream --unkept`: requests are passed on as they came. The sessions are the server's
//! own. What is known of each is who began it, so that nobody else gets in, and when it was used,
//! so that there are no more than `http.sessions`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use mcp_sessiond_client::tower::SESSION_HEADER as SESSION;
use mcp_sessiond_client::{Caller, Session};
use tokio::time::Instant;

use crate::backend::{Backend, Backends};
use crate::live::{Shared, same};
use crate::refusal::Refusal;
use crate::response::json;
use crate::said::{Posted, PostedKind, unknown};
use crate::settings::Behind;
use crate::upstream::forward::{NotForwarded, forward};
use crate::upstream::url::Url;
use crate::who::bound_to_another;

/// There are none: nothing but Streamable HTTP is passed on.
#[derive(Debug)]
pub struct NoBackends;

impl Backends for NoBackends {
    fn backend<'a>(
        &'a self,
        _: Option<&'a Session>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>> {
        let message = "`serve --unkept --upstream` passes on Streamable HTTP alone, at /mcp";
        async move { Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message)) }.boxed()
    }

    fn claim<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<(), Refusal>> {
        async { Ok(()) }.boxed()
    }
}

/// Passes requests on.
pub struct Through {
    url: Url,
    hold: Duration,
    idle: Duration,
    most: usize,
    known: Mutex<HashMap<HeaderValue, Known>>,
}

/// A session of the server's.
struct Known {
    caller: Caller,
    active: Instant,
    /// One reference for each response that is under way, and one for this.
    responses: Arc<()>,
}

impl fmt::Debug for Through {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Through({})", self.known().len())
    }
}

impl Through {
    /// None: there is a daemon, or a server that does not speak HTTP.
    #[must_use]
    pub fn of(shared: &Shared) -> Option<Self> {
        let settings = &shared.settings;
        let (Behind::Upstream(url), None) = (&settings.behind, &shared.sessions) else {
            return None;
        };
        let (hold, idle, most) = (settings.hold, settings.idle, settings.sessions);
        Some(Self {
            url: url.clone(),
            hold,
            idle,
            most,
            known: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<HeaderValue, Known>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, session| {
            let is_used = self.idle.is_zero() || Arc::strong_count(&session.responses) > 1;
            is_used || session.active.elapsed() < self.idle
        });
        known
    }

    /// How many sessions there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known().len()
    }

    /// Passes a POST on.
    ///
    /// # Errors
    /// As [`Through::pass`]; when there are as many sessions as there may be.
    pub async fn post(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        messages: &[Posted],
        body: Bytes,
    ) -> Result<Response<Body>, Refusal> {
        let begins = messages
            .iter()
            .any(|message| matches!(message.kind, PostedKind::Initialize(..)));
        let count = self.count();
        if begins && count >= self.most {
            return Err(Refusal::for_now(format!(
                "there are {count} sessions already (http.sessions)"
            )));
        }
        let mut calls = messages.iter().filter_map(|message| message.kind.call());
        match (
            self.carry(Method::POST, caller, headers, body).await,
            calls.next(),
        ) {
            (Err(NotForwarded::Unknown), Some(call)) => Ok(json(unknown(call).as_str().to_owned())),
            (carried, _) => carried.map_err(refusal),
        }
    }

    /// Passes a request on, and the response back.
    ///
    /// # Errors
    /// When the session was not begun here, or by another caller; when the server can't be reached.
    pub async fn pass(
        &self,
        method: Method,
        caller: &Caller,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Body>, Refusal> {
        self.carry(method, caller, headers, body)
            .await
            .map_err(refusal)
    }

    async fn carry(
        &self,
        method: Method,
        caller: &Caller,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Body>, NotForwarded> {
        let named = headers.get(SESSION);
        let mut used = named.map(|named| self.admit(named, caller)).transpose()?;
        let ends = method == Method::DELETE;
        let response = forward(&self.url, self.hold, method, headers, body).await?;
        if let Some(named) = named.filter(|_| response.status() == StatusCode::NOT_FOUND || ends) {
            self.known().remove(named);
        }
        if let Some(begun) = response
            .headers()
            .get(SESSION)
            .filter(|begun| Some(*begun) != named)
        {
            used = Some(self.begun(begun, caller));
        }
        Ok(response.map(|body| {
            // The session is in use until the response is over.
            Body::from_stream(body.into_data_stream().inspect(move |_| {
                let _ = &used;
            }))
        }))
    }

    fn admit(&self, named: &HeaderValue, caller: &Caller) -> Result<Arc<()>, Refusal> {
        let mut known = self.known();
        let session = known.get_mut(named).ok_or_else(Refusal::unknown_session)?;
        if !same(&session.caller, caller) {
            return Err(bound_to_another());
        }
        session.active = Instant::now();
        Ok(session.responses.clone())
    }

    fn begun(&self, session: &HeaderValue, caller: &Caller) -> Arc<()> {
        let begun = Known {
            caller: caller.clone(),
            active: Instant::now(),
            responses: Arc::default(),
        };
        let responses = begun.responses.clone();
        self.known().entry(session.clone()).or_insert(begun);
        responses
    }
}

fn refusal(not_forwarded: NotForwarded) -> Refusal {
    match not_forwarded {
        NotForwarded::Refused(refusal) => refusal,
        NotForwarded::Unknown => Refusal::new(
            StatusCode::BAD_GATEWAY,
            "the server ended before it had answered",
        ),
    }
}
