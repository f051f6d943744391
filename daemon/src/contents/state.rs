//! State: JSON values by key, each with a version.

use std::collections::HashSet;

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::state::{
    ListStateRequest, ReadStateRequest, STATE_KEYS_MAX, StateEntry, StateKeyInfo, StateVersion, StateWrite,
    WriteStateRequest,
};
use mcp_sessiond_proto::streams::MESSAGE_MAX;
use mcp_sessiond_proto::{Error, Json, StateKey};

use super::draft::{Draft, Halt};
use super::{Access, Admit, Contents};
use super::{keys, replay};
use crate::storage::{Item, Scan, StorageError};

/// Bytes of values, as strings in JSON, that one answer may have, so that it fits into a frame: one value always does.
const ANSWER_MAX: usize = 2 * MESSAGE_MAX;

/// A value on record: its version in 8 bytes, big-endian, and the text.
fn value(item: &Item) -> Result<(StateVersion, &[u8]), Halt> {
    let damaged = || StorageError::Damaged("a state value is not what a daemon has written".into());
    let (version, text) = item.value.split_at_checked(8).ok_or_else(damaged)?;
    let version = version.try_into().map_err(|_| damaged())?;
    Ok((StateVersion(u64::from_be_bytes(version)), text))
}

fn check_keys<'a>(keys: impl ExactSizeIterator<Item = &'a StateKey>) -> Result<(), Error> {
    let count = keys.len();
    let different: HashSet<&StateKey> = keys.collect();
    if count == 0 || count > STATE_KEYS_MAX || different.len() != count {
        let sentence = format!("one call is about 1 to {STATE_KEYS_MAX} keys, each of them once");
        return Err(Error::InvalidArgument { sentence });
    }
    Ok(())
}

impl Contents {
    /// Reads values, in the order of the keys.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated; [`Error::InvalidArgument`].
    pub async fn read_state(
        &self,
        access: &Access,
        request: &ReadStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        check_keys(request.keys.iter())?;
        let keys: Vec<_> = request.keys.iter().map(keys::state_key).collect();
        self.look_at(access, Admit::Living, &keys, |draft| {
            draft.need(keys.iter().cloned())?;
            let mut bytes = 0;
            let mut entries = Vec::with_capacity(request.keys.len());
            for (key, item) in request.keys.iter().zip(&keys) {
                let found = draft.item(item)?.map(value).transpose()?;
                let (version, text) = found.unzip();
                bytes += text.map_or(0, replay::escaped_len);
                entries.push(StateEntry {
                    key: key.clone(),
                    version: version.unwrap_or(StateVersion(0)),
                    value: text.map(|text| Json::trusted(String::from_utf8_lossy(text).into_owned())),
                });
            }
            if bytes > ANSWER_MAX {
                let sentence =
                    format!("these values have {bytes} bytes, and an answer {ANSWER_MAX}; ask for fewer");
                return Err(Error::InvalidArgument { sentence }.into());
            }
            Ok(entries)
        })
        .await
    }

    /// Writes and removes values, all or none; nothing where this request has done so before.
    ///
    /// # Errors
    /// [`Error::VersionConflict`] where a write was conditional and the condition does not hold;
    /// [`Error::QuotaExceeded`]; those of a session that is not there, not the caller's, or terminated.
    pub async fn write_state(
        &self,
        access: &Access,
        request: &WriteStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        check_keys(request.writes.iter().map(|write| &write.key))?;
        let mut keys: Vec<_> = request.writes.iter().map(|write| keys::state_key(&write.key)).collect();
        keys.extend(request.request.as_ref().map(|_| keys::done_key()));
        self.change_of(access, Admit::Living, &keys, |draft| {
            draft.need(keys.iter().cloned())?;
            if let Some(version) = draft.done(request.request.as_ref())? {
                return Ok(repeated(&request.writes, version));
            }
            draft.set_done(request.request.as_ref(), draft.head.state_version)?;
            let before = (draft.head.state_keys, draft.head.state_bytes);
            let entries = request.writes.iter().map(|one| write(draft, one)).collect::<Result<_, _>>()?;
            // What makes it less is let through, although the limits may have become narrower meanwhile.
            let quota =
                |what: &str, limit: usize| Error::QuotaExceeded { what: what.into(), limit: limit as u64 };
            if draft.head.state_keys > before.0
                && draft.head.state_keys as usize > draft.bounds.limits.state_keys
            {
                return Err(quota(
                    "the number of state values of this session",
                    draft.bounds.limits.state_keys,
                )
                .into());
            }
            if draft.head.state_bytes > before.1
                && draft.head.state_bytes > draft.bounds.limits.state_bytes as u64
            {
                return Err(
                    quota("the bytes of this session's state", draft.bounds.limits.state_bytes).into()
                );
            }
            Ok(entries)
        })
        .await
    }

    /// The keys that have values, in their order, a page at a time.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn list_state(
        &self,
        access: &Access,
        request: &ListStateRequest,
    ) -> Result<Vec<StateKeyInfo>, Error> {
        self.look(access, Admit::Living, |draft| {
            let range = keys::state_after(request.after.as_ref())..keys::end_of_state();
            let items = draft.scan(Scan::of(range, PAGE_MAX, usize::MAX))?;
            let info = |item: &Item| {
                let (version, text) = value(item)?;
                let damaged =
                    |_| StorageError::Damaged("a state key is not what a daemon has written".into());
                let key = keys::name_in(&item.key).parse().map_err(damaged)?;
                Ok(StateKeyInfo { key, version, bytes: u32::try_from(text.len()).unwrap_or(u32::MAX) })
            };
            items.iter().map(info).collect()
        })
        .await
    }
}

/// What these writes were answered when they were carried out, which began behind this version.
fn repeated(writes: &[StateWrite], mut version: u64) -> Vec<StateEntry> {
    let entry = |write: &StateWrite| {
        version += u64::from(write.value.is_some());
        let version = StateVersion(if write.value.is_some() { version } else { 0 });
        StateEntry { key: write.key.clone(), version, value: None }
    };
    writes.iter().map(entry).collect()
}

fn write(draft: &mut Draft<'_>, write: &StateWrite) -> Result<StateEntry, Halt> {
    let key = keys::state_key(&write.key);
    let found = draft.item(&key)?.map(value).transpose()?;
    let current = found.map_or(StateVersion(0), |(version, _)| version);
    if write.expected.is_some_and(|expected| expected != current) {
        return Err(Error::VersionConflict { key: write.key.clone(), current }.into());
    }
    if let Some((_, text)) = found {
        // The counts of a damaged database may be too small.
        let bytes = (write.key.as_str().len() + text.len()) as u64;
        draft.head.state_keys = draft.head.state_keys.saturating_sub(1);
        draft.head.state_bytes = draft.head.state_bytes.saturating_sub(bytes);
    }
    let version = match &write.value {
        None => {
            if found.is_some() {
                draft.remove(key);
            }
            StateVersion(0)
        }
        Some(json) => {
            if json.len() > draft.bounds.limits.state_value_bytes {
                let what = format!("a state value of {} bytes", json.len());
                return Err(Error::QuotaExceeded {
                    what,
                    limit: draft.bounds.limits.state_value_bytes as u64,
                }
                .into());
            }
            draft.head.state_version += 1;
            draft.head.state_keys += 1;
            draft.head.state_bytes += (write.key.as_str().len() + json.len()) as u64;
            let version = draft.head.state_version;
            draft.put(key, "", [&version.to_be_bytes(), json.as_str().as_bytes()].concat().into());
            StateVersion(version)
        }
    };
    Ok(StateEntry { key: write.key.clone(), version, value: None })
}
