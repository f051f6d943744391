//! The telling words of a command line: what people know a server by, `npx @playwright/mcp` and not
//! `npx`.
//!
//! They are the program's file name, and behind that of a known interpreter or launcher the first
//! operand that names a package, a script or an image. Nothing else is ever shown, since any other
//! argument could be a secret. Where it is not sure what an argument is (an option that is not in
//! the tables, of which the next word may be the value), the program stands alone.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use mcp_sessiond_process::programs::{self, Grammar, Inner, Operand, grammars};
use mcp_sessiond_proto::text::is_harmful;

/// Bytes of the words: what the daemon takes.
pub const LENGTH_MAX: usize = 255;

/// Programs within programs that are followed: `env A=b uv run python server.py`.
const DEPTH: usize = 4;

/// Bytes of an operand that is shown.
const OPERAND_MAX: usize = 120;

/// The telling words of a command line: at most [`LENGTH_MAX`] bytes, without control characters.
pub fn of(name: &OsStr, arguments: &[OsString]) -> String {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    truncate(describe(&name.to_string_lossy(), &arguments, DEPTH))
}

/// What of this text can be shown, and travels.
pub fn truncate(mut text: String) -> String {
    text.retain(|letter| !is_harmful(letter));
    while text.len() > LENGTH_MAX {
        text.pop();
    }
    text
}

fn describe(program: &str, arguments: &[&str], depth: usize) -> String {
    let name = file_name(program).to_owned();
    let Some(depth) = depth.checked_sub(1) else {
        return name;
    };
    if let Some((inner, rest)) = behind_launcher(&name, arguments) {
        return describe(inner, rest, depth);
    }
    let behind = |grammar: &'static Grammar| Some((grammar, behind_verb(grammar.verb, arguments)?));
    let Some((grammar, rest)) = grammars(&name).iter().find_map(behind) else {
        return name;
    };
    let shown = if grammar.verb.is_empty() {
        name
    } else {
        format!("{name} {}", grammar.verb)
    };
    match operand(grammar, rest) {
        Some(Found::At(at))
            if grammar.operand == Operand::Command && !grammars(file_name(rest[at])).is_empty() =>
        {
            format!("{shown} {}", describe(rest[at], &rest[at + 1..], depth))
        }
        Some(Found::At(at)) => append(&shown, presentable(grammar.operand, rest[at])),
        Some(Found::Named(option, module)) => append(
            &shown,
            module_name(module).map(|name| format!("{option} {name}")),
        ),
        None => shown,
    }
}

/// The arguments behind a verb, if they begin with it.
fn behind_verb<'a, 'b>(verb: &str, arguments: &'a [&'b str]) -> Option<&'a [&'b str]> {
    verb.split_whitespace()
        .try_fold(arguments, |rest, word| match rest.split_first() {
            Some((first, rest)) if *first == word => Some(rest),
            _ => None,
        })
}

fn append(shown: &str, operand: Option<String>) -> String {
    operand.map_or_else(|| shown.to_owned(), |operand| format!("{shown} {operand}"))
}

/// The program that one that only prepares the ground starts, with its arguments.
fn behind_launcher<'a, 'b>(
    program: &str,
    arguments: &'a [&'b str],
) -> Option<(&'b str, &'a [&'b str])> {
    let grammar = match programs::inner_program(program) {
        Inner::None => return None,
        Inner::Operand(grammar) => grammar,
        Inner::BehindDashes => {
            let dashes = arguments.iter().position(|argument| *argument == "--")?;
            return split(&arguments[dashes + 1..]);
        }
        Inner::BehindVerb { verb, more } => {
            let rest = behind_verb(verb, arguments)?.get(more..)?;
            return split(rest).filter(|(inner, _)| !inner.starts_with('-'));
        }
    };
    let mut rest = behind_verb(grammar.verb, arguments)?;
    loop {
        let Some(Found::At(at)) = operand(grammar, rest) else {
            return None;
        };
        // Variables that `env` is given.
        if program == "env" && rest[at].contains('=') {
            rest = &rest[at + 1..];
            continue;
        }
        return Some((rest[at], &rest[at + 1..]));
    }
}

fn split<'a, 'b>(words: &'a [&'b str]) -> Option<(&'b str, &'a [&'b str])> {
    words.split_first().map(|(first, rest)| (*first, rest))
}

/// Where what a program is to run is found.
enum Found<'a> {
    /// It is the word at this place.
    At(usize),
    /// It is the value of this option.
    Named(&'a str, &'a str),
}

/// The first operand behind the options, if it is sure that it is one.
fn operand<'a>(grammar: &Grammar, arguments: &[&'a str]) -> Option<Found<'a>> {
    let mut at = 0;
    loop {
        let word = *arguments.get(at)?;
        let next = arguments.get(at + 1).copied();
        if word == "--" {
            return next.map(|_| Found::At(at + 1));
        }
        if !word.starts_with('-') || (word == "-" && !has(grammar.flags, "-")) {
            return (word != "-").then_some(Found::At(at));
        }
        at += match read_option(grammar, word)? {
            Takes::Alone => 1,
            Takes::WithNext => 2,
            Takes::Names(option, Some(value)) => return Some(Found::Named(option, value)),
            Takes::Names(option, None) => return Some(Found::Named(option, next?)),
        };
    }
}

/// What an option takes.
enum Takes<'a> {
    Alone,
    WithNext,
    /// Its value is the operand: what is behind it in the same word, or else the next one.
    Names(&'a str, Option<&'a str>),
}

/// None: it is not known what it takes.
fn read_option<'a>(grammar: &Grammar, word: &'a str) -> Option<Takes<'a>> {
    if has(grammar.names, word) {
        return Some(Takes::Names(word, None));
    }
    if word.starts_with("--") {
        // What is behind the `=` is its value, and the next word is none.
        return if word.contains('=') || is_flag(grammar, word) && !has(grammar.values, word) {
            Some(Takes::Alone)
        } else {
            has(grammar.values, word).then_some(Takes::WithNext)
        };
    }
    if is_flag(grammar, word) {
        return Some(Takes::Alone);
    }
    for (at, letter) in word.char_indices().skip(1) {
        let behind = &word[at + letter.len_utf8()..];
        let is = |option: &&str| {
            option
                .strip_prefix('-')
                .is_some_and(|rest| rest.chars().eq([letter]))
        };
        if let Some(option) = grammar.names.split(' ').find(is) {
            return Some(Takes::Names(
                option,
                Some(behind).filter(|behind| !behind.is_empty()),
            ));
        }
        if grammar.values.split(' ').any(|option| is(&option)) {
            return Some(if behind.is_empty() {
                Takes::WithNext
            } else {
                Takes::Alone
            });
        }
        if !grammar.letters.contains(letter) {
            return None;
        }
    }
    Some(Takes::Alone)
}

/// Whether a list of options has this one.
fn has(options: &str, word: &str) -> bool {
    options.split(' ').any(|option| option == word)
}

fn is_flag(grammar: &Grammar, word: &str) -> bool {
    grammar
        .flags
        .split(' ')
        .any(|flag| match flag.strip_suffix('*') {
            Some(prefix) => word.starts_with(prefix),
            None => flag == word,
        })
}

/// An operand as it can be shown; none where it does not look like what it should be.
fn presentable(kind: Operand, word: &str) -> Option<String> {
    if word.len() > OPERAND_MAX
        || word.contains(|letter: char| letter.is_control() || letter.is_whitespace())
    {
        return path_end(kind, word);
    }
    if let Some((_, address)) = word.split_once("://") {
        return host_name(address);
    }
    let is_plain = |more: &str| {
        word.chars()
            .all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
    };
    match kind {
        Operand::Image => is_plain("._/:@-").then(|| word.to_owned()),
        Operand::Script if !word.contains("npm:") && !word.contains("jsr:") => path_end(kind, word),
        Operand::Package | Operand::Command if is_path(word) => path_end(Operand::Script, word),
        _ => {
            let name = word.strip_suffix("@latest").unwrap_or(word);
            let bare = name
                .strip_prefix("npm:")
                .or_else(|| name.strip_prefix("jsr:"))
                .unwrap_or(name);
            let is_package = is_plain("._/@+~^=<>[],-:") && !bare.contains(':');
            (is_package && !name.is_empty()).then(|| name.to_owned())
        }
    }
}

fn is_path(word: &str) -> bool {
    const SCRIPTS: [&str; 9] = ["js", "mjs", "cjs", "ts", "mts", "cts", "py", "pyz", "sh"];
    let extension = Path::new(word).extension().and_then(OsStr::to_str);
    word.starts_with(['.', '/', '~'])
        || extension.is_some_and(|extension| SCRIPTS.contains(&extension))
}

/// The end of a script's path: its file name, and where that says nothing the directories above it
/// that do.
fn path_end(kind: Operand, word: &str) -> Option<String> {
    /// What many programs call their script, and where they put it.
    const COMMON: [&str; 8] = [
        "index", "main", "__main__", "cli", "app", "mod", "run", "start",
    ];
    const INNER: [&str; 7] = ["dist", "build", "src", "lib", "bin", "out", "cjs"];
    if kind != Operand::Script || word.contains("://") {
        return None;
    }
    let parts: Vec<&str> = word
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".." | "~"))
        .collect();
    let last = *parts.last()?;
    let stem = Path::new(last)
        .file_stem()
        .and_then(OsStr::to_str)
        .unwrap_or(last);
    let mut from = parts.len() - 1;
    if COMMON.contains(&stem) {
        // Up to the first one that is no place of every program's.
        from = (0..from)
            .rev()
            .find(|at| !INNER.contains(&parts[*at]))
            .unwrap_or(from);
    }
    let shown = parts[from..].join("/");
    Some(if shown.len() <= OPERAND_MAX {
        shown
    } else {
        last.to_owned()
    })
}

/// A module of Python's.
fn module_name(word: &str) -> Option<String> {
    let is_one = word
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "._".contains(letter));
    (is_one && !word.is_empty() && word.len() <= OPERAND_MAX).then(|| word.to_owned())
}

/// Of an address nothing but the host: what stands before and behind may be a password.
fn host_name(address: &str) -> Option<String> {
    let end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (authority, behind) = address.split_at(end);
    // A password may have a slash in it, and then this is not the host.
    if behind.contains('@') && !authority.contains('@') {
        return None;
    }
    let host = authority.rsplit('@').next()?;
    let is_one = host
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || ".-:".contains(letter));
    (is_one && !host.is_empty()).then(|| host.to_owned())
}

fn file_name(program: &str) -> &str {
    Path::new(program)
        .file_name()
        .and_then(OsStr::to_str)
        .unwrap_or(program)
}
