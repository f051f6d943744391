//! Where the names are remembered by which the tools and prompts of several servers are listed: in
//! the daemon, by the file that has the servers. So they are the same for every host, and after a
//! restart of everything.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{BundleStore, Names};
use mcp_sessiond_client::{Json, Options, SessionError, StateVersion};
use mcp_sessiond_proto::Error;
use tokio::time::timeout;

use super::daemon_value::{DAEMON_WAIT, DaemonValue};

/// The service whose sessions hold names, one for each file.
const SERVICE: &str = "names-of-servers";

/// The key of the names.
const KEY: &str = "names";

/// Names that nobody has used for so long are forgotten.
const IDLE: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// The names of the servers in one file.
#[derive(Debug)]
pub(super) struct NameMemory {
    slot: DaemonValue,
    /// Of what was read or written last.
    version: Mutex<StateVersion>,
}

impl NameMemory {
    /// `list` says where the servers are. None where that can't be a session of a service.
    pub(super) fn new(list: &str, options: Options) -> Option<Self> {
        let slot = DaemonValue::new(SERVICE, list, KEY, IDLE, options)?;
        Some(Self {
            slot,
            version: Mutex::new(StateVersion(0)),
        })
    }

    async fn read(&self) -> Result<Names, SessionError> {
        let entry = self.slot.session().await?.entry(&self.slot.key).await?;
        self.is_at(entry.version);
        Ok(entry
            .value
            .and_then(|json| serde_json::from_str(json.as_str()).ok())
            .unwrap_or_default())
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
}
