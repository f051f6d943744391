//! State values that expire. From then on they read as if they were not there; the sweep, and the
//! next write, delete them.
//!
//! Beside each such value there is an item without a value of its own, in order of the times, so
//! that nothing else has to be read to find those that have expired.

use mcp_sessiond_proto::StateKey;

use super::draft::{Draft, Halt};
use super::keys;
use crate::storage::{Key, Scan, StorageError};

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
