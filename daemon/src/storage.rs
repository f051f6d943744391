//! Where the contents of sessions are kept: one trait, four backends.
//!
//! A backend keeps *records*. A record has a place (its owner and its name), a version that changes
//! with every change of it, a head, and items under it in order of their keys. It knows nothing of
//! what they mean: state, streams and events are made of them in [`crate::contents`], once for all
//! backends. So a mistake gets the same error whichever backend is below.
//!
//! **Every change is conditional**: it names the version that was read, or says that there was no
//! record, and applies as a whole or not at all.

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
pub mod memory;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "dynamodb", feature = "postgres"))]
mod retry;
pub mod sqlite;
mod store;
mod url;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDb;
pub use memory::Memory;
pub use open::{OpenError, open};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
pub use sqlite::{Durability, Sqlite};
pub use store::Store;
pub use url::{Table, Url, UrlError, redacted};

/// Names a record. Nothing finds a record without its owner, so what belongs to another owner is as
/// if it were not there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordId {
    /// Whom it belongs to: text without control characters, at most 512 bytes.
    pub owner: String,
    /// Which of the owner's it is: ASCII 0x20 to 0x7E, 1 to 160 bytes.
    pub name: String,
}

/// Changes with every change of a record. It is drawn at random by whoever makes the change, so
/// that one whose answer was lost is told from somebody else's: the version in place is the one
/// that was drawn, or it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The key of an item within its record: 1 to 256 bytes of any kind, in the order of the bytes.
pub type Key = Bytes;

/// One item of a record.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its key.
    pub key: Key,
    /// What a scan can choose by; empty where nothing does. At most 160 bytes of text without
    /// control characters.
    pub tag: String,
    /// Its value: up to 4 MiB.
    pub value: Bytes,
}

/// A record as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The version that a change of it must name.
    pub version: Version,
    /// Its head.
    pub head: Bytes,
    /// The items that were asked for, in the order in which they were; None for those that there
    /// are not.
    pub items: Vec<Option<Item>>,
}

/// Which items of a record are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scan {
    /// Those with keys in this range.
    pub range: Range<Key>,
    /// Of these, those with one of these tags; all where no tag is named.
    pub tags: Vec<String>,
    /// Of these, so many at most.
    pub most: usize,
    /// No further one once they have so many bytes together.
    pub bytes: usize,
}

impl Scan {
    /// Items in a range, whatever their tags.
    pub fn of(range: Range<Key>, most: usize, bytes: usize) -> Self {
        Self {
            range,
            tags: Vec::new(),
            most,
            bytes,
        }
    }
}

/// A record in a list.
#[derive(Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its place.
    pub place: RecordId,
    /// Its version.
    pub version: Version,
    /// Its head.
    pub head: Bytes,
}

/// What a change puts in place of the head.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The new head: at most 64 KiB.
    pub bytes: Bytes,
    /// When somebody has to look at the record: ms since the Unix epoch; `u64::MAX`: never.
    pub due_ms: u64,
}

/// A change of one record. It applies as a whole, in this order, or not at all.
///
/// SQLite's redo log has it as MessagePack, by the order of the fields: a change of this struct, or
/// of one in it, is a new version of that log.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    /// The new head. None: the record goes, with all its items.
    pub head: Option<Head>,
    /// All items go, before any is put.
    pub clear: bool,
    /// Items that go. At most 128.
    pub removes: Vec<Key>,
    /// Items that are put, in place of what had their keys, each key once. At most 128, and 4 MiB
    /// together.
    pub puts: Vec<Item>,
    /// Items in these ranges go too, but need not be gone at once: nobody asks for them any more,
    /// and nobody puts anything into them again.
    pub forget: Vec<Range<Key>>,
}

impl Change {
    /// Whether anything goes by it.
    fn frees(&self) -> bool {
        self.head.is_none() || self.clear || !self.removes.is_empty() || !self.forget.is_empty()
    }
}

/// What is in a backend that keeps all of it in this process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    /// Records of the owner.
    pub records: usize,
    /// Bytes of the owner's contents, with [`RECORD_COST`], [`ITEM_COST`] and [`SLOT_COST`] for the
    /// overhead.
    pub bytes: usize,
    /// Bytes of all owners.
    pub total_bytes: usize,
}

/// What a record costs in memory beside its bytes: its places in the tables, its lock, and when it
/// was used last. This and the next two were measured on a daemon;
/// `what_is_counted_is_what_is_used` in tests/integration/quotas.rs checks them.
pub const RECORD_COST: usize = 640;

/// What an item costs in memory beside its bytes: the allocator's part of its key, its tag and its
/// value.
pub const ITEM_COST: usize = 100;

/// What an item's slot in the table of its record costs: half of the slots are free.
pub const SLOT_COST: usize = 152;

/// The least number of slots that a table with an item has.
pub const SLOTS_MIN: usize = 6;

/// Why a backend did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The record has not the version that the change names; or there is one, and it says that
    /// there is none.
    #[error("the record has changed since it was read")]
    Conflict,
    /// For the moment nothing can be read or written, and nothing was. The sentence is for the log
    /// and for people: it names no value and no credential.
    #[error("{0}")]
    Unavailable(String),
    /// A change that may have been written, or will be, or not.
    #[error("{why}; whether it was written is unknown")]
    Unknown {
        /// What is wrong, as in the others.
        why: String,
        /// Whether it may well be over soon, with nobody doing anything about it.
        passes: bool,
    },
    /// What was read is not what this daemon wrote.
    #[error("{0}")]
    Damaged(String),
    /// The backend could not be opened so far, or its disk is full. It is tried again.
    #[error("{why}")]
    Unusable {
        /// What is wrong, and what to do about it, where anything can be done. For peers, too.
        why: String,
        /// Whether it may well be over soon, with nobody doing anything about it.
        passes: bool,
    },
}

/// Tells when what was done is kept.
pub enum Durable {
    /// It is.
    Now,
    /// When this returns.
    Later(BoxFuture<'static, Result<(), StorageError>>),
}

impl StorageError {
    /// Of something that changed nothing, or nothing that anybody is told of: then there is no
    /// doubt.
    pub fn known(self) -> Self {
        match self {
            Self::Unknown { why, passes: true } => Self::Unavailable(why),
            Self::Unknown { why, passes } => Self::Unusable { why, passes },
            other => other,
        }
    }

    /// Of a change that may have been made before this failure.
    pub fn unknown(self) -> Self {
        match self {
            Self::Conflict => Self::Unknown {
                why: "others have changed it since".into(),
                passes: true,
            },
            Self::Unavailable(why) | Self::Damaged(why) => Self::Unknown { why, passes: true },
            Self::Unusable { why, passes } | Self::Unknown { why, passes } => {
                Self::Unknown { why, passes }
            }
        }
    }
}

impl Durable {
    /// Waits until it is kept.
    ///
    /// # Errors
    /// [`StorageError::Unknown`] for a change, and another for what was read, when that can't be
    /// had for the moment. The backend goes on trying.
    pub async fn kept(self) -> Result<(), StorageError> {
        match self {
            Self::Now => Ok(()),
            Self::Later(kept) => kept.await,
        }
    }
}

/// What a backend answers, in time.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StorageError>>;

/// A backend. Every method may fail with [`StorageError::Unavailable`], after the backend's own
/// attempts, which are bounded.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Its name, as in `storage.url`: `memory`, `sqlite`, `postgres`, `dynamodb`.
    fn name(&self) -> &'static str;

    /// Whether other daemons may change what is in here.
    fn is_shared(&self) -> bool;

    /// Whether it works at the moment, without asking anything of it that could block.
    ///
    /// # Errors
    /// [`StorageError::Unavailable`], with what is the matter.
    fn check(&self) -> Result<(), StorageError>;

    /// Looks whether what it keeps things in is still there, and has it put back. Does not block.
    fn look_after(&self);

    /// The database file, if there is one. The daemon watches it and the two files beside it.
    fn file(&self) -> Option<PathBuf>;

    /// Nothing is committed any more: finishes what there is to finish.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Reads a record, and of its items those with these keys. The items are of one version: the
    /// one that is returned, or a later one. None: there is no such record.
    fn read<'a>(&'a self, place: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>>;

    /// Items of a record, in the order of their keys.
    fn scan<'a>(&'a self, place: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>>;

    /// Changes a record that has the version `expected` (None: that is not there), and gives it the
    /// version `next`.
    ///
    /// A change whose answer was lost on the way to the database is not made twice, nor told as a
    /// [`StorageError::Conflict`] with itself: `next` tells.
    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable>;

    /// When everything that was committed to this record so far is kept. What was read may be ahead
    /// of that.
    fn settled(&self, place: &RecordId) -> Durable;

    /// Records of an owner in order of their names, those after `after`, at most `most`.
    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>>;

    /// Every record, in order of owner and name, those after `after`, at most `most`. For `debug`,
    /// and for the start.
    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>>;

    /// Records whose `due_ms` is at most `now_ms`, those that are longest due first, at most
    /// `most`. As every list, it may be behind the records by a moment where the storage is shared:
    /// who acts upon it names the version.
    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>>;

    /// How many records an owner has, counted up to `most`.
    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize>;

    /// What it holds in memory; None where it keeps things elsewhere.
    fn usage(&self, owner: &str) -> Option<MemoryUsage>;
}

// Values, heads and the names of keys are people's data: none of them is ever shown.

impl fmt::Debug for Item {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Item({} + {} bytes)",
            self.key.len(),
            self.value.len()
        )
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Record({:?}, {} bytes, {:?})",
            self.version,
            self.head.len(),
            self.items
        )
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Listed({:?}, {:?}, {} bytes)",
            self.place,
            self.version,
            self.head.len()
        )
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Head({} bytes, due {})",
            self.bytes.len(),
            self.due_ms
        )
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            head,
            clear,
            removes,
            puts,
            forget,
        } = self;
        write!(
            formatter,
            "Change({head:?}, clear {clear}, {} removes, {puts:?}, {} ranges)",
            removes.len(),
            forget.len()
        )
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Now => "Now",
            Self::Later(_) => "Later",
        })
    }
}
