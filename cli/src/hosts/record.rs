//! What `setup` remembers of a file that it has edited, so that `--undo` can give it back.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::file::{UNFINISHED, write};

/// Hexadecimal digits by which the records of two files of one host differ.
const DIGITS: usize = 8;

/// What was done to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The host, by its name on the command line.
    pub(crate) host: String,
    /// The file, without symbolic links.
    pub(crate) file: PathBuf,
    /// The file as its host names it: a symbolic link that is there today may be a file tomorrow.
    pub(crate) given: PathBuf,
    /// What it had before there was anything of ours in it.
    pub(crate) before: String,
    /// What we have written.
    pub(crate) after: String,
    /// The servers that are wrapped.
    pub(crate) servers: Vec<Wrapped>,
}

/// A server that was wrapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wrapped {
    pub(crate) name: String,
    /// What its command is now.
    pub(crate) executable: String,
    /// Whether it had no list of arguments before.
    pub(crate) has_made_arguments: bool,
    /// The server of `servers.json` that it runs now, if its entry was rewritten and not wrapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<String>,
    /// Whether `share` has done that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_shared: bool,
}

impl Wrapped {
    /// Whether `share` has it run the server of this name of `servers.json`.
    pub(crate) fn shares(&self, name: &str) -> bool {
        self.is_shared && self.listed.as_deref() == Some(name)
    }
}

/// Where the records are.
#[derive(Debug)]
pub(crate) struct Records(PathBuf);

impl Records {
    pub(crate) fn beside(servers: &Path) -> Self {
        Self(servers.with_file_name("setup"))
    }

    /// Keeps others from changing files and records, until it is dropped.
    ///
    /// # Errors
    /// When the directory of the records can't be made or locked.
    pub(crate) fn lock(&self) -> io::Result<Flock<File>> {
        let directory = self.0.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| at(directory, &error))?;
        let file = File::open(directory).map_err(|error| at(directory, &error))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| at(directory, &errno.into()))
    }

    /// Where the record of this file is.
    pub(crate) fn place(&self, host: &str, file: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = Sha256::digest(file.as_os_str().as_bytes());
        let digest: String = digest
            .iter()
            .take(DIGITS / 2)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.0.join(format!("{host}-{digest}.json"))
    }

    /// The record of this file.
    ///
    /// # Errors
    /// When there is one that can't be read.
    pub(crate) fn get(&self, host: &str, file: &Path) -> io::Result<Option<Record>> {
        let place = self.place(host, file);
        match std::fs::read(&place) {
            Ok(bytes) => read(&place, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&place, &error)),
        }
    }

    /// All of them, or why one can't be read.
    ///
    /// # Errors
    /// When they can't be listed.
    pub(crate) fn all(&self) -> io::Result<Vec<io::Result<Record>>> {
        let listed = match std::fs::read_dir(&self.0) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&self.0, &error)),
        };
        let mut places = listed
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        places.retain(|place| place.extension().is_some_and(|is| is == "json"));
        places.sort();
        let record = |place: PathBuf| {
            let bytes = std::fs::read(&place).map_err(|error| at(&place, &error))?;
            read(&place, &bytes)
        };
        Ok(places.into_iter().map(record).collect())
    }

    /// Keeps a record, which nobody else can read: a host's file has secrets in it.
    ///
    /// # Errors
    /// When it can't be written.
    pub(crate) fn put(&self, record: &Record) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
            .map_err(|error| at(&self.0, &error))?;
        let place = self.place(&record.host, &record.file);
        let bytes = serde_json::to_vec_pretty(record)?;
        write(&place, &bytes, 0o600, None, || Ok(())).map_err(|error| at(&place, &error))
    }

    /// Removes what a kill has left of a record that was being written, by whoever has the lock: it
    /// has a host's file in it.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name
                .to_str()
                .is_some_and(|name| name.starts_with('.') && name.ends_with(UNFINISHED))
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        // Where there is no other.
        let _ = std::fs::remove_dir(&self.0);
    }

    /// The same, where nothing else is to be done.
    pub(crate) fn clean(&self) {
        if self.0.is_dir()
            && let Ok(_lock) = self.lock()
        {
            self.sweep();
        }
    }

    /// # Errors
    /// When it can't be removed.
    pub(crate) fn remove(&self, record: &Record) -> io::Result<()> {
        std::fs::remove_file(self.place(&record.host, &record.file))?;
        // Where this was the last one.
        let _ = std::fs::remove_dir(&self.0);
        Ok(())
    }
}

fn read(place: &Path, bytes: &[u8]) -> io::Result<Record> {
    // Its own error would quote what is in there.
    serde_json::from_slice(bytes).map_err(|_| {
        at(
            place,
            &io::Error::other("it is not a record that this version's `setup` has written"),
        )
    })
}

fn at(place: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", place.display()))
}
