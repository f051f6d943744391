//! The `mcp-sessiond` command: one file a verb.
//!
//! A library only so that the tests can build the same command with its fault points.
#![forbid(unsafe_code)]

mod claiming;
mod client_lines;
mod debug;
mod demo;
mod failure;
mod install;
mod keep;
mod run;
mod stop;
mod table;
mod token;
mod wrap;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Bad usage or configuration (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;
/// No daemon (EX_UNAVAILABLE of sysexits.h).
const UNAVAILABLE: u8 = 69;
/// Something failed that has no code of its own (EX_SOFTWARE of sysexits.h).
const FAILED: u8 = 70;

/// Keeps MCP sessions alive on behalf of processes that do not.
#[derive(Debug, Parser)]
#[command(
    name = "mcp-sessiond",
    version,
    max_term_width = 110,
    after_help = "Try `mcp-sessiond demo`: it shows the whole story on real processes, in a directory of its own."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon in the foreground
    Run(run::Arguments),
    /// Load, store or reject the caller's resume token
    Token(token::Arguments),
    /// Run an MCP server so that it outlives its own process, and its host finds it as it was
    Wrap(wrap::Arguments),
    /// Hold a server for `wrap` (internal)
    Keep(keep::Arguments),
    /// Show what the daemon knows; tokens and values are never printed
    Debug(debug::Arguments),
    /// End a session's backend; the session stays
    Stop(stop::Arguments),
    /// Install the user service: systemd or launchd, whichever is there
    Install(install::Arguments),
    /// Take the user service away
    Uninstall(install::UninstallArguments),
    /// Show the whole story on real processes, in a private directory
    Demo(demo::Arguments),
}

/// Parses, runs, and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match cli.verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Token(arguments) => token::run(arguments),
        Verb::Wrap(arguments) => wrap::run(arguments),
        Verb::Keep(arguments) => keep::run(arguments),
        Verb::Debug(arguments) => debug::run(&arguments),
        Verb::Stop(arguments) => stop::run(&arguments),
        Verb::Install(arguments) => install::install(&arguments),
        Verb::Uninstall(arguments) => install::uninstall(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
    }
}

/// Says what went wrong, on standard error, in one line.
fn complain(message: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "mcp-sessiond: {message}");
}

/// A runtime for a command that does one thing.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}
