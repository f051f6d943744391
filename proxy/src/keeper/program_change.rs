//! Whether the program of a backend has changed since it was started: its script, or its
//! executable. What a script imports, [`super::sources`] has.
//!
//! Nothing else among the arguments is looked at: a database that the server writes itself is no
//! change of it. What a launcher (`npx`, `uvx`, `sh -c`) starts can't be known.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use mcp_sessiond_process::programs::{self, Runs, ScriptOptions};
use sha2::{Digest as _, Sha256};

use crate::program::Program;

/// Of larger files the content is not kept in mind.
const MOST: u64 = 4 * 1024 * 1024;

/// A program's file, as it was when the backend was started.
#[derive(Debug)]
pub struct ProgramFile {
    path: PathBuf,
    content: Content,
}

/// What was in a file.
#[derive(Debug)]
pub(super) struct Content {
    stamp: Stamp,
    /// Not of a large one.
    digest: Option<[u8; 32]>,
}

/// What tells without reading it that a file is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl ProgramFile {
    /// What there is to be looked at of a program that is about to be started in the directory of
    /// this process.
    pub fn of(program: &Program) -> Option<Self> {
        let (path, is_script) = match runs(program) {
            Runs::Another => return None,
            Runs::Script(options) => (script(&program.arguments, options)?, true),
            Runs::Itself => (program.executable()?, false),
        };
        let content = Content::of(&path).ok()?;
        (content.digest.is_some() || !is_script).then_some(Self { path, content })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What has changed, for people. A file that is gone or can't be read is no other program; one
    /// of which only the date is another is the same.
    pub fn changed(&self) -> Option<String> {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        let has_changed = self.content.has_changed(&self.path);
        has_changed.then(|| name.to_string_lossy().into_owned())
    }
}

impl Content {
    /// Of a regular file.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        // A FIFO among the arguments would keep whoever opens it waiting.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut file = File::open(path)?;
        let stamp = Stamp::of(&file.metadata()?);
        let digest = digest(&mut file, stamp.size)?;
        Ok(Self { stamp, digest })
    }

    /// Whether there is something else in the file now. One that is gone or can't be read has not
    /// changed.
    pub(super) fn has_changed(&self, path: &Path) -> bool {
        let is_same = |metadata: Metadata| Stamp::of(&metadata) == self.stamp;
        if std::fs::metadata(path).is_ok_and(is_same) {
            return false;
        }
        let Ok(Self { stamp, digest }) = Self::of(path) else {
            return false;
        };
        match (self.digest, digest) {
            (Some(former), Some(now)) => former != now,
            // Nobody can write to an executable while it runs: another one has another inode, or
            // another size.
            (None, None) => {
                (stamp.device, stamp.inode, stamp.size)
                    != (self.stamp.device, self.stamp.inode, self.stamp.size)
            }
            _ => true,
        }
    }
}

/// What tells the files of a program from former ones, as one text: its executable's, and its
/// script's if it runs one. They are not read.
pub(crate) fn stamps(program: &Program) -> String {
    let script = match runs(program) {
        Runs::Script(options) => script(&program.arguments, options),
        Runs::Another | Runs::Itself => None,
    };
    let files = [program.executable(), script];
    let stamps = files.map(|file| {
        let metadata = std::fs::metadata(file?).ok()?;
        let Stamp {
            inode,
            size,
            modified,
            ..
        } = Stamp::of(&metadata);
        Some((inode, size, modified))
    });
    format!("{stamps:?}")
}

/// The digest of a file's content, if that is small.
fn digest(file: &mut File, size: u64) -> io::Result<Option<[u8; 32]>> {
    if size >= MOST {
        return Ok(None);
    }
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    let mut left = MOST;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Some(hash.finalize().into())),
            read if read as u64 > left => return Ok(None),
            read => {
                left -= read as u64;
                hash.update(&chunk[..read]);
            }
        }
    }
}

/// What the program runs, by the file name of its executable.
fn runs(program: &Program) -> Runs {
    let name = Path::new(&program.name).file_name();
    programs::runs(&name.unwrap_or(&program.name).to_string_lossy())
}

/// The script that an interpreter is given.
fn script(arguments: &[OsString], options: &ScriptOptions) -> Option<PathBuf> {
    let mut rest = arguments.iter();
    let mut verbs = options.verbs;
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        if text == "--" {
            return rest.next().map(PathBuf::from);
        }
        if text == "-" {
            return None;
        }
        let Some(option) = text.strip_prefix('-') else {
            if is_word(&text, verbs) {
                verbs = "";
                continue;
            }
            return Some(PathBuf::from(argument));
        };
        if option.starts_with('-') {
            let name = text.split('=').next().unwrap_or(&text);
            if is_word(name, options.ending) {
                return None;
            }
            if is_word(&text, options.valued) {
                rest.next();
            }
            continue;
        }
        // What follows a letter that takes a value is that value.
        if let Some(at) =
            option.find(|letter| is_in(letter, options.valued_letters, options.ending_letters))
        {
            if option[at..].starts_with(|letter| options.ending_letters.contains(letter)) {
                return None;
            }
            if at + 1 == option.len() {
                rest.next();
            }
        }
    }
    None
}

fn is_word(word: &str, words: &str) -> bool {
    !word.is_empty() && words.split(' ').any(|known| known == word)
}

fn is_in(letter: char, some: &str, others: &str) -> bool {
    some.contains(letter) || others.contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(words: &[&str]) -> Program {
        let (name, arguments) = words.split_first().expect("a program");
        Program {
            name: name.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            title: None,
            has_sources: true,
        }
    }

    #[test]
    fn the_script_is_the_first_operand_of_an_interpreter() {
        for (words, expected) in [
            (
                &["node", "server.js", "--db", "x.db"][..],
                Some("server.js"),
            ),
            (
                &[
                    "/usr/bin/node",
                    "--require",
                    "./hook.js",
                    "-r",
                    "b.js",
                    "--max-old-space-size=9",
                    "s.js",
                ],
                Some("s.js"),
            ),
            (&["node", "-e", "1"], None),
            (&["node", "--eval=1", "x"], None),
            (
                &[
                    "python3.13",
                    "-I",
                    "-S",
                    "-X",
                    "dev",
                    "-Wdefault",
                    "s.py",
                    "-m",
                ],
                Some("s.py"),
            ),
            (&["python", "-um", "server"], None),
            (&["python3", "-c", "pass", "s.py"], None),
            (
                &["deno", "run", "-A", "--config", "deno.json", "s.ts"],
                Some("s.ts"),
            ),
            (&["bun", "s.ts"], Some("s.ts")),
            (&["bun", "run", "s.ts"], Some("s.ts")),
            (&["ruby", "-Ilib", "-r", "json", "s.rb"], Some("s.rb")),
            (&["perl", "-w", "s.pl"], Some("s.pl")),
            (&["php", "-d", "a=1", "--", "s.php"], Some("s.php")),
            (&["bash", "-eu", "-o", "pipefail", "./s.sh"], Some("./s.sh")),
            (&["sh", "-c", "exec node s.js"], None),
            (&["sh", "-"], None),
            (&["node"], None),
        ] {
            let program = program(words);
            let Runs::Script(options) = runs(&program) else {
                panic!("{words:?}")
            };
            assert_eq!(
                script(&program.arguments, options).as_deref(),
                expected.map(Path::new),
                "{words:?}"
            );
        }
    }

    #[test]
    fn launchers_have_nothing_to_be_looked_at() {
        for words in [
            &["npx", "-y", "pkg"][..],
            &["uvx", "pkg"],
            &["/usr/bin/env", "node", "s.js"],
            &["uv", "run", "s.py"],
        ] {
            assert!(ProgramFile::of(&program(words)).is_none(), "{words:?}");
        }
        assert!(ProgramFile::of(&program(&["node", "/nowhere/s.js"])).is_none());
        assert!(ProgramFile::of(&program(&["nothing-of-that-name"])).is_none());
        assert!(ProgramFile::of(&program(&["ls"])).is_some());
    }

    #[test]
    fn the_content_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s.py");
        let script = path.to_str().expect("UTF-8");
        std::fs::write(&path, "one").expect("written");
        let program_file =
            ProgramFile::of(&program(&["python3", script, "x.db"])).expect("a script");
        assert_eq!(program_file.changed(), None);
        // An editor writes another file, and puts it in its place.
        let other = directory.path().join("other");
        std::fs::write(&other, "one").expect("written");
        std::fs::rename(&other, &path).expect("renamed");
        assert_eq!(program_file.changed(), None, "the same content again");
        std::fs::write(&path, "two").expect("written");
        assert_eq!(program_file.changed().as_deref(), Some("s.py"));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(
            program_file.changed(),
            None,
            "there is nothing to be run instead"
        );
        std::fs::write(&path, vec![b'x'; 4 << 20]).expect("written");
        assert_eq!(program_file.changed().as_deref(), Some("s.py"));
        assert!(
            ProgramFile::of(&program(&["python3", script])).is_none(),
            "too large"
        );
        // An executable may be as large as it likes.
        let program_file = ProgramFile::of(&program(&[script])).expect("an executable");
        assert_eq!(program_file.changed(), None);
        std::fs::write(&path, vec![b'x'; (4 << 20) + 1]).expect("written");
        assert_eq!(program_file.changed().as_deref(), Some("s.py"));
    }
}
