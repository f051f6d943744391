//! Where the names are remembered by which the tools and prompts of several servers are listed, and
//! which servers could not be used: in the daemon, by the file that has the servers. So they are the
//! same for every host, and after a restart of everything.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{BundleStore, FailedStart, Names};
use mcp_sessiond_client::{Json, Options, SessionError, StateKey, StateVersion};
use mcp_sessiond_proto::Error;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::daemon_value::{DAEMON_WAIT, DaemonValue};

/// The service whose sessions hold names, one for each file.
const SERVICE: &str = "names-of-servers";

/// The key of the names.
const KEY: &str = "names";

/// The key of the servers that could not be used.
const FAILED: &str = "failed";

/// Names that nobody has used for so long are forgotten.
const IDLE: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// The names of the servers in one file.
#[derive(Debug)]
pub(super) struct NameMemory {
    slot: DaemonValue,
    failed: StateKey,
    /// Of what was read or written last.
    version: Mutex<StateVersion>,
}

impl NameMemory {
    /// `list` says where the servers are. None where that can't be a session of a service.
    pub(super) fn new(list: &str, options: Options) -> Option<Self> {
        let slot = DaemonValue::new(SERVICE, list, KEY, IDLE, options)?;
        Some(Self {
            slot,
            failed: FAILED.parse().ok()?,
            version: Mutex::new(StateVersion(0)),
        })
    }

    async fn entry<T: DeserializeOwned + Default>(
        &self,
        key: &StateKey,
    ) -> Result<(T, StateVersion), SessionError> {
        let entry = self.slot.session().await?.entry(key).await?;
        let value = entry
            .value
            .and_then(|json| serde_json::from_str(json.as_str()).ok());
        Ok((value.unwrap_or_default(), entry.version))
    }

    async fn read(&self) -> Result<Names, SessionError> {
        let (names, version) = self.entry(&self.slot.key).await?;
        self.is_at(version);
        Ok(names)
    }

    async fn write_failed(
        &self,
        failed: &BTreeMap<String, FailedStart>,
    ) -> Result<(), SessionError> {
        let text = serde_json::to_string(failed).unwrap_or_default();
        let Ok(json) = Json::new(text) else {
            return Ok(());
        };
        let session = self.slot.session().await?;
        session.set(&self.failed, &json).await.map(drop)
    }

    fn is_at(&self, version: StateVersion) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }

    async fn write(&self, names: &Names) -> Result<Option<Names>, SessionError> {
        let json = serde_json::to_string(names)
            .ok()
            .and_then(|json| Json::new(json).ok());
        let known = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        match self
            .slot
            .session()
            .await?
            .compare_and_set(&self.slot.key, known, json.as_ref())
            .await
        {
            Ok(version) => {
                self.is_at(version);
                Ok(None)
            }
            Err(SessionError::Refused(Error::VersionConflict { .. })) => {
                self.read().await.map(Some)
            }
            Err(error) => Err(error),
        }
    }
}

impl BundleStore for NameMemory {
    fn load(&self) -> BoxFuture<'_, Names> {
        Box::pin(async {
            timeout(DAEMON_WAIT, self.read())
                .await
                .ok()
                .and_then(Result::ok)
                .unwrap_or_default()
        })
    }

    fn save(&self, names: Names) -> BoxFuture<'_, Option<Names>> {
        Box::pin(async move {
            timeout(DAEMON_WAIT, self.write(&names))
                .await
                .ok()
                .and_then(Result::ok)
                .flatten()
        })
    }

    fn failed(&self) -> BoxFuture<'_, BTreeMap<String, FailedStart>> {
        Box::pin(async {
            let read = timeout(DAEMON_WAIT, self.entry(&self.failed)).await;
            let read = read.ok().and_then(Result::ok);
            read.map(|(failed, _)| failed).unwrap_or_default()
        })
    }

    fn keep_failed(&self, failed: BTreeMap<String, FailedStart>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Without it the next host waits for these once more.
            let _ = timeout(DAEMON_WAIT, self.write_failed(&failed)).await;
        })
    }
}
