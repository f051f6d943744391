//! Every line that this crate logs. The first six are fixed by DESIGN.md, "Token files": people
//! grep for them.

use std::fmt::Display;

use mcp_sessiond_proto::{Error, Loss};
use tracing::{info, warn};

use crate::error::Reason;

/// The target of every line that this crate logs.
pub const LOG_TARGET: &str = "mcp_sessiond_client";

pub(crate) fn absent() {
    info!(target: LOG_TARGET, "Token file not found (first run or clean slate)");
}

/// There may well have been a token, or be one in a session that another instance holds.
pub(crate) fn lost(loss: Loss) {
    warn!(target: LOG_TARGET, "Nothing is resumed: {}", loss.sentence());
}

pub(crate) fn never() {
    warn!(
        target: LOG_TARGET,
        "Nothing is resumed, now or later: this host serves several clients from one process (`siblings` is `never`)"
    );
}

/// The daemon's own line says which part it could not read.
pub(crate) fn doubtful() {
    warn!(
        target: LOG_TARGET,
        "Nothing is resumed, now or later: what this process was started with can't be read; `mcp-sessiond doctor --for PID` says which part"
    );
}

pub(crate) fn corrupted() {
    warn!(target: LOG_TARGET, "Token file corrupted, treating as stale");
}

pub(crate) fn unverified() {
    warn!(
        target: LOG_TARGET,
        "Could not verify parent process start time, session resume disabled for this instance"
    );
}

pub(crate) fn rejected() {
    warn!(target: LOG_TARGET, "Broker rejected resume token, starting fresh session");
}

pub(crate) fn resumed() {
    info!(target: LOG_TARGET, "Session resumed successfully");
}

/// `error` is [`Error::WriteFailed`], whose sentence begins with the fixed words.
pub(crate) fn write_failed(error: &Error) {
    warn!(target: LOG_TARGET, "{error}");
}

pub(crate) fn not_kept(why: &dyn Display) {
    warn!(target: LOG_TARGET, "Resume token not stored: {why}");
}

pub(crate) fn not_deleted(why: &dyn Display) {
    warn!(target: LOG_TARGET, "Rejected resume token not deleted: {why}");
}

pub(crate) fn disabled(reason: &Reason) {
    warn!(target: LOG_TARGET, "Session resume disabled: {reason}");
}
