//! Where log lines go: standard error, one line each.

mod lines;

use std::io::IsTerminal;
use std::path::PathBuf;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;
use lines::Lines;

pub(crate) use lines::{is_journal, open_log, priority};

/// The daemon's log, whose level can change while it runs.
pub(crate) struct Logging {
    handle: Box<dyn Fn(Targets) + Send + Sync>,
    lines: Lines,
}

impl Logging {
    /// Starts to log what is at least at `level`.
    pub(crate) fn start(level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(targets(level));
        let colours = std::io::stderr().is_terminal();
        let lines = Lines::new();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .with_ansi(colours)
            .with_target(false)
            .without_time();
        let _ = tracing_subscriber::registry()
            .with(layer.with_filter(filter))
            .try_init();
        Self {
            handle: Box::new(move |targets| drop(handle.reload(targets))),
            lines,
        }
    }

    /// Standard error is this file, which is to be put aside when it is full.
    pub(crate) fn put_aside(&self, file: PathBuf) {
        self.lines.put_aside(file);
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
