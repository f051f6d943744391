//! How long a front waits for a keeper, and how long it pauses between attempts.

use std::time::Duration;

/// How long it is tried to attach where a former server of this one is still being taken down: that
/// is the server's time.
pub(crate) const ATTACH_WAIT: Duration = Duration::from_secs(10);

/// The first and the longest pause between attempts; each is twice the one before.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Where a front tells that something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tell {
    /// On its standard error, and by a keeper that is still there in the host's log.
    #[default]
    Log,
    /// The first call after the loss is refused with it as well, so that a model reads it.
    Error,
}

/// How long a front waits before it goes on without, and how it tells of losses.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For the host's first line.
    pub first_line: Duration,
    /// To have a keeper.
    pub keeper: Duration,
    /// For what is under way when the host has closed its end.
    pub stop: Duration,
    /// Where losses are told.
    pub tell: Tell,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            first_line: Duration::from_secs(1),
            keeper: Duration::from_secs(2),
            stop: Duration::from_secs(2),
            tell: Tell::Log,
        }
    }
}
