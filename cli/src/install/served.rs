//! `install --serve NAME`: `serve` as a service of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::super::serve;
use super::{Problem, writable};

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
pub(super) struct Served {
    /// Its options, and the command of the server behind it.
    pub(super) arguments: Vec<String>,
    /// Its working directory, and the server's.
    pub(super) directory: String,
    /// Where it and the server find programs.
    pub(super) path: String,
    /// Where it listens.
    pub(super) at: String,
}

impl Served {
    /// As it would run here and now with these words after `serve`.
    pub(super) fn here(name: &Name, words: &[OsString]) -> Result<Self, Problem> {
        let given = ["--name", name.as_str()].map(OsString::from);
        let given: Vec<OsString> = given.into_iter().chain(words.iter().cloned()).collect();
        let (at, command) = serve::check(&given).map_err(Problem::Usage)?;
        let (options, command) = given.split_at(given.len() - command);
        let options = options.strip_suffix(&["--".into()]).unwrap_or(options);
        let separator = OsString::from("--");
        let separator = (!command.is_empty()).then_some(&separator);
        let arguments = options.iter().chain(separator).chain(command).map(readable);
        let directory = std::env::current_dir()
            .map_err(|error| Problem::Failed(format!("this directory: {error}")))?;
        let path = std::env::var_os("PATH")
            .map(PathBuf::from)
            .unwrap_or_default();
        Ok(Self {
            arguments: arguments.collect::<Result<_, _>>()?,
            directory: writable(&directory)?,
            path: writable(Path::new(&path))?,
            at,
        })
    }
}

/// A word as text that can stand in a file.
fn readable(word: &OsString) -> Result<String, Problem> {
    match word.to_str() {
        Some(text)
            if !text.contains(|letter: char| letter.is_control() && !"\n\t".contains(letter)) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(Problem::Usage(format!(
            "{} can't be written into a service file",
            word.to_string_lossy()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Served::here(&"x".parse().expect("a name"), &words)
            .expect("good usage")
            .arguments
    }

    #[test]
    fn the_command_stands_behind_a_separator() {
        let expected = [
            "--name",
            "x",
            "--listen",
            "localhost:1",
            "--",
            "npx",
            "--listen",
            "2",
        ];
        assert_eq!(
            arguments(&["--listen", "localhost:1", "--", "npx", "--listen", "2"]),
            expected
        );
        assert_eq!(
            arguments(&["--listen", "localhost:1", "npx", "--listen", "2"]),
            expected
        );
        assert_eq!(
            arguments(&["npx", "--", "2"]),
            ["--name", "x", "--", "npx", "--", "2"]
        );
        let upstream = ["--upstream", "http://127.0.0.1:3/mcp"];
        assert_eq!(
            arguments(&upstream),
            [&["--name", "x"], &upstream[..]].concat()
        );
    }

    #[test]
    fn what_serve_refuses_is_refused() {
        for words in [
            &[][..],
            &["--name", "y", "npx"],
            &["--listen", "nowhere", "npx"],
            &["a\u{1}b"],
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let refused = Served::here(&"x".parse().expect("a name"), &words);
            assert!(matches!(refused, Err(Problem::Usage(_))), "{words:?}");
        }
        for name in ["", "a b", "a/b", "a@b", "a%b", "é"] {
            assert!(name.parse::<Name>().is_err(), "{name:?}");
        }
    }
}
