//! What the configuration says to a front. The daemon reads its own.

use std::time::Duration;

use mcp_sessiond_daemon::config::{self, Config, Loaded};
use mcp_sessiond_proxy::waits::{Tell, Waits};

/// How long the configuration has us wait. One that is wrong is the daemon's to complain about: the
/// host must have its server.
pub(crate) fn front_waits(config: &Config) -> Waits {
    Waits {
        first_line: Duration::from_millis(config.wrap.first_line_wait_ms),
        keeper: Duration::from_millis(config.wrap.keeper_wait_ms),
        stop: Duration::from_millis(config.backends.stop_wait_ms),
        tell: match config.wrap.tell {
            config::Tell::Log => Tell::Log,
            config::Tell::Error => Tell::Error,
        },
    }
}

/// The configuration, or the defaults where it is wrong.
pub(crate) fn load_or_default() -> Config {
    let loaded = config::usual_path().and_then(|path| config::load(Some(&path), &[]).ok());
    loaded
        .map(|Loaded { config, .. }| config)
        .unwrap_or_default()
}
