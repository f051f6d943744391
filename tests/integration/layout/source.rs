//! The packages' sources: their modules, and the paths that each mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A package, without what is only for its tests.
pub(super) struct Package {
    manifest: String,
    pub(super) modules: Vec<Module>,
}

/// One file of code.
pub(super) struct Module {
    /// `["contents", "events"]`; empty for the package's root.
    pub(super) path: Vec<String>,
    pub(super) file: PathBuf,
    pub(super) text: String,
    /// The paths that begin with `crate`, `self`, `super` or a package of ours, or that lead
    /// through a type.
    pub(super) mentions: Vec<Vec<String>>,
    /// What it imports, and so gives on to those below it and perhaps to others: names, and paths
    /// from the package's root.
    imports: BTreeMap<String, Vec<String>>,
}

impl Package {
    pub(super) fn read(root: &Path, path: &str) -> Self {
        let directory = root.join(path);
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let source = directory.join(lib_folder(&manifest));
        let mut files = Vec::new();
        list(&source, &mut files);
        let all: Vec<Module> = files
            .iter()
            .map(|file| Module::read(&source, file))
            .collect();
        let tests: BTreeSet<Vec<String>> = all.iter().flat_map(Module::tests).collect();
        let is_test = |module: &Module| {
            (1..=module.path.len()).any(|end| tests.contains(&module.path[..end]))
        };
        Self {
            manifest,
            modules: all.into_iter().filter(|module| !is_test(module)).collect(),
        }
    }

    /// What the manifest says of the package; nothing where it says nothing.
    pub(super) fn field(&self, name: &str) -> &str {
        let value = self
            .manifest
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        value.unwrap_or_default().trim_matches('"')
    }

    /// The names in `[dependencies]`.
    pub(super) fn dependencies(&self) -> BTreeSet<String> {
        let lines = self
            .manifest
            .lines()
            .skip_while(|line| *line != "[dependencies]")
            .skip(1);
        let lines = lines.take_while(|line| !line.starts_with('['));
        lines
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.split_once(" =")?.0.into()))
            .collect()
    }

    /// The file that is the package's door.
    pub(super) fn root(&self) -> &Module {
        self.modules
            .iter()
            .find(|module| module.path.is_empty())
            .expect("a lib.rs")
    }
}

/// The folder of the library's root: `cli/src` of `[lib] path = "cli/src/lib.rs"`, and Cargo's own
/// `src` without that line.
fn lib_folder(manifest: &str) -> &Path {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[lib]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let path = lines
        .filter_map(|line| line.strip_prefix("path = "))
        .next()
        .unwrap_or("src/lib.rs");
    Path::new(path.trim_matches('"'))
        .parent()
        .expect("a folder")
}

fn list(directory: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            list(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

impl Module {
    fn read(source: &Path, file: &Path) -> Self {
        let text = fs::read_to_string(file).expect("UTF-8");
        let path = file
            .strip_prefix(source)
            .expect("below it")
            .with_extension("");
        let path: Vec<String> = path
            .iter()
            .map(|part| part.to_str().expect("UTF-8").to_owned())
            .collect();
        // A `main.rs` stands for itself: nothing can name it.
        let path = if path == ["lib"] { Vec::new() } else { path };
        Self::new(path, file.into(), text)
    }

    fn new(path: Vec<String>, file: PathBuf, text: String) -> Self {
        let code = bare(&text);
        let mut module = Self {
            mentions: mentions(&code),
            path,
            file,
            text,
            imports: BTreeMap::new(),
        };
        for path in imports(&code) {
            let below = || module.path.iter().chain(&path).cloned().collect();
            let name = path.iter().rev().find(|part| *part != "self").cloned();
            let from = module.absolute(&path).unwrap_or_else(below);
            module.imports.extend(name.map(|name| (name, from)));
        }
        module
    }

    /// A made-up one.
    pub(super) fn of(path: &str, text: &str) -> Self {
        let parts = path
            .split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        let file = PathBuf::from(path.replace("::", "/") + ".rs");
        Self::new(parts, file, text.into())
    }

    /// The room that the file is in; None for the package's root, and for what only starts a
    /// program.
    pub(super) fn room(&self) -> Option<&str> {
        self.path
            .first()
            .map(String::as_str)
            .filter(|room| *room != "main")
    }

    /// The modules in it that are for tests.
    fn tests(&self) -> Vec<Vec<String>> {
        let mut lines = self.text.lines().map(str::trim).peekable();
        let mut found = Vec::new();
        while let Some(line) = lines.next() {
            let is_test = line.starts_with("#[cfg(") && line.contains("test");
            let next = lines
                .peek()
                .filter(|_| is_test)
                .and_then(|next| next.strip_suffix(';'));
            if let Some((_, name)) = next.and_then(|next| next.rsplit_once("mod ")) {
                found.push(self.path.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
        found
    }

    /// The rooms of its package, and the packages of ours, that it names.
    pub(super) fn named(&self) -> impl Iterator<Item = String> {
        self.mentions.iter().filter_map(|path| {
            if let Some(package) = path.first()?.strip_prefix("mcp_sessiond_") {
                return Some(package.to_owned());
            }
            self.absolute(path)?.into_iter().next()
        })
    }

    /// A path of this package's, from its root.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.path.clone(),
            "super" => self.path.split_last()?.1.to_vec(),
            _ => return None,
        };
        for part in rest {
            if part == "super" {
                at.pop()?;
            } else {
                at.push(part.clone());
            }
        }
        Some(at)
    }
}

/// Files that lead back to themselves, each circle once and in order of their names. A file and
/// those below it are of one room, and may name each other.
pub(super) fn circles(modules: &[Module]) -> Vec<Vec<String>> {
    let known: BTreeMap<&[String], &Module> = modules
        .iter()
        .map(|module| (&module.path[..], module))
        .collect();
    let mut leads: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for module in modules {
        for path in module
            .mentions
            .iter()
            .filter_map(|path| module.absolute(path))
        {
            let Some(target) = leads_to(&known, path) else {
                continue;
            };
            if !target.starts_with(&module.path) && !module.path.starts_with(target) {
                leads.entry(&module.path).or_default().insert(target);
            }
        }
    }
    let reached = |from: &[String]| {
        let mut seen: BTreeSet<&[String]> = BTreeSet::new();
        let mut next: Vec<&[String]> = leads.get(from).into_iter().flatten().copied().collect();
        while let Some(at) = next.pop() {
            if seen.insert(at) {
                next.extend(leads.get(at).into_iter().flatten());
            }
        }
        seen
    };
    let all: BTreeMap<&[String], BTreeSet<&[String]>> = known
        .keys()
        .map(|module| (*module, reached(module)))
        .collect();
    let mut found = BTreeSet::new();
    for (module, reached) in all
        .iter()
        .filter(|(module, reached)| reached.contains(*module))
    {
        let circle = reached
            .iter()
            .filter(|other| all[**other].contains(module))
            .map(|other| other.join("::"));
        found.insert(circle.collect::<Vec<_>>());
    }
    found.into_iter().collect()
}

/// The file that a path leads to, by way of what files on the way import.
fn leads_to<'a>(
    known: &BTreeMap<&'a [String], &Module>,
    path: Vec<String>,
) -> Option<&'a [String]> {
    let mut path = path;
    // Nothing is handed on more often than that.
    for _ in 0..8 {
        let (end, file) = (0..=path.len())
            .rev()
            .find_map(|end| Some((end, known.get_key_value(&path[..end])?)))?;
        let Some(from) = path.get(end).and_then(|name| file.1.imports.get(name)) else {
            return Some(file.0);
        };
        path = from.iter().chain(&path[end + 1..]).cloned().collect();
    }
    None
}

/// Code without its comments, and without what is in quotation marks.
fn bare(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            quoted(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            rest[1..].find("'").map_or(rest.len(), |end| end + 2)
        } else {
            bare.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        bare.push(' ');
        rest = &rest[skipped..];
    }
    bare
}

/// How many bytes a string literal has, its quotation marks included.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Every path in the code that begins with `crate`, `self`, `super` or a package of ours, those in
/// braces one by one; and those of functions that belong to a type.
fn mentions(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words = Words { rest: code };
    let mut former = String::new();
    while let Some(word) = words.next() {
        let is_root = ["crate", "self", "super"].contains(&word.as_str())
            || word.starts_with("mcp_sessiond_");
        let is_type = word.starts_with(|first: char| first.is_ascii_uppercase());
        if former != "::" && (is_root || is_type) {
            words.path(vec![word.clone()], &mut found);
        }
        former = word;
    }
    found
}

/// The paths behind `use`.
fn imports(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words = Words { rest: code };
    while let Some(word) = words.next() {
        if word == "use"
            && let Some(first) = words.next()
        {
            words.path(vec![first], &mut found);
        }
    }
    found
}

/// Names, `::` and single characters.
struct Words<'a> {
    rest: &'a str,
}

impl Words<'_> {
    fn next(&mut self) -> Option<String> {
        let rest = self.rest.trim_start();
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let length = match rest.chars().next()? {
            first if is_name(first) => rest.find(|letter| !is_name(letter)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            first => first.len_utf8(),
        };
        let (word, rest) = rest.split_at(length);
        self.rest = rest;
        Some(word.to_owned())
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.rest.trim_start().starts_with(word);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Reads on behind the beginning of a path.
    fn path(&mut self, mut so_far: Vec<String>, found: &mut Vec<Vec<String>>) {
        while self.skip("::") {
            if self.skip("{") {
                while !self.skip("}") {
                    let Some(word) = self.next() else { return };
                    if word != "," {
                        self.path(so_far.iter().cloned().chain([word]).collect(), found);
                    }
                }
                return;
            }
            let name = self
                .rest
                .trim_start()
                .starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
            match self.next().filter(|_| name) {
                Some(word) => so_far.push(word),
                None => break,
            }
        }
        found.push(so_far);
    }
}
