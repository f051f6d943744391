//! How the system ranks this process among others: who gets a processor first, and who is killed when memory runs out.

use std::io;

use crate::sys;

/// Gives this process the usual ranks, whatever it has from the one that started it. To be called before there is another
/// thread.
///
/// # Errors
/// When the system keeps one of them as it is: few users may get back what their parent process gave away.
pub fn usual() -> io::Result<()> {
    let memory = usual_for_memory();
    let nice = sys::set_nice(0);
    memory.and(nice)
}

#[cfg(target_os = "linux")]
fn usual_for_memory() -> io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    if std::fs::read_to_string(FILE)?.trim_end() == "0" { Ok(()) } else { std::fs::write(FILE, "0") }
}

#[cfg(not(target_os = "linux"))]
fn usual_for_memory() -> io::Result<()> {
    Ok(())
}
