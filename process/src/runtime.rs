//! The asynchronous runtime of a process: of one thread, which gives memory back when it next goes
//! to sleep.
//!
//! Program text is let go of last of all before that, in the hook of a thread that parks. A task
//! that did it by itself would have its way out, through every future that is polled once more,
//! read in again at once: five times as much as the way from the hook to `epoll_wait`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Builder, Runtime};

use crate::sys;

static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// A runtime of this thread, with I/O and time.
///
/// # Errors
/// When there can be no more descriptors.
pub fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(|| {
            if IS_ASKED.swap(false, Ordering::Relaxed) {
                sys::give_back_memory();
            }
        })
        .build()
}

/// Has memory that nothing uses at the moment given back to the system as soon as there is nothing
/// to do: that of freed buffers, and of program text that was needed only to start. For a process
/// whose runtime is a [`current_thread`].
pub fn give_back_memory() {
    IS_ASKED.store(true, Ordering::Relaxed);
}
