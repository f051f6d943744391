//! A daemon's contents over a backend of their own, with a clock that the case sets; and what
//! requests are made of.

use std::sync::Arc;

use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_daemon::contents::{
    Access, Bounds, Clock, Contents, OwnerStatus, SweptSession, Why,
};
use mcp_sessiond_daemon::counters::Meters;
use mcp_sessiond_daemon::storage::{Storage, Store};
use mcp_sessiond_proto::sessions::{CreateRequest, Lifetimes};
use mcp_sessiond_proto::state::{StateVersion, StateWrite};
use mcp_sessiond_proto::streams::{Cursor, Event, EventId, Gap};
use mcp_sessiond_proto::{Json, RequestId, SessionId, StateKey, StreamId};

use super::visit::Visit;
use crate::contract::backends::Backend;

/// When the clock of every case begins, in ms since the Unix epoch.
pub(super) const START_MS: u64 = 1_700_000_000_000;

/// The service that every visit is of, unless it says otherwise.
pub(super) const SERVICE: &str = "shop";

/// Contents over a backend.
pub(super) struct Bench<B> {
    backend: B,
    pub(super) clock: Arc<Clock>,
    pub(super) bounds: Bounds,
    pub(super) contents: Arc<Contents>,
}

impl<B: Backend> Bench<B> {
    /// With the limits and lifetimes that are the default.
    pub(super) fn new(backend: B) -> Self {
        Self::with(backend, Bounds::default())
    }

    /// With these limits, or lifetimes too.
    pub(super) fn with(backend: B, bounds: impl Into<Bounds>) -> Self {
        let (clock, bounds) = (Arc::new(Clock::manual(START_MS)), bounds.into());
        let contents = contents(backend.store(), &clock, &bounds);
        Self {
            backend,
            clock,
            bounds,
            contents,
        }
    }

    /// The daemon crashes, and starts again.
    pub(super) async fn reopen(&mut self) {
        self.backend.reopen().await;
        self.contents = self.over(self.backend.store());
    }

    /// Another daemon on the same data.
    pub(super) async fn beside(&self) -> Arc<Contents> {
        self.over(self.backend.beside().await)
    }

    /// Contents over what the case has put between them and the backend.
    pub(super) fn over(&self, storage: Arc<dyn Storage>) -> Arc<Contents> {
        contents(storage, &self.clock, &self.bounds)
    }

    /// The backend's handle.
    pub(super) fn store(&self) -> Arc<dyn Storage> {
        self.backend.store()
    }

    /// Puts other limits in force.
    pub(super) fn limit(&mut self, limits: Limits) {
        self.bounds.limits = limits;
        self.contents.set_bounds(self.bounds.clone());
    }

    /// A session of the service's that need not be there.
    pub(super) fn visit(&self, session: &str) -> Visit {
        visit(&self.contents, SERVICE, session)
    }

    /// A session that is made, without an end.
    pub(super) async fn session(&self, session: &str) -> Visit {
        let visit = self.visit(session);
        visit.create_with(endless()).await.expect("created");
        visit
    }

    /// Ends what has outlived its time: names and reasons.
    pub(super) async fn sweep(&self) -> Vec<(String, Why)> {
        sweep(&self.contents).await
    }
}

fn contents(storage: Arc<dyn Storage>, clock: &Arc<Clock>, bounds: &Bounds) -> Arc<Contents> {
    let meters = Arc::<Meters>::default();
    let store = Store::over(storage, meters.clone());
    Arc::new(Contents::new(store, clock.clone(), bounds.clone(), meters))
}

/// Lets a daemon sweep: names and reasons.
pub(super) async fn sweep(contents: &Contents) -> Vec<(String, Why)> {
    let swept = contents
        .sweep(|_| OwnerStatus::Service)
        .await
        .expect("swept");
    swept
        .into_iter()
        .map(|SweptSession { place, why }| (place.name, why))
        .collect()
}

/// A session as some service uses it through some daemon.
pub(super) fn visit(contents: &Arc<Contents>, service: &str, session: &str) -> Visit {
    let service = service.parse().expect("a service");
    Visit {
        contents: contents.clone(),
        access: Access::service(&service, &id(session), None),
    }
}

pub(super) fn id(session: &str) -> SessionId {
    session.parse().expect("a session id")
}

pub(super) fn stream(stream: &str) -> StreamId {
    stream.parse().expect("a stream id")
}

pub(super) fn key(key: &str) -> StateKey {
    key.parse().expect("a state key")
}

pub(super) fn request(request: &str) -> RequestId {
    request.parse().expect("a request id")
}

pub(super) fn json(text: &str) -> Json {
    Json::new(text).expect("JSON")
}

/// A message of so many bytes.
pub(super) fn large(bytes: usize) -> Json {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

/// Lifetimes without an end.
pub(super) fn endless() -> CreateRequest {
    let lifetimes = Lifetimes {
        idle_ms: Some(0),
        absolute_ms: Some(0),
        grace_ms: Some(0),
    };
    CreateRequest {
        lifetimes,
        ..CreateRequest::default()
    }
}

/// A write, whatever there is.
pub(super) fn set(name: &str, text: &str) -> StateWrite {
    StateWrite::new(key(name), json(text))
}

/// A write, if this version is there.
pub(super) fn set_at(name: &str, text: &str, version: u64) -> StateWrite {
    StateWrite {
        expected: Some(StateVersion(version)),
        ..set(name, text)
    }
}

/// A removal, whatever there is.
pub(super) fn unset(name: &str) -> StateWrite {
    StateWrite::remove(key(name))
}

/// Where a stream begins.
pub(super) fn start_of(name: &str) -> Cursor {
    Cursor::Stream(stream(name))
}

/// After this event.
pub(super) fn after(id: &EventId) -> Cursor {
    Cursor::Event(id.clone())
}

/// The messages of events, as text.
pub(super) fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.message.as_str()).collect()
}

/// What is missing of a stream.
pub(super) fn gap(name: &str, first: u64, last: u64) -> Gap {
    Gap {
        stream: Some(stream(name)),
        first,
        last,
    }
}

/// The numbers that are missing of a session.
pub(super) fn gap_of_numbers(first: u64, last: u64) -> Gap {
    Gap {
        stream: None,
        first,
        last,
    }
}
