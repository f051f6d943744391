//! What tells the instances of one host apart.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use mcp_sessiond_proto::Label;
use sha2::{Digest, Sha256};

use super::launchers::{Table, base_name};
use super::os;
use super::pinned::Pinned;
use super::variables::{is_conversation, is_ignored, sorted};
use super::walk::name_of;

/// How often a process that becomes another program meanwhile is read again.
const ATTEMPTS: usize = 3;

/// What keys are made of, read once from a process and kept: digests alone, no argument and no variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Traits {
    /// The file name of its executable, for people.
    pub program: String,
    /// Digest of executable, arguments and conversation. None: one of them can't be known, `doubt` says why.
    pub base: Option<[u8; 32]>,
    /// Digest of directory and environment. None: one of them can't be known, `doubt` says why unless it is about
    /// `base`.
    pub place: Option<[u8; 32]>,
    /// Why `base` is missing, or else why `place` is.
    pub doubt: Option<KeyDoubt>,
}

/// Tells the instances of one host apart. As text: the first 8 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key(pub [u8; 32]);

/// Why it can't be said for sure what a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyDoubt {
    /// It can't be read, as with a process that is not dumpable.
    #[error("its executable can't be read")]
    Executable,
    /// They can't be read.
    #[error("its arguments can't be read")]
    Arguments,
    /// It goes by a title of its own making.
    #[error("it has overwritten its arguments")]
    Rewritten,
    /// It can't be read.
    #[error("its working directory can't be read")]
    Directory,
    /// It can't be read, as with a process that is not dumpable, or that macOS protects.
    #[error("its environment can't be read")]
    Environment,
    /// It went from exec to exec.
    #[error("it became another program while it was read")]
    Changed,
    /// It exited.
    #[error("it exited while it was read")]
    Gone,
}

impl KeyDoubt {
    const ALL: [Self; 7] = [
        Self::Executable,
        Self::Arguments,
        Self::Rewritten,
        Self::Directory,
        Self::Environment,
        Self::Changed,
        Self::Gone,
    ];

    /// A name for it to be stored by; [`FromStr`] is the way back.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::Arguments => "arguments",
            Self::Rewritten => "rewritten",
            Self::Directory => "directory",
            Self::Environment => "environment",
            Self::Changed => "changed",
            Self::Gone => "gone",
        }
    }
}

/// A text that is no [code](KeyDoubt::code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this names no reason for which a key can be doubtful")]
pub struct KeyDoubtError;

impl FromStr for KeyDoubt {
    type Err = KeyDoubtError;
    fn from_str(text: &str) -> Result<Self, KeyDoubtError> {
        Self::ALL.into_iter().find(|doubt| doubt.code() == text).ok_or(KeyDoubtError)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Traits {
    /// Reads what the instance was started with.
    ///
    /// It should be read once and kept: processes overwrite their own command lines while they run.
    #[must_use]
    pub fn read(instance: &Pinned, table: &Table) -> Self {
        for _ in 0..ATTEMPTS {
            let facts = Facts::read(instance.pid());
            let again = Facts::image(instance.pid());
            if !instance.is_alive() {
                return Self::unknown("?".to_owned(), KeyDoubt::Gone);
            }
            // An exec in between would mix the facts of two programs.
            if again == facts.image {
                return facts.into_traits(|| name_of(instance.pid()), table);
            }
        }
        Self::unknown(name_of(instance.pid()), KeyDoubt::Changed)
    }

    /// The key of an instance with these traits, under this label where it has one. A label takes the place of
    /// directory and environment.
    ///
    /// # Errors
    /// [`KeyDoubt`], when something that the key is made of is not known.
    pub fn key(&self, label: Option<&Label>) -> Result<Key, KeyDoubt> {
        let doubt = self.doubt.unwrap_or(KeyDoubt::Changed);
        let mut encoder = Encoder::new("mcp-sessiond key");
        encoder.field(&self.base.ok_or(doubt)?);
        match label {
            Some(label) => encoder.field(b"label").field(label.as_str().as_bytes()),
            None => encoder.field(b"place").field(&self.place.ok_or(doubt)?),
        };
        Ok(Key(encoder.finish()))
    }

    fn unknown(program: String, doubt: KeyDoubt) -> Self {
        Self { program, base: None, place: None, doubt: Some(doubt) }
    }
}

/// Executable and arguments, each where it could be read: what an exec changes.
#[derive(Debug, PartialEq)]
struct Image {
    executable: Option<PathBuf>,
    arguments: Result<Vec<Vec<u8>>, KeyDoubt>,
}

/// What the operating system says about one process. It holds secrets, and is dropped as soon as it is digested.
struct Facts {
    image: Image,
    environment: Option<Vec<Vec<u8>>>,
    directory: Option<PathBuf>,
}

impl Facts {
    fn read(pid: u32) -> Self {
        let image = Self::image(pid);
        Self { image, environment: os::environment(pid).ok(), directory: os::directory(pid).ok() }
    }

    fn image(pid: u32) -> Image {
        let arguments = match os::arguments(pid) {
            // Every program has an `argv[0]`, except for a moment within exec.
            Ok(Some(arguments)) if !arguments.is_empty() => Ok(arguments),
            Ok(Some(_)) | Err(_) => Err(KeyDoubt::Arguments),
            Ok(None) => Err(KeyDoubt::Rewritten),
        };
        Image { executable: os::executable(pid).ok(), arguments }
    }

    fn into_traits(self, name: impl FnOnce() -> String, table: &Table) -> Traits {
        let program = self.image.executable.as_deref().map_or_else(name, base_name);
        let (base, base_doubt) = split(self.base(table));
        let (place, place_doubt) = split(self.place(table));
        Traits { program, base, place, doubt: base_doubt.or(place_doubt) }
    }

    fn base(&self, table: &Table) -> Result<[u8; 32], KeyDoubt> {
        let executable = self.image.executable.as_deref().ok_or(KeyDoubt::Executable)?;
        let arguments = self.image.arguments.as_deref().map_err(|doubt| *doubt)?;
        if is_title(executable, arguments) {
            return Err(KeyDoubt::Rewritten);
        }
        let mut encoder = Encoder::new("mcp-sessiond base");
        encoder.field(executable.as_os_str().as_bytes()).list(arguments);
        // Not to be seen is something else than not to be there: a process must not lose its conversation by
        // becoming unreadable.
        match &self.environment {
            Some(variables) => {
                encoder.field(b"conversation").list(&sorted(variables, |name| is_conversation(name, table)))
            }
            None => encoder.field(b"conversation unknown"),
        };
        Ok(encoder.finish())
    }

    fn place(&self, table: &Table) -> Result<[u8; 32], KeyDoubt> {
        let directory = self.directory.as_deref().ok_or(KeyDoubt::Directory)?;
        let environment = self.environment.as_deref().ok_or(KeyDoubt::Environment)?;
        let mut encoder = Encoder::new("mcp-sessiond place");
        encoder.field(directory.as_os_str().as_bytes());
        encoder.list(&sorted(environment, |name| !is_ignored(name, table)));
        Ok(encoder.finish())
    }
}

/// Whether the arguments look like a title that the process has given itself, in the place of what it was started
/// with: one string, and nothing but NULs up to the end of the old ones (node's `process.title`); or one string of
/// several words that is not the executable's name. A title that happens to fill the place to the last byte, in one
/// word, can't be told from a program without arguments.
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

/// SHA-256 over fields that each come with their length, and lists that come with their number, so that no two
/// different sequences are the same bytes.
struct Encoder(Sha256);

impl Encoder {
    /// `domain` keeps digests for different purposes apart.
    fn new(domain: &str) -> Self {
        let mut encoder = Self(Sha256::new());
        encoder.field(domain.as_bytes());
        encoder
    }

    fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    fn list(&mut self, items: &[impl AsRef<[u8]>]) -> &mut Self {
        self.0.update((items.len() as u64).to_be_bytes());
        for item in items {
            self.field(item.as_ref());
        }
        self
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests;
