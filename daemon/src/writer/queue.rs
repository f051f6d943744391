//! From the tasks to the thread that writes for them. What nobody waits for wakes it at most once
//! in a while.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Mark;
use mcp_sessiond_proto::Lock as _;

/// How long entries that nobody waits for are collected before they are committed. One commit of
/// many costs a third of many commits, for a page that several of them change is written once.
const LINGER: Duration = Duration::from_millis(10);

/// As many such entries are committed at once without waiting for more, for the one that comes next
/// may be waited for.
pub(super) const MANY: usize = 512;

/// Whether anybody waits for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody does.
    Awaited,
    /// Nobody does: it is kept elsewhere until it is committed.
    Kept,
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Queue<E> {
    waiting: Mutex<Waiting<E>>,
    more: Condvar,
}

#[derive(Debug)]
struct Waiting<E> {
    entries: Vec<E>,
    last: Mark,
    /// Whether somebody waits for one of them.
    is_awaited: bool,
    looks: bool,
    has_ended: bool,
    thread: Thread,
}

/// What the thread does.
#[derive(Debug, PartialEq, Eq)]
enum Thread {
    Works,
    /// Sleeps until anything comes.
    Sleeps,
    /// Collects what nobody waits for.
    Collects,
}

/// What the thread has to do.
#[derive(Debug)]
pub(super) struct Work<E> {
    pub(super) batch: Vec<E>,
    pub(super) last: Mark,
    /// Whether it was asked to look after the files.
    pub(super) looks: bool,
    /// Whether more may come.
    pub(super) is_open: bool,
}

impl<E> Default for Work<E> {
    fn default() -> Self {
        Self {
            batch: Vec::new(),
            last: Mark::default(),
            looks: false,
            is_open: true,
        }
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        let waiting = Waiting {
            entries: Vec::new(),
            last: Mark::default(),
            is_awaited: false,
            looks: false,
            has_ended: false,
            thread: Thread::Works,
        };
        Self {
            waiting: Mutex::new(waiting),
            more: Condvar::new(),
        }
    }
}

impl<E> Waiting<E> {
    fn has_nothing(&self) -> bool {
        self.entries.is_empty() && !self.looks && !self.has_ended
    }

    fn is_urgent(&self) -> bool {
        self.is_awaited || self.looks || self.has_ended || self.entries.len() >= MANY
    }
}

impl<E> Queue<E> {
    fn lock(&self) -> MutexGuard<'_, Waiting<E>> {
        self.waiting.locked()
    }

    /// Adds an entry, after all others. After the end it is dropped; who waits for it learns that
    /// it is not kept.
    pub(super) fn push(&self, mark: Mark, entry: E, urgency: Urgency) {
        let mut waiting = self.lock();
        if waiting.has_ended {
            return;
        }
        waiting.entries.push(entry);
        waiting.last = mark;
        waiting.is_awaited |= urgency == Urgency::Awaited;
        self.wake(waiting);
    }

    /// Has the thread look after the files.
    pub(super) fn look(&self) {
        let mut waiting = self.lock();
        waiting.looks = true;
        self.wake(waiting);
    }

    /// Has the thread end once it has written what is here.
    pub(super) fn end(&self) {
        let mut waiting = self.lock();
        waiting.has_ended = true;
        self.wake(waiting);
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting<E>>) {
        let wakes = match waiting.thread {
            Thread::Works => false,
            Thread::Sleeps => true,
            Thread::Collects => waiting.is_urgent(),
        };
        if wakes {
            waiting.thread = Thread::Works;
            drop(waiting);
            self.more.notify_one();
        }
    }

    /// Returns when there is something to do that should be done now.
    pub(super) fn wait(&self) {
        let mut waiting = self.lock();
        while waiting.has_nothing() {
            waiting.thread = Thread::Sleeps;
            waiting = self
                .more
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        waiting.thread = Thread::Collects;
        let collected = self
            .more
            .wait_timeout_while(waiting, LINGER, |waiting| !waiting.is_urgent());
        let (mut waiting, _) = collected.unwrap_or_else(PoisonError::into_inner);
        waiting.thread = Thread::Works;
    }

    /// Takes all that is here.
    pub(super) fn take(&self, work: &mut Work<E>) {
        let mut waiting = self.lock();
        if work.batch.is_empty() {
            // The two change places, so that neither has to grow again.
            std::mem::swap(&mut work.batch, &mut waiting.entries);
        } else {
            work.batch.append(&mut waiting.entries);
        }
        work.last = work.last.max(waiting.last);
        work.looks |= std::mem::take(&mut waiting.looks);
        work.is_open = !waiting.has_ended;
        waiting.is_awaited = false;
    }
}
