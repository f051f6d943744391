//! A disk that is soon full.

use std::path::Path;
use std::process::Command;

/// A small file system, until this is dropped. It takes root.
#[derive(Debug)]
pub struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts one of this size, such as `64k`, over a directory.
    ///
    /// # Panics
    /// When that is not allowed.
    #[must_use]
    pub fn mount(at: &'a Path, size: &str) -> Self {
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(at)
            .status();
        assert!(mounted.expect("mount").success());
        Self(at)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
