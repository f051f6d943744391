//! The project's pages: every link leads to a file that exists and to a heading of it, README.md
//! leads to every page, none is over its size; and all name the same Rust.

use std::collections::HashMap;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture;

fn root() -> PathBuf {
    PathBuf::from(fixture(".."))
        .canonicalize()
        .expect("the project's directory")
}

fn read(page: &Path) -> String {
    read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Every page below a directory, those that were built or installed excepted.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let (path, name) = (
            entry.path(),
            entry.file_name().into_string().expect("UTF-8"),
        );
        if name.starts_with('.') || ["target", "node_modules"].contains(&name.as_str()) {
            continue;
        }
        if entry.file_type().expect("a type").is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// A page's paragraphs, headings and rows of tables, without its blocks of code.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut fenced = false;
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let last = pieces.last_mut().expect("there is always one");
        // An indented line that goes on with a paragraph is no code.
        let code = fenced || fence || (last.is_empty() && line.starts_with("    "));
        if !code && !line.trim().is_empty() {
            last.push_str(line);
            last.push('\n');
        }
        if code || line.trim().is_empty() || line.starts_with(['|', '#']) {
            pieces.push(String::new());
        }
    }
    pieces
}

/// Where a page's links lead, those in code excepted.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for piece in pieces(text) {
        // A backtick without its pair would hide what comes after it.
        assert!(
            piece.matches('`').count().is_multiple_of(2),
            "a backtick has no pair: {piece}"
        );
        let prose: String = piece.split('`').step_by(2).collect();
        for after in prose.split("](").skip(1) {
            let (target, _) = after
                .split_once(')')
                .unwrap_or_else(|| panic!("a link has no end: {piece}"));
            targets.push(target.to_owned());
        }
    }
    targets
}

/// The anchors that GitHub makes of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let mut seen = HashMap::new();
    let mut anchors = Vec::new();
    for piece in pieces(text) {
        let heading = piece.trim_start_matches('#');
        if !(1..=6).contains(&(piece.len() - heading.len())) || !heading.starts_with(' ') {
            continue;
        }
        let lower = heading.trim().to_lowercase();
        let kept = lower
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before: &mut usize = seen.entry(slug.clone()).or_default();
        anchors.push(if *before == 0 {
            slug
        } else {
            format!("{slug}-{before}")
        });
        *before += 1;
    }
    anchors
}

/// The links of a page that lead nowhere. Those to other sites are not followed.
fn dead(page: &Path, text: &str) -> Vec<String> {
    let mut dead = Vec::new();
    for target in targets(text) {
        if ["http://", "https://", "mailto:"]
            .iter()
            .any(|scheme| target.starts_with(scheme))
        {
            continue;
        }
        let (file, anchor) = target
            .split_once('#')
            .map_or((&*target, None), |(file, at)| (file, Some(at)));
        let path = page.parent().expect("a directory").join(file);
        if !path.exists() {
            dead.push(format!("{target}: no such file"));
        } else if let Some(anchor) = anchor {
            let other = if file.is_empty() {
                text.to_owned()
            } else {
                read(&path)
            };
            if !anchors(&other).iter().any(|known| known == anchor) {
                dead.push(format!("{target}: no such heading"));
            }
        }
    }
    dead
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let root = root();
    let pages = pages(&root);
    for known in [
        "README.md",
        "ARCHITECTURE.md",
        "proto/PROTOCOL.md",
        "docs/settings.md",
    ] {
        assert!(
            pages.contains(&root.join(known)),
            "{known} is not looked at: {pages:#?}"
        );
    }
    let dead: Vec<String> = pages
        .iter()
        .flat_map(|page| {
            dead(page, &read(page))
                .into_iter()
                .map(|link| format!("{}: {link}", page.display()))
        })
        .collect();
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn a_link_to_no_file_or_no_heading_is_found() {
    let page = root().join("docs/imagined.md");
    let text = "\
# What `it` is, in short

[A file](gone.md), [a heading of another page](../README.md#gone), [a heading
of this page](#gone), ![a picture](gone.png), [`code`](gone.rs) and [`README.md`](../README.md#install).

| [a row](gone/) | `one` |
| --- | --- |
| [what it is](#what-it-is-in-short), [the second](#twice-1) | [the third](#twice-2) |

An indented line of a paragraph
    is [no code](gone.txt).

## Twice

## Twice

# [Elsewhere](https://example.org/gone#gone), [by mail](mailto:gone@example.org)

`[a](code.md)`

    [b](code.md)

```markdown
# No heading

[c](code.md)
```

[No heading](#no-heading)
";
    let found = [
        "gone.md: no such file",
        "../README.md#gone: no such heading",
        "#gone: no such heading",
        "gone.png: no such file",
        "gone.rs: no such file",
        "gone/: no such file",
        "#twice-2: no such heading",
        "gone.txt: no such file",
        "#no-heading: no such heading",
    ];
    assert_eq!(dead(&page, text), found);
}

/// The pages that a page leads to, by their paths from the project's directory.
fn leads_to(page: &str) -> Vec<PathBuf> {
    let folder = root().join(page);
    let folder = folder.parent().expect("a directory");
    let targets = targets(&read(&root().join(page)));
    let paths = targets.iter().filter_map(|target| {
        let path = folder.join(target.split('#').next()?);
        let path = path.canonicalize().ok()?;
        Some(path.strip_prefix(root()).ok()?.to_owned())
    });
    paths.collect()
}

#[test]
fn every_page_in_docs_is_two_clicks_from_the_readme() {
    let readme = leads_to("README.md");
    let pages_there = readme
        .iter()
        .filter(|page| page.extension().is_some_and(|end| end == "md"));
    let further = pages_there.flat_map(|page| leads_to(page.to_str().expect("UTF-8")));
    let reached: Vec<PathBuf> = further.chain(readme.iter().cloned()).collect();
    for page in pages(&root().join("docs")) {
        let page = page.strip_prefix(root()).expect("below it");
        assert!(
            reached.iter().any(|one| one == page),
            "no way leads from README.md to {}",
            page.display()
        );
    }
}

#[test]
fn the_site_has_every_page_in_docs_once() {
    let root = root();
    let named = targets(&read(&root.join("docs/SUMMARY.md")));
    for page in pages(&root.join("docs")) {
        let page = page
            .strip_prefix(root.join("docs"))
            .expect("below it")
            .to_str()
            .expect("UTF-8");
        let count = named.iter().filter(|name| *name == page).count();
        assert_eq!(
            count,
            usize::from(page != "SUMMARY.md"),
            "docs/SUMMARY.md names {page} so many times"
        );
    }
}

#[test]
fn the_readme_is_read_in_one_go() {
    let readme = read(&root().join("README.md"));
    let (lines, bytes) = (readme.lines().count(), readme.len());
    assert!(
        lines <= 110 && bytes <= 7_000,
        "README.md has {lines} lines and {bytes} bytes, more than 110 and 7,000; what a newcomer does not need belongs in docs/"
    );
}

/// An address that nobody has yet is whoever's takes it.
#[test]
fn nothing_names_an_address_of_the_project_but_the_file_that_releases_read() {
    let files = Command::new("git")
        .args(["grep", "--files-with-matches", "--fixed-strings"])
        .args([
            "-e",
            concat!("github.com/", "mcp-sessiond"),
            "--",
            ".",
            ":!packaging/address",
        ])
        .current_dir(root())
        .output()
        .expect("git runs");
    let found = String::from_utf8_lossy(&files.stdout);
    // 1: there is none.
    assert_eq!((&*found, files.status.code()), ("", Some(1)));
}

/// How many bytes the pages in docs may have together, the one below apart.
const DOCS_MAX: usize = 170_000;

/// The page of tables that a test compares with the code.
const TABLES: [&str; 1] = ["settings.md"];

/// Pages that have a limit of their own, in bytes. All others have `PAGE_MAX`.
const LONG: [(&str, usize); 8] = [
    ("authors.md", 12_200),
    ("benchmarks.md", 4_500),
    ("http-conformance.md", 4_000),
    ("http-servers.md", 5_500),
    ("python.md", 5_500),
    ("typescript.md", 5_500),
    ("serve.md", 15_200),
    ("troubleshooting.md", 10_000),
];

const PAGE_MAX: usize = 14_000;

/// How many bytes the page of a language's library may have. What all languages have is in authors.md.
const LIBRARY_MAX: usize = 5_500;

#[test]
fn the_protocol_is_read_in_one_go() {
    let bytes = read(&root().join("proto/PROTOCOL.md")).len();
    assert!(
        bytes <= 30_000,
        "PROTOCOL.md has {bytes} bytes; methods and types are in TYPES.md, which a test makes of the code"
    );
}

#[test]
fn no_page_is_over_its_size() {
    let mut all = 0;
    let mut over = Vec::new();
    for page in pages(&root().join("docs")) {
        let name = page.file_name().expect("a name").to_str().expect("UTF-8");
        if TABLES.contains(&name) {
            continue;
        }
        let bytes = read(&page).len();
        let own = LONG.iter().find(|(long, _)| *long == name);
        let most = own.map_or(PAGE_MAX, |(_, most)| *most);
        if bytes > most {
            over.push(format!("{name} has {bytes} bytes, more than {most}"));
        }
        all += bytes;
    }
    for library in ["c", "python", "rust", "typescript"] {
        let page = format!("client/{library}/README.md");
        let bytes = read(&root().join(&page)).len();
        if bytes > LIBRARY_MAX {
            over.push(format!("{page} has {bytes} bytes, more than {LIBRARY_MAX}"));
        }
    }
    if all > DOCS_MAX {
        over.push(format!(
            "all together have {all} bytes, more than {DOCS_MAX}"
        ));
    }
    assert!(
        over.is_empty(),
        "keep what a user needs, not history, repetition and internals: {over:#?}"
    );
}

/// The paths that ARCHITECTURE.md names: those in its prose and its tables, and the packages of its
/// tree.
fn named_paths(text: &str) -> Vec<String> {
    let prose = pieces(text);
    let in_prose = prose
        .iter()
        .flat_map(|piece| piece.split('`').skip(1).step_by(2));
    let in_tree = text.lines().filter(|line| line.starts_with("    "));
    let in_tree = in_tree.filter_map(|line| {
        line.split_whitespace()
            .find(|word| word.starts_with(char::is_alphabetic))
    });
    in_prose
        .chain(in_tree)
        .filter(|code| code.contains('/') && !code.contains([' ', '{', ':']))
        .map(|code| code.trim_end_matches('/').to_owned())
        .collect()
}

#[test]
fn every_path_in_the_architecture_page_exists() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let named = named_paths(&text);
    for known in ["daemon/registry", "process/src/sys.rs"] {
        assert!(
            named.iter().any(|path| path == known),
            "{known} is not found in {named:?}"
        );
    }
    let gone: Vec<&String> = named
        .iter()
        .filter(|path| !root().join(path).exists())
        .collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names {gone:?}");
}

#[test]
fn the_architecture_page_is_read_in_ten_minutes() {
    let bytes = read(&root().join("ARCHITECTURE.md")).len();
    assert!(
        bytes <= 9_000,
        "ARCHITECTURE.md has {bytes} bytes; the map of a crate is the `//!` page of its lib.rs"
    );
}

/// The version of Rust that builds all of the workspace stands in one place. Every package inherits
/// it, and the pages name no other.
#[test]
fn one_version_of_rust_is_named() {
    let manifest =
        |folder: &Path| -> toml::Table { read(&folder.join("Cargo.toml")).parse().expect("TOML") };
    let workspace = manifest(&root());
    let version = workspace["workspace"]["package"]["rust-version"]
        .as_str()
        .expect("a version");
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("a list");
    let folders = members
        .iter()
        .map(|member| root().join(member.as_str().expect("a path")));
    for folder in folders.chain([root()]) {
        let inherited = manifest(&folder)["package"]["rust-version"]
            .get("workspace")
            .and_then(toml::Value::as_bool);
        assert_eq!(inherited, Some(true), "{}", folder.display());
    }
    for page in pages(&root()) {
        let text = read(&page);
        for (at, _) in text.match_indices("Rust 1.") {
            let named = text[at + "Rust ".len()..]
                .split(|character: char| !character.is_ascii_digit() && character != '.')
                .next()
                .map(|named| named.trim_end_matches('.'));
            assert_eq!(named, Some(version), "{}", page.display());
        }
    }
    for page in ["README.md", "CONTRIBUTING.md"] {
        let sentence = format!("Rust {version} or newer");
        assert!(
            read(&root().join(page)).contains(&sentence),
            "{page} does not say {sentence:?}"
        );
    }
}
