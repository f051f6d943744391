//! The codes with which the daemon refuses are the same everywhere: those of `proto`'s enum, in the
//! table of `PROTOCOL.md`, and in the clients in TypeScript and Python. So are their HTTP statuses,
//! and the words for what a claim has lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use mcp_sessiond_proto::Loss;

use crate::fixture;

/// What a client makes of a code that it does not know. No daemon sends it.
const UNKNOWN: &str = "unknown";

fn text(path: &str) -> String {
    fs::read_to_string(fixture(&format!("../{path}"))).expect(path)
}

/// What stands between the first `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, from) = text.split_once(begin).expect(begin);
    from.split_once(end).expect(end).0
}

/// The variants of `proto`'s enum, as serde writes them.
fn enum_codes() -> BTreeSet<String> {
    let error = text("proto/src/error.rs");
    let variants = between(&error, "pub enum Error {\n", "\n}\n").lines();
    // The fields of a variant are deeper.
    let variants = variants.filter_map(|line| line.strip_prefix("    "));
    let variants = variants.filter(|line| line.starts_with(|first: char| first.is_uppercase()));
    variants
        .map(|line| snake_case(line.split([' ', ',', '(']).next().expect("a name")))
        .filter(|code| code != UNKNOWN)
        .collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// A code, and its HTTP status.
type Statuses = BTreeMap<String, u16>;

fn protocol_page() -> Statuses {
    let page = text("proto/PROTOCOL.md");
    let rows = between(&page, "| code | HTTP |", "\n\n").lines().skip(2);
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let code = cells.next().expect("a code").trim_matches('`');
        let status = cells.next().and_then(|cell| cell.parse().ok());
        (code.to_owned(), status.expect("a status"))
    })
    .collect()
}

fn typescript() -> Statuses {
    let errors = text("client/typescript/src/errors.ts");
    let union = between(&errors, "export type RefusalCode =", ";");
    let codes: BTreeSet<&str> = union.split('\'').skip(1).step_by(2).collect();
    let rows = between(
        &errors,
        "const STATUS: Record<ErrorCode, number> = {\n",
        "\n}",
    )
    .lines();
    let rows = rows.map(|row| row.trim().trim_end_matches(',').split_once(": "));
    let rows = rows.map(|row| row.expect("a code and a status"));
    // The client has some of its own.
    rows.filter(|(code, _)| codes.contains(code))
        .map(|(code, status)| (code.to_owned(), status.parse().expect("a status")))
        .collect()
}

fn python() -> Statuses {
    let errors = text("client/python/src/mcp_sessiond/errors.py");
    let rows = between(&errors, "\nREFUSALS: ", "\n}").lines().skip(1);
    rows.map(|row| {
        let code = row.split('"').nth(1).expect("a code");
        let status = between(row, ", ", ")").parse();
        (code.to_owned(), status.expect("a status"))
    })
    .collect()
}

#[test]
fn every_language_has_the_codes_of_the_enum_and_their_statuses() {
    let page = protocol_page();
    assert_eq!(page.keys().cloned().collect::<BTreeSet<_>>(), enum_codes());
    assert!(page.len() > 20, "{page:?}");
    assert_eq!(typescript(), page, "client/typescript/src/errors.ts");
    assert_eq!(python(), page, "client/python/src/mcp_sessiond/errors.py");
}

/// The keys of a table of sentences, one a line or with its sentence below it.
fn words(table: &str) -> BTreeSet<String> {
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let keys = table.lines().filter_map(|line| line.split_once(':'));
    let keys = keys.map(|(key, _)| key.trim().trim_matches('"'));
    keys.filter(|key| !key.is_empty() && is_word(key))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_language_has_a_sentence_for_each_loss() {
    let word = |loss| serde_json::to_value(loss).expect("JSON");
    let words_of = |losses: &mut dyn Iterator<Item = Loss>| -> BTreeSet<String> {
        let word = |loss| word(loss).as_str().expect("a word").to_owned();
        losses.map(word).collect()
    };
    // No claim carries what is lost behind a URL.
    let all = words_of(&mut Loss::ALL.into_iter().filter(|loss| !loss.is_remote()));
    let python = text("client/python/src/mcp_sessiond/log.py");
    assert_eq!(words(between(&python, "\n_LOST = {", "\n}")), all);
    let typescript = text("client/typescript/src/log.ts");
    let table = between(
        &typescript,
        "\nconst LOST: Record<string, string> = {",
        "\n};",
    );
    assert_eq!(words(table), all);
    let page = text("proto/TYPES.md");
    let table = between(&page, "\n**Loss**", "\n**");
    for word in &words_of(&mut Loss::ALL.into_iter()) {
        assert!(table.contains(&format!("| `{word}` |")), "TYPES.md: {word}");
    }
}
