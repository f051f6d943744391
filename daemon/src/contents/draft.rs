//! A change of one session in the making: rules over what was read, without any I/O.
//!
//! A rule is a function of a [`Draft`]. Where it needs something that was not read yet it says so
//! ([`Halt`]), that is read, and it is run again from the start. So rules read like plain code, and
//! are the same for every backend.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use mcp_sessiond_proto::{Error, RequestId, StreamId};

use super::bounds::Bounds;
use super::head::{self, Done, Head, StreamRow, Will};
use super::keys;
use crate::storage::{
    Change, Head as StoredHead, Item, Key, RECORD_COST, Scan, StorageError, Version,
};

/// Bytes that a head may grow by unnoticed: numbers in it become longer, and those that were 0 are
/// written. A power of two.
const HEAD_SLACK: usize = 128;

/// Why a rule did not come to its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// It refuses.
    Refuse(Error),
    /// It needs these items.
    Read(Vec<Key>),
    /// It needs this scan.
    Scan(Scan),
    /// What was read is damaged.
    Storage(StorageError),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Refuse(error)
    }
}

impl From<StorageError> for Halt {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// What was read of a session so far.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// The version that it was read at; None: there is no record.
    pub(super) version: Option<Version>,
    pub(super) head: Option<Bytes>,
    pub(super) items: HashMap<Key, Option<Item>>,
    pub(super) scans: HashMap<Scan, Vec<Item>>,
}

/// A change in the making.
pub(super) struct Draft<'a> {
    pub(super) now_ms: u64,
    pub(super) bounds: &'a Bounds,
    pub(super) head: Head,
    read: &'a Read,
    rows: HashMap<StreamId, StreamRow>,
    change: Change,
    dirty: bool,
    ends: bool,
    /// Nobody used the session by this.
    quiet: bool,
    /// Bytes of what is forgotten.
    freed: usize,
    /// Events that go to make room, or for their age.
    pruned: u64,
    /// Until when nobody has to look at it, whatever the head says.
    spared_until_ms: u64,
}

/// A change that can be committed.
pub(super) struct Finished {
    pub(super) change: Change,
    /// Bytes that it adds.
    pub(super) added: usize,
    /// Events that it prunes.
    pub(super) pruned: u64,
}

impl<'a> Draft<'a> {
    /// Of what was read; `fresh` is the head where there is no record yet.
    pub(super) fn new(
        read: &'a Read,
        fresh: Head,
        now_ms: u64,
        bounds: &'a Bounds,
    ) -> Result<Self, StorageError> {
        let head = read
            .head
            .as_ref()
            .map_or(Ok(fresh), |bytes| head::decode(bytes))?;
        Ok(Self {
            now_ms,
            bounds,
            head,
            read,
            rows: HashMap::new(),
            change: Change::default(),
            dirty: false,
            ends: false,
            quiet: false,
            freed: 0,
            pruned: 0,
            spared_until_ms: 0,
        })
    }

    /// An item as it was read.
    pub(super) fn item(&self, key: &Key) -> Result<Option<&'a Item>, Halt> {
        match self.read.items.get(key) {
            Some(item) => Ok(item.as_ref()),
            None => Err(Halt::Read(vec![key.clone()])),
        }
    }

    /// Makes sure that these were read, all at once.
    pub(super) fn need(&self, keys: impl IntoIterator<Item = Key>) -> Result<(), Halt> {
        let missing: Vec<Key> = keys
            .into_iter()
            .filter(|key| !self.read.items.contains_key(key))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Halt::Read(missing))
        }
    }

    /// The items of a range, as they were read.
    pub(super) fn scan(&self, scan: Scan) -> Result<&'a [Item], Halt> {
        match self.read.scans.get(&scan) {
            Some(items) => Ok(items),
            None => Err(Halt::Scan(scan)),
        }
    }

    /// A stream as this draft leaves it. The standalone one is always there.
    pub(super) fn stream(&mut self, stream: &StreamId) -> Result<Option<StreamRow>, Halt> {
        if let Some(row) = self.rows.get(stream) {
            return Ok(Some(row.clone()));
        }
        match self.item(&keys::stream_key(stream))? {
            Some(item) => Ok(Some(head::decode(&item.value)?)),
            None if stream.as_str() == StreamId::STANDALONE => Ok(Some(StreamRow::default())),
            None => Ok(None),
        }
    }

    /// Whether the stream has a row on record.
    pub(super) fn has_row(&self, stream: &StreamId) -> Result<bool, Halt> {
        Ok(self.rows.contains_key(stream) || self.item(&keys::stream_key(stream))?.is_some())
    }

    /// Puts a stream on record, new or changed.
    pub(super) fn set_stream(&mut self, stream: StreamId, row: StreamRow) -> Result<(), Halt> {
        if !self.has_row(&stream)? {
            self.head.streams += 1;
        }
        self.dirty = true;
        self.rows.insert(stream, row);
        Ok(())
    }

    /// Puts a will on a stream that is about to be put on record, or takes it off.
    pub(super) fn set_will(&mut self, row: &mut StreamRow, will: Option<Will>) {
        let (had, has) = (row.will.is_some(), will.is_some());
        self.head.wills = self.head.wills.saturating_sub(had.into()) + u32::from(has);
        row.will = will;
    }

    /// Takes a stream off the record.
    pub(super) fn drop_stream(&mut self, stream: &StreamId) {
        self.rows.remove(stream);
        self.head.streams = self.head.streams.saturating_sub(1);
        self.remove(keys::stream_key(stream));
    }

    /// The state version before this request was carried out, if it was.
    pub(super) fn done(&self, request: Option<&RequestId>) -> Result<Option<u64>, Halt> {
        match request {
            Some(request) => Ok(self.all_done()?.find(request)),
            None => Ok(None),
        }
    }

    /// This request is carried out; before it, the state version was this.
    pub(super) fn set_done(
        &mut self,
        request: Option<&RequestId>,
        before: u64,
    ) -> Result<(), Halt> {
        if let Some(request) = request {
            let done = self.all_done()?.and(request, before);
            self.put(keys::done_key(), "", head::encode(&done));
        }
        Ok(())
    }

    /// What was carried out before is remembered, although everything else goes.
    pub(super) fn keep_done(
        &mut self,
        request: Option<&RequestId>,
        before: u64,
    ) -> Result<(), Halt> {
        match request {
            Some(_) => self.set_done(request, before),
            None => {
                if let Some(item) = self.item(&keys::done_key())? {
                    self.put(item.key.clone(), "", item.value.clone());
                }
                Ok(())
            }
        }
    }

    fn all_done(&self) -> Result<Done, Halt> {
        let item = self.item(&keys::done_key())?;
        Ok(item
            .map(|item| head::decode(&item.value))
            .transpose()?
            .unwrap_or_default())
    }

    pub(super) fn put(&mut self, key: Key, tag: &str, value: Bytes) {
        self.dirty = true;
        self.change.puts.push(Item {
            key,
            tag: tag.into(),
            value,
        });
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.dirty = true;
        self.change.removes.push(key);
    }

    /// Nobody asks for these any more.
    pub(super) fn forget(&mut self, range: Range<Key>) {
        self.dirty = true;
        self.change.forget.push(range);
    }

    /// So many bytes of what is forgotten were there.
    pub(super) fn free(&mut self, bytes: usize) {
        self.freed += bytes;
    }

    /// Nobody asks for this one any more.
    pub(super) fn forget_one(&mut self, key: &Key) {
        let end = [key, &b"\0"[..]].concat();
        self.forget(key.clone()..end.into());
    }

    /// All items go.
    pub(super) fn clear(&mut self) {
        self.dirty = true;
        self.change.clear = true;
    }

    /// The head alone has changed.
    pub(super) fn touch(&mut self) {
        self.dirty = true;
    }

    /// This is no use of the session, which would put off its end.
    pub(super) fn quietly(&mut self) {
        self.quiet = true;
    }

    /// It has outlived its time and stays: nobody has to look at it until then.
    pub(super) fn spare(&mut self, until_ms: u64) {
        self.spared_until_ms = until_ms;
    }

    /// The record goes.
    pub(super) fn end(&mut self) {
        self.dirty = true;
        self.ends = true;
    }

    /// Bytes that the change adds, less those of what it puts others in place of, removes and
    /// forgets, as far as that was read: what makes a session smaller is let through though its
    /// owner has used up everything.
    fn added(&self) -> usize {
        let size = |item: &Item| item.key.len() + item.value.len();
        let known = |key: &Key| {
            self.read
                .items
                .get(key)
                .and_then(Option::as_ref)
                .map_or(0, size)
        };
        let Change {
            clear,
            puts,
            removes,
            ..
        } = &self.change;
        let put: usize = puts.iter().map(size).sum();
        let replaced: usize = puts.iter().map(|item| known(&item.key)).sum();
        let removed: usize = removes.iter().map(known).sum();
        if *clear {
            0
        } else {
            put.saturating_sub(replaced + removed + self.freed)
        }
    }

    /// Counts events that go.
    pub(super) fn prune(&mut self, events: u64) {
        self.pruned += events;
    }

    /// The change, if there is anything to be changed, and what it comes to.
    pub(super) fn finish(mut self) -> Option<Finished> {
        if !self.dirty {
            return None;
        }
        if self.ends {
            return Some(Finished {
                change: Change::default(),
                added: 0,
                pruned: 0,
            });
        }
        for (stream, row) in std::mem::take(&mut self.rows) {
            let value = head::encode(&row);
            self.change.puts.push(Item {
                key: keys::stream_key(&stream),
                tag: String::new(),
                value,
            });
        }
        if !self.quiet {
            self.head.active_ms = self.head.active_ms.max(self.now_ms);
        }
        let due_ms = self.head.due_ms(self.bounds).max(self.spared_until_ms);
        let bytes = head::encode(&self.head);
        let grown = bytes
            .len()
            .saturating_sub(self.read.head.as_ref().map_or(0, Bytes::len));
        // A new record is more than its bytes; and a few more digits in a head are no growth.
        let grown = if self.read.head.is_none() {
            grown + RECORD_COST
        } else {
            grown & !(HEAD_SLACK - 1)
        };
        let added = self.added() + grown;
        self.change.head = Some(StoredHead { bytes, due_ms });
        Some(Finished {
            change: self.change,
            added,
            pruned: self.pruned,
        })
    }
}
