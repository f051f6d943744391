//! Circles among siblings: the files of one folder, each together with all files below it, that
//! lead back to themselves.

use std::collections::{BTreeMap, BTreeSet};

/// A file of code in whichever language, by where it stands in its package.
pub(super) struct File {
    /// `["contents", "events"]`. A folder's own file has the folder's path: `contents.rs`,
    /// `index.ts`, `__init__.py`.
    pub(super) path: Vec<String>,
    /// The items of its package that it names, each by its path from the package's root. The last
    /// part is `*` where it takes all that a file has.
    pub(super) names: Vec<Vec<String>>,
    /// What it imports, and so passes on to whoever names it here: the path of each, by its name.
    pub(super) imports: BTreeMap<String, Vec<String>>,
    /// Every word in it, if it takes all that another file has.
    pub(super) words: BTreeSet<String>,
}

/// Nodes of one folder that lead to each other.
pub(super) struct Circle {
    /// The folder, from the package's root.
    pub(super) folder: String,
    /// In order of their names.
    pub(super) nodes: Vec<String>,
    /// Which file of a node names which file of another one, for whoever has to open the circle.
    pub(super) because: BTreeSet<String>,
}

impl Circle {
    /// `contents: events rules`.
    pub(super) fn line(&self) -> String {
        format!("{}: {}", self.folder, self.nodes.join(" "))
    }

    /// The same, and which files name which.
    pub(super) fn explained(&self) -> String {
        let because = self.because.iter().map(|why| format!("\n    {why}"));
        because.fold(self.line(), |so_far, why| so_far + &why)
    }
}

/// For each folder, a file together with all files below it is one node; wherever in it a name
/// stands, the node leads to the node that has the name. What stays within a node is judged one
/// level below. A folder's own file is above those in the folder: they may name it, and it them.
pub(super) fn circles(files: &[File]) -> Vec<Circle> {
    let known: BTreeMap<&[String], &File> =
        files.iter().map(|file| (&file.path[..], file)).collect();
    // The names of each folder's nodes, and which leads to which.
    let mut leads: BTreeMap<&[String], Leads> = BTreeMap::new();
    for file in files {
        for target in file
            .names
            .iter()
            .flat_map(|path| leads_to(&known, file, path))
        {
            let shared = (file.path.iter().zip(target))
                .take_while(|(one, other)| one == other)
                .count();
            let (Some(from), Some(to)) = (file.path.get(shared), target.get(shared)) else {
                continue;
            };
            let why = format!("{} -> {}", file.path.join("/"), target.join("/"));
            let folder = leads.entry(&target[..shared]).or_default();
            let edges = folder.entry(from).or_default().entry(to).or_default();
            edges.insert(why);
        }
    }
    leads
        .iter()
        .flat_map(|(folder, leads)| circles_of(&folder.join("/"), leads))
        .collect()
}

/// From a node to another one, and which files are the reason.
type Leads<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<String>>>;

/// Each circle of one folder once.
fn circles_of(folder: &str, leads: &Leads) -> Vec<Circle> {
    let reached = |from: &str| {
        let of = |at: &str| leads.get(at).into_iter().flat_map(BTreeMap::keys).copied();
        let mut seen: BTreeSet<&str> = of(from).collect();
        let mut next: Vec<&str> = seen.iter().copied().collect();
        while let Some(at) = next.pop() {
            next.extend(of(at).filter(|to| seen.insert(to)));
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> =
        leads.keys().map(|node| (*node, reached(node))).collect();
    let mut found: BTreeMap<Vec<String>, BTreeSet<String>> = BTreeMap::new();
    for (node, reached) in all.iter().filter(|(node, reached)| reached.contains(*node)) {
        let is_in = |other: &&&str| all.get(**other).is_some_and(|back| back.contains(node));
        let nodes: Vec<&str> = reached.iter().filter(is_in).copied().collect();
        let because = nodes.iter().flat_map(|from| &leads[from]);
        let because = because.filter(|(to, _)| nodes.contains(to));
        let because = because.flat_map(|(_, why)| why).cloned().collect();
        found.insert(nodes.into_iter().map(str::to_owned).collect(), because);
    }
    let circle = |(nodes, because)| Circle {
        folder: folder.into(),
        nodes,
        because,
    };
    found.into_iter().map(circle).collect()
}

/// The files that a path leads to, by way of what files on the way import: one, or with `*` as
/// many as have what this file says.
fn leads_to<'a>(
    known: &BTreeMap<&'a [String], &File>,
    file: &File,
    path: &[String],
) -> Vec<&'a [String]> {
    let Some((_, above)) = path.split_last().filter(|(last, _)| *last == "*") else {
        return leads_to_one(known, path).into_iter().collect();
    };
    let Some(all_of) = leads_to_one(known, above) else {
        return Vec::new();
    };
    let passed_on = known[all_of].imports.iter();
    let used = passed_on.filter(|(name, _)| file.words.contains(*name));
    used.filter_map(|(_, path)| leads_to_one(known, path))
        .chain([all_of])
        .collect()
}

fn leads_to_one<'a>(
    known: &BTreeMap<&'a [String], &File>,
    path: &[String],
) -> Option<&'a [String]> {
    let mut path = path.to_vec();
    let mut target = None;
    // Nothing is handed on more often than that; what a file imports of its own comes back to it.
    for _ in 0..8 {
        let ends = (0..=path.len()).rev();
        let (end, file) = ends
            .map(|end| (end, known.get_key_value(&path[..end])))
            .find_map(|(end, file)| Some((end, file?)))?;
        target = Some(*file.0);
        let Some(from) = path.get(end).and_then(|name| file.1.imports.get(name)) else {
            break;
        };
        path = from.iter().chain(&path[end + 1..]).cloned().collect();
    }
    target
}
