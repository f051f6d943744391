//! `mcp-sessiond demo`: the whole story on real processes.
//!
//! One executable plays every part: the director (`demo`), the hosts (`demo --part host`) and the
//! servers (`demo --part server` and so on), with a daemon that the servers start themselves, in a
//! directory that is gone afterwards.

mod counter;
mod display;
mod host;
mod sandbox;
mod server;
mod token;
mod wrapped;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::exit_code::SOFTWARE;
use crate::ui::output::warn;

#[derive(Debug, Args)]
#[command(after_help = "\
A server that counts its calls is started as hosts do it, without us and with `wrap` before its command; it, its wrapper and the daemon \
are killed with SIGKILL. Everything happens on real processes, in a directory of its own.

`demo token` shows what servers with a resume token get. Two hosts start servers of different arguments; servers, daemon and host are \
killed with SIGKILL. Each row is one server that came up: the session that it should be in, and the one that it is in.

Exit codes: 0 everything went as it should; 1 otherwise; 70 it could not run.

Examples:
  mcp-sessiond demo
  mcp-sessiond demo token")]
pub(crate) struct Arguments {
    /// Which story: without a name, that of a wrapped server
    #[arg(value_enum)]
    story: Option<Story>,
    /// The part to play
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Arguments of a server's own, which tell it from its siblings
    #[arg(hide = true, last = true)]
    own: Vec<String>,
    /// Print each row as a JSON object: scene, expected, as_expected. With `token` also host,
    /// server, session, visit
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Story {
    /// Resume tokens: servers of two hosts find their sessions again
    Token,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Counter,
    Host,
    Server,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let played = match arguments.part {
        Some(Part::Counter) => counter::play().map(|()| true),
        Some(Part::Host) => host::play().map(|()| true),
        Some(Part::Server) => server::play().map(|()| true),
        None => match arguments.story {
            Some(Story::Token) => token::run(arguments.json),
            None => wrapped::run(arguments.json),
        },
    };
    match played {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            warn(format_args!("demo: {error}"));
            ExitCode::from(SOFTWARE)
        }
    }
}
