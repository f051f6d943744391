//! What tests do to it: commits that end at the commit point, and writers that come late.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use aws_sdk_dynamodb::operation::scan::ScanError;

use super::DynamoDb;
use super::head::Head;
use super::row::{Attributes as _, damaged, name};
use crate::storage::{RecordId, StorageError};

/// A writer that has read a head, and is about to apply its pending change.
pub struct Late<'a> {
    store: &'a DynamoDb,
    place: RecordId,
    head: Head,
}

impl Late<'_> {
    /// Applies what it has read, however long ago.
    ///
    /// # Errors
    /// As of every write.
    pub async fn apply(self) -> Result<(), StorageError> {
        let partition = self.head.facts.generation.partition(&self.place);
        self.store
            .apply(&partition, self.head.facts.count, self.head.pending)
            .await
            .map(|_| ())
    }
}

impl DynamoDb {
    /// From now on, commits of this handle end at the commit point, as if the daemon had died
    /// there.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Reads what a writer reads that helps with the pending change.
    ///
    /// # Errors
    /// As of every read, and when there is no head.
    pub async fn late(&self, place: &RecordId) -> Result<Late<'_>, StorageError> {
        let head = self.head(place).await?.ok_or_else(damaged)?;
        Ok(Late {
            store: self,
            place: place.clone(),
            head,
        })
    }

    /// How many rows there are for each partition, tombstones not counted.
    ///
    /// # Errors
    /// As of every read.
    pub async fn rows_by_partition(&self) -> Result<Vec<(String, usize)>, StorageError> {
        let scan = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(true);
        let mut rows = std::collections::BTreeMap::new();
        let mut from = None;
        let mut seen = HashSet::new();
        loop {
            let page = scan.clone().set_exclusive_start_key(from);
            let answer = self.ask::<_, ScanError, _>(|| page.clone().send()).await?;
            for mut row in answer.items.unwrap_or_default() {
                let partition = row.text(name::PK)?.ok_or_else(damaged)?.to_owned();
                let sort_key = row.bytes(name::SK)?.ok_or_else(damaged)?;
                if seen.insert((partition.clone(), sort_key)) && !row.contains_key(name::TTL) {
                    *rows.entry(partition).or_insert(0) += 1;
                }
            }
            match answer.last_evaluated_key.filter(|key| !key.is_empty()) {
                None => return Ok(rows.into_iter().collect()),
                next => from = next,
            }
        }
    }
}
