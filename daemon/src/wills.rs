//! Carries out the last wills of streams and tasks: those whose authors were connected to this
//! daemon, or to a former one of its directory.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mcp_sessiond_process::{ExitWatch, PinnedProcess, ProcessId, sys};
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::Lock as _;
use tokio::sync::Notify;

use crate::contents::{Contents, Of, Recorded};
use crate::engine::{Engine, home_of};
use crate::storage::RecordId;

/// The pause before the next attempt when the storage did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// The wills whose authors are watched.
pub struct Wills {
    engine: Arc<Engine>,
    contents: Arc<Contents>,
    watched: Mutex<Watched>,
    /// Other daemons of which wills were found at the start.
    others: Mutex<HashSet<String>>,
    /// Told when all was found.
    found: Notify,
}

struct Watched {
    exits: ExitWatch,
    authors: HashMap<(RecordId, Of), ProcessId>,
}

impl std::fmt::Debug for Wills {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Wills({})", self.lock().authors.len())
    }
}

impl Wills {
    /// Watches nobody yet.
    ///
    /// # Errors
    /// When the kernel does not tell of exits.
    pub fn new(engine: Arc<Engine>, contents: Arc<Contents>) -> io::Result<Self> {
        let watched = Watched {
            exits: ExitWatch::new()?,
            authors: HashMap::new(),
        };
        Ok(Self {
            engine,
            contents,
            watched: Mutex::new(watched),
            others: Mutex::default(),
            found: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.locked()
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.lock().authors.is_empty()
    }

    /// Waits until the wills that are on record at the start were found.
    pub async fn found(&self) {
        self.found.notified().await;
    }

    /// The homes of other daemons of which wills were found at the start. Each is told once.
    pub fn others(&self) -> HashSet<String> {
        std::mem::take(&mut self.others.locked())
    }

    /// As whom a process is on record.
    pub fn author(&self, process: &PinnedProcess) -> String {
        self.engine.owner(process.id())
    }

    /// A will is on record. This process has made it.
    ///
    /// # Errors
    /// [`Error::Unavailable`], if the process can't be watched: the next daemon carries the will
    /// out.
    pub fn made(&self, author: PinnedProcess, place: RecordId, of: Of) -> Result<(), Error> {
        let mut watched = self.lock();
        let id = author.id();
        watched.exits.add(author).map_err(|error| {
            let sentence = format!("the author of a will can't be watched: {error}");
            Error::Unavailable {
                sentence,
                retry_after_ms: 1_000,
            }
        })?;
        watched.authors.insert((place, of), id);
        Ok(())
    }

    /// A stream was closed, or a task has ended: its will is void.
    pub fn closed(&self, place: &RecordId, of: &Of) {
        let mut watched = self.lock();
        if !watched.authors.is_empty()
            && let Some(author) = watched.authors.remove(&(place.clone(), of.clone()))
        {
            watched.leave(author);
        }
    }

    /// A session has ended, with all its streams.
    pub fn ended(&self, place: &RecordId) {
        let mut watched = self.lock();
        let of = |(at, _): &(RecordId, Of)| at == place;
        let authors: Vec<ProcessId> = watched
            .authors
            .extract_if(|key, _| of(key))
            .map(|(_, id)| id)
            .collect();
        authors.into_iter().for_each(|author| watched.leave(author));
    }

    /// Carries out wills, until it is dropped.
    ///
    /// # Errors
    /// When the kernel no longer tells of exits.
    pub async fn run(self: Arc<Self>) -> io::Result<()> {
        tokio::spawn(self.clone().find());
        let readable = sys::when_readable(self.lock().exits.as_fd().try_clone_to_owned()?)?;
        loop {
            readable.readable().await?.clear_ready();
            for will in self.left() {
                let wills = self.clone();
                tokio::spawn(async move { wills.apply(will).await });
            }
        }
    }

    /// The wills of the processes that have exited.
    fn left(&self) -> Vec<Recorded> {
        let mut watched = self.lock();
        let exited = watched.exits.drain();
        let left = watched
            .authors
            .extract_if(|_, author| exited.contains(author));
        left.map(|((place, of), author)| Recorded {
            place,
            of,
            author: self.engine.owner(author),
        })
        .collect()
    }

    /// Carries out the wills of processes that have exited while no daemon ran, and watches the
    /// others.
    async fn find(self: Arc<Self>) {
        let found = loop {
            match self.contents.wills().await {
                Ok(found) => break found,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        for will in found {
            match self
                .engine
                .process_of(&will.author)
                .map(|process| PinnedProcess::reopen(&process))
            {
                Some(Ok(Some(author))) => {
                    // If it can't be watched, it is for the next daemon.
                    let _ = self.made(author, will.place, will.of);
                }
                Some(Ok(None)) => self.apply(will).await,
                Some(Err(error)) => {
                    tracing::warn!(%error, "could not look for the author of a will");
                }
                // Of another boot, since the storage is local.
                None if !self.contents.store().is_shared() => self.apply(will).await,
                None => {
                    let home = home_of(&will.author).map(str::to_owned);
                    self.others.locked().extend(home);
                }
            }
        }
        self.found.notify_one();
    }

    async fn apply(&self, will: Recorded) {
        while self.carry_out_once(&will).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Carries out a will, if its stream is still open. Tells whether it was. What can't be carried
    /// out at all is logged.
    ///
    /// # Errors
    /// When the storage did not answer: the caller may try again.
    pub async fn carry_out_once(&self, will: &Recorded) -> Result<bool, Error> {
        match self.contents.apply_will(will).await {
            Err(error @ (Error::Unavailable { .. } | Error::OutcomeUnknown { .. })) => Err(error),
            Err(Error::UnknownSession) => Ok(false),
            Ok(done) => Ok(done),
            Err(error) => {
                let (session, of) = (&will.place.name, &will.of);
                tracing::warn!(session, ?of, %error, "could not carry out a will");
                Ok(false)
            }
        }
    }
}

impl Watched {
    /// Watches a process no longer that has no will left.
    fn leave(&mut self, author: ProcessId) {
        if !self.authors.values().any(|other| *other == author) {
            self.exits.remove(&author);
        }
    }
}
