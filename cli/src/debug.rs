//! `mcp-sessiond debug`: what the daemon knows. Tokens and values are never printed.

mod backends;
mod contents;
mod stats;
mod tend;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use mcp_sessiond_client::{Connection, Directory, SessionId, Start, connect};
use mcp_sessiond_proto::debug::{About, HostInfo, Page, SessionInfo, Setting, TokenInfo};
use serde::Serialize;

use super::doctor;
use super::failure::Failure;
use super::kept::{self, PATIENCE, all};
use super::table::{self, BAD, DOUBTFUL, GOOD, HEADING, duration, paint};
use super::{FAILED, block_on, complain, print, to_json};

#[derive(Debug, Args)]
#[command(after_help = "\
Without a topic: the daemon about itself, and all of hosts and sessions. A table that is wider than
the terminal is shown as a block of lines for each row, without what is empty.
Exit codes: 0; 69 no daemon. `debug check`: those of `doctor`, 0 and 1.

Example: mcp-sessiond debug sessions --json | jq '.[].session'")]
pub(super) struct Arguments {
    #[command(subcommand)]
    topic: Option<Topic>,
    /// Print JSON: an array of objects, or for `about`, `stats`, `prune` and `check` one object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Topic {
    /// The daemon about itself: version, pid, protocol, started_by, uptime_ms, directory,
    /// executable, storage, storage_failure, faults, advice
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
        /// Its id
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
    /// Token files: file, session, bytes, state
    #[command(after_help = "Example: mcp-sessiond debug tokens")]
    Tokens,
    /// Counters: name, value. Histograms: name with its unit, buckets, count, sum
    #[command(after_help = "\
A scraper gets the same from the daemon itself: `mcp-sessiond run --metrics 127.0.0.1:9464`.

Example, for a textfile collector: mcp-sessiond debug stats --prometheus > sessiond.prom")]
    Stats {
        /// Print the text format of Prometheus; durations are in seconds
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// End sessions now that have outlived their time, or that a service has not used: session,
    /// owner, why
    Sweep(tend::Sweep),
    /// Prune events of a service's session now: events, bytes
    Prune(tend::Prune),
    /// Settings in force: name, value, source
    #[command(after_help = "Example: mcp-sessiond debug config")]
    Config,
    /// The same as `mcp-sessiond doctor`
    #[command(after_help = "\
Exit codes: 0 no problem; 1 at least one. `mcp-sessiond doctor --help` has what is looked at, and the fields.

Example, in a server's start script: mcp-sessiond debug check --for $$ >&2")]
    Check(doctor::Asked),
}

/// `mcp-sessiond config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 69 no daemon. Which settings there are: docs/settings.md.

Example: mcp-sessiond config --json | jq '.[] | select(.source != \"default\")'")]
pub(super) struct OneTopic {
    /// Print JSON: name, value, source
    #[arg(long)]
    json: bool,
}

/// `mcp-sessiond stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0; 69 no daemon.

Example: mcp-sessiond stats --prometheus > sessiond.prom")]
pub(super) struct StatsArguments {
    /// Print the text format of Prometheus; durations are in seconds
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Print JSON. Counters: name, value. Histograms: name with its unit, buckets, count, sum
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(super) fn config(one: &OneTopic) -> Self {
        Self {
            topic: Some(Topic::Config),
            json: one.json,
        }
    }

    pub(super) fn stats(stats: &StatsArguments) -> Self {
        Self {
            topic: Some(Topic::Stats {
                prometheus: stats.prometheus,
            }),
            json: stats.json,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if let Some(Topic::Check(asked)) = &arguments.topic {
        return doctor::look_and_say(asked, arguments.json);
    }
    let shown = match block_on(show(arguments)) {
        Ok(shown) => shown,
        Err(error) => {
            complain(error);
            return ExitCode::from(FAILED);
        }
    };
    match shown {
        Ok(text) => print(&text),
        Err(failure) => ExitCode::from(failure.report()),
    }
}

async fn show(arguments: &Arguments) -> Result<String, Failure> {
    let directory = Directory::of_user()?;
    let connection = connect(&directory, &Start::Never).await?;

    let json = arguments.json;
    Ok(match &arguments.topic {
        None => {
            let about = connection.about(PATIENCE).await?;
            let hosts = connection.list_hosts(PATIENCE).await?;
            let sessions = contents::all(&connection).await?;
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
        Some(Topic::About) => either(json, &connection.about(PATIENCE).await?, about_text),
        Some(Topic::Hosts) => either(json, &connection.list_hosts(PATIENCE).await?, |rows| {
            hosts_text(rows)
        }),
        Some(Topic::Sessions) => either(json, &contents::all(&connection).await?, |rows| {
            contents::sessions_text(rows)
        }),
        Some(Topic::Session { id }) => {
            either(json, &contents::inspect(&connection, id).await?, |found| {
                contents::session_text(found)
            })
        }
        Some(Topic::Streams) => either(json, &contents::streams(&connection).await?, |rows| {
            contents::streams_text(rows)
        }),
        Some(Topic::Tasks) => either(json, &contents::tasks(&connection).await?, |rows| {
            contents::tasks_text(rows)
        }),
        Some(Topic::Backends { session }) => {
            let seen = kept::of_daemon(&connection, &directory, session.as_ref()).await?;
            let text = if session.is_some() {
                backends::text
            } else {
                backends::table
            };
            either(json, &seen, |seen| text(seen))
        }
        Some(Topic::Tokens) => either(json, &all_tokens(&connection).await?, |rows| {
            tokens_text(rows)
        }),
        Some(Topic::Stats { prometheus: true }) => connection.metrics(PATIENCE).await?,
        Some(Topic::Stats { .. }) => either(json, &connection.stats(PATIENCE).await?, stats::text),
        Some(Topic::Sweep(asked)) => {
            either(json, &tend::sweep(&connection, asked).await?, |ended| {
                tend::sweep_text(ended)
            })
        }
        Some(Topic::Prune(asked)) => either(
            json,
            &tend::prune(&connection, asked).await?,
            tend::prune_text,
        ),
        Some(Topic::Config) => either(json, &connection.settings(PATIENCE).await?, |rows| {
            config_text(rows)
        }),
        // Answered before a connection was made.
        Some(Topic::Check(_)) => String::new(),
    })
}

fn either<T: Serialize>(json: bool, data: &T, text: impl Fn(&T) -> String) -> String {
    if json { to_json(data) } else { text(data) }
}

async fn all_sessions(connection: &Connection) -> Result<Vec<SessionInfo>, Failure> {
    let page = |after| connection.list_sessions(PATIENCE, Page { after });
    all(page, |info| &info.session).await
}

async fn all_tokens(connection: &Connection) -> Result<Vec<TokenInfo>, Failure> {
    let page = |after| connection.list_tokens(PATIENCE, Page { after });
    all(page, |info| &info.session).await
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
        "{title}  pid {pid}, protocol {protocol}, started by {started_by}, up {up}\n  {directory}\n  {executable}\n  {storage}{failure}\n{faults}"
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
            name.clone(),
            pid.to_string(),
            start.clone(),
            sessions.to_string(),
            held.to_string(),
            plural_keys.to_string(),
        ]
    };
    listed(
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
    listed(
        &["file", "session", "bytes", "state"],
        tokens.iter().map(row),
        "No tokens.",
    )
}

fn config_text(settings: &[Setting]) -> String {
    let row = |setting: &Setting| {
        vec![
            setting.name.clone(),
            setting.value.clone(),
            setting.source.clone(),
        ]
    };
    listed(
        &["setting", "value", "source"],
        settings.iter().map(row),
        "No settings.",
    )
}

fn listed(
    heading: &[&str],
    rows: impl ExactSizeIterator<Item = Vec<String>>,
    none: &str,
) -> String {
    if rows.len() == 0 {
        format!("{none}\n")
    } else {
        table::listing(heading, rows)
    }
}
