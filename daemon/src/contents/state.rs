//! State: JSON values by key, each with a version.

use std::collections::HashSet;

use mcp_sessiond_proto::debug::PAGE_MAX;
use mcp_sessiond_proto::state::{
    ListStateRequest, ReadStateRequest, STATE_KEYS_MAX, StateEntry, StateKeyInfo, StateVersion,
    StateWrite, WriteStateRequest,
};
use mcp_sessiond_proto::streams::MESSAGE_MAX;
use mcp_sessiond_proto::{Error, Json, StateKey};

use super::transaction::{Draft, Halt};
use super::{Access, Admit, Contents, keys, replay};
use crate::storage::{Item, Key, Scan, StorageError};

/// Bytes of values, as strings in JSON, that one answer may have, so that it fits into a frame: one
/// value always does.
const ANSWER_MAX: usize = 2 * MESSAGE_MAX;

/// Set in the version of a value that expires. The time follows behind the version.
const EXPIRES: u64 = 1 << 63;

/// A value on record.
struct Value<'a> {
    version: StateVersion,
    /// In ms since the Unix epoch.
    expires_ms: Option<u64>,
    text: &'a [u8],
}

impl<'a> Value<'a> {
    /// Reads the version in 8 bytes, big-endian, the time if it expires, likewise, and the text.
    fn of(item: &'a Item) -> Result<Self, Halt> {
        let damaged =
            || StorageError::Damaged("a state value is not what a daemon has written".into());
        let number = |bytes: &'a [u8]| {
            let (number, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
            Ok::<_, Halt>((u64::from_be_bytes(*number), rest))
        };
        let (version, text) = number(&item.value)?;
        if version & EXPIRES == 0 {
            return Ok(Self {
                version: StateVersion(version),
                expires_ms: None,
                text,
            });
        }
        let (at_ms, text) = number(text)?;
        Ok(Self {
            version: StateVersion(version & !EXPIRES),
            expires_ms: Some(at_ms),
            text,
        })
    }

    fn encode(version: u64, expires_ms: Option<u64>, text: &str) -> Vec<u8> {
        match expires_ms {
            None => [&version.to_be_bytes(), text.as_bytes()].concat(),
            Some(at_ms) => [
                &(version | EXPIRES).to_be_bytes()[..],
                &at_ms.to_be_bytes(),
                text.as_bytes(),
            ]
            .concat(),
        }
    }

    fn is_there(&self, now_ms: u64) -> bool {
        self.expires_ms.is_none_or(|at_ms| at_ms > now_ms)
    }
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

/// A stored text. It is UTF-8 unless the storage is damaged, and to check that is faster than to
/// replace what is none.
fn text_of(stored: &[u8]) -> String {
    std::str::from_utf8(stored).map_or_else(
        |_| String::from_utf8_lossy(stored).into_owned(),
        str::to_owned,
    )
}

impl Contents {
    /// Reads values, in the order of the keys.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated;
    /// [`Error::InvalidArgument`].
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
                let found = draft.item(item)?.map(Value::of).transpose()?;
                let found = found.filter(|value| value.is_there(draft.now_ms));
                let (version, text) = found.map(|value| (value.version, value.text)).unzip();
                bytes += text.map_or(0, replay::escaped_len);
                entries.push(StateEntry {
                    key: key.clone(),
                    version: version.unwrap_or(StateVersion(0)),
                    value: text.map(|text| Json::trusted(text_of(text))),
                });
            }
            if bytes > ANSWER_MAX {
                let sentence = format!(
                    "these values have {bytes} bytes, and an answer {ANSWER_MAX}; ask for fewer"
                );
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
    /// [`Error::QuotaExceeded`]; those of a session that is not there, not the caller's, or
    /// terminated.
    pub async fn write_state(
        &self,
        access: &Access,
        request: &WriteStateRequest,
    ) -> Result<Vec<StateEntry>, Error> {
        check_keys(request.writes.iter().map(|write| &write.key))?;
        if request
            .writes
            .iter()
            .any(|one| one.expires_ms == Some(0) || one.expires_ms.is_some() && one.value.is_none())
        {
            let sentence = "`expires_ms` is at least 1, and goes with a `value`".into();
            return Err(Error::InvalidArgument { sentence });
        }
        let mut keys: Vec<_> = request
            .writes
            .iter()
            .map(|write| keys::state_key(&write.key))
            .collect();
        keys.extend(request.request.as_ref().map(|_| keys::done_key()));
        let written = |draft: &mut Draft<'_>| {
            // What has expired makes room first, in changes of its own.
            if is_due(draft) {
                expire(draft)?;
                return Ok(None);
            }
            draft.need(keys.iter().cloned())?;
            if let Some(version) = draft.done(request.request.as_ref())? {
                return Ok(Some(repeated(&request.writes, version)));
            }
            draft.set_done(request.request.as_ref(), draft.head.state_version)?;
            let before = (draft.head.state_keys, draft.head.state_bytes);
            let entries = request
                .writes
                .iter()
                .map(|one| write(draft, one))
                .collect::<Result<_, _>>()?;
            // What makes it less is let through, although the limits may have become narrower
            // meanwhile.
            let quota = |what: &str, limit: usize| Error::QuotaExceeded {
                what: what.into(),
                limit: limit as u64,
            };
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
                return Err(quota(
                    "the bytes of this session's state",
                    draft.bounds.limits.state_bytes,
                )
                .into());
            }
            Ok(Some(entries))
        };
        loop {
            if let Some(entries) = self
                .change_of(access, Admit::Living, &keys, written)
                .await?
            {
                return Ok(entries);
            }
        }
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
            // A page that is not full is the last: so many may have expired.
            let expiring = if draft.head.state_due_ms == 0 {
                0
            } else {
                draft.head.state_keys as usize
            };
            let items = draft.scan(Scan::of(range, PAGE_MAX + expiring, usize::MAX))?;
            let info = |item: &Item| {
                let Value {
                    version,
                    expires_ms,
                    text,
                } = Value::of(item)?;
                let damaged = |_| {
                    StorageError::Damaged("a state key is not what a daemon has written".into())
                };
                let key = keys::name_in(&item.key).parse().map_err(damaged)?;
                let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
                Ok(StateKeyInfo {
                    key,
                    version,
                    bytes,
                    expires_ms,
                })
            };
            let is_there = |info: &Result<StateKeyInfo, Halt>| {
                let at_ms = info.as_ref().ok().and_then(|info| info.expires_ms);
                at_ms.is_none_or(|at_ms| at_ms > draft.now_ms)
            };
            items
                .iter()
                .map(info)
                .filter(is_there)
                .take(PAGE_MAX)
                .collect()
        })
        .await
    }
}

/// What these writes were answered when they were carried out, which began behind this version.
fn repeated(writes: &[StateWrite], mut version: u64) -> Vec<StateEntry> {
    let entry = |write: &StateWrite| {
        version += u64::from(write.value.is_some());
        let version = StateVersion(if write.value.is_some() { version } else { 0 });
        StateEntry {
            key: write.key.clone(),
            version,
            value: None,
        }
    };
    writes.iter().map(entry).collect()
}

fn write(draft: &mut Draft<'_>, write: &StateWrite) -> Result<StateEntry, Halt> {
    let key = keys::state_key(&write.key);
    let found = draft.item(&key)?.map(Value::of).transpose()?;
    let there = found.as_ref().filter(|value| value.is_there(draft.now_ms));
    let current = there.map_or(StateVersion(0), |value| value.version);
    if write.expected.is_some_and(|expected| expected != current) {
        return Err(Error::VersionConflict {
            key: write.key.clone(),
            current,
        }
        .into());
    }
    let expires_ms = write.expires_ms.map(|after_ms| expires_at(draft, after_ms));
    let is_found = found.is_some();
    if let Some(Value {
        expires_ms: former_ms,
        text,
        ..
    }) = found
    {
        // The counts of a damaged database may be too small.
        let bytes = (write.key.as_str().len() + text.len()) as u64;
        draft.head.state_keys = draft.head.state_keys.saturating_sub(1);
        draft.head.state_bytes = draft.head.state_bytes.saturating_sub(bytes);
        if let Some(former_ms) = former_ms.filter(|_| former_ms != expires_ms) {
            draft.remove(keys::expiry_key(former_ms, &write.key));
        }
    }
    let version = match &write.value {
        None => {
            if is_found {
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
            let bytes = (write.key.as_str().len() + json.len()) as u64;
            draft.head.state_bytes += bytes;
            let version = draft.head.state_version;
            draft.put(
                key,
                "",
                Value::encode(version, expires_ms, json.as_str()).into(),
            );
            if let Some(at_ms) = expires_ms {
                note(draft, &write.key, at_ms, bytes);
            }
            StateVersion(version)
        }
    };
    Ok(StateEntry {
        key: write.key.clone(),
        version,
        value: None,
    })
}

/// Values that one change deletes: it takes 128 items, and each value is two.
const EXPIRED_MAX: usize = 48;

/// When a value that is written now expires.
pub(super) fn expires_at(draft: &Draft<'_>, expires_ms: u64) -> u64 {
    draft.now_ms.saturating_add(expires_ms)
}

/// Notes that a value of so many bytes, with its key, expires then.
pub(super) fn note(draft: &mut Draft<'_>, name: &StateKey, at_ms: u64, bytes: u64) {
    let due_ms = draft.head.state_due_ms;
    draft.head.state_due_ms = if due_ms == 0 {
        at_ms
    } else {
        due_ms.min(at_ms)
    };
    draft.put(
        keys::expiry_key(at_ms, name),
        "",
        bytes.to_be_bytes().to_vec().into(),
    );
}

/// Whether there may be values that have expired.
pub(super) fn is_due(draft: &Draft<'_>) -> bool {
    draft.head.state_due_ms != 0 && draft.head.state_due_ms <= draft.now_ms
}

/// Deletes values that have expired. Tells whether there may be more.
pub(super) fn expire(draft: &mut Draft<'_>) -> Result<bool, Halt> {
    if !is_due(draft) {
        return Ok(false);
    }
    // Not up to now: the rule may be run again a moment later, and is to find what it has read.
    let noted = draft.scan(Scan::of(keys::all_expiries(), EXPIRED_MAX + 1, usize::MAX))?;
    let noted: Vec<(&Key, u64)> = noted
        .iter()
        .map(|item| Ok((&item.key, size(&item.value)?)))
        .collect::<Result<_, Halt>>()?;
    let now_ms = draft.now_ms;
    let has_expired = |(key, _): &&(&Key, u64)| keys::expiry_of(key) <= now_ms;
    let expired: Vec<_> = noted
        .iter()
        .take_while(has_expired)
        .take(EXPIRED_MAX)
        .collect();
    for (key, bytes) in &expired {
        draft.remove(keys::state_of_expiry(key));
        draft.remove((*key).clone());
        draft.head.state_keys = draft.head.state_keys.saturating_sub(1);
        draft.head.state_bytes = draft.head.state_bytes.saturating_sub(*bytes);
        draft.free(usize::try_from(*bytes).unwrap_or(usize::MAX) + key.len());
    }
    let next = noted
        .get(expired.len())
        .map(|(key, _)| keys::expiry_of(key));
    draft.head.state_due_ms = next.unwrap_or(0);
    draft.touch();
    Ok(is_due(draft))
}

fn size(value: &[u8]) -> Result<u64, Halt> {
    let damaged =
        |_| StorageError::Damaged("the note of a value that expires can't be read".into());
    Ok(u64::from_be_bytes(value.try_into().map_err(damaged)?))
}

#[cfg(test)]
mod tests {
    use super::text_of;

    #[test]
    fn a_text_that_a_storage_has_damaged_is_text_all_the_same() {
        assert_eq!(text_of("\"\u{e9}\"".as_bytes()), "\"\u{e9}\"");
        assert_eq!(text_of(b"\"\xe9\""), "\"\u{fffd}\"");
    }
}
