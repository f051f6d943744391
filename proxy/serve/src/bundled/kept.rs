//! What the next process has to know of a session's bundle, in the session's state: its era, and
//! what the host has told its servers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_bundle::{BundleStore, Names, Told};
use mcp_sessiond_client::{RequestId, Session, SessionError};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::eras::Eras;

/// The key of the session's state.
const KEY: &str = "serve.bundle";

/// The pause before the daemon is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// What is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Tells a session's bundle from what it was before all of its servers were ended.
    era: String,
    told: Told,
}

/// An era that there has never been.
fn era() -> String {
    RequestId::mint().to_string()
}

impl Kept {
    /// What is kept of a session. It begins a new era where there was none, or it is one of those
    /// that have `ended`.
    ///
    /// # Errors
    /// Those of the daemon.
    pub(super) async fn load(session: &Session, ended: &Eras) -> Result<Self, SessionError> {
        let Ok(key) = KEY.parse() else {
            return Ok(Self {
                era: era(),
                told: Told::default(),
            });
        };
        let former = session.get_as::<Self>(&key).await?;
        let kept = match former {
            Some(kept) if !ended.has_ended(session.id(), &kept.era) => return Ok(kept),
            Some(former) => {
                let kept = Self {
                    era: era(),
                    told: former.told,
                };
                session.set_as(&key, &kept).await?;
                // It is never found again.
                ended.forget(session.id());
                return Ok(kept);
            }
            None => Self {
                era: era(),
                told: Told::default(),
            },
        };
        session.set_as(&key, &kept).await?;
        Ok(kept)
    }

    pub(super) fn era(&self) -> &str {
        &self.era
    }
}

/// Remembers names where all do that have the file, and the rest in the session.
#[derive(Debug)]
pub(super) struct Remembered {
    session: Session,
    kept: Mutex<Kept>,
    names: Option<Arc<dyn BundleStore>>,
}

impl Remembered {
    pub(super) fn new(session: Session, kept: Kept, names: Option<Arc<dyn BundleStore>>) -> Self {
        Self {
            session,
            kept: Mutex::new(kept),
            names,
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BundleStore for Remembered {
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

    fn told(&self) -> BoxFuture<'_, Told> {
        std::future::ready(self.kept().told.clone()).boxed()
    }

    fn keep_told(&self, told: Told) -> BoxFuture<'_, ()> {
        let kept = {
            let mut kept = self.kept();
            kept.told = told;
            kept.clone()
        };
        async move {
            let Ok(key) = KEY.parse() else { return };
            // The host is not answered before it is kept.
            while let Err(error) = self.session.set_as(&key, &kept).await {
                if !error.passes() {
                    return;
                }
                sleep(PAUSE).await;
            }
        }
        .boxed()
    }
}
