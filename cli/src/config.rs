//! What the configuration says to a front. The daemon reads its own.

use std::time::Duration;

use mcp_sessiond_daemon::config::{self, Config, Loaded};
use mcp_sessiond_proto::backends;
use mcp_sessiond_proxy::front_settings::{FrontSettings, Tell};

/// The settings of a front. A configuration that is wrong is the daemon's to complain about: the host
/// must have its server.
pub(crate) fn front_settings(config: &Config) -> FrontSettings {
    FrontSettings {
        first_line_wait: Duration::from_millis(config.wrap.first_line_wait_ms),
        keeper_wait: Duration::from_millis(config.wrap.keeper_wait_ms),
        input_end_wait: Duration::from_millis(config.wrap.input_end_wait_ms),
        stop_wait: Duration::from_millis(config.backends.stop_wait_ms),
        tell: match config.wrap.tell {
            config::Tell::Log => Tell::Log,
            config::Tell::Error => Tell::Error,
        },
        waits_for_name: false,
    }
}

/// The configuration, or the defaults where it is wrong. From now on this process relays messages as
/// large as it says.
pub(crate) fn load_or_default() -> Config {
    let loaded = config::usual_path().and_then(|path| config::load(Some(&path), &[]).ok());
    let config = loaded
        .map(|Loaded { config, .. }| config)
        .unwrap_or_default();
    relay_up_to_its_limit(&config);
    config
}

/// How large the messages are that this process relays.
pub(crate) fn relay_up_to_its_limit(config: &Config) {
    let bytes = config.wrap.message_max_mib * 1024 * 1024;
    backends::set_relayed_max(usize::try_from(bytes).unwrap_or(usize::MAX));
}
