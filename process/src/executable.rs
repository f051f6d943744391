//! The executable of this process, for starting others of its kind: a keeper, a daemon.

use std::path::PathBuf;

/// What the kernel appends to the path of a file that was replaced or removed since.
#[cfg(target_os = "linux")]
const DELETED: &str = " (deleted)";

/// The path to run it again by. After an upgrade that is the new one in its place; where there is
/// none, what this process is made of can still be run.
pub fn own() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    #[cfg(target_os = "linux")]
    if let Some(former) = path.to_str().and_then(|path| path.strip_suffix(DELETED))
        && !path.exists()
    {
        let former = PathBuf::from(former);
        // In a child that has not become another program yet it leads to the same file.
        return Some(if former.is_file() {
            former
        } else {
            PathBuf::from("/proc/self/exe")
        });
    }
    Some(path)
}
