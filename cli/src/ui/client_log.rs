//! The client library's log lines, for a command that speaks for a server.

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Lets them through as they are, on standard error.
pub(crate) fn to_stderr() {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_level(false)
        .without_time();
    let only = Targets::new().with_target(mcp_sessiond_client::LOG_TARGET, LevelFilter::INFO);
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(only))
        .try_init();
}
