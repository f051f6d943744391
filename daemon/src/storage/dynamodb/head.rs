//! The head of a record: the one row whose conditional update commits a change.

use std::fmt;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use uuid::Uuid;

use super::pending::Pending;
use super::row::{self, Attributes as _, Row, binary, damaged, name, number, text};
use crate::storage::{RecordId, StorageError, Version};

/// The sort key of a head, which has its partition for itself.
pub(super) const HEAD_KEY: &[u8] = &[0];

/// All that are due are in one partition of the index by time.
pub(super) const QUEUE: &str = "due";

/// How many versions a head remembers: as many as may follow while the answer to an older one is
/// being looked for.
const REMEMBERED: usize = 8;

/// Names the partition that a record's items are in. It is drawn anew with each creation and each
/// clearing, and none is ever used again: so whatever a slow writer leaves in an older one belongs
/// to no record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(pub(super) [u8; 8]);

impl Generation {
    pub(super) fn random() -> Self {
        // The latter half of a UUID of version 7 is random but for two bits.
        let bytes = Uuid::now_v7().into_bytes();
        Self([
            bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15],
        ])
    }

    /// The partition of its items.
    pub(super) fn partition(self, place: &RecordId) -> String {
        format!("{}\n{self}", row::partition(place))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// What a commit must know of the head that it replaces.
#[derive(Clone)]
pub(super) struct Facts {
    pub(super) version: Version,
    /// Grows by one with each commit, also over a dead head.
    pub(super) count: u64,
    pub(super) generation: Generation,
    /// The record is deleted, and reads as absent; it is here until its items are gone.
    pub(super) dead: bool,
    /// Generations whose partitions may still have rows.
    pub(super) old: Vec<Generation>,
    /// The versions before, the latest last: a writer whose answer was lost, and who was overtaken
    /// since, finds its own among them.
    pub(super) was: Vec<Version>,
}

impl Facts {
    /// The versions that the next head remembers.
    pub(super) fn remembered(&self) -> Vec<Version> {
        let from = (self.was.len() + 1).saturating_sub(REMEMBERED);
        self.was[from..]
            .iter()
            .copied()
            .chain([self.version])
            .collect()
    }

    /// Whether there may have been a version between this base, or the creation, and those that are
    /// remembered.
    pub(super) fn may_have_followed(&self, base: Option<Version>) -> bool {
        self.was.len() >= REMEMBERED && !base.is_some_and(|base| self.knows(base))
    }

    /// Whether these are what the very next commit has made of `former`, whose items it has kept.
    pub(super) fn follows(&self, former: &Self) -> bool {
        self.generation == former.generation && self.count == former.count + 1
    }

    /// Whether this version is in place, or was not long ago.
    pub(super) fn knows(&self, version: Version) -> bool {
        self.version == version || self.was.contains(&version)
    }
}

/// A head as it stands in the table.
pub(super) struct Head {
    pub(super) facts: Facts,
    pub(super) bytes: Bytes,
    /// `u64::MAX`: never.
    pub(super) due_ms: u64,
    /// The change of the last commit, which may not have been applied to the items yet.
    pub(super) pending: Pending,
}

impl Head {
    pub(super) fn to_row(&self, place: &RecordId) -> Row {
        let Facts {
            version,
            count,
            generation,
            dead,
            old,
            was,
        } = &self.facts;
        let mut row = Row::from([
            (name::PK.into(), text(row::partition(place))),
            (name::SK.into(), binary(HEAD_KEY)),
            (name::VERSION.into(), number(version.0)),
            (name::COUNT.into(), number(*count)),
            (name::GENERATION.into(), binary(&generation.0)),
        ]);
        // Both indexes are sparse: what lacks an attribute is not in them.
        if *dead {
            row.insert(name::DEAD.into(), AttributeValue::Bool(true));
        } else {
            row.insert(name::OWNER.into(), text(&place.owner));
            row.insert(name::NAME.into(), text(&place.name));
        }
        if self.due_ms != u64::MAX {
            row.insert(name::QUEUE.into(), text(QUEUE));
            row.insert(name::DUE.into(), number(self.due_ms));
        }
        if !self.bytes.is_empty() {
            row.insert(name::HEAD.into(), binary(&self.bytes));
        }
        if !self.pending.is_empty() {
            row.insert(name::PENDING.into(), binary(&self.pending.encoded()));
        }
        if !old.is_empty() {
            let old = old.iter().map(|generation| binary(&generation.0)).collect();
            row.insert(name::OLD.into(), AttributeValue::L(old));
        }
        if !was.is_empty() {
            let was = was.iter().map(|version| number(version.0)).collect();
            row.insert(name::WAS.into(), AttributeValue::L(was));
        }
        row
    }

    pub(super) fn from_row(mut row: Row) -> Result<Self, StorageError> {
        let facts = Facts {
            version: Version(row.number(name::VERSION)?.ok_or_else(damaged)?),
            count: row.number(name::COUNT)?.ok_or_else(damaged)?,
            generation: generation(&row.bytes(name::GENERATION)?.ok_or_else(damaged)?)?,
            dead: row.contains_key(name::DEAD),
            old: row
                .list(name::OLD)?
                .into_iter()
                .map(|old| generation(&row::into_bytes(old)?))
                .collect::<Result<_, _>>()?,
            was: row
                .list(name::WAS)?
                .iter()
                .map(|was| row::as_number(was).map(Version))
                .collect::<Result<_, _>>()?,
        };
        let pending = row
            .bytes(name::PENDING)?
            .map(|pending| Pending::decoded(&pending))
            .transpose()?;
        Ok(Self {
            facts,
            bytes: row.bytes(name::HEAD)?.unwrap_or_default(),
            due_ms: row.number(name::DUE)?.unwrap_or(u64::MAX),
            pending: pending.unwrap_or_default(),
        })
    }
}

fn generation(bytes: &[u8]) -> Result<Generation, StorageError> {
    bytes.try_into().map(Generation).map_err(|_| damaged())
}
