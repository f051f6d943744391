//! What values are in their ranges.

use mcp_sessiond_proto::streams::MESSAGE_MAX;

use super::limits::FRAME_SHARES;
use super::{Config, ConfigError, names, value};
use crate::storage;

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    /// Half of what the client library waits for an answer.
    const CLAIM_WAIT_MAX_MS: u64 = 5_000;
    /// More often would keep the machine awake for nothing.
    const SWEEP_MIN_MS: u64 = 100;
    /// Other daemons believe in a client for three times as long after this one has told of it.
    const SWEEP_MAX_MS: u64 = 60_000;
    const POLL_MIN_MS: u64 = 10;
    /// A backend must not outlive its host for longer than anybody would wait for it to go.
    const STOP_WAIT_MAX_MS: u64 = 60_000;
    /// What the names of numbers of things begin with.
    const COUNTED: [&str; 3] = ["limits.", "backends.queue_", "http.sessions"];
    /// It is told as one line, and kept by each keeper.
    const STDERR_MAX: usize = 1024 * 1024;
    let backends = &config.backends;
    let limits = &config.limits;
    // No number of things, and no number of their bytes, may be 0.
    let table = toml::Table::try_from(config).unwrap_or_default();
    let mut counts = names(&table)
        .into_iter()
        .filter(|name| COUNTED.iter().any(|part| name.starts_with(part)));
    let is_nought =
        |name: &String| value(&table, name).and_then(toml::Value::as_integer) == Some(0);
    if let Some(name) = counts.find(is_nought) {
        return Err(ConfigError::Range(format!("{name} must be at least 1")));
    }
    // A value and a message must fit into a frame, with what stands around them.
    let largest = [
        (
            "limits.state_value_bytes",
            limits.state_value_bytes,
            MESSAGE_MAX,
        ),
        ("limits.message_bytes", limits.message_bytes, MESSAGE_MAX),
        ("backends.stderr_bytes", backends.stderr_bytes, STDERR_MAX),
    ];
    if let Some((name, _, most)) = largest.into_iter().find(|(_, value, most)| value > most) {
        return Err(ConfigError::Range(format!("{name} must be at most {most}")));
    }
    let sessions = &config.sessions;
    let times = [
        ("sessions.tombstone_ms", sessions.tombstone_ms, 1),
        ("sessions.sweep_ms", sessions.sweep_ms, SWEEP_MIN_MS),
        ("sessions.poll_ms", sessions.poll_ms, POLL_MIN_MS),
        ("sessions.handle_life_ms", sessions.handle_life_ms, 1),
        ("sessions.task_life_ms", sessions.task_life_ms, 1),
        // 0 would have a backend go between one front and the next, and so be of no use.
        ("backends.linger_ms", backends.linger_ms, 1),
        ("backends.closed_linger_ms", backends.closed_linger_ms, 1),
        ("backends.named_linger_ms", backends.named_linger_ms, 1),
        ("backends.ping_wait_ms", backends.ping_wait_ms, 1),
        ("backends.closes", backends.closes.into(), 1),
        ("backends.closes_ms", backends.closes_ms, 1),
        ("http.linger_ms", config.http.linger_ms, 1),
        ("wrap.first_line_wait_ms", config.wrap.first_line_wait_ms, 1),
        ("wrap.keeper_wait_ms", config.wrap.keeper_wait_ms, 1),
        (
            "bundle.init_concurrency",
            config.bundle.init_concurrency as u64,
            1,
        ),
        ("bundle.init_timeout_ms", config.bundle.init_timeout_ms, 1),
        ("bundle.ready_wait_ms", config.bundle.ready_wait_ms, 1),
        ("http.hold_ms", config.http.hold_ms, 1),
        ("http.keep_alive_ms", config.http.keep_alive_ms, 1),
        ("http.peer_wait_ms", config.http.peer_wait_ms, 1),
        ("backends.ask_wait_ms", backends.ask_wait_ms, 1),
        ("backends.stop_wait_ms", backends.stop_wait_ms, 1),
    ];
    if backends.stop_wait_ms > STOP_WAIT_MAX_MS {
        return Err(ConfigError::Range(format!(
            "backends.stop_wait_ms must be at most {STOP_WAIT_MAX_MS}"
        )));
    }
    if sessions.sweep_ms > SWEEP_MAX_MS {
        return Err(ConfigError::Range(format!(
            "sessions.sweep_ms must be at most {SWEEP_MAX_MS}"
        )));
    }
    if let Some((name, _, least)) = times.into_iter().find(|(_, value, least)| value < least) {
        return Err(ConfigError::Range(format!(
            "{name} must be at least {least}"
        )));
    }
    storage::Url::parse(&config.storage.url)
        .map_err(|error| ConfigError::Range(format!("storage.url: {error}")))?;
    config.metrics.bound().map_err(ConfigError::Range)?;
    // One process gets a quarter of it, and must be able to send one frame.
    let frames = mcp_sessiond_proto::hello::FRAME_MAX as usize * FRAME_SHARES;
    if limits.frame_bytes < frames {
        return Err(ConfigError::Range(format!(
            "limits.frame_bytes must be at least {frames}"
        )));
    }
    if config.claim_wait_ms > CLAIM_WAIT_MAX_MS {
        return Err(ConfigError::Range(format!(
            "claim_wait_ms must be at most {CLAIM_WAIT_MAX_MS}"
        )));
    }
    if config
        .adopt_version_1
        .as_ref()
        .is_some_and(|path| path.is_relative())
    {
        return Err(ConfigError::Range(
            "adopt_version_1 must be an absolute path".into(),
        ));
    }
    Ok(())
}
