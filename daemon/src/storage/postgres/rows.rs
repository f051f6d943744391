//! Between the trait's types and PostgreSQL's.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use tokio_postgres::{Error, Row};

use crate::storage::{Change, Item, Key, Listed, Record, RecordId, Version};

/// A version has no order, so that it only has to fit.
pub(super) fn to_version(version: Version) -> i64 {
    version.0.cast_signed()
}

fn from_version(version: i64) -> Version {
    Version(version.cast_unsigned())
}

/// A limit, where the largest means all.
pub(super) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A time; what is later than every time there is counts as the last.
pub(super) fn to_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// When a record is due; None: never.
pub(super) fn to_due(due_ms: u64) -> Option<i64> {
    (due_ms != u64::MAX).then(|| to_ms(due_ms))
}

pub(super) fn version(row: &Row) -> Result<Version, Error> {
    row.try_get(0).map(from_version)
}

/// A record, with the items that were asked for in their order.
pub(super) fn record(row: &Row, items: &[Row], keys: &[Key]) -> Result<Record, Error> {
    let mut found = BTreeMap::new();
    for row in items {
        let item = item(row)?;
        found.insert(item.key.clone(), item);
    }
    let head: &[u8] = row.try_get(1)?;
    let items = keys.iter().map(|key| found.get(key).cloned()).collect();
    Ok(Record {
        version: version(row)?,
        head: Bytes::copy_from_slice(head),
        items,
    })
}

pub(super) fn item(row: &Row) -> Result<Item, Error> {
    let (key, tag, value): (&[u8], String, &[u8]) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok(Item {
        key: Bytes::copy_from_slice(key),
        tag,
        value: Bytes::copy_from_slice(value),
    })
}

pub(super) fn listed(row: &Row) -> Result<Listed, Error> {
    let place = RecordId {
        owner: row.try_get(0)?,
        name: row.try_get(1)?,
    };
    let head: &[u8] = row.try_get(3)?;
    Ok(Listed {
        place,
        version: from_version(row.try_get(2)?),
        head: Bytes::copy_from_slice(head),
    })
}

/// The items of a change, as the arrays that a statement takes: which ranges go, and what is put.
#[derive(Default)]
pub(super) struct Arrays<'a> {
    pub(super) low: Vec<Cow<'a, [u8]>>,
    pub(super) high: Vec<Cow<'a, [u8]>>,
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) tags: Vec<&'a str>,
    pub(super) values: Vec<&'a [u8]>,
}

impl<'a> Arrays<'a> {
    /// What goes first and what is put in its place, what is put twice, and what is put and
    /// forgotten are resolved here: the statement has no order.
    pub(super) fn of(change: &'a Change) -> Self {
        let mut arrays = Self::default();
        if change.clear {
            // After every key that there can be.
            arrays.range((&[]).into(), vec![0xFF; 257].into());
        }
        for key in &change.removes {
            // There is no key between these two but the one.
            arrays.range(key[..].into(), [key, &[0][..]].concat().into());
        }
        for range in change.forget.iter().filter(|range| range.start < range.end) {
            arrays.range(range.start[..].into(), range.end[..].into());
        }
        let is_kept = |item: &&Item| !change.forget.iter().any(|range| range.contains(&item.key));
        let puts: BTreeMap<&[u8], &Item> = change
            .puts
            .iter()
            .filter(is_kept)
            .map(|item| (&item.key[..], item))
            .collect();
        for (key, item) in puts {
            arrays.keys.push(key);
            arrays.tags.push(&item.tag);
            arrays.values.push(&item.value);
        }
        arrays
    }

    fn range(&mut self, low: Cow<'a, [u8]>, high: Cow<'a, [u8]>) {
        self.low.push(low);
        self.high.push(high);
    }
}
