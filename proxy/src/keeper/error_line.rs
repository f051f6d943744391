//! Which line of what a server has written to its standard error says why it has ended. That is
//! seldom the last one: behind it stand a version, a frame, or the end of a backtrace.

/// Characters of the line that are quoted: as much as fits into a sentence.
const CHARACTERS: usize = 300;

/// Words that name an error where another letter neither follows nor, in lower case, precedes them:
/// `ValueError:` and `an error`, but not `errors` or `terror`.
const WORDS: [&str; 4] = ["error", "exception", "panic", "panicked"];

/// Beginnings of lines that belong to a backtrace, or say what can be done about one.
const BACKTRACE: [&str; 8] = [
    "at ",
    "File \"",
    "Node.js v",
    "Bun v",
    "note: ",
    "stack backtrace:",
    "Traceback (",
    "goroutine ",
];

/// What the lines of npm begin with, before and since version 10.
const NPM: [&str; 2] = ["npm error", "npm ERR!"];

/// What npm says beside the reason.
const NPM_FIELDS: [&str; 5] = ["code", "errno", "syscall", "path", "A complete log"];

/// The last line with an error's name in it, or else the last line that says anything; the
/// beginning of it if it is long.
pub(super) fn error_line(text: &str) -> Option<String> {
    let lines: Vec<String> = text
        .lines()
        .map(plain)
        .filter(|line| says_something(line))
        .collect();
    let named = lines.iter().rposition(|line| names_error(line));
    let at = match named {
        Some(at) => npm_reason(&lines, at).unwrap_or(at),
        None => lines.len().checked_sub(1)?,
    };
    let line = match lines.get(at + 1) {
        // What it announces follows it.
        Some(next) if lines[at].ends_with(':') => format!("{} {next}", lines[at]),
        _ => lines[at].clone(),
    };
    Some(line.chars().take(CHARACTERS).collect())
}

/// A line without colours, other control characters and the frame around it.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // Parameters, up to the letter that ends the sequence.
            while characters
                .next()
                .is_some_and(|part| !('@'..='~').contains(&part))
            {}
        } else if character == '\t' {
            plain.push(' ');
        } else if !character.is_control() {
            plain.push(character);
        }
    }
    let is_frame = |character: char| character.is_whitespace() || is_box(character);
    let text = plain.trim();
    // The upper or lower edge of a box, which may have a title.
    if text.starts_with(['╭', '┌', '╔', '╰', '└', '╚', '┏', '┗']) {
        return String::new();
    }
    text.trim_matches(is_frame).to_owned()
}

/// Whether a character draws boxes or bars.
fn is_box(character: char) -> bool {
    ('\u{2500}'..='\u{259f}').contains(&character)
}

fn says_something(line: &str) -> bool {
    let is_numbered = || {
        // `  12: core::panicking::panic`, as Rust writes the frames of a backtrace.
        let (number, rest) = line.split_once(": ").unwrap_or_default();
        !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && rest.contains("::")
    };
    line.chars().any(char::is_alphanumeric)
        && !line.starts_with("mcp-sessiond: ")
        && !BACKTRACE.iter().any(|start| line.starts_with(start))
        && !is_numbered()
}

fn names_error(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let is_word = |at: usize, word: &str| {
        let (before, after) = (
            line[..at].chars().next_back(),
            line[at + word.len()..].chars().next(),
        );
        let begins = !before.is_some_and(char::is_alphanumeric)
            || line[at..].starts_with(|first: char| first.is_ascii_uppercase());
        begins && !after.is_some_and(|after| after.is_alphanumeric() || after == '_')
    };
    WORDS
        .iter()
        .any(|word| lower.match_indices(word).any(|(at, _)| is_word(at, word)))
}

/// npm names the reason first, and its last line is about a file. `last` is the number of that
/// line. None: it is not npm's.
fn npm_reason(lines: &[String], last: usize) -> Option<usize> {
    let rest = |line: &String| {
        NPM.iter()
            .find_map(|start| line.strip_prefix(start).map(str::to_owned))
    };
    let of_npm = lines[..=last]
        .iter()
        .rposition(|line| rest(line).is_none())
        .map_or(0, |before| before + 1);
    (of_npm..=last).find(|at| {
        rest(&lines[*at]).is_some_and(|rest| {
            let rest = rest.trim();
            !rest.is_empty() && !NPM_FIELDS.iter().any(|field| rest.starts_with(field))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_quoted(text: &str, line: &str) {
        assert_eq!(error_line(text).as_deref(), Some(line), "{text}");
    }

    #[test]
    fn the_line_that_says_why_is_quoted_and_not_what_follows_it() {
        assert_quoted(
            "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\n\
             Error: Cannot find module '/srv/x.js'\n    at Module._resolveFilename (node:internal/errors:405:11)\n\
             {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.20.0\n",
            "Error: Cannot find module '/srv/x.js'",
        );
        assert_quoted(
            "Traceback (most recent call last):\n  File \"/srv/x.py\", line 3, in <module>\n    import nothing\n\
             ModuleNotFoundError: No module named 'nothing'\n",
            "ModuleNotFoundError: No module named 'nothing'",
        );
        assert_quoted(
            "pydantic_core.ValidationError: 1 validation error for Settings\napi_key\n  Field required\n    \
             For further information visit https://errors.pydantic.dev/2.9/v/missing\n",
            "pydantic_core.ValidationError: 1 validation error for Settings",
        );
        assert_quoted(
            "Usage: server [OPTIONS]\n\n╭─ Error ─────────────────╮\n│ Missing option '--key'. │\n╰─────────────────────────╯\n",
            "Missing option '--key'.",
        );
        assert_quoted(
            "thread 'main' panicked at src/main.rs:7:10:\nno configuration\nstack backtrace:\n   0: rust_begin_unwind::x\n             \
             at /rustc/x.rs:1:2\n   1: core::panicking::panic_fmt\nnote: run with `RUST_BACKTRACE=full`\n",
            "thread 'main' panicked at src/main.rs:7:10: no configuration",
        );
        assert_quoted(
            "Exception in thread \"main\" java.lang.IllegalStateException: x\n\tat a.B.c(B.java:1)\n\
             Caused by: java.io.FileNotFoundException: /etc/y\n\tat a.B.d(B.java:2)\n\t... 3 more\n",
            "Caused by: java.io.FileNotFoundException: /etc/y",
        );
        assert_quoted(
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/nothing\nnpm error 404\n\
             npm error 404  'nothing@*' is not in this registry.\nnpm error A complete log of this run can be found in: /root/x.log\n",
            "npm error 404 Not Found - GET https://registry.npmjs.org/nothing",
        );
        assert_quoted("\u{1b}[1;31mERROR\u{1b}[0m no key\n\n", "ERROR no key");
    }

    #[test]
    fn without_the_name_of_an_error_the_last_line_is_quoted_that_says_anything() {
        assert_quoted(
            "one\ntwo errors_total\n ---- \n\nNode.js v22.1.0\n",
            "two errors_total",
        );
        assert_quoted(
            "no terror\nmcp-sessiond: it is replaced after an error\n",
            "no terror",
        );
        assert_quoted(&"ü".repeat(400), &"ü".repeat(300));
        for nothing in ["", "\n \n", "══════\n", "    at x (y:1:2)\n"] {
            assert_eq!(error_line(nothing), None, "{nothing}");
        }
    }
}
