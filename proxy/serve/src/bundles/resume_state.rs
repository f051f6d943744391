//! What the next process has to know of a session's bundle, in the session's state: its era, and
//! what the host has told its servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_bundle::{BundleStore, FailedStart, Names, Told};
use mcp_sessiond_client::{RequestId, Session, SessionError};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::eras::Eras;

/// The key of the session's state.
const KEY: &str = "serve.bundle";

/// The pause before the daemon is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// What the next process goes on with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ResumeState {
    /// Tells a session's bundle from what it was before all of its servers were ended.
    era: String,
    told: Told,
}

/// An era that there has never been.
fn new_era() -> String {
    RequestId::mint().to_string()
}

impl ResumeState {
    /// The state of a session. It begins a new era where there was none, or it is one of those
    /// that have `ended`.
    ///
    /// # Errors
    /// Those of the daemon.
    pub(super) async fn load(session: &Session, ended: &Eras) -> Result<Self, SessionError> {
        let Ok(key) = KEY.parse() else {
            return Ok(Self {
                era: new_era(),
                told: Told::default(),
            });
        };
        let former = session.get_as::<Self>(&key).await?;
        let state = match former {
            Some(state) if !ended.has_ended(session.id(), &state.era) => return Ok(state),
            Some(former) => {
                let state = Self {
                    era: new_era(),
                    told: former.told,
                };
                session.set_as(&key, &state).await?;
                // It is never found again.
                ended.forget(session.id());
                return Ok(state);
            }
            None => Self {
                era: new_era(),
                told: Told::default(),
            },
        };
        session.set_as(&key, &state).await?;
        Ok(state)
    }

    pub(super) fn era(&self) -> &str {
        &self.era
    }
}

/// Remembers names where all do that have the file, and the rest in the session.
#[derive(Debug)]
pub(super) struct SessionMemory {
    session: Session,
    state: Mutex<ResumeState>,
    names: Option<Arc<dyn BundleStore>>,
}

impl SessionMemory {
    pub(super) fn new(
        session: Session,
        state: ResumeState,
        names: Option<Arc<dyn BundleStore>>,
    ) -> Self {
        Self {
            session,
            state: Mutex::new(state),
            names,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ResumeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BundleStore for SessionMemory {
    fn load(&self) -> BoxFuture<'_, Names> {
        match &self.names {
            Some(names) => names.load(),
            None => std::future::ready(Names::default()).boxed(),
        }
    }

    fn save(&self, given: Names) -> BoxFuture<'_, Option<Names>> {
        match &self.names {
            Some(names) => names.save(given),
            None => std::future::ready(None).boxed(),
        }
    }

    fn failed(&self) -> BoxFuture<'_, BTreeMap<String, FailedStart>> {
        match &self.names {
            Some(names) => names.failed(),
            None => std::future::ready(BTreeMap::new()).boxed(),
        }
    }

    fn keep_failed(&self, failed: BTreeMap<String, FailedStart>) -> BoxFuture<'_, ()> {
        match &self.names {
            Some(names) => names.keep_failed(failed),
            None => std::future::ready(()).boxed(),
        }
    }

    fn told(&self) -> BoxFuture<'_, Told> {
        std::future::ready(self.state().told.clone()).boxed()
    }

    fn keep_told(&self, told: Told) -> BoxFuture<'_, ()> {
        let state = {
            let mut state = self.state();
            state.told = told;
            state.clone()
        };
        async move {
            let Ok(key) = KEY.parse() else { return };
            // The host is not answered before it is stored.
            while let Err(error) = self.session.set_as(&key, &state).await {
                if !error.passes() {
                    return;
                }
                sleep(PAUSE).await;
            }
        }
        .boxed()
    }
}
