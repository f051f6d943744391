//! `mcp-sessiond share`: the process that has a shared server. Fronts start it.

use std::process::ExitCode;

use clap::Args;
use mcp_sessiond_proxy::shared::sharer;

#[derive(Debug, Args)]
#[command(after_help = "\
Internal: `mcp-sessiond wrap` starts it for a server of servers.json with `\"shared\": true`, and tells it on standard input what to \
run. It ends when nobody has used the server for `backends.closed_linger_ms`.

Example: mcp-sessiond share < errand.json")]
pub(crate) struct Arguments {
    /// The process behind it
    #[arg(long, hide = true)]
    detached: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.detached {
        sharer::run()
    } else {
        sharer::launch()
    }
}
