//! How the system ranks this process among others: for processor time, and when it kills processes
//! because memory runs out.

use std::io;

use crate::sys;

/// Gives this process the usual ranks instead of those that it inherited. Call it before there is
/// another thread.
///
/// # Errors
/// When the system refuses one of them: most users may not raise a rank that their parent process
/// has lowered.
pub fn reset() -> io::Result<()> {
    let memory = reset_oom_score();
    let nice = sys::set_nice(0);
    memory.and(nice)
}

#[cfg(target_os = "linux")]
fn reset_oom_score() -> io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    if std::fs::read_to_string(FILE)?.trim_end() == "0" {
        Ok(())
    } else {
        std::fs::write(FILE, "0")
    }
}

#[cfg(not(target_os = "linux"))]
fn reset_oom_score() -> io::Result<()> {
    Ok(())
}
