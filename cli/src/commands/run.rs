//! `mcp-sessiond run`: the daemon in the foreground.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use mcp_sessiond_daemon::run::{self, Options};

#[derive(Debug, Args)]
#[command(after_help = "\
The daemon takes its socket from systemd or launchd if they pass one, otherwise it binds its own. SIGTERM and SIGINT \
let calls in flight end, then exit; SIGHUP reads the configuration again and says what changed.

Exit codes: 0 after SIGTERM or SIGINT; 64 bad usage or configuration; 70 it can't run; 75 another daemon holds the lock.

Example: mcp-sessiond run --set claim_wait_ms=500 --set log=debug")]
pub(crate) struct Arguments {
    /// Read this configuration file instead of ~/.config/mcp-sessiond/config.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a setting; `mcp-sessiond debug config` lists them
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Serve metrics for Prometheus at this address, as 127.0.0.1:9464, over plain HTTP at
    /// /metrics; the setting metrics.address
    #[arg(long, value_name = "ADDR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    metrics: Option<String>,
    /// Start a daemon detached from the caller, wait until it is ready, and return; it exits when
    /// nothing needs it
    #[arg(long, conflicts_with = "detached")]
    on_demand: bool,
    /// The process behind --on-demand
    #[arg(long, hide = true)]
    detached: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let Arguments {
        config,
        set,
        metrics,
        on_demand,
        detached,
    } = arguments;
    let mut set = set.clone();
    set.extend(
        metrics
            .iter()
            .map(|address| format!("metrics.address={address}")),
    );
    let options = Options {
        config: config.clone(),
        set,
        detached: *detached,
    };
    if *on_demand {
        run::launch(&options)
    } else {
        run::run(&options)
    }
}
