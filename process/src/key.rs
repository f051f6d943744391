//! What tells the instances of one host apart, read from the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mcp_sessiond_identity::{Conversation, Encoder, KeyDoubt, Traits, digest};

use super::exhausted::{Exhausted, readable};
use super::launchers::{Table, base_name};
use super::os;
use super::pinned::PinnedProcess;
use super::temporary_dirs::masked;
use super::variables::{is_conversation, is_ignored, sorted};
use super::walk::name_of;

/// The option of a front that names its entry in the host's file.
const ENTRY_OPTION: &str = "--entry";

/// How often a process that becomes another program meanwhile is read again.
const ATTEMPTS: usize = 3;

/// Reads what the instance was started with.
///
/// `entry` is the name of its entry in the host's file, of a front of ours that has it from its
/// option [`ENTRY_OPTION`]. The option does not count among the arguments: the same server has the same
/// arguments before and after `setup` has written the name into its entry.
///
/// It should be read once and kept: processes overwrite their own command lines while they run.
///
/// # Errors
/// [`Exhausted`]. What else can't be read is a doubt.
pub fn traits_of(
    instance: &PinnedProcess,
    table: &Table,
    entry: Option<&str>,
) -> Result<Traits, Exhausted> {
    for _ in 0..ATTEMPTS {
        let mut facts = Facts::read(instance.pid())?;
        let again = Facts::image(instance.pid())?;
        if !instance.is_alive() {
            return Ok(Traits::unknown("?".to_owned(), KeyDoubt::Gone));
        }
        // An exec in between would mix the facts of two programs.
        if again == facts.image {
            if let (Some(entry), Ok(arguments)) = (entry, &mut facts.image.arguments) {
                remove_entry(arguments, entry);
            }
            return Ok(facts.into_traits(|| name_of(instance.pid()), table));
        }
    }
    Ok(Traits::unknown(name_of(instance.pid()), KeyDoubt::Changed))
}

/// Takes the option that names the entry out of a front's arguments. It stands before the command,
/// so the first of these words is that of the front.
fn remove_entry(arguments: &mut Vec<Vec<u8>>, entry: &str) {
    let joined = format!("{ENTRY_OPTION}={entry}");
    let is_pair = |two: &[Vec<u8>]| two[0] == ENTRY_OPTION.as_bytes() && two[1] == entry.as_bytes();
    let pair = arguments.windows(2).position(is_pair);
    let single = arguments.iter().position(|word| word == joined.as_bytes());
    match (pair, single) {
        (Some(at), single) if single.is_none_or(|single| at < single) => {
            drop(arguments.drain(at..at + 2));
        }
        (_, Some(at)) => drop(arguments.remove(at)),
        (_, None) => {}
    }
}

/// Executable and arguments, each where it could be read: what an exec changes.
#[derive(Debug, PartialEq)]
struct Image {
    executable: Option<PathBuf>,
    arguments: Result<Vec<Vec<u8>>, KeyDoubt>,
}

/// What the operating system says about one process. It holds secrets, and is dropped as soon as it
/// is digested.
struct Facts {
    image: Image,
    environment: Option<Vec<Vec<u8>>>,
    directory: Option<PathBuf>,
}

impl Facts {
    fn read(pid: u32) -> Result<Self, Exhausted> {
        let image = Self::image(pid)?;
        Ok(Self {
            image,
            environment: readable(os::environment(pid))?,
            directory: readable(os::directory(pid))?,
        })
    }

    fn image(pid: u32) -> Result<Image, Exhausted> {
        let arguments = match readable(os::arguments(pid))? {
            // Every program has an `argv[0]`, except for a moment within exec.
            Some(Some(arguments)) if !arguments.is_empty() => Ok(arguments),
            Some(Some(_)) | None => Err(KeyDoubt::Arguments),
            Some(None) => Err(KeyDoubt::Rewritten),
        };
        Ok(Image {
            executable: readable(os::executable(pid))?,
            arguments,
        })
    }

    fn into_traits(self, name: impl FnOnce() -> String, table: &Table) -> Traits {
        let program = self
            .image
            .executable
            .as_deref()
            .map_or_else(name, base_name);
        let (core, core_doubt) = split(self.core());
        let (place, place_doubt) = split(self.place(table));
        let directory = self.directory.as_deref();
        Traits {
            program,
            core,
            place,
            directory: directory
                .map(|path| digest("mcp-sessiond directory", path.as_os_str().as_bytes())),
            conversation: self.conversation(table),
            doubt: core_doubt.or(place_doubt),
        }
    }

    /// What of the image counts: the path to the executable, and the arguments.
    fn started_with(&self) -> Result<(&Path, &[Vec<u8>]), KeyDoubt> {
        let executable = self
            .image
            .executable
            .as_deref()
            .ok_or(KeyDoubt::Executable)?;
        let arguments = self.image.arguments.as_deref().map_err(|doubt| *doubt)?;
        if is_title(executable, arguments) {
            Err(KeyDoubt::Rewritten)
        } else {
            Ok((executable, arguments))
        }
    }

    /// Which file names the program goes by, and its arguments. Where it lies is for
    /// [`Facts::place`].
    fn core(&self) -> Result<[u8; 32], KeyDoubt> {
        let (executable, arguments) = self.started_with()?;
        let (called, rest) = arguments.split_first().ok_or(KeyDoubt::Arguments)?;
        let mut encoder = Encoder::new("mcp-sessiond core");
        encoder.field(base_name(executable).as_bytes());
        encoder.field(base_name(Path::new(OsStr::from_bytes(called))).as_bytes());
        encoder.list(
            &rest
                .iter()
                .map(|argument| masked(argument))
                .collect::<Vec<_>>(),
        );
        Ok(encoder.finish())
    }

    fn conversation(&self, table: &Table) -> Conversation {
        let Some(variables) = &self.environment else {
            return Conversation::Hidden;
        };
        let named = sorted(variables, |name| is_conversation(name, table));
        if named.is_empty() {
            return Conversation::None;
        }
        let mut encoder = Encoder::new("mcp-sessiond conversation");
        encoder.list(&named);
        Conversation::Of(encoder.finish())
    }

    fn place(&self, table: &Table) -> Result<[u8; 32], KeyDoubt> {
        let executable = self
            .image
            .executable
            .as_deref()
            .ok_or(KeyDoubt::Executable)?;
        let directory = self.directory.as_deref().ok_or(KeyDoubt::Directory)?;
        let environment = self.environment.as_deref().ok_or(KeyDoubt::Environment)?;
        let counts = |name: &str| !is_ignored(name, table) && !is_conversation(name, table);
        let variables: Vec<Vec<u8>> = environment
            .iter()
            .map(|variable| masked(variable))
            .collect();
        let mut encoder = Encoder::new("mcp-sessiond place");
        encoder.field(&masked(executable.as_os_str().as_bytes()));
        encoder.field(directory.as_os_str().as_bytes());
        encoder.list(&sorted(&variables, counts));
        Ok(encoder.finish())
    }
}

/// Whether the arguments look like a title that the process has given itself, in the place of what
/// it was started with: one string, and nothing but NULs up to the end of the old ones (node's
/// `process.title`); or one string of several words that is not the executable's name. A title that
/// happens to fill the place to the last byte, in one word, can't be told from a program without
/// arguments.
fn is_title(executable: &Path, arguments: &[Vec<u8>]) -> bool {
    match arguments {
        [only] => only.contains(&b' ') && !only.ends_with(base_name(executable).as_bytes()),
        [first, rest @ ..] => !first.is_empty() && rest.iter().all(Vec::is_empty),
        [] => false,
    }
}

fn split(digest: Result<[u8; 32], KeyDoubt>) -> (Option<[u8; 32]>, Option<KeyDoubt>) {
    match digest {
        Ok(digest) => (Some(digest), None),
        Err(doubt) => (None, Some(doubt)),
    }
}

#[cfg(test)]
mod tests;
