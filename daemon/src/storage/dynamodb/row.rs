//! What stands in the table: the names of the attributes, and reading them back.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use crate::storage::{RecordId, StorageError};

/// The attributes. Each is paid for by the byte, in every item: so they are short.
pub(super) mod name {
    /// Partition key (S).
    pub(crate) const PK: &str = "pk";
    /// Sort key (B).
    pub(crate) const SK: &str = "sk";
    /// A head: the version (N).
    pub(crate) const VERSION: &str = "v";
    /// A head: how many commits there were (N). An item: which of them wrote it.
    pub(crate) const COUNT: &str = "n";
    /// A head: the generation (B).
    pub(crate) const GENERATION: &str = "g";
    /// A head: its bytes (B); absent where there are none.
    pub(crate) const HEAD: &str = "h";
    /// A head: the pending change (B, MessagePack).
    pub(crate) const PENDING: &str = "p";
    /// A head: generations that may not be purged yet (L of B).
    pub(crate) const OLD: &str = "og";
    /// A head: the versions before this one, the latest last (L of N).
    pub(crate) const WAS: &str = "wv";
    /// A head: the record is deleted (BOOL).
    pub(crate) const DEAD: &str = "dead";
    /// A head that is not dead: owner (S), the partition of the index that lists.
    pub(crate) const OWNER: &str = "o";
    /// A head that is not dead: name (S), which that index is sorted by.
    pub(crate) const NAME: &str = "m";
    /// A head that is due at all: a constant (S), the partition of the index by time.
    pub(crate) const QUEUE: &str = "q";
    /// A head that is due at all: when, in ms since the epoch (N).
    pub(crate) const DUE: &str = "due";
    /// An item: its tag (S); absent where it is empty.
    pub(crate) const TAG: &str = "t";
    /// An item: its value (B); absent where it is empty or in parts. A part: its bytes.
    pub(crate) const VALUE: &str = "x";
    /// An item whose value is in parts: their ids (L of B).
    pub(crate) const PARTS: &str = "r";
    /// An item whose value is in parts: how long they are together (N).
    pub(crate) const LENGTH: &str = "l";
    /// A tombstone, and nothing else: when it may go, in seconds since the epoch (N).
    pub(crate) const TTL: &str = "ttl";
}

/// One row of the table, with its attributes by name.
pub(super) type Row = HashMap<String, AttributeValue>;

pub(super) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) fn binary(value: &[u8]) -> AttributeValue {
    AttributeValue::B(value.into())
}

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// The partition of a record's head. Neither owner nor name contains a newline.
pub(super) fn partition(place: &RecordId) -> String {
    format!("{}\n{}", place.owner, place.name)
}

/// The place whose head is in this partition.
pub(super) fn place(partition: &str) -> Option<RecordId> {
    let (owner, name) = partition.split_once('\n')?;
    Some(RecordId {
        owner: owner.into(),
        name: name.into(),
    })
}

/// A row is read attribute by attribute: absent is None, and anything but the type that this daemon
/// writes is damage.
pub(super) trait Attributes {
    fn number(&self, name: &str) -> Result<Option<u64>, StorageError>;
    fn text(&self, name: &str) -> Result<Option<&str>, StorageError>;
    fn bytes(&mut self, name: &str) -> Result<Option<Bytes>, StorageError>;
    fn list(&mut self, name: &str) -> Result<Vec<AttributeValue>, StorageError>;
}

impl Attributes for Row {
    fn number(&self, name: &str) -> Result<Option<u64>, StorageError> {
        self.get(name).map(as_number).transpose()
    }

    fn text(&self, name: &str) -> Result<Option<&str>, StorageError> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(damaged()),
        }
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Bytes>, StorageError> {
        self.remove(name).map(into_bytes).transpose()
    }

    fn list(&mut self, name: &str) -> Result<Vec<AttributeValue>, StorageError> {
        match self.remove(name) {
            None => Ok(Vec::new()),
            Some(AttributeValue::L(list)) => Ok(list),
            Some(_) => Err(damaged()),
        }
    }
}

pub(super) fn as_number(value: &AttributeValue) -> Result<u64, StorageError> {
    value
        .as_n()
        .ok()
        .and_then(|number| number.parse().ok())
        .ok_or_else(damaged)
}

pub(super) fn into_bytes(value: AttributeValue) -> Result<Bytes, StorageError> {
    match value {
        AttributeValue::B(blob) => Ok(blob.into_inner().into()),
        _ => Err(damaged()),
    }
}

pub(super) fn damaged() -> StorageError {
    StorageError::Damaged("the table in DynamoDB has a row that mcp-sessiond did not write".into())
}
