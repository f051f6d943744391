//! How long a keeper that does not answer is waited for. A keeper that can't answer, because it is
//! stopped or gets no processor time, is waited for as long as its front has a host. A keeper that
//! could answer, and has not for [`HUNG_AFTER`], hangs; the daemon ends it.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use mcp_sessiond_process::{self as process, Health, HealthWatch};
use mcp_sessiond_proto::{KeeperName, paths};

use super::dial_error::DialError;
pub use super::dial_error::HUNG_AFTER;

/// How long a keeper is stalled before the user is told.
pub const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The time between two looks at the keeper's process.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The silence of one keeper, over several attempts to reach it.
#[derive(Debug)]
pub struct Silence {
    keeper: KeeperName,
    /// None until its process is known.
    watch: Option<HealthWatch>,
    looked: Instant,
    /// Since when nothing has come from the keeper, where that is longer than it is asked.
    quiet: Option<Instant>,
    /// For how long it could have answered.
    awake: Duration,
    /// Since when it can't answer.
    stalled: Option<Instant>,
    is_told: bool,
}

impl Silence {
    /// The keeper is asked from now on.
    pub fn of(keeper: KeeperName) -> Self {
        let now = Instant::now();
        Self {
            keeper,
            watch: None,
            looked: now,
            quiet: None,
            awake: Duration::ZERO,
            stalled: None,
            is_told: false,
        }
    }

    /// The keeper is asked from now on, and nothing has come from it since `quiet`.
    pub fn since(keeper: KeeperName, quiet: Instant) -> Self {
        Self {
            quiet: Some(quiet),
            ..Self::of(keeper)
        }
    }

    /// The keeper.
    pub fn keeper(&self) -> KeeperName {
        self.keeper
    }

    /// It has answered, if only that it is busy: what follows is another silence.
    pub fn answered(&mut self) {
        *self = Self {
            watch: self.watch.take(),
            ..Self::of(self.keeper)
        };
    }

    /// The pid of the keeper's process, if that has been stalled for [`NOTICE_AFTER`]. Once only.
    pub fn notice(&mut self) -> Option<u32> {
        let is_due = self
            .stalled
            .is_some_and(|since| since.elapsed() >= NOTICE_AFTER);
        let pid = self.watch.as_ref()?.process().id().pid;
        let is_news = is_due && !self.is_told;
        self.is_told |= is_due;
        is_news.then_some(pid)
    }

    /// The pid of the keeper's process, if that is stalled.
    pub(crate) fn stalled(&self) -> Option<u32> {
        let watch = self.watch.as_ref()?;
        self.stalled.map(|_| watch.process().id().pid)
    }

    /// Asking begins again after a pause, which was not the keeper's.
    pub(super) fn resume(&mut self) {
        self.looked = Instant::now();
    }

    /// The keeper, which listens on this connection, is still silent.
    ///
    /// # Errors
    /// [`DialError::Hung`], [`DialError::Gone`], or [`DialError::Unidentified`].
    pub(super) fn look(&mut self, directory: &Path, to: &impl AsFd) -> Result<(), DialError> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => {
                let locks = paths::keeper_locks(directory);
                let process = process::listener(to, &locks, self.keeper.0)?;
                none.insert(HealthWatch::new(process))
            }
        };
        let passed = self.looked.elapsed();
        if passed < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        match watch.look() {
            Health::Gone => return Err(DialError::Gone),
            Health::Stalled => {
                let since = self.quiet.take().unwrap_or(self.looked);
                self.stalled.get_or_insert(since);
            }
            Health::Idle | Health::Working => {
                self.stalled = None;
                // Where this process was stopped meanwhile, the keeper may have been, too.
                self.awake += passed.min(LOOK * 2);
            }
        }
        if self.awake >= HUNG_AFTER {
            return Err(DialError::Hung);
        }
        Ok(())
    }

    /// Why it does not answer, where it was waited for long enough.
    pub(super) fn given_up(&self) -> DialError {
        self.stalled().map_or(DialError::Silent, DialError::Stalled)
    }
}

/// What a user is told of a keeper that is stalled. `server` is what its user calls the server, and
/// `what` is what `restart` takes for it.
pub fn stalled_sentence(server: &str, pid: u32, what: &dyn std::fmt::Display) -> String {
    format!(
        "the process that keeps {server} (pid {pid}) is stopped; waiting for it; `mcp-sessiond restart {what}` ends it"
    )
}
