//! The pending change: what a commit does to the items, written down in the head that it installs.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::row::damaged;
use crate::storage::{Change, Item, Key, StorageError};

/// A larger value stands in parts of its own.
const LARGEST_INLINE: usize = 64 << 10;

/// What a head may weigh with its pending change; a row may weigh 400 KB.
const LARGEST_HEAD: usize = 300_000;

/// What a part may weigh.
const LARGEST_PART: usize = 350_000;

/// More than what an entry weighs in the pending change beside its key, tag and value.
const AROUND_ENTRY: usize = 32;

/// The id of a part: unique, so that no part is ever written twice.
pub(super) type PartId = Bytes;

/// What a commit removes and puts, no key twice.
#[derive(Default, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) entries: BTreeMap<Key, Option<Content>>,
}

/// An item but for its key.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Content {
    pub(super) tag: String,
    pub(super) value: Value,
}

/// Where a value is.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Value {
    Inline(Bytes),
    Parts { length: u64, ids: Vec<PartId> },
}

impl Value {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Parts { length, .. } => usize::try_from(*length).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn parts(&self) -> &[PartId] {
        match self {
            Self::Inline(_) => &[],
            Self::Parts { ids, .. } => ids,
        }
    }
}

/// A part, to be written before the commit whose pending change refers to it.
pub(super) struct Part {
    pub(super) id: PartId,
    pub(super) bytes: Bytes,
}

impl Pending {
    /// The pending change of a change, and the parts of what is too large to be in it.
    pub(super) fn new(change: &Change) -> (Self, Vec<Part>) {
        let mut entries = BTreeMap::new();
        // Nothing is to be removed from a generation that begins here.
        if !change.clear {
            entries.extend(change.removes.iter().map(|key| (key.clone(), None)));
        }
        let forgotten = |item: &&Item| change.forget.iter().any(|range| range.contains(&item.key));
        for item in change.puts.iter().filter(|item| !forgotten(item)) {
            let content = Content {
                tag: item.tag.clone(),
                value: Value::Inline(item.value.clone()),
            };
            entries.insert(item.key.clone(), Some(content));
        }
        let mut pending = Self { entries };
        let head = change.head.as_ref().map_or(0, |head| head.bytes.len());
        let parts = pending.spill(LARGEST_HEAD.saturating_sub(head));
        (pending, parts)
    }

    /// Moves values to parts, the largest first, until none is too large and the rest weighs no
    /// more than `room`.
    fn spill(&mut self, room: usize) -> Vec<Part> {
        let mut weight = self.weight();
        let mut contents: Vec<&mut Content> = self.entries.values_mut().flatten().collect();
        contents.sort_unstable_by_key(|content| std::cmp::Reverse(content.value.len()));
        let mut parts = Vec::new();
        for content in contents {
            let length = content.value.len();
            let Value::Inline(bytes) = &content.value else {
                continue;
            };
            if length <= LARGEST_INLINE && weight <= room {
                break;
            }
            weight -= length;
            let cut: Vec<Part> = (0..length)
                .step_by(LARGEST_PART)
                .map(|from| bytes.slice(from..length.min(from + LARGEST_PART)))
                .map(|bytes| Part {
                    id: Bytes::copy_from_slice(Uuid::now_v7().as_bytes()),
                    bytes,
                })
                .collect();
            let ids = cut.iter().map(|part| part.id.clone()).collect();
            weight += cut.len() * AROUND_ENTRY;
            content.value = Value::Parts {
                length: length as u64,
                ids,
            };
            parts.extend(cut);
        }
        parts
    }

    fn weight(&self) -> usize {
        let content = |content: &Content| content.tag.len() + content.value.len();
        let entry = |(key, value): (&Key, &Option<Content>)| {
            AROUND_ENTRY + key.len() + value.as_ref().map_or(0, content)
        };
        self.entries.iter().map(entry).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Those of its entries whose keys are in the range.
    pub(super) fn range(
        &self,
        range: Range<Key>,
    ) -> impl Iterator<Item = (&Key, &Option<Content>)> {
        self.entries.range(range)
    }

    pub(super) fn encoded(&self) -> Vec<u8> {
        // Nothing in here can fail to be written to memory.
        rmp_serde::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decoded(bytes: &[u8]) -> Result<Self, StorageError> {
        rmp_serde::from_slice(bytes).map_err(|_| damaged())
    }
}
