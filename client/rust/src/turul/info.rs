//! What turul knows of a session, as the daemon keeps it: the handshake as metadata, each value as
//! a state value of its own.

use std::collections::{BTreeMap, HashMap};

use mcp_sessiond_proto::sessions::Session as View;
use mcp_sessiond_proto::state::StateWrite;
use mcp_sessiond_proto::{Json, StateKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use turul_mcp_protocol::{ClientCapabilities, ServerCapabilities};
use turul_mcp_session_storage::{SessionInfo, SessionStorageError as StorageError};

use super::failure::wrong;

/// What keys of our own begin with.
const OWN: &str = "mcp.";
/// What the keys of turul's metadata begin with.
const METADATA: &str = "mcp.turul.metadata.";
/// The entry of an info's metadata that has a hash of each value, as the caller got it. It is not
/// stored.
const GOT: &str = "mcp.turul.got";
/// The name under which [`GOT`] has the hash of the handshake: no key of a value.
const HEAD: &str = "";

/// The handshake.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    client_capabilities: Option<ClientCapabilities>,
    server_capabilities: Option<ServerCapabilities>,
    pub(super) is_initialized: bool,
}

impl Head {
    pub(super) fn of(info: &SessionInfo) -> Self {
        Self {
            client_capabilities: info.client_capabilities.clone(),
            server_capabilities: info.server_capabilities.clone(),
            is_initialized: info.is_initialized,
        }
    }

    pub(super) fn json(&self) -> Result<Json, StorageError> {
        Ok(Json::from(
            &serde_json::to_value(self).map_err(|error| wrong(&error))?,
        ))
    }
}

/// What an update has to change.
pub(super) struct Changes {
    /// None: the handshake is as its caller got it.
    pub(super) head: Option<Head>,
    /// Values that are different, or gone.
    pub(super) writes: Vec<StateWrite>,
    /// Whether the info was made up by its caller: then what it does not have goes.
    pub(super) is_whole: bool,
}

/// The key of a value of turul's.
pub(super) fn state_key(key: &str) -> Result<StateKey, StorageError> {
    if key.starts_with(OWN) {
        let sentence =
            format!("state keys that begin with `{OWN}` are the library's own; take another one");
        return Err(StorageError::InvalidData(sentence));
    }
    parsed(key)
}

fn parsed(key: &str) -> Result<StateKey, StorageError> {
    key.parse::<StateKey>()
        .map_err(|error| StorageError::InvalidData(error.to_string()))
}

/// Whether the value of this key is the author's, or turul's metadata.
pub(super) fn is_of_info(key: &StateKey) -> bool {
    !key.as_str().starts_with(OWN) || key.as_str().starts_with(METADATA)
}

/// A session as turul has it. None: turul has not made it.
pub(super) fn read(
    id: &str,
    view: &View,
    values: Vec<(StateKey, Json)>,
) -> Result<Option<SessionInfo>, StorageError> {
    let Some(head) = &view.metadata else {
        return Ok(None);
    };
    let Head {
        client_capabilities,
        server_capabilities,
        is_initialized,
    } = serde_json::from_str(head.as_str()).map_err(|error| wrong(&error))?;
    let mut info = SessionInfo {
        session_id: id.to_owned(),
        client_capabilities,
        server_capabilities,
        state: HashMap::new(),
        created_at: view.created_ms,
        last_activity: view.active_ms,
        is_initialized,
        metadata: HashMap::new(),
    };
    for (key, value) in values {
        let value = serde_json::from_str(value.as_str()).map_err(|error| wrong(&error))?;
        match key.as_str().strip_prefix(METADATA) {
            Some(name) => info.metadata.insert(name.to_owned(), value),
            None => info.state.insert(key.as_str().to_owned(), value),
        };
    }
    let mut got: Map<String, Value> = flat(&info)?
        .into_iter()
        .map(|(key, value)| (key.as_str().to_owned(), hash(&value).into()))
        .collect();
    got.insert(HEAD.to_owned(), hash(&Head::of(&info).json()?).into());
    info.metadata.insert(GOT.to_owned(), got.into());
    Ok(Some(info))
}

/// What its caller has changed since it got the info. All of it, if the caller has made up the
/// info.
pub(super) fn changes(mut info: SessionInfo) -> Result<Changes, StorageError> {
    let got = info.metadata.remove(GOT);
    let is_whole = got.is_none();
    let got = got
        .and_then(|got| got.as_object().cloned())
        .unwrap_or_default();
    let is_changed =
        |key: &str, value: &Json| got.get(key).and_then(Value::as_str) != Some(&hash(value));
    let head = Head::of(&info);
    let head = if is_changed(HEAD, &head.json()?) {
        Some(head)
    } else {
        None
    };
    let values = flat(&info)?;
    let gone = got
        .keys()
        .filter(|key| *key != HEAD)
        .map(|key| parsed(key))
        .collect::<Result<Vec<_>, _>>()?;
    let gone = gone
        .into_iter()
        .filter(|key| !values.contains_key(key))
        .map(StateWrite::remove);
    let mut writes: Vec<StateWrite> = gone.collect();
    let changed = values
        .into_iter()
        .filter(|(key, value)| is_changed(key.as_str(), value));
    writes.extend(changed.map(|(key, value)| StateWrite::new(key, value)));
    Ok(Changes {
        head,
        writes,
        is_whole,
    })
}

/// The state values of an info.
pub(super) fn flat(info: &SessionInfo) -> Result<BTreeMap<StateKey, Json>, StorageError> {
    let state = info
        .state
        .iter()
        .map(|(key, value)| Ok((state_key(key)?, Json::from(value))));
    let metadata = info.metadata.iter().filter(|(key, _)| *key != GOT);
    let metadata =
        metadata.map(|(key, value)| Ok((parsed(&format!("{METADATA}{key}"))?, Json::from(value))));
    state.chain(metadata).collect()
}

fn hash(value: &Json) -> String {
    Sha256::digest(value.as_str())
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
