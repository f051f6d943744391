//! Text on standard output, and messages on standard error.

use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use super::table::printable;
use crate::exit_code::SOFTWARE;

/// Writes a message to standard error, behind our name. What others have named can do nothing to a
/// terminal there. Lines behind the first are indented, so that none of them seems to be a message.
pub(crate) fn warn(message: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{}", warning(&message.to_string()));
}

fn warning(message: &str) -> String {
    let lines: Vec<String> = message.trim_end().split('\n').map(printable).collect();
    format!("mcp-sessiond: {}", lines.join("\n  "))
}

/// Writes a list to standard error below a message, an item a line.
pub(crate) fn warn_list(items: &[String]) {
    for item in items {
        let _ = writeln!(std::io::stderr(), "  {}", printable(item));
    }
}

/// Prints to standard output. A closed pipe is no failure: its reader has seen enough.
pub(crate) fn print(text: &str) -> ExitCode {
    match anstream::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            warn(format_args!("standard output: {error}"));
            ExitCode::from(SOFTWARE)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Data as `--json` prints it.
pub(crate) fn to_json(data: &impl Serialize) -> String {
    serde_json::to_string_pretty(data).unwrap_or_default() + "\n"
}

/// Data as JSON, or as this text.
pub(crate) fn json_or<T: Serialize>(json: bool, data: &T, text: impl Fn(&T) -> String) -> String {
    if json { to_json(data) } else { text(data) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_lines() {
        let text = warning("config.toml: line 1\n  |\n1 | a = \u{1b}[2J\n");
        assert_eq!(
            text,
            "mcp-sessiond: config.toml: line 1\n    |\n  1 | a = \u{fffd}[2J"
        );
    }
}
