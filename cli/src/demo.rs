//! `mcp-sessiond demo`: the whole story on real processes.
//!
//! One executable plays every part: the director (`demo`), the hosts (`demo --part host`) and the servers
//! (`demo --part server`), with a daemon that the servers start themselves, in a directory that is gone afterwards.

mod host;
mod server;
mod stage;
mod story;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::{FAILED, complain};

#[derive(Debug, Args)]
#[command(after_help = "\
Two hosts start servers of different arguments; servers, daemon and host are killed with SIGKILL. Each row is one \
server that came up: the session that it should be in, and the one that it is in.

Exit codes: 0 every server that should resume did, and every one that should not did not; 1 otherwise.

Example: mcp-sessiond demo")]
pub(super) struct Arguments {
    /// The part to play
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Arguments of a server's own, which tell it from its siblings
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    own: Vec<String>,
    /// Print each row as a JSON object: scene, host, server, expected, session, visit, as_expected
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Host,
    Server,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let played = match arguments.part {
        Some(Part::Host) => host::play().map(|()| true),
        Some(Part::Server) => server::play().map(|()| true),
        None => story::tell(arguments.json),
    };
    match played {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(format_args!("demo: {error}"));
            ExitCode::from(FAILED)
        }
    }
}
