//! The memory of processes that live as long as a host.

use std::time::Duration;

/// How long after its start a process gives back what it needed only for that.
const STARTED: Duration = Duration::from_secs(5);

/// Waits until this process has started, and then gives memory back, once. Spawn it in the
/// process's runtime.
pub async fn give_back_once_started() {
    tokio::time::sleep(STARTED).await;
    mcp_sessiond_process::sys::give_back_memory();
}
