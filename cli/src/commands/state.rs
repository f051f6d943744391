//! `mcp-sessiond state`: the state of a session, for what has no library.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{Json, Session, StateKey, StateKeyInfo, StateWrite};
use serde::Serialize;

use crate::exit_code::NO_INPUT;
use crate::session_args::{IfMissing, SessionArgs, parse_json, read_stdin, report, run_for_server};
use crate::ui::output::{print, to_json, warn};

#[derive(Debug, Args)]
#[command(after_help = "\
The session is that of the process that calls this command, as for `token`: in a shell script say `--for $$`. With --service and \
--session it is one of a service, for servers that no host has started.

Exit codes: 0; 4 resume is disabled, or no daemon answers; 65 refused, or not JSON; 66 no such key or session.

Example, in a server's script:
  count=$(mcp-sessiond state get count --for $$ || echo 0)
  mcp-sessiond state set count $((count + 1)) --for $$")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the value of a key, as JSON
    #[command(after_help = "Example: mcp-sessiond state get cart --service web --session 7")]
    Get {
        /// The key
        key: StateKey,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Write a value, whatever was there; a session of a service is made if there is none
    #[command(after_help = "\
Examples:
  mcp-sessiond state set cart '[\"apples\"]' --service web --session 7
  date +%s | mcp-sessiond state set seen --expires 3600 --for $$")]
    Set {
        /// The key
        key: StateKey,
        /// The value, as JSON. Without it, it is read from standard input
        value: Option<String>,
        /// After how many seconds the value goes by itself
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
        expires: Option<u64>,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Remove a value, if there is one
    #[command(after_help = "Example: mcp-sessiond state remove cart --for $$")]
    Remove {
        /// The key
        key: StateKey,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Print the keys that have a value, a line each
    #[command(after_help = "Example: mcp-sessiond state list --json --for $$")]
    List {
        /// Print `key`, `version`, `bytes` of the value, and `expires_ms` where it goes by itself,
        /// as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        session: SessionArgs,
    },
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    run_for_server(execute(arguments.verb))
}

/// Returns the exit code, also where something is wrong, which was said then.
async fn execute(verb: Verb) -> Result<ExitCode, u8> {
    match verb {
        Verb::Get { key, session } => get(&session.session(IfMissing::Refuse).await?, &key).await,
        Verb::Set {
            key,
            value,
            expires,
            session,
        } => {
            let value = parse_json(&value.map_or_else(read_stdin, Ok)?)?;
            set(
                &session.session(IfMissing::Create).await?,
                key,
                value,
                expires,
            )
            .await
        }
        Verb::Remove { key, session } => {
            let removed = session.session(IfMissing::Refuse).await?.remove(&key).await;
            removed
                .map(|()| ExitCode::SUCCESS)
                .map_err(|error| report(&error))
        }
        Verb::List { json, session } => {
            list(&session.session(IfMissing::Refuse).await?, json).await
        }
    }
}

async fn get(session: &Session, key: &StateKey) -> Result<ExitCode, u8> {
    match session.get(key).await.map_err(|error| report(&error))? {
        Some(value) => Ok(print(&format!("{}\n", value.as_str()))),
        None => {
            warn(format_args!("the key {key} has no value"));
            Err(NO_INPUT)
        }
    }
}

async fn set(
    session: &Session,
    key: StateKey,
    value: Json,
    expires: Option<u64>,
) -> Result<ExitCode, u8> {
    let write = StateWrite {
        key,
        value: Some(value),
        expected: None,
        expires_ms: None,
    };
    let write = expires
        .map(Duration::from_secs)
        .into_iter()
        .fold(write, StateWrite::expires);
    session
        .write(vec![write])
        .await
        .map(|_| ExitCode::SUCCESS)
        .map_err(|error| report(&error))
}

#[derive(Serialize)]
struct KeyJson<'a> {
    key: &'a str,
    version: u64,
    bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

impl<'a> From<&'a StateKeyInfo> for KeyJson<'a> {
    fn from(info: &'a StateKeyInfo) -> Self {
        let StateKeyInfo {
            key,
            version,
            bytes,
            expires_ms,
        } = info;
        Self {
            key: key.as_str(),
            version: version.0,
            bytes: *bytes,
            expires_ms: *expires_ms,
        }
    }
}

async fn list(session: &Session, as_json: bool) -> Result<ExitCode, u8> {
    let keys = session.keys().await.map_err(|error| report(&error))?;
    if as_json {
        return Ok(print(&to_json(
            &keys.iter().map(KeyJson::from).collect::<Vec<_>>(),
        )));
    }
    Ok(print(
        &keys
            .iter()
            .map(|info| format!("{}\n", info.key))
            .collect::<String>(),
    ))
}
