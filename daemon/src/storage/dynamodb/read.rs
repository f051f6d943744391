//! Reading records: the head, the items below it, and over them the pending change that the head
//! brings along.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::query::QueryError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;

use super::DynamoDb;
use super::head::{Generation, HEAD_KEY, Head};
use super::items::{Entry, item_key, row_key};
use super::pending::Content;
use super::row::{self, Row, binary, damaged, name, text};
use crate::storage::{Item, Key, Record, RecordId, Scan, StorageError};

/// How often a read begins anew when others change what it reads.
const ATTEMPTS: usize = 6;

/// As many tags as a condition may list.
const TAGS: usize = 100;

impl DynamoDb {
    /// The head of a record, dead or alive.
    pub(super) async fn head(&self, place: &RecordId) -> Result<Option<Head>, StorageError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(row_key(&row::partition(place), HEAD_KEY)))
            .consistent_read(true);
        let answer = self
            .ask::<_, GetItemError, _>(|| request.clone().send())
            .await?;
        answer.item.map(Head::from_row).transpose()
    }

    async fn live_head(&self, place: &RecordId) -> Result<Option<Head>, StorageError> {
        Ok(self.head(place).await?.filter(|head| !head.facts.dead))
    }

    /// Whether the items that were read are still those of the record, none of them purged in
    /// between.
    async fn is_still(
        &self,
        place: &RecordId,
        generation: Generation,
    ) -> Result<bool, StorageError> {
        let head = self.live_head(place).await?;
        Ok(head.is_some_and(|head| head.facts.generation == generation))
    }

    pub(super) async fn read_record(
        &self,
        place: &RecordId,
        keys: &[Key],
    ) -> Result<Option<Record>, StorageError> {
        let mut seen = Vec::new();
        let mut found = self.live_head(place).await?;
        for _ in 0..ATTEMPTS {
            let Some(mut head) = found else {
                return Ok(None);
            };
            let mut below = self.below(place, &head, keys).await?;
            // One of several keys has an item of a later version. All are of it with the change that
            // made it, those among them that were not there; but not where another came before it.
            if keys.len() > 1 && below.values().any(|entry| entry.count > head.facts.count) {
                match self.live_head(place).await? {
                    Some(next) if next.facts.follows(&head.facts) => head = next,
                    next => {
                        seen.push(head.facts.version);
                        found = next;
                        continue;
                    }
                }
                overlay(&head, keys, &mut below);
            }
            if let Some(items) = self.items_of(place, &head, below, keys).await? {
                return Ok(Some(Record {
                    version: head.facts.version,
                    head: head.bytes,
                    items,
                }));
            }
            seen.push(head.facts.version);
            found = self.live_head(place).await?;
        }
        Err(self.torn(&seen))
    }

    /// What there is of these keys, tombstones among it: each as of this head or later.
    async fn below(
        &self,
        place: &RecordId,
        head: &Head,
        keys: &[Key],
    ) -> Result<HashMap<Key, Entry>, StorageError> {
        // A batch must not ask for one row twice.
        let distinct: Vec<&Key> = keys.iter().collect::<HashSet<_>>().into_iter().collect();
        let entries = self
            .entries(&head.facts.generation.partition(place), &distinct)
            .await?;
        let mut below = entries
            .into_iter()
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        overlay(head, keys, &mut below);
        Ok(below)
    }

    /// The items of these keys. None: some have gone in between.
    async fn items_of(
        &self,
        place: &RecordId,
        head: &Head,
        below: HashMap<Key, Entry>,
        keys: &[Key],
    ) -> Result<Option<Vec<Option<Item>>>, StorageError> {
        let is_missing = keys.iter().any(|key| !below.contains_key(key));
        if is_missing && !self.is_still(place, head.facts.generation).await? {
            return Ok(None);
        }
        let contents = below
            .into_iter()
            .filter_map(|(key, entry)| Some((key, entry.content?)))
            .collect();
        let partition = head.facts.generation.partition(place);
        let Some(items) = self.items(&partition, contents).await? else {
            return Ok(None);
        };
        let items: HashMap<Key, Item> = items
            .into_iter()
            .map(|item| (item.key.clone(), item))
            .collect();
        Ok(Some(
            keys.iter().map(|key| items.get(key).cloned()).collect(),
        ))
    }

    pub(super) async fn scan_items(
        &self,
        place: &RecordId,
        scan: &Scan,
    ) -> Result<Vec<Item>, StorageError> {
        let Scan {
            range,
            tags,
            most,
            bytes,
        } = scan;
        let (most, bytes) = (*most, *bytes);
        if range.start >= range.end || most == 0 || bytes == 0 {
            return Ok(Vec::new());
        }
        let mut seen = Vec::new();
        for _ in 0..ATTEMPTS {
            let Some(head) = self.live_head(place).await? else {
                return Ok(Vec::new());
            };
            let partition = head.facts.generation.partition(place);
            let mut chosen = Chosen {
                contents: Vec::new(),
                bytes: 0,
                tags,
                most,
                enough: bytes,
            };
            self.choose(&partition, &head, range, &mut chosen).await?;
            let items = self.items(&partition, chosen.contents).await?;
            if let Some(items) = items
                && self.is_still(place, head.facts.generation).await?
            {
                return Ok(items);
            }
            seen.push(head.facts.version);
        }
        Err(self.torn(&seen))
    }

    /// Merges the rows in the range with the pending change, both in order of their keys.
    async fn choose(
        &self,
        partition: &str,
        head: &Head,
        range: &Range<Key>,
        chosen: &mut Chosen<'_>,
    ) -> Result<(), StorageError> {
        let mut pending = head.pending.range(range.clone()).peekable();
        let mut query = tagged(self.within(partition, range), chosen.tags);
        if chosen.tags.is_empty() {
            // Those that the pending change removes are in the way; tombstones cost another page at
            // worst.
            let limit = chosen.most.saturating_add(head.pending.entries.len());
            query = query.set_limit(i32::try_from(limit).ok());
        }
        let mut from = None;
        loop {
            let (rows, next) = self.page(&query, from).await?;
            for row in rows {
                let entry = Entry::from_row(row)?;
                // The end of a condition on sort keys is part of what it selects, and that of a
                // range is not.
                if entry.key >= range.end {
                    break;
                }
                while let Some((key, content)) = pending.next_if(|(key, _)| **key < entry.key) {
                    chosen.offer(key.clone(), content.clone());
                }
                pending.next_if(|(key, _)| **key == entry.key);
                let entry = overlaid(head, entry);
                chosen.offer(entry.key, entry.content);
            }
            if chosen.is_enough() {
                return Ok(());
            }
            if next.is_none() {
                break;
            }
            from = next;
        }
        pending.for_each(|(key, content)| chosen.offer(key.clone(), content.clone()));
        Ok(())
    }

    /// Asks for the items in a range, and for the one at its end.
    pub(super) fn within(&self, partition: &str, range: &Range<Key>) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :p AND sk BETWEEN :a AND :b")
            .expression_attribute_values(":p", text(partition))
            .expression_attribute_values(":a", binary(&item_key(&range.start)))
            .expression_attribute_values(":b", binary(&item_key(&range.end)))
    }

    /// A page of a query, and from where the next one is.
    pub(super) async fn page(
        &self,
        query: &QueryFluentBuilder,
        from: Option<Row>,
    ) -> Result<(Vec<Row>, Option<Row>), StorageError> {
        let query = query.clone().set_exclusive_start_key(from);
        let answer = self
            .ask::<_, QueryError, _>(|| query.clone().send())
            .await?;
        Ok((
            answer.items.unwrap_or_default(),
            answer.last_evaluated_key.filter(|key| !key.is_empty()),
        ))
    }

    /// What to say after the last attempt, each of which missed something below a head with one of
    /// these versions.
    fn torn(&self, seen: &[crate::storage::Version]) -> StorageError {
        if seen.iter().all(|version| Some(version) == seen.first()) {
            return damaged();
        }
        StorageError::Unavailable("a record in DynamoDB changes faster than it can be read".into())
    }
}

/// Lays what the pending change makes of these keys over what was read of them.
fn overlay(head: &Head, keys: &[Key], below: &mut HashMap<Key, Entry>) {
    let count = head.facts.count;
    for key in keys {
        if let Some(content) = head.pending.entries.get(key)
            && below.get(key).is_none_or(|entry| entry.count < count)
        {
            below.insert(
                key.clone(),
                Entry {
                    key: key.clone(),
                    count,
                    content: content.clone(),
                },
            );
        }
    }
}

/// An entry, or what the pending change makes of it where that is later.
fn overlaid(head: &Head, entry: Entry) -> Entry {
    match head.pending.entries.get(&entry.key) {
        Some(content) if entry.count < head.facts.count => Entry {
            content: content.clone(),
            count: head.facts.count,
            ..entry
        },
        _ => entry,
    }
}

/// Lets the service leave out what has other tags, where it can.
fn tagged(query: QueryFluentBuilder, tags: &[String]) -> QueryFluentBuilder {
    // An empty tag is an absent attribute, which no list of values selects.
    if tags.is_empty() || tags.len() > TAGS || tags.iter().any(String::is_empty) {
        return query;
    }
    let names: Vec<String> = (0..tags.len()).map(|index| format!(":t{index}")).collect();
    let query = query.filter_expression(format!("{} IN ({})", name::TAG, names.join(", ")));
    names
        .into_iter()
        .zip(tags)
        .fold(query, |query, (name, tag)| {
            query.expression_attribute_values(name, text(tag))
        })
}

/// What a scan has chosen so far.
struct Chosen<'a> {
    contents: Vec<(Key, Content)>,
    bytes: usize,
    tags: &'a [String],
    most: usize,
    enough: usize,
}

impl Chosen<'_> {
    fn is_enough(&self) -> bool {
        self.contents.len() >= self.most || self.bytes >= self.enough
    }

    fn offer(&mut self, key: Key, content: Option<Content>) {
        if self.is_enough() {
            return;
        }
        if let Some(content) = content
            && (self.tags.is_empty() || self.tags.contains(&content.tag))
        {
            self.bytes += content.value.len();
            self.contents.push((key, content));
        }
    }
}
