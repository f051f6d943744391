//! What is to be done.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) what: What,
    /// Who is asked: callers take turns with them.
    pub(crate) of: Vec<Peer>,
    #[serde(default)]
    pub(crate) ask: Ask,
    /// Sessions, whose ids begin with this and end with a number of this range.
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) from: u64,
    #[serde(default = "one")]
    pub(crate) until: u64,
    /// Bytes of a value and of an event.
    #[serde(default = "hundred")]
    pub(crate) bytes: usize,
    /// Events of each session.
    #[serde(default)]
    pub(crate) events: usize,
    #[serde(default = "sixteen")]
    pub(crate) callers: usize,
    /// Calls of a caller whose time is taken.
    #[serde(default)]
    pub(crate) calls: usize,
    /// How long calls are counted.
    #[serde(default)]
    pub(crate) seconds: f64,
    /// Whose processor time is told, that of their children included.
    #[serde(default)]
    pub(crate) pids: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Fill,
    Latency,
    Rate,
}

/// Who is asked.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Peer {
    /// By its runtime directory.
    Daemon(PathBuf),
    /// By its socket.
    Redis(PathBuf),
}

/// What of a session is asked for. Redis has a key for each, and does with it what is nearest.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    #[default]
    Get,
    Set,
    /// Of one event.
    Append,
    /// Of the first hundred events.
    Begin,
    /// Of the last hundred that there were when it was filled.
    End,
}

impl Order {
    pub(crate) fn at(&self, index: usize) -> &Peer {
        &self.of[index % self.of.len()]
    }
}

fn one() -> u64 {
    1
}

fn hundred() -> usize {
    100
}

fn sixteen() -> usize {
    16
}
