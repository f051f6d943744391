//! The command line of a host: what tells which program it is.

use std::path::PathBuf;

use super::exhausted::{Exhausted, readable};
use super::launchers::names;
use super::os;
use super::pinned::PinnedProcess;

/// Arguments in which the name of an interpreted program is looked for: `node --flag script`,
/// `python -m module`.
const FIRST_ARGUMENTS: usize = 4;

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
}
