//! Lines on standard error.

use std::fmt::Display;
use std::io::Write as _;

use mcp_sessiond_proto::text::printable;

/// Letters of a line: it may quote a server.
const LINE_MAX: usize = 2_000;

/// Writes a line to standard error.
pub(crate) fn warn(message: impl Display) {
    let text = message.to_string().replace('\n', " ");
    let text: String = text.chars().take(LINE_MAX).collect();
    let _ = writeln!(
        std::io::stderr(),
        "mcp-sessiond serve: {}",
        printable(&text)
    );
}
