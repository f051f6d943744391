//! Core files: none, since there are tokens in memory.

/// Sees to it that this process leaves no core file, since there are tokens in its memory. A limit
/// of 1 byte, not of 0: only that one keeps Linux from piping the core to a program (core(5)).
pub fn never_dump() {
    use nix::sys::resource::{Resource, setrlimit};
    let _ = setrlimit(Resource::RLIMIT_CORE, 1, 1);
}
