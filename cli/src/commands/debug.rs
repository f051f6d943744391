//! `mcp-sessiond debug`: what the daemon knows. Tokens and values are never printed.

mod backends;
mod contents;
mod maintain;
mod settings;
mod stats;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{Connection, Directory, SessionId};
use mcp_sessiond_proto::debug::{About, HostInfo, Page, SessionInfo, TokenInfo};

use crate::calls::{ANSWER_TIMEOUT, Failure, all_pages, has_no_daemon, print_answer};
use crate::inventory;
use crate::ui::output::{json_or, to_json};
use crate::ui::table::{BAD, DOUBTFUL, GOOD, HEADING, duration, listing_or, paint, printable};

#[derive(Debug, Args)]
#[command(after_help = "\
Without a topic: the daemon about itself, and all of hosts and sessions. A table that is wider than
the terminal is shown as a block of lines for each row, without what is empty.
Exit codes: 0; 64 `config` without a daemon, and the file is wrong; 69 no daemon.

Example: mcp-sessiond debug sessions --json | jq '.[].session'")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    topic: Option<Topic>,
    /// Print JSON: an array of objects, or for `about` and `prune` one object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Topic {
    /// The daemon about itself: version, pid, protocol, started_by, uptime_ms, directory,
    /// executable, peers, storage, storage_failure, faults, advice
    #[command(after_help = "Example: mcp-sessiond debug about")]
    About,
    /// Hosts that own sessions: pid, start, name, sessions, held, plural_keys
    #[command(after_help = "Example: mcp-sessiond debug hosts")]
    Hosts,
    /// Sessions. Of a host: session, host, program, label, key, epoch, holder, token_file,
    /// opened_ms. What they hold: owner, status, bound, created_ms, active_ms, expires_ms,
    /// attached, state_keys, state_bytes, state_expires_ms, streams, events, event_bytes,
    /// last_number, handles, tasks
    #[command(after_help = "Example: mcp-sessiond debug sessions")]
    Sessions,
    /// One session: session and content as above, its streams and its tasks
    #[command(after_help = "\
Two services may have sessions of the same id: all are shown.

Example: mcp-sessiond debug session 019a4e3c-5d2f-7c1e-9a51-3f0d6c1b2a77")]
    Session {
        /// The session's id
        id: SessionId,
    },
    /// Streams of all sessions: owner, session, stream, closed, orphaned, last_position, events,
    /// bytes
    #[command(after_help = "Example: mcp-sessiond debug streams")]
    Streams,
    /// Tasks of all sessions: owner, session, task, status, created_ms, updated_ms, until_ms
    #[command(after_help = "Example: mcp-sessiond debug tasks")]
    Tasks,
    /// Backends, the servers behind `wrap`: session, keeper, keeper_pid, host, program, pid, and as
    /// `status` what the keeper says. Of one session: also its calls, its parked answers and the
    /// end of its standard error
    #[command(after_help = "\
`mcp-sessiond status` has a line for each; `mcp-sessiond stop SESSION` ends one.

Example: mcp-sessiond debug backends")]
    Backends {
        /// Show the backend of this session at length
        session: Option<SessionId>,
    },
    /// The settings in force: name, value, source; pending: the value that applies after a restart
    /// of the daemon
    #[command(after_help = settings::HELP)]
    Config,
    /// What the daemon has counted and measured. Counters: name, value. Histograms: name with its
    /// unit, buckets, count, sum
    #[command(after_help = "Example: mcp-sessiond debug stats --prometheus > sessiond.prom")]
    Stats(stats::Arguments),
    /// Token files: file, session, bytes, state
    #[command(after_help = "Example: mcp-sessiond debug tokens")]
    Tokens,
    /// End sessions now that have outlived their time, or that a service has not used: session,
    /// owner, why
    Sweep(maintain::Sweep),
    /// Prune events of a service's session now: events, bytes
    Prune(maintain::Prune),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if matches!(arguments.topic, Some(Topic::Config)) && has_no_daemon() {
        return settings::of_file(arguments.json);
    }
    print_answer(async |connection, directory| show(arguments, connection, directory).await)
}

async fn show(
    arguments: &Arguments,
    connection: &Connection,
    directory: &Directory,
) -> Result<String, Failure> {
    let json = arguments.json;
    Ok(match &arguments.topic {
        None => {
            let about = connection.about(ANSWER_TIMEOUT).await?;
            let hosts = connection.list_hosts(ANSWER_TIMEOUT).await?;
            let sessions = contents::all(connection).await?;
            if json {
                to_json(&serde_json::json!({"about": about, "hosts": hosts, "sessions": sessions}))
            } else {
                format!(
                    "{}\n{}\n{}",
                    about_text(&about),
                    hosts_text(&hosts),
                    contents::sessions_text(&sessions)
                )
            }
        }
        Some(Topic::About) => json_or(json, &connection.about(ANSWER_TIMEOUT).await?, about_text),
        Some(Topic::Hosts) => json_or(
            json,
            &connection.list_hosts(ANSWER_TIMEOUT).await?,
            |rows| hosts_text(rows),
        ),
        Some(Topic::Sessions) => json_or(json, &contents::all(connection).await?, |rows| {
            contents::sessions_text(rows)
        }),
        Some(Topic::Session { id }) => {
            json_or(json, &contents::inspect(connection, id).await?, |found| {
                contents::session_text(found)
            })
        }
        Some(Topic::Streams) => json_or(json, &contents::streams(connection).await?, |rows| {
            contents::streams_text(rows)
        }),
        Some(Topic::Tasks) => json_or(json, &contents::tasks(connection).await?, |rows| {
            contents::tasks_text(rows)
        }),
        Some(Topic::Backends { session }) => {
            let seen = inventory::backends(connection, directory, session.as_ref()).await?;
            let text = if session.is_some() {
                backends::text
            } else {
                backends::table
            };
            json_or(json, &seen, |seen| text(seen))
        }
        Some(Topic::Config) => json_or(json, &connection.settings(ANSWER_TIMEOUT).await?, |rows| {
            settings::text(rows)
        }),
        Some(Topic::Stats(asked)) if asked.prometheus => connection.metrics(ANSWER_TIMEOUT).await?,
        Some(Topic::Stats(_)) => {
            json_or(json, &connection.stats(ANSWER_TIMEOUT).await?, stats::text)
        }
        Some(Topic::Tokens) => json_or(json, &all_tokens(connection).await?, |rows| {
            tokens_text(rows)
        }),
        Some(Topic::Sweep(asked)) => {
            json_or(json, &maintain::sweep(connection, asked).await?, |ended| {
                maintain::sweep_text(ended)
            })
        }
        Some(Topic::Prune(asked)) => json_or(
            json,
            &maintain::prune(connection, asked).await?,
            maintain::prune_text,
        ),
    })
}

async fn all_sessions(connection: &Connection) -> Result<Vec<SessionInfo>, Failure> {
    let page = |after| connection.list_sessions(ANSWER_TIMEOUT, Page { after });
    all_pages(page, |info| &info.session).await
}

async fn all_tokens(connection: &Connection) -> Result<Vec<TokenInfo>, Failure> {
    let page = |after| connection.list_tokens(ANSWER_TIMEOUT, Page { after });
    all_pages(page, |info| &info.session).await
}

fn about_text(about: &About) -> String {
    let About {
        version,
        pid,
        protocol,
        started_by,
        uptime_ms,
        directory,
        executable,
        peers,
        storage,
        storage_failure,
        faults,
        advice,
    } = about;
    let failure = storage_failure
        .as_ref()
        .map_or_else(String::new, |why| format!("  {}", paint(BAD, why)));
    let title = paint(HEADING, &format!("mcp-sessiond {version}"));
    let up = duration(*uptime_ms);
    let faults = faults.iter().map(|one| paint(BAD, &one.finding));
    let advice = advice.iter().map(|one| paint(DOUBTFUL, &one.finding));
    let faults: String = faults
        .chain(advice)
        .map(|one| format!("  {one}\n"))
        .collect();
    format!(
        "{title}  pid {pid}, protocol {protocol}, started by {started_by}, up {up}\n  {directory}\n  {executable}\n  peers by {peers}\n  {storage}{failure}\n{faults}"
    )
}

fn hosts_text(hosts: &[HostInfo]) -> String {
    let row = |host: &HostInfo| {
        let HostInfo {
            pid,
            start,
            name,
            sessions,
            held,
            plural_keys,
            losses: _,
        } = host;
        vec![
            printable(name),
            pid.to_string(),
            start.clone(),
            sessions.to_string(),
            held.to_string(),
            plural_keys.to_string(),
        ]
    };
    listing_or(
        &["host", "pid", "start", "sessions", "held", "plural keys"],
        hosts.iter().map(row),
        "No hosts.",
    )
}

fn tokens_text(tokens: &[TokenInfo]) -> String {
    let row = |info: &TokenInfo| {
        let bytes = info
            .bytes
            .map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let style = if info.state == "ok" { GOOD } else { BAD };
        vec![
            info.file.clone(),
            info.session.to_string(),
            bytes,
            paint(style, &info.state),
        ]
    };
    listing_or(
        &["file", "session", "bytes", "state"],
        tokens.iter().map(row),
        "No tokens.",
    )
}
