//! Watches directories and files for changes that the operating system reports, without polling.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use tokio::io::unix::AsyncFd;

use crate::sys;

/// Watches directories and files. It says that something may have changed, not what: the caller has
/// to look.
#[derive(Debug)]
pub struct Changes {
    events: os::Events,
    readable: AsyncFd<OwnedFd>,
}

impl Changes {
    /// Watches nothing yet. Call it within a tokio runtime.
    ///
    /// # Errors
    /// Those of inotify_init1(2), on macOS kqueue(2), for example when this user has as many as it
    /// may have.
    pub fn new() -> io::Result<Self> {
        let events = os::Events::new()?;
        let readable = sys::when_readable(events.descriptor()?)?;
        Ok(Self { events, readable })
    }

    /// Watches for deletions and moves in this directory, and for moves of the directory or one
    /// above it. Call it again after each change: the path may lead to another directory now.
    ///
    /// # Errors
    /// When it is not there, or the system watches no more.
    pub fn watch_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.events.watch_directory(directory)?;
        for above in directory.ancestors().skip(1) {
            // This fails for a directory that this user may not read.
            let _ = self.events.watch_place(above);
        }
        Ok(())
    }

    /// Watches for whatever is made in this directory, deleted or moved, and for moves of the
    /// directory or one above it. Call it again after each change: the path may lead to another
    /// directory now.
    ///
    /// # Errors
    /// When it is not there, or the system watches no more.
    pub fn watch_entries(&mut self, directory: &Path) -> io::Result<()> {
        self.watch_directory(directory)?;
        self.events.watch_arrivals(directory)
    }

    /// Watches for truncation of this file and for writes that don't go through a mapping. Call it
    /// again after each change.
    ///
    /// # Errors
    /// When it is not there, or the system watches no more.
    pub fn watch_file(&mut self, file: &Path) -> io::Result<()> {
        self.events.watch_file(file)
    }

    /// Returns when something may have changed, and returns at once until [`Self::take`] is called.
    ///
    /// # Errors
    /// Those of the operating system.
    pub async fn wait(&self) -> io::Result<()> {
        self.readable.readable().await.map(drop)
    }

    /// The caller is about to look: discards the events so far.
    pub fn take(&mut self) {
        // An event that arrives meanwhile makes it readable again.
        let _ = self.readable.try_io(tokio::io::Interest::READABLE, |_| {
            self.events.drain();
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
    }
}

#[cfg(target_os = "linux")]
mod os {
    use std::io;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::path::Path;

    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

    #[derive(Debug)]
    pub(super) struct Events(Inotify);

    impl Events {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(Inotify::init(
                InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK,
            )?))
        }

        pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
            self.0.as_fd().try_clone_to_owned()
        }

        pub(super) fn watch_directory(&self, directory: &Path) -> io::Result<()> {
            self.watch(
                directory,
                AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_MOVE
                    | AddWatchFlags::IN_MOVE_SELF
                    | AddWatchFlags::IN_DELETE_SELF,
            )
        }

        pub(super) fn watch_place(&self, directory: &Path) -> io::Result<()> {
            // Other events in it don't matter, and may be many.
            self.watch(
                directory,
                AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::from_bits_retain(libc::IN_MASK_ADD),
            )
        }

        pub(super) fn watch_arrivals(&self, directory: &Path) -> io::Result<()> {
            self.watch(
                directory,
                AddWatchFlags::IN_CREATE | AddWatchFlags::from_bits_retain(libc::IN_MASK_ADD),
            )
        }

        pub(super) fn watch_file(&self, file: &Path) -> io::Result<()> {
            self.watch(file, AddWatchFlags::IN_MODIFY)
        }

        /// Adding a path that is watched already is no error.
        fn watch(&self, path: &Path, what: AddWatchFlags) -> io::Result<()> {
            Ok(self.0.add_watch(path, what).map(drop)?)
        }

        pub(super) fn drain(&self) {
            while self.0.read_events().is_ok() {}
        }
    }
}

#[cfg(target_os = "macos")]
mod os {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Path, PathBuf};

    use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};

    const NO_WAIT: libc::timespec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };

    #[derive(Debug)]
    pub(super) struct Events {
        queue: Kqueue,
        /// The open files that the kernel watches, each with its events.
        open: HashMap<PathBuf, (File, FilterFlag)>,
    }

    impl Events {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self {
                queue: Kqueue::new()?,
                open: HashMap::new(),
            })
        }

        pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
            self.queue.as_fd().try_clone_to_owned()
        }

        pub(super) fn watch_directory(&mut self, directory: &Path) -> io::Result<()> {
            let what = FilterFlag::NOTE_WRITE | FilterFlag::NOTE_DELETE | FilterFlag::NOTE_RENAME;
            self.watch(directory, what)
        }

        pub(super) fn watch_place(&mut self, directory: &Path) -> io::Result<()> {
            self.watch(directory, FilterFlag::NOTE_DELETE | FilterFlag::NOTE_RENAME)
        }

        /// A directory is written when something is made in it.
        pub(super) fn watch_arrivals(&mut self, _: &Path) -> io::Result<()> {
            Ok(())
        }

        pub(super) fn watch_file(&mut self, file: &Path) -> io::Result<()> {
            self.watch(file, FilterFlag::NOTE_WRITE | FilterFlag::NOTE_ATTRIB)
        }

        fn watch(&mut self, path: &Path, what: FilterFlag) -> io::Result<()> {
            let id = |found: std::fs::Metadata| (found.dev(), found.ino());
            let known = self.open.remove(path);
            // Compares by path: to open the file and close it again would release SQLite's locks on
            // it.
            let (file, what) = match known {
                Some((file, known)) if id(file.metadata()?) == id(std::fs::metadata(path)?) => {
                    (file, what | known)
                }
                // Closing the former one ends its watch.
                _ => (File::open(path)?, what),
            };
            let flags = EvFlags::EV_ADD | EvFlags::EV_CLEAR;
            let ident = file.as_raw_fd() as usize;
            let change = KEvent::new(ident, EventFilter::EVFILT_VNODE, flags, what, 0, 0);
            let watched = self.queue.kevent(&[change], &mut [], Some(NO_WAIT));
            self.open.insert(path.into(), (file, what));
            Ok(watched.map(drop)?)
        }

        pub(super) fn drain(&self) {
            let nothing = KEvent::new(
                0,
                EventFilter::EVFILT_VNODE,
                EvFlags::empty(),
                FilterFlag::empty(),
                0,
                0,
            );
            let mut batch = [nothing; 16];
            while self
                .queue
                .kevent(&[], &mut batch, Some(NO_WAIT))
                .is_ok_and(|count| count > 0)
            {}
        }
    }
}
