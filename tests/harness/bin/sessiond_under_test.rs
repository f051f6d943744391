//! The daemon as it is released, but for its fault points.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcp_sessiond::main()
}
