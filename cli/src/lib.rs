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
mod kept;
mod restart;
mod run;
mod select;
mod serve;
mod session;
mod state;
mod status;
mod stop;
mod stream;
mod table;
mod task;
mod time;
mod token;
mod whose;
mod wrap;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

use self::kept::{Kept, Server};

/// Resume is disabled, or no daemon answers.
const DISABLED: u8 = 4;
/// The data was refused (EX_DATAERR of sysexits.h).
const REFUSED: u8 = 65;
/// There is no such thing (EX_NOINPUT of sysexits.h).
const NOT_THERE: u8 = 66;
/// Bad usage or configuration (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;
/// There is no such server (EX_NOINPUT of sysexits.h).
const NO_SERVER: u8 = 66;
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
    /// Read and write the state of a session: JSON values by key
    State(state::Arguments),
    /// Append to a stream of a session, and print what was said there
    Stream(stream::Arguments),
    /// Create a task that a command works at, and read, answer and cancel tasks
    Task(task::Arguments),
    /// End the sessions of a service that nobody uses any more
    Session(session::Arguments),
    /// Run an MCP server so that it outlives its own process, and its host finds it as it was
    Wrap(wrap::Arguments),
    /// Serve an MCP server over HTTP; sessions survive lost connections and a kill of `serve` or the daemon
    Serve(Box<serve::Arguments>),
    /// Hold a server for `wrap` (internal)
    Keep(keep::Arguments),
    /// Show which servers are kept, and how they are
    Status(status::Arguments),
    /// End servers that are kept; their sessions stay
    Stop(stop::Arguments),
    /// Replace servers that are kept by fresh ones
    Restart(restart::Arguments),
    /// Show what the daemon knows; tokens and values are never printed
    Debug(debug::Arguments),
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
        Verb::State(arguments) => state::run(arguments),
        Verb::Stream(arguments) => stream::run(arguments),
        Verb::Task(arguments) => task::run(arguments),
        Verb::Session(arguments) => session::run(arguments),
        Verb::Wrap(arguments) => wrap::run(arguments),
        Verb::Serve(arguments) => serve::run(*arguments),
        Verb::Keep(arguments) => keep::run(arguments),
        Verb::Debug(arguments) => debug::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Stop(arguments) => stop::run(&arguments),
        Verb::Restart(arguments) => restart::run(&arguments),
        Verb::Install(arguments) => install::install(&arguments),
        Verb::Uninstall(arguments) => install::uninstall(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
    }
}

/// Says what went wrong, on standard error, in one line.
fn complain(message: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "mcp-sessiond: {message}");
}

/// Prints to standard output, and takes a closed pipe for the end of interest.
fn print(text: &str) -> ExitCode {
    match anstream::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(format_args!("standard output: {error}"));
            ExitCode::from(FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn to_json(data: &impl Serialize) -> String {
    serde_json::to_string_pretty(data).unwrap_or_default() + "\n"
}

/// Does something to the servers that are meant. The work tells what it did, and returns the exit code.
fn by_hand(selection: &select::Selection, work: impl AsyncFnOnce(&Kept, &[&Server]) -> u8) -> ExitCode {
    let done = block_on(async {
        let kept = match Kept::look().await {
            Ok(kept) => kept,
            Err(failure) => return failure.report(),
        };
        match selection.of(&kept) {
            Ok(servers) => work(&kept, &servers).await,
            Err(code) => code,
        }
    });
    ExitCode::from(done.unwrap_or_else(|error| {
        complain(error);
        FAILED
    }))
}

/// A runtime for a command that does one thing.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}
