//! `mcp-sessiond demo`: the whole story on real processes.
//!
//! One executable plays every part: the director (`demo`), the hosts (`demo --part host`) and the
//! servers (`demo --part server` and so on), with a daemon that the servers start themselves, in a
//! directory that is gone afterwards.

mod counter;
#[cfg(feature = "http")]
mod curl;
mod display;
mod host;
#[cfg(feature = "http")]
mod http;
mod sandbox;
mod server;
mod steps;
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

`demo http` shows `serve`, with curl as its client: a page reload and a SIGKILL of `serve` in the middle of a call. Each command is \
printed, and what came of it.

Exit codes: 0 everything went as it should; 1 otherwise; 70 it could not run, for example because there is no curl.

Examples:
  mcp-sessiond demo
  mcp-sessiond demo token
  mcp-sessiond demo http")]
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
    /// A page reload and a kill of `serve`, with curl
    Http,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Counter,
    Host,
    Server,
    Steps,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let played = match arguments.part {
        Some(Part::Counter) => counter::play().map(|()| true),
        Some(Part::Host) => host::play().map(|()| true),
        Some(Part::Server) => server::play().map(|()| true),
        Some(Part::Steps) => steps::play().map(|()| true),
        None => match arguments.story {
            #[cfg(feature = "http")]
            Some(Story::Http) => http::run(arguments.json),
            Some(Story::Token) => token::run(arguments.json),
            #[cfg(not(feature = "http"))]
            Some(Story::Http) => Err(std::io::Error::other(crate::extras::absent(
                "`demo http`",
                "http",
            ))),
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
