//! What is run: a command, and what it is run with.

pub mod display_name;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use mcp_sessiond_client::Label;
use mcp_sessiond_process::digest;
use nix::errno::Errno;

/// The variables that a server has in addition to those of its front, and where it runs instead.
pub type LaunchEnv = (Vec<(OsString, OsString)>, Option<PathBuf>);

/// What is run, as the front was told.
#[derive(Debug, Clone)]
pub struct Program {
    /// A path, or a name to be found in PATH.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What its user calls it: the name of its entry in the host's file or in `servers.json`, or the
    /// one that its session was given.
    pub title: Option<Label>,
    /// Whether an edit of what its script imports makes it another program.
    pub has_sources: bool,
}

impl Program {
    /// What people know it by: the name that its user has for it; else its
    /// [display name](display_name), since its other arguments are nobody's business.
    pub fn display_name(&self) -> String {
        match &self.title {
            Some(title) => title.as_str().to_owned(),
            None => self.command_words(),
        }
    }

    /// The [display name](display_name) of its command line, whatever its user calls it.
    pub fn command_words(&self) -> String {
        display_name::of(&self.name, &self.arguments)
    }

    /// A digest of the command line, as hexadecimal text.
    pub fn digest(&self) -> String {
        let words = std::iter::once(&self.name)
            .chain(&self.arguments)
            .map(|word| word.as_bytes());
        // No word has a NUL in it.
        let line = words.collect::<Vec<_>>().join(&0);
        digest("mcp-sessiond command line", &line)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Where its executable is, as execvp(3) finds it. None: nowhere.
    pub fn executable(&self) -> Option<PathBuf> {
        if self.name.as_bytes().contains(&b'/') {
            return Some(PathBuf::from(&self.name));
        }
        let path = std::env::var_os("PATH")?;
        let is_executable = |file: &PathBuf| {
            std::fs::metadata(file)
                .is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
        };
        std::env::split_paths(&path)
            .map(|directory| directory.join(&self.name))
            .find(is_executable)
    }

    /// Starts it by this, which gets a program and its arguments. A script without `#!` is run by
    /// `/bin/sh`, as execvp(3) does it, and hosts with it.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn started<T>(
        &self,
        start: impl Fn(&OsStr, &[OsString]) -> io::Result<T>,
    ) -> io::Result<T> {
        match start(&self.name, &self.arguments) {
            Err(error) if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
                let script = self
                    .executable()
                    .unwrap_or_else(|| PathBuf::from(&self.name));
                let words: Vec<OsString> = std::iter::once(script.into_os_string())
                    .chain(self.arguments.iter().cloned())
                    .collect();
                start(OsStr::new("/bin/sh"), &words)
            }
            started => started,
        }
    }

    /// Why it could not be run now, as [`Self::not_run`] says it. None: nothing is known against it.
    pub fn why_missing(&self) -> Option<(u8, String)> {
        let there = self.executable().map(std::fs::metadata);
        match there.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(self.not_run(&error)),
            _ => None,
        }
    }

    /// Why it can't be run, in a sentence, with the exit code that a shell has for it: 127 where
    /// there is none, 126 where there is one that may not be run.
    pub fn not_run(&self, error: &io::Error) -> (u8, String) {
        let name = self.name.to_string_lossy();
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing && name.contains(' ') && self.arguments.is_empty() {
            return (
                127,
                format!(
                    "{name} can't be run: there is no program of this name; if it is a whole command line, its arguments belong in \
                     `args`, each by itself"
                ),
            );
        }
        match std::env::var_os("PATH") {
            // Hosts with a graphical interface have another one than a shell.
            Some(path) if is_missing && !name.contains('/') => (
                127,
                format!(
                    "{name} can't be run: it was not found in PATH={}",
                    path.to_string_lossy()
                ),
            ),
            _ => (
                if is_missing { 127 } else { 126 },
                format!("{name} can't be run: {error}"),
            ),
        }
    }
}
