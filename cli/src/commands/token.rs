//! `mcp-sessiond token`: the three calls of version 1, for servers in any language.

use std::io::{Read, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{Options, Sessiond, Token};
use mcp_sessiond_proto::token::TOKEN_MAX;
use zeroize::Zeroizing;

use crate::exit_code::{DATA_ERROR, RESUME_DISABLED};
use crate::runtime::block_on;
use crate::session_args::{CallerArgs, disabled, warn_disabled};
use crate::ui::client_log;
use crate::ui::output::warn;

/// There is nothing to resume.
const NOTHING: u8 = 3;

#[derive(Debug, Args)]
#[command(after_help = "\
The session is that of the process that calls this command: a server that runs it as a child needs nothing else. In a \
shell script say `--for $$`: inside $( ) the caller is a subshell that is about to die.

Example, in a server's start script:
  if token=$(mcp-sessiond token load --for $$); then
    resume \"$token\" || mcp-sessiond token reject --for $$
  fi
  printf %s \"$new_token\" | mcp-sessiond token store --for $$")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the token that a previous instance stored, byte for byte
    #[command(after_help = "\
Exit codes: 0 the token was printed; 3 there is nothing to resume; 4 resume is disabled (standard error says why).

Example: mcp-sessiond token load --for $$ >token.bin")]
    Load(CallerArgs),
    /// Store a new token, read from standard input
    #[command(after_help = "\
Exit codes: 0 it is kept; 4 resume is disabled; 65 the token was refused, and standard error says why.

Example: printf %s \"$token\" | mcp-sessiond token store --for $$")]
    Store(CallerArgs),
    /// Delete the token: the broker refused it
    #[command(after_help = "\
Exit codes: 0 it is deleted, or there was none; 4 resume is disabled; 65 it could not be deleted, and standard error says why.

Example: mcp-sessiond token reject --for $$")]
    Reject(CallerArgs),
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    client_log::to_stderr();
    // Tokens never reach a core file.
    mcp_sessiond_process::core_files::never_dump();
    let code = block_on(async {
        match arguments.verb {
            Verb::Load(who) => load(who.options()).await,
            Verb::Store(who) => store(who.options()).await,
            Verb::Reject(who) => reject(who.options()).await,
        }
    });
    ExitCode::from(code.unwrap_or_else(|error| {
        warn(error);
        RESUME_DISABLED
    }))
}

async fn load(options: Options) -> u8 {
    let sessiond = Sessiond::init(options);
    let Some(token) = sessiond.load().await else {
        return disabled(&sessiond).map_or(NOTHING, |reason| warn_disabled(&reason));
    };
    let mut output = std::io::stdout().lock();
    match output
        .write_all(token.expose())
        .and_then(|()| output.flush())
    {
        Ok(()) => 0,
        Err(error) => {
            warn(format_args!("standard output: {error}"));
            RESUME_DISABLED
        }
    }
}

async fn store(options: Options) -> u8 {
    let mut bytes = Zeroizing::new(Vec::new());
    // One byte more than fits, so that too much is told from just enough.
    if let Err(error) = std::io::stdin()
        .lock()
        .take(TOKEN_MAX as u64 + 1)
        .read_to_end(&mut bytes)
    {
        warn(format_args!("standard input: {error}"));
        return DATA_ERROR;
    }
    if let Err(error) = Token::new(bytes.as_slice()) {
        warn(match error {
            mcp_sessiond_proto::token::TokenError::TooLarge(_) => {
                format!("a resume token has at most {TOKEN_MAX} bytes; this one has more")
            }
            error => error.to_string(),
        });
        return DATA_ERROR;
    }
    let sessiond = Sessiond::init(options);
    if sessiond.store(&bytes).await {
        return 0;
    }
    // Where it was refused, the client has said why.
    disabled(&sessiond).map_or(DATA_ERROR, |reason| warn_disabled(&reason))
}

async fn reject(options: Options) -> u8 {
    let sessiond = Sessiond::init(options);
    if sessiond.reject().await {
        return 0;
    }
    // Where it could not be deleted, the client has said why.
    disabled(&sessiond).map_or(DATA_ERROR, |reason| warn_disabled(&reason))
}
