//! What the configuration says to a front: how long it waits, and how it tells of losses.

use std::time::Duration;

/// Where a front tells that a server was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tell {
    /// On its standard error, and by the keeper in the host's log, where the server writes there.
    Log,
    /// The first call after a loss that the host's connection has seen is refused with it as well, so
    /// that a model reads it.
    #[default]
    Error,
}

/// The settings of a front.
#[derive(Debug, Clone, Copy)]
pub struct FrontSettings {
    /// How long it waits for the host's first line, before it goes on without.
    pub first_line_wait: Duration,
    /// How long it waits for a keeper, before it runs the command as it is.
    pub keeper_wait: Duration,
    /// How long it waits for answers when the host has closed its input and still reads.
    pub input_end_wait: Duration,
    /// How long a server has to end.
    pub stop_wait: Duration,
    /// Where it tells of losses.
    pub tell: Tell,
    /// Whether it waits for a server with a name that another host has.
    pub waits_for_name: bool,
}

impl Default for FrontSettings {
    fn default() -> Self {
        Self {
            first_line_wait: Duration::from_secs(1),
            keeper_wait: Duration::from_secs(2),
            input_end_wait: Duration::from_secs(600),
            stop_wait: Duration::from_secs(2),
            tell: Tell::default(),
            waits_for_name: false,
        }
    }
}
