//! Catches panics of the library: none crosses into C, and none writes to standard error, which
//! belongs to the server.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// This thread is one of ours, or is within a call of ours.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Says nothing of a panic of ours. Another library in Rust that is linked into the same program
/// keeps its own way.
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::{env, panic, thread};

    use super::*;

    /// Set, this test's own executable runs the panics, and nothing else.
    const INSIDE: &str = "MCP_SESSIOND_TEST_PANICS";

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            assert!(thread::panicking(), "dropped");
        }
    }

    #[test]
    fn a_panic_is_caught_and_only_others_are_written() {
        if env::var_os(INSIDE).is_some() {
            silence();
            silence();
            assert_eq!(caught(|| panic!("ours")), None::<()>);
            assert_eq!(caught(|| panic::panic_any(PanicsWhenDropped)), None::<()>);
            assert_eq!(caught(|| 7), Some(7));
            let ours = thread::spawn(|| {
                take_over_thread();
                panic!("ours, in a thread")
            });
            assert!(ours.join().is_err());
            let others = thread::spawn(|| panic!("another's"));
            assert!(others.join().is_err());
            return;
        }
        let mut this = Command::new(env::current_exe().expect("this test"));
        this.args([
            "--exact",
            "panics::tests::a_panic_is_caught_and_only_others_are_written",
            "--nocapture",
        ]);
        let output = this
            .env(INSIDE, "1")
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("another's") && !said.contains("ours"),
            "{said}"
        );
    }
}
