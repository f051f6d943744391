//! The asynchronous runtime of a command.

/// Runs the work of a command on a runtime of this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(mcp_sessiond_process::runtime::current_thread()?.block_on(work))
}
