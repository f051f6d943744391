//! What a session is bounded by. The configuration has every value with its default and its reason.

use crate::config::{Config, Limits, Sessions};

/// Limits and lifetimes in force.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bounds {
    /// How much a session may hold, and how many there may be.
    pub limits: Limits,
    /// How long they live.
    pub sessions: Sessions,
}

impl Bounds {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            limits: config.limits.clone(),
            sessions: config.sessions.clone(),
        }
    }
}

impl From<Limits> for Bounds {
    /// Limits, with lifetimes as they are by default.
    fn from(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }
}
