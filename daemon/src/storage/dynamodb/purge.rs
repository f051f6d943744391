//! Deleting what no record has any more.

use std::ops::Range;

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::DynamoDb;
use super::call::{AT_ONCE, Answer};
use super::head::{Generation, HEAD_KEY};
use super::items::{deletion, part_ids, row_key};
use super::row::{self, Row, name, number, text};
use crate::storage::{Key, RecordId, StorageError, Version};

impl DynamoDb {
    /// Empties the partitions of these generations.
    pub(super) async fn purge_all(
        &self,
        place: &RecordId,
        old: &[Generation],
    ) -> Result<(), StorageError> {
        for generation in old {
            self.purge(&generation.partition(place)).await?;
        }
        Ok(())
    }

    async fn purge(&self, partition: &str) -> Result<(), StorageError> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :p")
            .expression_attribute_values(":p", text(partition))
            .projection_expression("pk, sk");
        let mut from = None;
        loop {
            let (rows, next) = self.page(&query, from).await?;
            self.write_all(rows.into_iter().map(deletion).collect())
                .await?;
            if next.is_none() {
                return Ok(());
            }
            from = next;
        }
    }

    /// Deletes the items in a range that the commit number `count` or an earlier one has written,
    /// and their parts.
    pub(super) async fn forget(
        &self,
        partition: &str,
        range: &Range<Key>,
        count: u64,
    ) -> Result<(), StorageError> {
        let query = self
            .within(partition, range)
            .projection_expression("pk, sk, r");
        let mut from = None;
        loop {
            let (rows, next) = self.page(&query, from).await?;
            stream::iter(rows.into_iter().filter(|row| !is_end(row, range)))
                .map(|row| self.forget_row(partition, row, count))
                .buffer_unordered(AT_ONCE)
                .try_for_each(|()| std::future::ready(Ok(())))
                .await?;
            if next.is_none() {
                return Ok(());
            }
            from = next;
        }
    }

    async fn forget_row(
        &self,
        partition: &str,
        mut row: Row,
        count: u64,
    ) -> Result<(), StorageError> {
        let parts = part_ids(&mut row)?;
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(row))
            .condition_expression("n <= :n")
            .expression_attribute_values(":n", number(count));
        match self
            .ask_if::<_, DeleteItemError, _>(|| request.clone().send())
            .await?
        {
            Answer::Done(_) => self.delete_parts(partition, parts).await,
            Answer::Refused { .. } => Ok(()),
        }
    }

    /// Deletes a dead head, unless there is another in its place.
    pub(super) async fn bury(
        &self,
        place: &RecordId,
        version: Version,
    ) -> Result<(), StorageError> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(row_key(&row::partition(place), HEAD_KEY)))
            .condition_expression("v = :v")
            .expression_attribute_values(":v", number(version.0));
        self.ask_if::<_, DeleteItemError, _>(|| request.clone().send())
            .await
            .map(|_| ())
    }

    /// Purges what is left of a record that was deleted a while ago, and buries it.
    pub(super) async fn purge_dead(&self, place: &RecordId) -> Result<(), StorageError> {
        let Some(head) = self.head(place).await?.filter(|head| head.facts.dead) else {
            return Ok(());
        };
        self.purge_all(place, &head.facts.old).await?;
        self.bury(place, head.facts.version).await
    }
}

/// Whether this is the item at the end of the range, which a condition on sort keys selects too.
fn is_end(row: &Row, range: &Range<Key>) -> bool {
    let sort_key = row
        .get(name::SK)
        .and_then(|key| AttributeValue::as_b(key).ok());
    sort_key.is_some_and(|key| key.as_ref() == super::items::item_key(&range.end))
}
