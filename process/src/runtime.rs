//! The asynchronous runtime of a process: of one thread, which gives memory back when it next goes
//! to sleep.
//!
//! To let go of program text is the last thing that a process does before it sleeps: the runtime does
//! it in the hook of its thread that parks. If a task did it, every future would still be polled once
//! more before the sleep, and their text would be read in again. That is five times as much as what
//! leads from the hook to `epoll_wait`.

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
