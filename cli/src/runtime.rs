//! The asynchronous runtime of a command.

/// Runs the work of a command on a runtime of this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work))
}
