//! A daemon of before: `tests/python/older.py`, which stands between a client and the daemon.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::{Log, World};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/older.py");

/// A directory in which the daemon of another one passes for an older daemon. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct Older {
    child: Child,
    /// The runtime directory of its clients.
    pub directory: PathBuf,
    told: Log,
}

impl World {
    /// The daemon of this world, with these feature bits and no others.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn older(&self, features: u64) -> Older {
        self.former(features, &[])
    }

    /// The daemon of this world, which is of the second version where it says the first. They have
    /// the same length.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn of_version(&self, versions: [&str; 2]) -> Older {
        self.former(u64::MAX, &versions)
    }

    fn former(&self, features: u64, versions: &[&str]) -> Older {
        let directory = self.root().join(format!("older-{features}"));
        let mut command = self.command("python3");
        command
            .args(["-I", "-S", PROGRAM])
            .arg(&directory)
            .arg(self.directory());
        let mut child = command
            .arg(features.to_string())
            .args(versions)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let told = Log::default();
        Log::follow(
            child.stdout.take().expect("piped"),
            "-- end of the older daemon --",
            vec![told.clone()],
        );
        told.wait("ready");
        Older {
            child,
            directory,
            told,
        }
    }
}

impl Older {
    /// The calls so far: the method of each, and ` close` where an append closes its stream.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.told.lines("").split_off(1)
    }
}

impl Drop for Older {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
