//! The `mcp-sessiond` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcp_sessiond::main()
}
