//! The Rust packages' sources: their modules, and the paths that each mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::circles::File;

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
    /// What it imports, and so passes on to those below it and perhaps to others: names, and paths
    /// from the package's root.
    imports: BTreeMap<String, Vec<String>>,
    /// Its words, where it takes all that another file has.
    words: BTreeSet<String>,
}

impl Package {
    pub(super) fn read(root: &Path, path: &str) -> Self {
        let directory = root.join(path);
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let source = directory.join(lib_folder(&manifest));
        let mut files = Vec::new();
        list(&source, "rs", &mut files);
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

    /// The package's `lib.rs`.
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

/// The files below a folder that end so.
pub(super) fn list(directory: &Path, extension: &str, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            list(&path, extension, into);
        } else if path.extension().is_some_and(|found| found == extension) {
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
        let code = without_tests(&bare(&text));
        let mentions = mentions(&code);
        let takes_all = |path: &Vec<String>| path.last().is_some_and(|last| last == "*");
        let words = mentions.iter().any(takes_all).then(|| words(&code));
        let mut module = Self {
            mentions,
            path,
            file,
            text,
            imports: BTreeMap::new(),
            words: words.unwrap_or_default(),
        };
        for (name, path) in imports(&code) {
            let below = || module.path.iter().chain(&path).cloned().collect();
            let from = module.absolute(&path).unwrap_or_else(below);
            module.imports.insert(name, from);
        }
        module
    }

    /// What it is in the search for circles.
    pub(super) fn as_file(&self) -> File {
        let mentions = self.mentions.iter();
        File {
            path: self.path.clone(),
            names: mentions.filter_map(|path| self.absolute(path)).collect(),
            imports: self.imports.clone(),
            words: self.words.clone(),
        }
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

    /// The top module that the file is in; None for the package's root, and for what only starts
    /// a program.
    pub(super) fn top(&self) -> Option<&str> {
        self.path
            .first()
            .map(String::as_str)
            .filter(|module| *module != "main")
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

    /// The top modules of its package, and the packages of ours, that it names.
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
        } else if let Some(length) = letter(rest) {
            length
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

/// How many bytes the literal of a single character has; None for anything else, a lifetime too.
fn letter(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    // What is escaped may itself be such a mark.
    let skipped = if first == '\\' { 2 } else { first.len_utf8() };
    let length = inside.get(skipped..)?.find('\'')?;
    (first == '\\' || length == 0).then_some(1 + skipped + length + 1)
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

/// Code without the modules in it that are for tests.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(") {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        let mut words = Words { rest: from };
        // The attributes, up to what they belong to.
        let mut is_test = false;
        while words.rest.trim_start().starts_with('#') {
            let attribute = words.rest;
            words.next();
            words.skip_block('[', ']');
            let attribute = &attribute[..attribute.len() - words.rest.len()];
            is_test |= attribute.contains("test") && !attribute.contains("not(test");
        }
        let is_module = words.skip("mod ") && words.next().is_some();
        if is_test && is_module && words.rest.trim_start().starts_with('{') {
            words.skip_block('{', '}');
            rest = words.rest;
        } else {
            kept.push_str("#[cfg(");
            rest = &from["#[cfg(".len()..];
        }
    }
    kept + rest
}

/// Every path in the code that begins with `crate`, `self`, `super` or a package of ours, those in
/// braces one by one; and those of functions that belong to a type.
fn mentions(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words = Words { rest: code };
    let mut former = String::new();
    // How deep in braces each module in the file begins, and where the code is.
    let (mut modules, mut depth) = (Vec::new(), 0);
    while let Some(word) = words.next() {
        let is_root = ["crate", "self", "super"].contains(&word.as_str())
            || word.starts_with("mcp_sessiond_");
        let is_type = word.starts_with(|first: char| first.is_ascii_uppercase());
        match word.as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                modules.retain(|begun| *begun < depth);
            }
            "mod" => {
                let rest = words.rest.trim_start();
                let name = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
                let behind = name.map_or("", |end| rest[end..].trim_start());
                modules.extend(behind.starts_with('{').then_some(depth));
            }
            _ => {}
        }
        if former != "::" && (is_root || is_type) {
            let mut paths = Vec::new();
            words.path(vec![word.clone()], &mut paths);
            let paths = paths.into_iter();
            found.extend(paths.map(|(_, path)| from_file(path, modules.len())));
        }
        former = word;
    }
    found
}

/// A path as the file would write it, of one that stands in a module in the file, which is so many
/// levels down.
fn from_file(path: Vec<String>, levels: usize) -> Vec<String> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    if ups == 0 || levels == 0 {
        return path;
    }
    let root = (ups <= levels).then(|| "self".to_owned());
    root.into_iter()
        .chain(path.into_iter().skip(ups.min(levels)))
        .collect()
}

/// The names behind `use`, and the path of each.
fn imports(code: &str) -> Vec<(String, Vec<String>)> {
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

fn words(code: &str) -> BTreeSet<String> {
    let mut words = Words { rest: code };
    std::iter::from_fn(|| words.next()).collect()
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

    /// Skips what stands between these two, and them.
    fn skip_block(&mut self, open: char, close: char) {
        let mut depth = 0;
        while let Some(word) = self.next() {
            if word.starts_with(open) {
                depth += 1;
            } else if word.starts_with(close) {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
        }
    }

    /// Reads on behind the beginning of a path: each path, and the name that it gives.
    fn path(&mut self, mut so_far: Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
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
            let first = self.rest.trim_start().chars().next();
            let is_name =
                first.is_some_and(|first| first.is_alphanumeric() || "_*".contains(first));
            match self.next().filter(|_| is_name) {
                Some(word) => so_far.push(word),
                None => break,
            }
        }
        let named = so_far.iter().rev().find(|part| *part != "self").cloned();
        let renamed = self.skip("as ").then(|| self.next()).flatten();
        if let Some(name) = renamed.or(named) {
            found.push((name, so_far));
        }
    }
}
