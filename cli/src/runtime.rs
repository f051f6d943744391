//! The asynchronous runtime of a command.

use std::io;
use std::pin::{Pin, pin};

use mcp_sessiond_process::runtime::current_thread;

/// Runs the work of a command on a runtime of this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    // The runtime's loop is compiled for each type of future that it is given: this is one type.
    let work: Pin<&mut dyn Future<Output = T>> = pin!(work);
    Ok(current_thread()?.block_on(work))
}
