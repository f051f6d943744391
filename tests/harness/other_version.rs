//! A daemon of another version: `tests/python/other_version.py`, which stands between a client and
//! the daemon.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::{Log, World};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/other_version.py");

/// A directory in which the daemon of another one passes for a daemon of another version. It ends
/// when this is dropped.
#[derive(Debug)]
pub struct OtherVersion {
    child: Child,
    /// The runtime directory of its clients.
    pub directory: PathBuf,
}

impl World {
    /// The daemon of this world, which is of the second version where it says the first. They have
    /// the same length.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn of_version(&self, versions: [&str; 2]) -> OtherVersion {
        let directory = self.root().join("other-version");
        let mut child = self
            .command("python3")
            .args(["-I", "-S", PROGRAM])
            .arg(&directory)
            .arg(self.directory())
            .args(versions)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let printed = Log::default();
        Log::follow(
            child.stdout.take().expect("piped"),
            "-- end of the daemon of another version --",
            vec![printed.clone()],
        );
        printed.wait("ready");
        OtherVersion { child, directory }
    }
}

impl Drop for OtherVersion {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
