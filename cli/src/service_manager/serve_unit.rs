//! `serve` as a service of its own: its name, and how it is run.

use std::str::FromStr;

/// Bytes that the name of a service of `serve` may have.
const NAME_MAX: usize = 64;

/// The name of a service of `serve`, which can stand in the name of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "1 to {NAME_MAX} letters, digits, dots, hyphens and underscores"
            ))
        }
    }
}

/// Which service it is.
#[derive(Debug)]
pub(super) enum Unit {
    /// The daemon's.
    Daemon,
    /// That of `serve` under a name.
    Serve(Name),
}

/// How `serve` is run.
#[derive(Debug)]
pub(crate) struct ServeCommand {
    /// Its options, and the command of the server behind it.
    pub(crate) arguments: Vec<String>,
    /// Its working directory, and the server's.
    pub(crate) directory: String,
    /// Where it and the server find programs.
    pub(crate) path: String,
    /// Where it listens.
    pub(crate) at: String,
}
