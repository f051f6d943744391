//! The items of a generation: reading them, and applying a pending change to them.

use mcp_sessiond_proto::time::now_ms;
use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, DeleteRequest, KeysAndAttributes, PutRequest, ReturnValue, WriteRequest,
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::DynamoDb;
use super::call::{AT_ONCE, Answer};
use super::pending::{Content, Part, PartId, Pending, Value};
use super::row::{self, Attributes as _, Row, binary, damaged, name, number, text};
use crate::storage::retry::{Failure, Patience};
use crate::storage::{Item, Key, StorageError};

/// Sort keys of items begin with this: an item's own key follows.
const ITEM: u8 = 1;

/// Sort keys of parts begin with this: a part's id follows. So no range of items has parts in it.
const PART: u8 = 2;

/// As many rows as a batch may ask for.
const BATCH: usize = 100;

/// As many parts as are asked for in a batch, and as many bytes as are written in one: about a
/// megabyte, which comes and goes within the time of an attempt.
const PARTS: usize = 3;
const PARTS_BYTES: usize = 1 << 20;

/// For how long a removed item is known to have been removed.
const TOMBSTONE: Duration = Duration::from_secs(24 * 60 * 60);

/// A pending change is applied by nobody who read it longer ago than this, by the clock that goes
/// on while a machine sleeps. It is far less than [`TOMBSTONE`]: who might bring back what was
/// removed finds the tombstone. A request that was signed before does no harm later, for a
/// signature is good for 15 minutes.
const APPLICABLE: Duration = Duration::from_secs(10 * 60);

/// An item as it stands, or a tombstone.
pub(super) struct Entry {
    pub(super) key: Key,
    /// Which commit wrote it.
    pub(super) count: u64,
    /// None: it is removed.
    pub(super) content: Option<Content>,
}

impl Entry {
    pub(super) fn from_row(mut row: Row) -> Result<Self, StorageError> {
        let sort_key = row.bytes(name::SK)?.ok_or_else(damaged)?;
        let count = row.number(name::COUNT)?.ok_or_else(damaged)?;
        if sort_key.first() != Some(&ITEM) {
            return Err(damaged());
        }
        let key = sort_key.slice(1..);
        if row.contains_key(name::TTL) {
            return Ok(Self {
                key,
                count,
                content: None,
            });
        }
        let tag = row.text(name::TAG)?.unwrap_or_default().to_owned();
        let value = match row.number(name::LENGTH)? {
            Some(length) => Value::Parts {
                length,
                ids: part_ids(&mut row)?,
            },
            None => Value::Inline(row.bytes(name::VALUE)?.unwrap_or_default()),
        };
        Ok(Self {
            key,
            count,
            content: Some(Content { tag, value }),
        })
    }

    fn to_row(&self, partition: &str) -> Row {
        let mut row = Row::from([
            (name::PK.into(), text(partition)),
            (name::SK.into(), binary(&item_key(&self.key))),
            (name::COUNT.into(), number(self.count)),
        ]);
        let Some(Content { tag, value }) = &self.content else {
            let now = Duration::from_millis(now_ms());
            row.insert(name::TTL.into(), number((now + TOMBSTONE).as_secs()));
            return row;
        };
        if !tag.is_empty() {
            row.insert(name::TAG.into(), text(tag));
        }
        match value {
            Value::Inline(bytes) if bytes.is_empty() => {}
            Value::Inline(bytes) => {
                row.insert(name::VALUE.into(), binary(bytes));
            }
            Value::Parts { length, ids } => {
                row.insert(name::LENGTH.into(), number(*length));
                let ids = ids.iter().map(|id| binary(id)).collect();
                row.insert(name::PARTS.into(), AttributeValue::L(ids));
            }
        }
        row
    }
}

/// The ids of the parts that a row refers to.
pub(super) fn part_ids(row: &mut Row) -> Result<Vec<PartId>, StorageError> {
    row.list(name::PARTS)?
        .into_iter()
        .map(row::into_bytes)
        .collect()
}

pub(super) fn item_key(key: &[u8]) -> Bytes {
    prefixed(ITEM, key)
}

fn prefixed(kind: u8, rest: &[u8]) -> Bytes {
    [&[kind], rest].concat().into()
}

/// The primary key of a row.
pub(super) fn row_key(partition: &str, sort_key: &[u8]) -> Row {
    Row::from([
        (name::PK.into(), text(partition)),
        (name::SK.into(), binary(sort_key)),
    ])
}

/// Deletes a row, whatever is in it.
pub(super) fn deletion(key: Row) -> WriteRequest {
    // All that it needs is there.
    let request = DeleteRequest::builder().set_key(Some(key)).build().ok();
    WriteRequest::builder().set_delete_request(request).build()
}

impl DynamoDb {
    /// The entries of these keys, in any order; none for those that there are not.
    pub(super) async fn entries(
        &self,
        partition: &str,
        keys: &[&Key],
    ) -> Result<Vec<Entry>, StorageError> {
        let sort_keys = keys.iter().map(|key| item_key(key)).collect();
        self.rows(partition, sort_keys, BATCH)
            .await?
            .into_iter()
            .map(Entry::from_row)
            .collect()
    }

    /// Rows by their sort keys, which must differ.
    async fn rows(
        &self,
        partition: &str,
        sort_keys: Vec<Bytes>,
        batch: usize,
    ) -> Result<Vec<Row>, StorageError> {
        let batches: Vec<Vec<Row>> = sort_keys
            .chunks(batch)
            .map(|batch| batch.iter().map(|key| row_key(partition, key)).collect())
            .collect();
        let rows: Vec<Vec<Row>> = stream::iter(batches)
            .map(|batch| self.rows_of_batch(batch))
            .buffer_unordered(AT_ONCE / 4)
            .try_collect()
            .await?;
        Ok(rows.into_iter().flatten().collect())
    }

    async fn rows_of_batch(&self, keys: Vec<Row>) -> Result<Vec<Row>, StorageError> {
        let wanted = KeysAndAttributes::builder()
            .set_keys(Some(keys))
            .consistent_read(true)
            .build();
        let mut wanted = wanted.map_err(|_| damaged())?;
        let mut rows = Vec::new();
        let mut patience = Patience::new();
        loop {
            let request = self
                .client
                .batch_get_item()
                .request_items(&self.table, wanted);
            let mut answer = self
                .ask::<_, BatchGetItemError, _>(|| request.clone().send())
                .await?;
            let found = answer
                .responses
                .as_mut()
                .and_then(|found| found.remove(&self.table));
            let found = found.unwrap_or_default();
            if !found.is_empty() {
                // 16 MB at a time is no sign of a service that is busy.
                patience = Patience::new();
            }
            rows.extend(found);
            match answer
                .unprocessed_keys
                .and_then(|mut left| left.remove(&self.table))
            {
                None => return Ok(rows),
                Some(left) => wanted = left,
            }
            let busy =
                Failure::Passing("DynamoDB is busy: it leaves a part of a batch unread".into());
            self.health.note(patience.pause(busy).await)?;
        }
    }

    /// Makes items of entries, in the same order. None: a part of them is gone, because somebody
    /// has changed the item meanwhile.
    pub(super) async fn items(
        &self,
        partition: &str,
        contents: Vec<(Key, Content)>,
    ) -> Result<Option<Vec<Item>>, StorageError> {
        let ids = contents
            .iter()
            .flat_map(|(_, content)| content.value.parts());
        let sort_keys = ids.map(|id| prefixed(PART, id)).collect();
        let mut parts: HashMap<Bytes, Bytes> = HashMap::new();
        for mut part in self.rows(partition, sort_keys, PARTS).await? {
            let sort_key = part.bytes(name::SK)?.ok_or_else(damaged)?;
            parts.insert(
                sort_key.slice(1..),
                part.bytes(name::VALUE)?.ok_or_else(damaged)?,
            );
        }
        let item = |(key, Content { tag, value }): (Key, Content)| {
            let value = match value {
                Value::Inline(bytes) => bytes,
                Value::Parts { ids, .. } => {
                    let mut whole = BytesMut::new();
                    for id in ids {
                        whole.extend_from_slice(parts.get(&id)?);
                    }
                    whole.freeze()
                }
            };
            Some(Item { key, tag, value })
        };
        Ok(contents.into_iter().map(item).collect())
    }

    /// Writes the parts that a pending change will refer to.
    pub(super) async fn write_parts(
        &self,
        partition: &str,
        parts: &[Part],
    ) -> Result<(), StorageError> {
        let write = |part: &Part| {
            let mut row = row_key(partition, &prefixed(PART, &part.id));
            row.insert(name::VALUE.into(), binary(&part.bytes));
            let request = PutRequest::builder().set_item(Some(row)).build().ok();
            WriteRequest::builder().set_put_request(request).build()
        };
        let (mut batch, mut weight) = (Vec::new(), 0);
        for part in parts {
            if weight + part.bytes.len() > PARTS_BYTES {
                self.write_all(std::mem::take(&mut batch)).await?;
                weight = 0;
            }
            weight += part.bytes.len();
            batch.push(write(part));
        }
        self.write_all(batch).await
    }

    /// Deletes parts that nothing refers to any more.
    pub(super) async fn delete_parts(
        &self,
        partition: &str,
        ids: impl IntoIterator<Item = PartId>,
    ) -> Result<(), StorageError> {
        let delete = |id: PartId| deletion(row_key(partition, &prefixed(PART, &id)));
        self.write_all(ids.into_iter().map(delete).collect()).await
    }

    /// Applies the pending change of the commit number `count`, as often and by as many as it may
    /// be: each item is written only over what an earlier commit has written. Returns the parts
    /// that nothing refers to any more.
    pub(super) async fn apply(
        &self,
        partition: &str,
        count: u64,
        pending: Pending,
    ) -> Result<Vec<PartId>, StorageError> {
        let read = std::time::SystemTime::now();
        let entries = pending.entries.into_iter().map(|(key, content)| Entry {
            key,
            count,
            content,
        });
        let replaced: Vec<Vec<PartId>> = stream::iter(entries)
            .map(|entry| async move {
                // A clock that was set back has not slept either.
                if read.elapsed().is_ok_and(|elapsed| elapsed > APPLICABLE) {
                    return Err(StorageError::Unavailable(
                        "a change from long ago is no longer applied".into(),
                    ));
                }
                self.apply_entry(partition, &entry).await
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(replaced.into_iter().flatten().collect())
    }

    async fn apply_entry(
        &self,
        partition: &str,
        entry: &Entry,
    ) -> Result<Vec<PartId>, StorageError> {
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(entry.to_row(partition)))
            .condition_expression("attribute_not_exists(n) OR n < :n")
            .expression_attribute_values(":n", number(entry.count))
            .return_values(ReturnValue::AllOld);
        match self
            .ask_if::<_, PutItemError, _>(|| request.clone().send())
            .await?
        {
            Answer::Done(done) => done
                .attributes
                .map_or(Ok(Vec::new()), |mut former| part_ids(&mut former)),
            // It is there already, or something later is.
            Answer::Refused { .. } => Ok(Vec::new()),
        }
    }
}
