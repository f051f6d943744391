//! Whether files are where they were, by one look at their directory instead of one at each of
//! them.

use std::io;
use std::path::Path;

/// A moment, in ns since the Unix epoch.
type Moment = i128;

/// A directory, as it was when all files were seen in place. Since then no name in it was made,
/// deleted or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Directory {
    device: u64,
    inode: u64,
    changed: Moment,
}

/// What the last look has found.
#[derive(Debug, Default)]
pub(super) struct DirectoryCheck {
    seen: Option<Directory>,
}

impl DirectoryCheck {
    /// Whether all files are in place. `look` looks at each of them, and is called only if the
    /// directory may have changed since it was called last.
    pub(super) fn is_in_place(&mut self, directory: &Path, look: impl FnOnce() -> bool) -> bool {
        let now = file_clock();
        let found = of(directory).ok();
        if found.is_some() && found == self.seen {
            return true;
        }
        self.seen = None;
        if !look() {
            return false;
        }
        // The file system's clock stands still for some ms at a time. Only if it has gone on since
        // the last change, the next one will show.
        self.seen = found.filter(|found| now.is_some_and(|now| found.changed < now));
        true
    }
}

fn of(directory: &Path) -> io::Result<Directory> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(directory)?;
    let changed = moment(found.ctime(), found.ctime_nsec());
    Ok(Directory {
        device: found.dev(),
        inode: found.ino(),
        changed,
    })
}

fn moment(seconds: i64, nanoseconds: i64) -> Moment {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// The clock by which the kernel notes changes of files.
#[cfg(target_os = "linux")]
fn file_clock() -> Option<Moment> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME_COARSE).ok()?;
    Some(moment(now.tv_sec(), now.tv_nsec()))
}

#[cfg(not(target_os = "linux"))]
fn file_clock() -> Option<Moment> {
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Whether it looks at each file.
    fn looks(directory_check: &mut DirectoryCheck, directory: &Path) -> bool {
        let looked = Cell::new(false);
        assert!(directory_check.is_in_place(directory, || {
            looked.set(true);
            true
        }));
        looked.get()
    }

    /// Looks until it relies on the directory.
    fn rely(directory_check: &mut DirectoryCheck, directory: &Path) {
        while looks(directory_check, directory) {}
    }

    #[test]
    fn it_looks_again_when_a_name_was_made_replaced_or_deleted_or_the_directory_moved() {
        let home = tempfile::tempdir().expect("a directory");
        let directory = home.path().join("sessions");
        let (file, other) = (directory.join("file"), directory.join("other"));
        std::fs::create_dir(&directory).expect("made");
        std::fs::write(&file, "").expect("written");
        let mut directory_check = DirectoryCheck::default();
        let changes: [(&str, &dyn Fn() -> io::Result<()>); 4] = [
            ("made", &|| std::fs::write(&other, "")),
            ("replaced", &|| std::fs::rename(&other, &file)),
            ("deleted", &|| std::fs::remove_file(&file)),
            ("moved", &|| {
                std::fs::rename(&directory, home.path().join("away"))
            }),
        ];
        for (what, change) in changes {
            rely(&mut directory_check, &directory);
            change().expect(what);
            assert!(!directory_check.is_in_place(&directory, || false), "{what}");
        }
        std::fs::create_dir(&directory).expect("made");
        assert!(
            looks(&mut directory_check, &directory),
            "another one is in its place"
        );
    }

    #[test]
    fn what_is_written_into_a_file_is_no_reason_to_look() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("written");
        let mut directory_check = DirectoryCheck::default();
        rely(&mut directory_check, directory.path());
        std::fs::write(&file, "more").expect("written");
        assert!(!looks(&mut directory_check, directory.path()));
    }

    /// Many changes come within one tick of the clock.
    #[test]
    fn no_change_is_missed_however_soon_it_comes_after_a_look() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        let mut directory_check = DirectoryCheck::default();
        for _ in 0..5_000 {
            std::fs::write(&file, "").expect("written");
            assert!(looks(&mut directory_check, directory.path()));
            std::fs::remove_file(&file).expect("deleted");
            assert!(looks(&mut directory_check, directory.path()));
        }
    }
}
