//! Where log lines go: standard error, one line each.

use std::io::IsTerminal;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;

/// The daemon's log, whose level can change while it runs.
pub(crate) struct Logging {
    handle: Box<dyn Fn(Targets) + Send + Sync>,
}

impl Logging {
    /// Starts to log what is at least at `level`.
    pub(crate) fn start(level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(targets(level));
        // The journal adds the time itself.
        let journal = std::env::var_os("JOURNAL_STREAM").is_some();
        let colours = std::io::stderr().is_terminal();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(colours)
            .with_target(false);
        let lines = if journal { lines.without_time().boxed() } else { lines.boxed() };
        let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
        Self { handle: Box::new(move |targets| drop(handle.reload(targets))) }
    }

    /// Changes the level.
    pub(crate) fn set(&self, level: LogLevel) {
        (self.handle)(targets(level));
    }
}

/// Ours at the given level. tarpc opens a span for every call, which nobody reads.
fn targets(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new().with_target("mcp_sessiond", level)
}
