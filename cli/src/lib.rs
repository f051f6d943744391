//! The `mcp-sessiond` command: one file a verb.
//!
//! A library only so that the tests can build the same command with its fault points.
#![forbid(unsafe_code)]

mod all;
mod claiming;
mod client_lines;
mod configured;
mod debug;
mod demo;
mod doctor;
#[cfg(test)]
mod documented;
mod failure;
mod hosts;
mod import;
mod install;
mod keep;
mod kept;
mod listing;
mod login;
mod logs;
mod manual;
mod remote;
mod restart;
mod run;
mod select;
mod serve;
mod servers;
mod service;
mod session;
mod setup;
mod share;
mod state;
mod status;
mod stop;
mod stream;
mod table;
mod task;
mod time;
mod token;
mod version;
mod waiting;
mod whose;
mod wrap;
mod yaml;

use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
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
/// A file could not be written (EX_CANTCREAT of sysexits.h).
const UNWRITTEN: u8 = 73;
/// Something failed that has no code of its own (EX_SOFTWARE of sysexits.h).
const FAILED: u8 = 70;

/// Keeps MCP servers and their sessions alive when hosts kill and restart them.
#[derive(Debug, Parser)]
#[command(
    name = "mcp-sessiond",
    version,
    max_term_width = 110,
    after_help = "Try `mcp-sessiond demo`: it kills the wrapper and the daemon of a server that counts, and the count goes on."
)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run an MCP server that is still there when its host comes back
    Wrap(wrap::Arguments),
    /// Put `wrap` in front of the servers in hosts' files
    Setup(setup::Arguments),
    /// Show which servers are kept, and how they are
    Status(status::Arguments),
    /// Show what the daemon logs, or what a server that is kept writes to its standard error
    Logs(logs::Arguments),
    /// Replace servers that are kept by fresh ones
    Restart(restart::Arguments),
    /// End servers that are kept; their sessions stay
    Stop(stop::Arguments),
    /// Try what you depend on, and say what to do where something is wrong
    Doctor(doctor::Arguments),
    /// Show on real processes what is kept, in a private directory
    Demo(demo::Arguments),
    /// Serve MCP servers over HTTP, in sessions that clients can come back to
    Serve(Box<serve::Arguments>),
    /// Copy servers from hosts' files into servers.json
    Import(import::Arguments),
    /// Log in to a remote server of servers.json, in the browser
    Login(login::Arguments),
    /// Delete the tokens of a login
    Logout(login::LogoutArguments),
    /// Show what the user service is doing; install it, restart it, take it away
    Service(service::Arguments),
    /// Install the user service: systemd or launchd, whichever is there
    Install(install::Arguments),
    /// Take the user service away
    Uninstall(install::UninstallArguments),
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
    /// Show the settings in force: name, value, source
    Config(debug::OneTopic),
    /// Show what the daemon has counted and measured
    Stats(debug::StatsArguments),
    /// Show what else the daemon knows; tokens and values are never printed
    Debug(debug::Arguments),
    /// Run the daemon in the foreground
    Run(run::Arguments),
    /// Print the completions of a shell
    Completions(manual::CompletionsArguments),
    /// Print the manual page, or write those of all verbs
    Man(manual::ManArguments),
    /// Hold a server for `wrap` (internal)
    #[command(hide = true)]
    Keep(keep::Arguments),
    /// Share a server among all hosts, for `wrap` (internal)
    #[command(hide = true)]
    Share(share::Arguments),
}

/// Parses, runs, and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let Some(verb) = cli.verb else {
        return match std::io::stdout().is_terminal() {
            true => status::run(&status::Arguments::default()),
            false => without_verb(),
        };
    };
    match verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Token(arguments) => token::run(arguments),
        Verb::State(arguments) => state::run(arguments),
        Verb::Stream(arguments) => stream::run(arguments),
        Verb::Task(arguments) => task::run(arguments),
        Verb::Session(arguments) => session::run(arguments),
        Verb::Wrap(arguments) => wrap::run(arguments),
        Verb::Serve(arguments) => serve::run(*arguments),
        Verb::Login(arguments) => login::run(arguments),
        Verb::Logout(arguments) => login::logout(&arguments),
        Verb::Keep(arguments) => keep::run(arguments),
        Verb::Share(arguments) => share::run(&arguments),
        Verb::Config(arguments) => debug::run(&debug::Arguments::config(&arguments)),
        Verb::Stats(arguments) => debug::run(&debug::Arguments::stats(&arguments)),
        Verb::Completions(arguments) => manual::completions(&arguments),
        Verb::Man(arguments) => manual::man(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Debug(arguments) => debug::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Logs(arguments) => logs::run(&arguments),
        Verb::Stop(arguments) => stop::run(&arguments),
        Verb::Restart(arguments) => restart::run(&arguments),
        Verb::Setup(arguments) => setup::run(&arguments),
        Verb::Import(arguments) => import::run(&arguments),
        Verb::Service(arguments) => service::run(&arguments),
        Verb::Install(arguments) => install::install(&arguments),
        Verb::Uninstall(arguments) => install::uninstall(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
    }
}

/// A program has called us and said no verb.
fn without_verb() -> ExitCode {
    let help = Cli::command().render_help();
    let _ = write!(anstream::stderr(), "{}", help.ansi());
    ExitCode::from(USAGE)
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

/// Does something to the servers that are meant. The work tells what it did, and returns the exit
/// code.
fn by_hand(
    selection: &select::Selection,
    work: impl AsyncFnOnce(&Kept, &[&Server]) -> u8,
) -> ExitCode {
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
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work))
}
