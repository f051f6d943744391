//! Lists, which come from the indexes: they may be behind the heads by a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::QueryError;
use aws_sdk_dynamodb::operation::scan::ScanError;
use aws_sdk_dynamodb::types::Select;

use super::DynamoDb;
use super::head::QUEUE;
use super::row::{self, Attributes as _, Row, damaged, name, number, text};
use super::table::{BY_DUE, BY_OWNER};
use crate::storage::{Listed, RecordId, StorageError, Version};

/// For how long one look at what is due purges what is dead.
const PURGING: Duration = Duration::from_secs(2);

impl DynamoDb {
    pub(super) async fn list_of(
        &self,
        owner: &str,
        after: &str,
        most: usize,
    ) -> Result<Vec<Listed>, StorageError> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(BY_OWNER);
        let query = query
            .expression_attribute_values(":o", text(owner))
            .set_limit(limit(most));
        // No key is empty, and no condition may say so.
        let query = if after.is_empty() {
            query.key_condition_expression("o = :o")
        } else {
            query
                .key_condition_expression("o = :o AND m > :a")
                .expression_attribute_values(":a", text(after))
        };
        let mut found = Vec::new();
        let mut from = None;
        while found.len() < most {
            let (rows, next) = self.page(&query, from).await?;
            for row in rows {
                found.push(listed(row)?);
            }
            if next.is_none() {
                break;
            }
            from = next;
        }
        found.truncate(most);
        Ok(found)
    }

    pub(super) async fn count_of(&self, owner: &str, most: usize) -> Result<usize, StorageError> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(BY_OWNER)
            .key_condition_expression("o = :o")
            .expression_attribute_values(":o", text(owner))
            .select(Select::Count)
            .set_limit(limit(most));
        let mut count = 0;
        let mut from = None;
        while count < most {
            let page = query.clone().set_exclusive_start_key(from);
            let answer = self.ask::<_, QueryError, _>(|| page.clone().send()).await?;
            count += usize::try_from(answer.count).unwrap_or(0);
            match answer.last_evaluated_key.filter(|key| !key.is_empty()) {
                None => break,
                next => from = next,
            }
        }
        Ok(count.min(most))
    }

    /// Each page of this reads the whole index, for that is in no order across owners. It is kept
    /// small meanwhile.
    pub(super) async fn list_everything(
        &self,
        after: Option<&RecordId>,
        most: usize,
    ) -> Result<Vec<Listed>, StorageError> {
        let mut first: BTreeMap<RecordId, Listed> = BTreeMap::new();
        let scan = self
            .client
            .scan()
            .table_name(&self.table)
            .index_name(BY_OWNER);
        let mut from = None;
        loop {
            let page = scan.clone().set_exclusive_start_key(from);
            let answer = self.ask::<_, ScanError, _>(|| page.clone().send()).await?;
            for row in answer.items.unwrap_or_default() {
                let listed = listed(row)?;
                if after.is_none_or(|after| listed.place > *after) {
                    first.insert(listed.place.clone(), listed);
                }
                if first.len() > most {
                    first.pop_last();
                }
            }
            match answer.last_evaluated_key.filter(|key| !key.is_empty()) {
                None => return Ok(first.into_values().collect()),
                next => from = next,
            }
        }
    }

    /// What is due, but for what is dead: that is purged.
    pub(super) async fn due_at(
        &self,
        now_ms: u64,
        most: usize,
    ) -> Result<Vec<Listed>, StorageError> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(BY_DUE)
            .key_condition_expression("q = :q AND due <= :now")
            .expression_attribute_values(":q", text(QUEUE))
            .expression_attribute_values(":now", number(now_ms))
            .set_limit(limit(most));
        let (mut found, mut dead) = (Vec::new(), Vec::new());
        let mut from = None;
        while found.len() < most {
            let (rows, next) = self.page(&query, from).await?;
            for row in rows {
                if row.contains_key(name::DEAD) {
                    dead.push(place(&row)?);
                } else {
                    let due_ms = row.number(name::DUE)?.ok_or_else(damaged)?;
                    found.push((due_ms, listed(row)?));
                }
            }
            if next.is_none() {
                break;
            }
            from = next;
        }
        // The index has no order among those that are due at the same time.
        found.sort_by(|(one, listed), (other, beside)| {
            (one, &listed.place).cmp(&(other, &beside.place))
        });
        found.truncate(most);
        let purging = async {
            for place in &dead {
                self.purge_dead(place).await?;
            }
            Ok::<_, StorageError>(())
        };
        // What is left is found at the next look.
        let _ = tokio::time::timeout(PURGING, purging).await;
        Ok(found.into_iter().map(|(_, listed)| listed).collect())
    }
}

/// A page as large as what is asked for, where that is less than what a page can have.
fn limit(most: usize) -> Option<i32> {
    i32::try_from(most).ok().filter(|most| *most > 0)
}

fn place(row: &Row) -> Result<RecordId, StorageError> {
    row.text(name::PK)?.and_then(row::place).ok_or_else(damaged)
}

fn listed(mut row: Row) -> Result<Listed, StorageError> {
    Ok(Listed {
        place: place(&row)?,
        version: Version(row.number(name::VERSION)?.ok_or_else(damaged)?),
        head: row.bytes(name::HEAD)?.unwrap_or_default(),
    })
}
