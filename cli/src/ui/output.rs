//! Text on standard output, and messages on standard error.

use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use super::table::printable;
use crate::exit_code::SOFTWARE;

/// Writes a message to standard error, in one line behind our name. What others have named can do
/// nothing to a terminal there.
pub(crate) fn warn(message: impl std::fmt::Display) {
    let text = printable(&message.to_string());
    let _ = writeln!(std::io::stderr(), "mcp-sessiond: {text}");
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
