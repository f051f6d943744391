//! The sources of the TypeScript and Python packages: what each file imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::circles::File;
use super::source::list;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Language {
    TypeScript,
    Python,
}

impl Language {
    fn extension(self) -> &'static str {
        match self {
            Self::TypeScript => "ts",
            Self::Python => "py",
        }
    }

    /// The name of the file that is a folder's own.
    fn own(self) -> &'static str {
        match self {
            Self::TypeScript => "index",
            Self::Python => "__init__",
        }
    }

    /// The files below a folder. `package` is what Python imports the folder as.
    pub(super) fn read(self, folder: &Path, package: &str) -> Vec<File> {
        let mut files = Vec::new();
        list(folder, self.extension(), &mut files);
        let read = |file: &PathBuf| {
            let text = fs::read_to_string(file).expect("UTF-8");
            let path = file.strip_prefix(folder).expect("below it").to_owned();
            self.file(path.to_str().expect("UTF-8"), &text, package)
        };
        files.iter().map(read).collect()
    }

    /// One file, by its path from the package's folder.
    pub(super) fn file(self, path: &str, text: &str, package: &str) -> File {
        let path = path.strip_suffix(self.extension()).expect("its extension");
        let mut path = parts(path.trim_end_matches('.'), '/');
        let is_own = path.last().is_some_and(|last| last == self.own());
        // What relative imports start from.
        let folder = path[..path.len() - 1].to_vec();
        if is_own {
            path.pop();
        }
        let imports = match self {
            Self::TypeScript => typescript(text, &folder),
            Self::Python => python(text, &folder, package),
        };
        let mut file = File {
            path,
            names: Vec::new(),
            imports: BTreeMap::new(),
            words: BTreeSet::new(),
        };
        for (name, from) in imports {
            file.names.push(from.clone());
            file.imports.insert(name, from);
        }
        file
    }
}

fn parts(path: &str, by: char) -> Vec<String> {
    path.split(by)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// `one as other`: the name at its origin, and the name here.
fn renamed(item: &str) -> (&str, &str) {
    item.split_once(" as ").unwrap_or((item, item))
}

/// What a file imports or exports from others of its package: the name here, and its path there.
/// The layout of statements is the formatter's: each begins its line, and ends in a semicolon.
fn typescript(text: &str, folder: &[String]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let starts = ["import ", "import{", "export {", "export *", "export type "];
    let mut rest = text;
    while let Some(line) = rest.lines().next() {
        if starts.iter().any(|start| line.starts_with(start)) {
            let statement = &rest[..rest.find(';').unwrap_or(rest.len())];
            if let Some((what, from)) = statement.rsplit_once(" from ") {
                let of = typescript_file(from, folder);
                found.extend(of.into_iter().flat_map(|of| named(what, &of)));
            } else if let Some(of) = typescript_file(&statement["import".len()..], folder) {
                found.push((String::new(), of));
            }
        }
        rest = rest[line.len()..].trim_start_matches(['\r', '\n']);
    }
    // Modules that are loaded when they are needed, and types that are named where they are used.
    for (_, from) in text
        .match_indices("import(")
        .map(|(at, call)| text.split_at(at + call.len()))
    {
        found.extend(typescript_file(from, folder).map(|of| (String::new(), of)));
    }
    found
}

/// The names of `{ a, type b as c }`; without braces, the file itself.
fn named(what: &str, of: &[String]) -> Vec<(String, Vec<String>)> {
    let Some((_, items)) = what.split_once('{') else {
        return vec![(String::new(), of.to_vec())];
    };
    let items = items.split(['}', ',', '\n']).map(str::trim);
    let items = items.filter(|item| !item.is_empty() && !item.starts_with("//"));
    let item = |item: &str| {
        let (there, here) = renamed(item.strip_prefix("type ").unwrap_or(item));
        let path = of.iter().cloned().chain([there.to_owned()]).collect();
        (here.to_owned(), path)
    };
    items.map(item).collect()
}

/// The file in the quotation marks at the beginning, where it is one of this package.
fn typescript_file(quoted: &str, folder: &[String]) -> Option<Vec<String>> {
    let quoted = quoted.trim_start();
    let mark = quoted
        .chars()
        .next()
        .filter(|mark| "'\"`".contains(*mark))?;
    let file = quoted[1..].split(mark).next()?;
    if !file.starts_with('.') {
        return None;
    }
    let file = ["js", "ts"]
        .iter()
        .find_map(|extension| file.strip_suffix(extension)?.strip_suffix('.'))
        .unwrap_or(file);
    let mut at = folder.to_vec();
    for part in file.split('/') {
        match part {
            "." => {}
            ".." => drop(at.pop()),
            part => at.push(part.into()),
        }
    }
    if at.last().is_some_and(|last| last == "index") {
        at.pop();
    }
    Some(at)
}

/// What a file imports from others of its package, wherever in it: also in functions, and for type
/// checkers only.
fn python(text: &str, folder: &[String], package: &str) -> Vec<(String, Vec<String>)> {
    let code = without_text_and_comments(text);
    let mut found = Vec::new();
    let mut rest = &code[..];
    while let Some(line) = rest.split('\n').next() {
        let statement = line.trim_start();
        if let Some(modules) = statement.strip_prefix("import ") {
            for module in modules.split(',') {
                let (there, _) = renamed(module.trim());
                let of = python_module(there, folder, package);
                found.extend(of.map(|of| (String::new(), of)));
            }
        } else if let Some(from) = statement.strip_prefix("from ")
            && let Some((module, _)) = from.split_once(" import ")
        {
            // In parentheses, names go on over lines.
            let (_, names) = rest.split_once(" import ").expect("seen just now");
            let end = if names.starts_with('(') { ')' } else { '\n' };
            let names = names.trim_start_matches('(').split(end).next();
            let names = names.unwrap_or_default().split(',').map(str::trim);
            if let Some(of) = python_module(module.trim(), folder, package) {
                for name in names.filter(|name| !name.is_empty()) {
                    let (there, here) = renamed(name);
                    let path = of.iter().cloned().chain([there.to_owned()]).collect();
                    found.push((here.to_owned(), path));
                }
            }
        }
        let next = rest[line.len()..].strip_prefix('\n');
        let Some(next) = next else { break };
        rest = next;
    }
    found
}

/// `..tasks` or `mcp_sessiond.tasks`, from the package's root; None for packages of others.
fn python_module(name: &str, folder: &[String], package: &str) -> Option<Vec<String>> {
    let relative = name.trim_start_matches('.');
    let dots = name.len() - relative.len();
    let mut at = folder.to_vec();
    if dots == 0 {
        let below = name.strip_prefix(package)?;
        return (below.is_empty() || below.starts_with('.')).then(|| parts(below, '.'));
    }
    at.truncate((folder.len() + 1).checked_sub(dots)?);
    at.extend(parts(relative, '.'));
    Some(at)
}

/// Python's code without its comments and without texts of several lines.
fn without_text_and_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for (at, part) in text.split("\"\"\"").enumerate() {
        if at % 2 == 1 {
            continue;
        }
        for line in part.split_inclusive('\n') {
            match line.split_once('#') {
                Some((before, _)) => code.extend([before, "\n"]),
                None => code.push_str(line),
            }
        }
    }
    code
}
