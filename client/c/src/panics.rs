//! A panic of ours neither leaves this library nor writes to standard error, which belongs to the server.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// This thread is one of ours, or is within a call of ours.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Says nothing of a panic of ours. Another library in Rust that is linked into the same program keeps its own way.
pub(crate) fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !OURS.get() {
                others(panic);
            }
        }));
    });
}

/// From here on this thread is ours.
pub(crate) fn take_over_thread() {
    OURS.set(true);
}

/// What comes of it; nothing where it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let was = OURS.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    OURS.set(was);
    // What a panic carries may itself panic when it is dropped.
    done.map_err(std::mem::forget).ok()
}
