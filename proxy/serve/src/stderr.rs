//! Lines on standard error.

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line to standard error.
pub(crate) fn warn(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "mcp-sessiond serve: {message}");
}
