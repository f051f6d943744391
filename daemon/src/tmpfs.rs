//! Disks for tests: one in memory, and one that is soon full.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;
use tempfile::TempDir;

/// A directory of a tmpfs, with mode 0700. It goes when this is dropped.
pub(crate) struct Tmpfs {
    directory: TempDir,
    is_mounted: bool,
}

impl Tmpfs {
    /// One in `/dev/shm`, which every Linux has, for every user.
    pub(crate) fn shared() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        Self {
            directory,
            is_mounted: false,
        }
    }

    /// One of its own, of this size. For root alone.
    pub(crate) fn mount(kibibytes: u32) -> Self {
        needs_root("mount a small disk");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = format!("size={kibibytes}k,mode=0700");
        let mut mount = Command::new("mount");
        let mounted = mount
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .status();
        assert!(
            mounted.expect("mount is installed").success(),
            "could not mount a tmpfs"
        );
        Self {
            directory,
            is_mounted: true,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves no byte free, until the file that this returns is deleted.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.path().join("filler");
        let mut filler = std::fs::File::create(&path).expect("a file");
        let full =
            std::io::copy(&mut std::io::repeat(0), &mut filler).expect_err("no disk is endless");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        if !self.is_mounted {
            return;
        }
        // Lazily, for what still has files open in it.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
    }
}

pub(crate) fn needs_root(what: &str) {
    assert!(
        geteuid().is_root(),
        "this test has to {what}: run it as root, or leave it out"
    );
}
