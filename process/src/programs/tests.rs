//! Tests of the table of programs.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_name_is_in_the_table_once() {
    let mut seen = BTreeSet::new();
    for name in PROGRAMS.iter().flat_map(|program| program.names) {
        assert!(seen.insert(name), "{name}");
    }
}

#[test]
fn a_version_behind_the_name_of_an_interpreter_does_not_matter() {
    for name in ["python3", "python3.13", "pypy3", "ruby3.3", "node"] {
        assert!(matches!(runs(name), Runs::Script(_)), "{name}");
    }
    assert!(matches!(runs("ksh93"), Runs::Script(_)));
    assert!(matches!(runs("7z"), Runs::Itself));
}
