//! When a change of a setting applies. SIGHUP has the daemon read its configuration again; some
//! settings are in force from then on, others for whatever is started later.

use super::{Loaded, Source};

/// When a setting's value is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// Each time that the daemon needs it.
    AtOnce,
    /// When the daemon starts.
    DaemonStart,
    /// When a server's keeper registers.
    ServerStart,
    /// When a `wrap` or `serve` starts, which reads it itself.
    FrontStart,
}

impl Applies {
    /// That of the setting of this name.
    pub fn of(name: &str) -> Self {
        match name.split_once('.') {
            _ if name == "limits.frame_bytes" => Self::DaemonStart,
            _ if name == "http.linger_ms" => Self::ServerStart,
            Some(("storage" | "metrics", _)) => Self::DaemonStart,
            Some(("backends", _)) => Self::ServerStart,
            Some(("wrap" | "bundle" | "http", _)) => Self::FrontStart,
            _ => Self::AtOnce,
        }
    }

    /// What a change means for what runs already, for a line of the log. Empty: it applies.
    pub(super) fn remark(self) -> &'static str {
        match self {
            Self::AtOnce => "",
            Self::DaemonStart => "; it applies when the daemon is restarted",
            Self::ServerStart => "; servers that run already keep the previous value",
            Self::FrontStart => "; each `wrap` and `serve` reads it when it starts",
        }
    }
}

/// A value that stays in force although the configuration has another one by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldValue {
    pub(super) value: String,
    pub(super) source: Source,
}

impl Loaded {
    /// What is in force of this configuration in a daemon that went by `former` until now. While no
    /// storage is open, another `storage.url` counts at once.
    #[must_use]
    pub fn after(mut self, former: &Self, storage_is_open: bool) -> Self {
        let held = former.values().into_iter().filter(|(name, _)| {
            Applies::of(name) == Applies::DaemonStart && (storage_is_open || name != "storage.url")
        });
        self.held = held.collect();
        self
    }
}
