//! One change of one session, from what it reads to its being kept.
//!
//! A rule is a function of a [`Draft`], without any I/O. Where it needs something that was not read
//! yet it says so ([`Halt`]), that is read, and it is run again from the start. So rules read like
//! plain code, and are the same for every backend. What it has changed is committed on the
//! condition that nobody else has changed it since, and no answer is given before it is kept.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_proto::{Error, RequestId, StreamId};

use super::head::{self, Done, Head, StreamRow, Will};
use super::{Access, Bounds, Contents, RETRY_AFTER_MS, Writer, draw, draw_version, keys};
use crate::counters::count;
use crate::storage::{
    Change, Head as StoredHead, Item, Key, RECORD_COST, RecordId, Scan, StorageError, Version,
};

/// How often a change is tried again that met another daemon's. Each attempt that fails is somebody
/// else's success, so this many mean that a session is written to by very many at once. With 64 a
/// daemon gave up beside a single other one that wrote without a pause: who has just won begins the
/// next round first.
pub(super) const CONFLICTS_MAX: u32 = 256;

/// The pause before the second attempt is up to so long; the next ones may be longer, up to
/// [`CONFLICT_PAUSES`] times. Not longer: whoever pauses is overtaken.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// How many times [`CONFLICT_PAUSE`] a pause may be.
const CONFLICT_PAUSES: u32 = 8;

/// Reads that one rule may ask for: far more than any does.
const READS_MAX: u32 = 40;

/// What a rule is allowed to meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admit {
    /// A session that lives, for a caller that it is bound to.
    Living,
    /// The same, for a call that goes on: its caller was the right one when it began, and may have
    /// been rotated out since.
    Known,
    /// The same as the first, or one that was terminated.
    Any,
    /// Whatever is there: the daemon itself looks after it.
    Unchecked,
}

impl Contents {
    /// Carries out a rule that may change a session: reads what it needs, and commits what it has
    /// changed. Returns once that is kept.
    pub(super) async fn change<T>(
        &self,
        access: &Access,
        admit: Admit,
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        self.change_of(access, admit, &[], rule).await
    }

    /// The same where it is known what the rule needs to read: it need not be run to find that out.
    pub(super) async fn change_of<T>(
        &self,
        access: &Access,
        admit: Admit,
        keys: &[Key],
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        self.accepts()?;
        let lock = self.locks.of(&access.place).lock_owned().await;
        // What is nobody's any more may have left a tombstone, which says more.
        if !matches!(access.writer, Writer::Nobody) {
            access.may_write()?;
        }
        let mut conflicts = 0;
        loop {
            let bounds = self.bounds();
            let mut read = Read::default();
            let planned = self
                .plan(access, admit, &bounds, keys, &mut read, &rule)
                .await;
            let (value, finished) = self.settle_refusal(&access.place, planned).await?;
            let Some(Finished {
                change,
                added,
                pruned,
            }) = finished
            else {
                drop(lock);
                self.settled(&access.place).await?;
                return Ok(value);
            };
            self.afford(&access.place, added, &bounds)?;
            // Since the last look there may have been a wait for the storage.
            access.may_write()?;
            let committed = self
                .store
                .commit(&access.place, read.version, draw_version(), change)
                .await;
            match committed {
                Ok(durable) => {
                    drop(lock);
                    durable.kept().await.map_err(|error| self.failed(&error))?;
                    self.meters
                        .counters
                        .events_pruned_total
                        .fetch_add(pruned, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(StorageError::Conflict) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    count(&self.meters.counters.storage_conflicts_total);
                    pause(conflicts).await;
                }
                Err(StorageError::Conflict) => {
                    let sentence = "too many daemons write to this session at once".into();
                    return Err(Error::Unavailable {
                        sentence,
                        retry_after_ms: RETRY_AFTER_MS,
                    });
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// Carries out a rule that changes nothing.
    pub(super) async fn look<T>(
        &self,
        access: &Access,
        admit: Admit,
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        self.look_at(access, admit, &[], rule).await
    }

    /// The same where it is known what the rule needs to read.
    pub(super) async fn look_at<T>(
        &self,
        access: &Access,
        admit: Admit,
        keys: &[Key],
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        let (value, active) = self.look_quietly(access, admit, keys, rule).await?;
        if !active {
            self.note_active(access).await;
        } else if access.place.owner.starts_with("service ") {
            self.uses.note(&access.place, self.clock.now_ms());
        }
        Ok(value)
    }

    /// The same, without a note that the session is in use. Tells whether there is a recent one.
    pub(super) async fn look_quietly<T>(
        &self,
        access: &Access,
        admit: Admit,
        keys: &[Key],
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<(T, bool), Error> {
        let bounds = self.bounds();
        let mut read = Read::default();
        let rule =
            |draft: &mut Draft<'_>| Ok((rule(draft)?, draft.head.is_recently_active(draft.now_ms)));
        let planned = self
            .plan(access, admit, &bounds, keys, &mut read, &rule)
            .await;
        let (value, _) = self.settle_refusal(&access.place, planned).await?;
        self.settled(&access.place).await?;
        Ok(value)
    }

    /// A refusal tells something of what was read, too: not before that is kept.
    async fn settle_refusal<T>(
        &self,
        place: &RecordId,
        planned: Result<T, Error>,
    ) -> Result<T, Error> {
        match planned {
            Err(Error::Unavailable { .. }) | Ok(_) => {}
            Err(_) => self.settled(place).await?,
        }
        planned
    }

    /// Runs a rule until it has read all that it needs.
    async fn plan<T>(
        &self,
        access: &Access,
        admit: Admit,
        bounds: &Bounds,
        keys: &[Key],
        read: &mut Read,
        rule: &impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<(T, Option<Finished>), Error> {
        let Access { place, .. } = access;
        let failed = |error: &StorageError| self.failed(error);
        self.read(place, read, keys)
            .await
            .map_err(|error| failed(&error))?;
        // One for all attempts: from its secret a rule may derive which keys it reads.
        let mut made: Option<Head> = None;
        for attempt in 0..READS_MAX {
            if read.head.is_none() && (!access.is_claimed() || self.has_lost(place)) {
                return Err(Error::UnknownSession);
            }
            if read.head.is_some() && access.is_claimed() && self.store.is_shared() {
                self.known.note(place);
            }
            let now_ms = self.clock.now_ms();
            // Randomness is a call of the kernel: only where it is needed.
            let fresh = match read.head {
                None => made.get_or_insert_with(|| Head::claimed(now_ms)).clone(),
                Some(_) => Head::default(),
            };
            let mut draft =
                Draft::new(read, fresh, now_ms, bounds).map_err(|error| failed(&error))?;
            if let Err(refusal) = self.admits(access, admit, &draft) {
                if refusal == Error::BindingMismatch
                    && draft
                        .head
                        .bound
                        .as_ref()
                        .is_some_and(|bound| bound.terminates(access.caller.as_ref()))
                {
                    drop(draft);
                    match self.terminate_for_mismatch(place, read).await {
                        Ok(()) => return Err(refusal),
                        // Others write to it. It is looked at again, and ends all the same.
                        Err(StorageError::Conflict) => {
                            pause(attempt).await;
                            self.read(place, read, &[])
                                .await
                                .map_err(|error| failed(&error))?;
                            continue;
                        }
                        Err(error) => return Err(failed(&error.known())),
                    }
                }
                return Err(refusal);
            }
            match rule(&mut draft) {
                Ok(value) => return Ok((value, draft.finish())),
                Err(Halt::Refuse(error)) => return Err(error),
                Err(Halt::Storage(error)) => return Err(failed(&error)),
                Err(Halt::Read(keys)) => {
                    self.read(place, read, &keys)
                        .await
                        .map_err(|error| failed(&error))?;
                }
                Err(Halt::Scan(scan)) => {
                    let items = self.store.scan(place, &scan).await;
                    read.scans
                        .insert(scan, items.map_err(|error| failed(&error))?);
                }
            }
        }
        // Others change it faster than it can be read.
        Err(failed(&StorageError::Conflict))
    }

    /// Whether a session that is still claimed was there, and others have ended it. Then it has
    /// ended here, too: until its end is complete, no caller may see it as a session that is merely
    /// empty.
    fn has_lost(&self, place: &RecordId) -> bool {
        let lost = self.known.has(place);
        if lost {
            tracing::warn!(session = %place.name, "a session's contents were deleted by another daemon, or by hand; it has ended");
            self.tell_end(place);
        }
        lost
    }

    /// Reads a record and some of its items. When it has changed since the last time, what was read
    /// then is worth nothing.
    pub(super) async fn read(
        &self,
        place: &RecordId,
        read: &mut Read,
        keys: &[Key],
    ) -> Result<(), StorageError> {
        let mut keys = keys.to_vec();
        let mut record = self.store.read(place, &keys).await?;
        if record.as_ref().map(|record| record.version) != read.version && !read.items.is_empty() {
            // All of it again, and at once: it is of one version then, however busy others are.
            keys.extend(read.items.drain().map(|(key, _)| key));
            record = self.store.read(place, &keys).await?;
        }
        let version = record.as_ref().map(|record| record.version);
        if version != read.version {
            *read = Read {
                version,
                ..Read::default()
            };
        }
        match record {
            None => {
                read.head = None;
                read.items.extend(keys.into_iter().map(|key| (key, None)));
            }
            Some(record) => {
                read.head = Some(record.head);
                read.items.extend(keys.into_iter().zip(record.items));
            }
        }
        Ok(())
    }

    /// Whether the caller may have what it asks for.
    pub(super) fn admits(
        &self,
        access: &Access,
        admit: Admit,
        draft: &Draft<'_>,
    ) -> Result<(), Error> {
        let Draft {
            head,
            now_ms,
            bounds,
            ..
        } = draft;
        self.clock.observe(head.active_ms);
        if admit == Admit::Unchecked {
            return Ok(());
        }
        let is_gone = matches!(access.writer, Writer::Nobody) && !head.is_terminated();
        if is_gone
            || head
                .ended(*now_ms, bounds, self.in_use(access, head, *now_ms))
                .is_some()
        {
            return Err(Error::UnknownSession);
        }
        if let Some(bound) = head.bound.as_ref().filter(|_| admit != Admit::Known) {
            bound.admits(access.caller.as_ref(), *now_ms)?;
        }
        match admit {
            Admit::Living | Admit::Known if head.is_terminated() => Err(Error::SessionTerminated),
            _ => Ok(()),
        }
    }

    pub(super) fn in_use(&self, access: &Access, head: &Head, now_ms: u64) -> bool {
        let held = matches!(&access.writer, Writer::Holder(lease) if lease.is_held());
        held || self.presence.is_in_use(&access.place) || self.is_attached_elsewhere(head, now_ms)
    }
}

/// Waits a random while, longer with every conflict.
async fn pause(conflicts: u32) {
    let longest = CONFLICT_PAUSE * conflicts.min(CONFLICT_PAUSES);
    let part = f64::from(u32::from_ne_bytes(draw())) / f64::from(u32::MAX);
    tokio::time::sleep(longest.mul_f64(part)).await;
}

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
