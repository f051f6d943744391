//! Carrying out a rule: what it needs is read, what it has changed is committed on the condition
//! that nobody else has changed it since, and nothing is told before it is kept.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mcp_sessiond_proto::Error;

use super::draft::{Draft, Finished, Halt, Read};
use super::head::Head;
use super::{Access, Bounds, Contents, RETRY_AFTER_MS, Writer, draw, draw_version};
use crate::counters::count;
use crate::storage::{Key, Place, StorageError};

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
            let (value, finished) = self.told(&access.place, planned).await?;
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
                .storage
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
        let (value, _) = self.told(&access.place, planned).await?;
        self.settled(&access.place).await?;
        Ok(value)
    }

    /// A refusal tells something of what was read, too: not before that is kept.
    async fn told<T>(&self, place: &Place, planned: Result<T, Error>) -> Result<T, Error> {
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
            if read.head.is_some() && access.is_claimed() && self.storage.is_shared() {
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
                    let items = self.storage.scan(place, &scan).await;
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
    fn has_lost(&self, place: &Place) -> bool {
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
        place: &Place,
        read: &mut Read,
        keys: &[Key],
    ) -> Result<(), StorageError> {
        let mut keys = keys.to_vec();
        let mut record = self.storage.read(place, &keys).await?;
        if record.as_ref().map(|record| record.version) != read.version && !read.items.is_empty() {
            // All of it again, and at once: it is of one version then, however busy others are.
            keys.extend(read.items.drain().map(|(key, _)| key));
            record = self.storage.read(place, &keys).await?;
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
