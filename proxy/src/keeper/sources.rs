//! Whether a module that a script may import has changed since the server was started: the files of
//! its language below its package.
//!
//! What a module imports is not read. A tree that is too large, or is not on this machine, is not
//! looked at.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mcp_sessiond_process::directory::is_local;

use super::program_change::Content;

/// The files that are looked at beside a script that has one of these extensions.
const LANGUAGES: [&[&str]; 2] = [&["py"], &["js", "mjs", "cjs", "ts", "mts", "cts"]];

/// What a package's directory has in it.
const PACKAGE_FILES: [&str; 2] = ["package.json", "pyproject.toml"];

/// More files are not looked at, nor for longer.
const FILES_MAX: usize = 2_000;
const TIME_MAX: Duration = Duration::from_millis(100);

/// Takes a snapshot beside the server's start, in a thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources(Arc<OnceLock<Snapshot>>);

/// The files of a tree, as they were soon after the start.
#[derive(Debug)]
struct Snapshot {
    tree: Tree,
    files: BTreeMap<PathBuf, Content>,
}

/// Which files are meant.
#[derive(Debug)]
struct Tree {
    root: PathBuf,
    /// Whether it is a package: else it is the files beside the script.
    is_package: bool,
    extensions: &'static [&'static str],
}

impl Sources {
    /// Begins to look at what this script may import.
    pub(super) fn of(script: PathBuf) -> Self {
        let sources = Self::default();
        let taken = sources.0.clone();
        let look = move || {
            let snapshot = Tree::of(&script).and_then(Snapshot::take);
            snapshot.and_then(|snapshot| taken.set(snapshot).ok())
        };
        // Without a thread the script alone counts.
        drop(std::thread::Builder::new().spawn(look));
        sources
    }

    /// A file that is new or has changed, as its package knows it. A file that is gone is no other
    /// program: it may be about to be built.
    pub(super) fn changed(&self) -> Option<String> {
        let Snapshot { tree, files } = self.0.get()?;
        let now = tree.files()?;
        let is_other = |path: &PathBuf| files.get(path).is_none_or(|file| file.has_changed(path));
        let other = now.into_iter().find(is_other)?;
        let name = other.strip_prefix(&tree.root).unwrap_or(&other);
        Some(name.to_string_lossy().into_owned())
    }
}

impl Snapshot {
    fn take(tree: Tree) -> Option<Self> {
        let files = tree.files()?;
        let read = |path: PathBuf| Content::of(&path).ok().map(|content| (path, content));
        let files = files.into_iter().filter_map(read).collect();
        Some(Self { tree, files })
    }
}

impl Tree {
    fn of(script: &Path) -> Option<Self> {
        // As interpreters find a script's modules.
        let script = std::fs::canonicalize(script).ok()?;
        let extensions = LANGUAGES
            .into_iter()
            .find(|language| has_extension(&script, language))?;
        let directory = script.parent()?;
        let package = package_of(directory);
        let tree = Self {
            root: package.unwrap_or(directory).to_owned(),
            is_package: package.is_some(),
            extensions,
        };
        is_local(&tree.root).then_some(tree)
    }

    /// The files that there are. None: too many, or it took too long to find out.
    fn files(&self) -> Option<Vec<PathBuf>> {
        let until = Instant::now() + TIME_MAX;
        let mut files = Vec::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            for entry in entries.flatten() {
                if Instant::now() > until {
                    return None;
                }
                let (path, name) = (entry.path(), entry.file_name());
                // A link to a directory may lead anywhere.
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_directory {
                    if self.is_package && !is_left_out(&path, &name) {
                        directories.push(path);
                    }
                } else if has_extension(&path, self.extensions) {
                    files.push(path);
                    if files.len() > FILES_MAX {
                        return None;
                    }
                }
            }
        }
        Some(files)
    }
}

/// The package that a script in this directory belongs to. A script below a virtual environment or
/// `node_modules` is a part of that, and never of the project around it.
fn package_of(directory: &Path) -> Option<&Path> {
    let is_python = |directory: &&Path| directory.join("__init__.py").is_file();
    let outermost = directory.ancestors().take_while(is_python).last();
    if outermost.is_some() {
        return outermost;
    }
    let inside = |at: &&Path| at.file_name() != Some(OsStr::new("node_modules")) && !is_venv(at);
    let has = |at: &&Path| PACKAGE_FILES.iter().any(|file| at.join(file).is_file());
    directory.ancestors().take_while(inside).find(has)
}

fn is_left_out(directory: &Path, name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    matches!(&*name, "node_modules" | "__pycache__") || name.starts_with('.') || is_venv(directory)
}

fn is_venv(directory: &Path) -> bool {
    directory.join("pyvenv.cfg").is_file()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let own = path.extension().and_then(OsStr::to_str);
    own.is_some_and(|own| extensions.contains(&own))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory of files, each with its name for its content.
    fn project(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for file in files {
            write(&directory, file, file);
        }
        directory
    }

    fn write(directory: &tempfile::TempDir, file: &str, content: &str) {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, content).expect("written");
    }

    fn snapshot(directory: &tempfile::TempDir, script: &str) -> Sources {
        let sources = Sources::default();
        let tree = Tree::of(&directory.path().join(script));
        if let Some(snapshot) = tree.and_then(Snapshot::take) {
            sources.0.set(snapshot).expect("the first");
        }
        sources
    }

    /// The files that count for this script.
    fn meant(directory: &tempfile::TempDir, script: &str) -> Vec<String> {
        let sources = snapshot(directory, script);
        let root = fs::canonicalize(directory.path()).expect("it exists");
        let files = sources.0.get().map(|snapshot| &snapshot.files);
        let name = |path: &PathBuf| {
            let inside = path.strip_prefix(&root).expect("below it");
            inside.to_string_lossy().into_owned()
        };
        files
            .into_iter()
            .flatten()
            .map(|(path, _)| name(path))
            .collect()
    }

    #[test]
    fn a_package_has_the_files_of_its_scripts_language() {
        let directory = project(&[
            "package.json",
            "src/server.js",
            "src/lib/deep.mts",
            "data.json",
            "README.md",
            "tool.py",
            ".hidden/x.js",
            ".git/x.js",
            "node_modules/other/index.js",
            "node_modules/own/package.json",
            "node_modules/own/dist/main.js",
            "node_modules/bare.js",
            "venv/pyvenv.cfg",
            "venv/lib/x.js",
        ]);
        assert_eq!(
            meant(&directory, "src/server.js"),
            ["src/lib/deep.mts", "src/server.js"]
        );
        assert_eq!(meant(&directory, "tool.py"), ["tool.py"]);
        let own = "node_modules/own/dist/main.js";
        assert_eq!(meant(&directory, own), [own]);
        assert_eq!(
            meant(&directory, "node_modules/bare.js"),
            ["node_modules/bare.js"]
        );
        assert_eq!(meant(&directory, "venv/lib/x.js"), ["venv/lib/x.js"]);
        assert_eq!(
            meant(&directory, "README.md"),
            [""; 0],
            "no language that is known"
        );
        assert_eq!(meant(&directory, "nowhere.py"), [""; 0]);
    }

    #[test]
    fn a_package_of_python_is_its_outermost_one() {
        let directory = project(&[
            "a/pkg/__init__.py",
            "a/pkg/inner/__init__.py",
            "a/pkg/inner/main.py",
            "a/pkg/other/x.py",
            "a/pkg/__pycache__/x.py",
            "a/beside.py",
            "b/pyproject.toml",
            "b/bin/run.py",
            "b/lib/x.py",
        ]);
        let package = [
            "a/pkg/__init__.py",
            "a/pkg/inner/__init__.py",
            "a/pkg/inner/main.py",
            "a/pkg/other/x.py",
        ];
        assert_eq!(meant(&directory, "a/pkg/inner/main.py"), package);
        assert_eq!(
            meant(&directory, "b/bin/run.py"),
            ["b/bin/run.py", "b/lib/x.py"]
        );
    }

    /// It may lie in a home directory.
    #[test]
    fn a_script_without_a_package_has_what_stands_beside_it() {
        let directory = project(&["server.py", "helper.py", "projects/other.py"]);
        assert_eq!(meant(&directory, "server.py"), ["helper.py", "server.py"]);
    }

    #[test]
    fn the_content_counts() {
        let directory = project(&["pyproject.toml", "server.py", "lib/a.py", "lib/b.py"]);
        let sources = snapshot(&directory, "server.py");
        assert_eq!(sources.changed(), None);
        let path = directory.path().join("lib/a.py");
        fs::remove_file(&path).expect("removed");
        assert_eq!(sources.changed(), None, "a file that is gone");
        write(&directory, "lib/a.py", "lib/a.py");
        assert_eq!(
            sources.changed(),
            None,
            "the same again, as after a checkout"
        );
        write(&directory, "lib/a.py", "lib/A.py");
        assert_eq!(
            sources.changed().as_deref(),
            Some("lib/a.py"),
            "of the same length"
        );
        write(&directory, "lib/a.py", "lib/a.py");
        write(&directory, "lib/new.py", "");
        assert_eq!(sources.changed().as_deref(), Some("lib/new.py"));
    }

    #[test]
    fn a_tree_that_is_too_large_does_not_count() {
        let directory = project(&["package.json", "server.js"]);
        for number in 0..FILES_MAX {
            write(&directory, &format!("lib/{number}.js"), "");
        }
        assert_eq!(meant(&directory, "server.js"), [""; 0]);
        fs::remove_file(directory.path().join("lib/0.js")).expect("removed");
        // A slow machine may not come to its end in time, and then looks at none.
        let files = meant(&directory, "server.js");
        assert!([0, FILES_MAX].contains(&files.len()), "{}", files.len());
    }
}
