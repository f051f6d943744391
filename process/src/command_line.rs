//! The command line of a host: what tells which program it is.

use std::io;
use std::path::PathBuf;

use super::exhausted::{Exhausted, readable};
use super::launchers::names;
use super::os;
use super::pinned::PinnedProcess;

/// Arguments in which the name of an interpreted program is looked for: `node --flag script`,
/// `python -m module`.
const FIRST_ARGUMENTS: usize = 4;

/// What the file of a script may end in.
const SUFFIXES: [&str; 4] = [".js", ".mjs", ".cjs", ".py"];

/// What a program is called, and what it was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    executable: PathBuf,
    arguments: Vec<String>,
}

/// The command line of a process. One that hides its executable goes by the name that the kernel
/// has for it.
///
/// # Errors
/// [`Exhausted`].
pub fn command_line(process: &PinnedProcess) -> Result<CommandLine, Exhausted> {
    let pid = process.pid();
    let executable = match readable(os::executable(pid))? {
        Some(path) => Some(path),
        None => readable(os::short_name(pid))?.map(PathBuf::from),
    };
    let arguments = readable(os::arguments(pid))?.flatten().unwrap_or_default();
    let text = |argument: &Vec<u8>| String::from_utf8_lossy(argument).into_owned();
    let arguments = arguments.iter().map(text).collect();
    Ok(CommandLine {
        executable: executable.unwrap_or_default(),
        arguments,
    })
}

/// The arguments of a process, with `argv[0]`. None: it has exited, may not be looked at, or has
/// overwritten them.
///
/// # Errors
/// [`Exhausted`].
pub fn arguments_of(process: &PinnedProcess) -> Result<Option<Vec<Vec<u8>>>, Exhausted> {
    let arguments = readable(os::arguments(process.pid()))?.flatten();
    Ok(arguments.filter(|_| process.is_alive()))
}

/// The directory that a process is in.
///
/// # Errors
/// Those of the operating system; `ESRCH` when it has exited.
pub fn directory_of(process: &PinnedProcess) -> io::Result<PathBuf> {
    let directory = os::directory(process.pid())?;
    match process.is_alive() {
        true => Ok(directory),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

impl CommandLine {
    /// A made-up one: arguments from `argv[0]` on.
    pub fn new(executable: impl Into<PathBuf>, arguments: Vec<String>) -> Self {
        Self {
            executable: executable.into(),
            arguments,
        }
    }

    /// Whether its executable has this file name, which may end in `*`, or this absolute path.
    pub fn is_called(&self, pattern: &str) -> bool {
        names(pattern, &self.executable)
    }

    /// Whether one of its first arguments is this, or a path with this as a part of it.
    pub fn runs(&self, part: &str) -> bool {
        let first = self.arguments.iter().skip(1).take(FIRST_ARGUMENTS);
        first
            .flat_map(|argument| argument.split('/'))
            .any(|found| found == part)
    }

    /// Whether the path of its executable ends in these parts; each may end in `*`.
    pub fn is_at(&self, parts: &str) -> bool {
        let path = self.executable.to_string_lossy();
        parts.contains('/') && ends_in(&path, parts)
    }

    /// Whether one of its first arguments is the path of this script: the last part of it without
    /// its suffix, or several parts that follow each other; `*` is any part.
    pub fn runs_script(&self, script: &str) -> bool {
        let first = self.arguments.iter().skip(1).take(FIRST_ARGUMENTS);
        let is_it = |argument: &String| {
            let parts: Vec<&str> = argument.split('/').collect();
            let wanted: Vec<&str> = script.split('/').collect();
            let name = parts.last().copied().unwrap_or_default();
            let stem = SUFFIXES
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .unwrap_or(name);
            let fits = |window: &[&str]| {
                window
                    .iter()
                    .zip(&wanted)
                    .all(|(found, wanted)| *wanted == "*" || found == wanted)
            };
            match wanted[..] {
                [only] => only == stem || only == name,
                _ => parts.windows(wanted.len()).any(fits),
            }
        };
        first.into_iter().any(is_it)
    }

    /// Whether the process goes by this name, which it has put in the place of its arguments
    /// (`process.title` of Node); what is left of their place may be blanks.
    pub fn is_titled(&self, title: &str) -> bool {
        let rest_is_empty = || self.arguments[1..].iter().all(String::is_empty);
        let name = self.arguments.first().map(|name| name.trim_end());
        name == Some(title) && rest_is_empty()
    }

    /// Whether one of its arguments is this word.
    pub fn has_argument(&self, word: &str) -> bool {
        self.arguments.iter().skip(1).any(|found| found == word)
    }
}

fn ends_in(path: &str, parts: &str) -> bool {
    let mut found = path.rsplit('/');
    parts
        .rsplit('/')
        .all(|part| match (found.next(), part.strip_suffix('*')) {
            (Some(found), Some(begin)) => found.starts_with(begin),
            (found, _) => found == Some(part),
        })
}
