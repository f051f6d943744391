//! `docs/bundle-cases.md`: each case of others has tests of ours, which exist, or a reason why it
//! has none.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use crate::fixture;

/// Where the cases of others end, and comparisons begin.
const END: &str = "\n## What a client sees";

fn root() -> PathBuf {
    PathBuf::from(fixture(".."))
        .canonicalize()
        .expect("the project's directory")
}

/// The names of all tests in Rust below a directory.
fn tests(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let (path, name) = (
            entry.path(),
            entry.file_name().into_string().expect("UTF-8"),
        );
        if entry.file_type().expect("a type").is_dir() {
            if !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
                tests(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(named(&read_to_string(&path).expect("a file")));
        }
    }
}

/// The names of the tests in a file.
pub(crate) fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, after)) = line
            .split_once("fn ")
            .filter(|_| is_test && !line.starts_with("//"))
        {
            names.extend(after.split(['(', '<']).next().map(str::to_owned));
            is_test = false;
        }
    }
    names
}

/// The tests that the last cell of a row names: what stands in backticks and has two underscores at
/// least.
fn cited(cell: &str) -> Vec<&str> {
    let is_name = |word: &&str| {
        let is_one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        word.chars().all(is_one) && word.matches('_').count() > 1
    };
    cell.split('`').skip(1).step_by(2).filter(is_name).collect()
}

/// The rows without a test or a reason, the names of tests that there are not, and those that were
/// written since.
fn wrong(page: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"))
    {
        let cell = row
            .trim_end_matches(['|', ' '])
            .rsplit(" | ")
            .next()
            .unwrap_or_default();
        let cited = cited(cell);
        if cell != "here" && cited.is_empty() && !cell.starts_with("no: ") {
            wrong.push(format!("no test and no reason: {row}"));
        }
        let is_to_come = cell.starts_with("to write: ");
        for name in cited
            .into_iter()
            .filter(|name| tests.contains(*name) == is_to_come)
        {
            wrong.push(if is_to_come {
                format!("{name} was written")
            } else {
                format!("no test {name}")
            });
        }
    }
    wrong
}

#[test]
fn each_case_of_others_has_tests_that_exist_or_a_reason() {
    let page = read_to_string(root().join("docs/bundle-cases.md")).expect("the page");
    let (page, _) = page.split_once(END).expect("both parts");
    let mut all = BTreeSet::new();
    tests(&root(), &mut all);
    assert!(page.matches("\n| ").count() > 90, "the rows are not found");
    let wrong = wrong(page, &all);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_case_without_test_or_reason_is_found() {
    let file = "#[test]\nfn it_is_there() {}\n#[tokio::test(start_paused = true)]\nasync fn so_is_this() {}\nfn it_is_no_test() {}\n";
    let tests = named(file).into_iter().collect();
    let page = "\
| case | it holds | here |
| --- | --- | --- |
| `A` | x | `it_is_there`, `so_is_this`: as `init_timeout` |
| `B` | x | no: for a reason |
| `C` | x | later |
| `D` | x | `it_is_no_test` |
| `E` | x | to write: `it_will_be_one`, `it_is_there` |
";
    let found = [
        "no test and no reason: | `C` | x | later |",
        "no test it_is_no_test",
        "it_is_there was written",
    ];
    assert_eq!(wrong(page, &tests), found);
}
