//! Everything in this process's memory, and gone with it. SQLite reads from one of these, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use mcp_sessiond_proto::Lock as _;

use super::{
    Answer, Change, Durable, Head, ITEM_COST, Item, Key, Listed, MemoryUsage, RECORD_COST, Record,
    RecordId, SLOT_COST, SLOTS_MIN, Scan, Storage, StorageError, Version,
};

/// Records in memory.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Tables>);

/// The records, and what is looked up in them.
#[derive(Debug, Default)]
pub(super) struct Tables {
    owners: BTreeMap<String, Owner>,
    due: BTreeSet<(u64, RecordId)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Owner {
    records: BTreeMap<String, Stored>,
    bytes: usize,
}

#[derive(Debug)]
struct Stored {
    version: Version,
    head: Head,
    items: BTreeMap<Key, Value>,
    /// Without the items' slots.
    bytes: usize,
}

#[derive(Debug)]
struct Value {
    tag: Box<str>,
    bytes: Bytes,
}

impl Value {
    fn cost(&self, key: &Key) -> usize {
        ITEM_COST + key.len() + self.tag.len() + self.bytes.len()
    }
}

impl Stored {
    fn new(version: Version, head: Head) -> Self {
        let bytes = RECORD_COST + head.bytes.len();
        Self {
            version,
            head,
            items: BTreeMap::new(),
            bytes,
        }
    }

    /// All of the memory that it takes.
    fn cost(&self) -> usize {
        let slots = if self.items.is_empty() {
            0
        } else {
            self.items.len().max(SLOTS_MIN)
        };
        self.bytes + slots * SLOT_COST
    }

    fn set_head(&mut self, head: Head) {
        self.bytes = self.bytes - self.head.bytes.len() + head.bytes.len();
        self.head = head;
    }

    fn put(&mut self, item: Item) {
        let Item { key, tag, value } = item;
        let value = Value {
            tag: tag.into(),
            bytes: value,
        };
        self.bytes += value.cost(&key);
        if let Some(former) = self.items.get(&key) {
            self.bytes -= former.cost(&key);
        }
        self.items.insert(key, value);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(former) = self.items.remove(key) {
            self.bytes -= former.cost(key);
        }
    }

    fn forget(&mut self, range: &Range<Key>) {
        if range.start < range.end {
            let keys: Vec<Key> = self
                .items
                .range(range.clone())
                .map(|(key, _)| key.clone())
                .collect();
            for key in keys {
                self.remove(&key);
            }
        }
    }
}

impl Tables {
    fn get(&self, place: &RecordId) -> Option<&Stored> {
        self.owners.get(&place.owner)?.records.get(&place.name)
    }

    fn read(&self, place: &RecordId, keys: &[Key]) -> Option<Record> {
        let stored = self.get(place)?;
        let item = |key: &Key| {
            let value = stored.items.get(key)?;
            Some(Item {
                key: key.clone(),
                tag: value.tag.to_string(),
                value: value.bytes.clone(),
            })
        };
        let items = keys.iter().map(item).collect();
        Some(Record {
            version: stored.version,
            head: stored.head.bytes.clone(),
            items,
        })
    }

    fn scan(&self, place: &RecordId, scan: &Scan) -> Vec<Item> {
        let Scan {
            range,
            tags,
            most,
            bytes,
        } = scan;
        let Some(stored) = self.get(place).filter(|_| range.start < range.end) else {
            return Vec::new();
        };
        let mut items = Vec::new();
        let mut taken = 0;
        for (key, value) in stored.items.range(range.clone()) {
            if items.len() >= *most || taken >= *bytes {
                break;
            }
            if tags.is_empty() || tags.iter().any(|tag| **tag == *value.tag) {
                taken += value.bytes.len();
                items.push(Item {
                    key: key.clone(),
                    tag: value.tag.to_string(),
                    value: value.bytes.clone(),
                });
            }
        }
        items
    }

    pub(super) fn commit(
        &mut self,
        place: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Result<(), StorageError> {
        let found = self.get(place).map(|stored| stored.version);
        if found != expected {
            return Err(StorageError::Conflict);
        }
        self.apply(place, next, change);
        Ok(())
    }

    /// Applies a change to whatever is there.
    fn apply(&mut self, place: &RecordId, next: Version, change: Change) {
        let Change {
            head,
            clear,
            removes,
            puts,
            forget,
        } = change;
        let owner = match self.owners.get_mut(&place.owner) {
            Some(owner) => owner,
            None => self.owners.entry(place.owner.clone()).or_default(),
        };
        let former = owner
            .records
            .get(&place.name)
            .map_or((0, u64::MAX), |one| (one.cost(), one.head.due_ms));
        let Some(head) = head else {
            owner.records.remove(&place.name);
            owner.bytes -= former.0;
            self.bytes -= former.0;
            if owner.records.is_empty() {
                self.owners.remove(&place.owner);
            }
            self.due.remove(&(former.1, place.clone()));
            return;
        };
        let due = head.due_ms;
        let stored = match owner.records.get_mut(&place.name) {
            Some(stored) => stored,
            None => owner
                .records
                .entry(place.name.clone())
                .or_insert_with(|| Stored::new(next, head.clone())),
        };
        stored.version = next;
        stored.set_head(head);
        if clear {
            stored.bytes = RECORD_COST + stored.head.bytes.len();
            stored.items.clear();
        }
        removes.iter().for_each(|key| stored.remove(key));
        puts.into_iter().for_each(|item| stored.put(item));
        forget.iter().for_each(|range| stored.forget(range));
        let bytes = stored.cost();
        owner.bytes = owner.bytes - former.0 + bytes;
        self.bytes = self.bytes - former.0 + bytes;
        if due != former.1 {
            self.due.remove(&(former.1, place.clone()));
            if due != u64::MAX {
                self.due.insert((due, place.clone()));
            }
        }
    }

    /// Puts a record in place that a backend has read from elsewhere.
    pub(super) fn insert(
        &mut self,
        place: &RecordId,
        version: Version,
        head: Head,
        items: Vec<Item>,
    ) {
        self.apply(
            place,
            version,
            Change {
                head: Some(head),
                puts: items,
                ..Change::default()
            },
        );
    }
}

fn listed(owner: &str, name: &str, stored: &Stored) -> Listed {
    Listed {
        place: RecordId {
            owner: owner.into(),
            name: name.into(),
        },
        version: stored.version,
        head: stored.head.bytes.clone(),
    }
}

impl Memory {
    pub(super) fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.locked()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> Answer<'a, T> {
    future::ready(Ok(value)).boxed()
}

impl Storage for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// There is nothing that others could take away.
    fn look_after(&self) {}

    fn file(&self) -> Option<std::path::PathBuf> {
        None
    }

    /// There is nothing to finish.
    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn read<'a>(&'a self, place: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        ready(self.lock().read(place, keys))
    }

    fn scan<'a>(&'a self, place: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        ready(self.lock().scan(place, scan))
    }

    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        let committed = self.lock().commit(place, expected, next, change);
        future::ready(committed.map(|()| Durable::Now)).boxed()
    }

    fn settled(&self, _: &RecordId) -> Durable {
        Durable::Now
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let tables = self.lock();
        let records = tables.owners.get(owner).map(|owner| &owner.records);
        let after = (Excluded(after), Unbounded);
        let records = records
            .into_iter()
            .flat_map(|records| records.range::<str, _>(after))
            .take(most);
        ready(
            records
                .map(|(name, stored)| listed(owner, name, stored))
                .collect(),
        )
    }

    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let tables = self.lock();
        let from = after.map_or("", |place| place.owner.as_str());
        let records = tables
            .owners
            .range::<str, _>((Included(from), Unbounded))
            .flat_map(|(owner, records)| {
                let is_first = |place: &&RecordId| place.owner == *owner;
                let behind = after
                    .filter(is_first)
                    .map_or(Unbounded, |place| Excluded(place.name.as_str()));
                let records = records.records.range::<str, _>((behind, Unbounded));
                records.map(move |(name, stored)| (owner, name, stored))
            });
        ready(
            records
                .take(most)
                .map(|(owner, name, stored)| listed(owner, name, stored))
                .collect(),
        )
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        let tables = self.lock();
        let due = tables
            .due
            .iter()
            .take_while(|(due, _)| *due <= now_ms)
            .take(most);
        let due = due
            .filter_map(|(_, place)| Some(listed(&place.owner, &place.name, tables.get(place)?)));
        ready(due.collect())
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        let count = self
            .lock()
            .owners
            .get(owner)
            .map_or(0, |owner| owner.records.len());
        ready(count.min(most))
    }

    fn usage(&self, owner: &str) -> Option<MemoryUsage> {
        let tables = self.lock();
        let (records, bytes) = tables
            .owners
            .get(owner)
            .map_or((0, 0), |owner| (owner.records.len(), owner.bytes));
        Some(MemoryUsage {
            records,
            bytes,
            total_bytes: tables.bytes,
        })
    }
}
