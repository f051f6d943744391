//! What tells the instances of one host apart.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use mcp_sessiond_proto::Label;

use crate::Encoder;

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

    /// Those of a process of which nothing is known but its name.
    #[must_use]
    pub fn unknown(program: String, doubt: KeyDoubt) -> Self {
        Self { program, base: None, place: None, doubt: Some(doubt) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_found_again_by_its_code() {
        for doubt in KeyDoubt::ALL {
            assert_eq!(doubt.code().parse(), Ok(doubt));
        }
        assert_eq!("".parse::<KeyDoubt>(), Err(KeyDoubtError));
    }
}
