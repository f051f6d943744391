//! `mcp-sessiond uninstall`: takes the user service away.

use std::process::ExitCode;

use clap::Args;

use crate::service_manager::{self, Name};

#[derive(Debug, Args)]
#[command(after_help = "\
Stops the daemon and removes what `install` has made; units of a package are disabled, and stay. The sessions stay in their directory, which it names. Clients \
start a daemon on demand from then on.

With `--serve NAME` it stops and removes the service of that name instead. The sessions stay; their servers end after \
`http.linger_ms`.

Exit codes: 0, also where nothing was installed; 69 the service manager can't be reached; 70 it failed.

Examples:
  mcp-sessiond uninstall
  mcp-sessiond uninstall --serve browser")]
pub(crate) struct Arguments {
    /// Show the files and the commands, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The service of `serve` under this name, instead of the daemon's
    #[arg(long, value_name = "NAME")]
    serve: Option<Name>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    service_manager::report(service_manager::uninstall(
        arguments.serve.as_ref(),
        arguments.dry_run,
    ))
}
