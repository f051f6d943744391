//! `mcp-sessiond debug check`: what is wrong, and what to do about it.

use std::process::ExitCode;

use clap::Args;
use mcp_sessiond_client::{ClaimRequest, ConnectError, Connection, Directory, Start, connect};
use mcp_sessiond_proto::PROTOCOL_VERSION;
use mcp_sessiond_proto::debug::{About, Ailment, WhoAmI};
use serde::Serialize;

use super::super::table::{BAD, DOUBTFUL, GOOD, paint};
use super::super::{FAILED, UNAVAILABLE, block_on, complain, install, kept};
use super::{Asked, Failure, PATIENCE, print, to_json};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    asked: Asked,
}

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    Doubtful,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn good(what: &'static str, finding: impl Into<String>) -> Self {
        Self { what, state: State::Good, finding: finding.into(), advice: None }
    }

    fn other(
        what: &'static str,
        state: State,
        finding: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { what, state, finding: finding.into(), advice: Some(advice.into()) }
    }
}

pub(super) fn run(arguments: &Arguments, json: bool) -> ExitCode {
    let findings = match block_on(look(&arguments.asked)) {
        Ok(findings) => findings,
        Err(error) => {
            complain(error);
            return ExitCode::from(FAILED);
        }
    };
    let no_daemon = findings.iter().any(|finding| finding.what == "socket" && finding.state == State::Bad);
    let bad = findings.iter().any(|finding| finding.state == State::Bad);
    let text = if json { to_json(&serde_json::json!({"findings": findings})) } else { text(&findings) };
    let printed = print(&text);
    match (no_daemon, bad) {
        (true, _) => ExitCode::from(UNAVAILABLE),
        (_, true) => ExitCode::FAILURE,
        _ => printed,
    }
}

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let (style, mark) = match finding.state {
            State::Good => (GOOD, "good    "),
            State::Doubtful => (DOUBTFUL, "doubtful"),
            State::Bad => (BAD, "bad     "),
        };
        let advice =
            finding.advice.as_ref().map(|advice| format!("{:21}-> {advice}\n", "")).unwrap_or_default();
        format!("{}  {:9}  {}\n{advice}", paint(style, mark), finding.what, finding.finding)
    };
    findings.iter().map(line).collect()
}

async fn look(asked: &Asked) -> Vec<Finding> {
    let mut findings = Vec::new();
    let directory = match Directory::of_user() {
        Ok(directory) => directory,
        Err(error) => {
            findings.push(Finding::other("directory", State::Bad, error.to_string(), "set MCP_SESSIOND_DIR"));
            return findings;
        }
    };
    let path = directory.path().display().to_string();
    findings.push(match directory.check() {
        Ok(()) => Finding::good("directory", format!("{path} is yours alone")),
        Err(ConnectError::NotRunning { .. }) => Finding::other(
            "directory",
            State::Doubtful,
            format!("{path} is not there"),
            "the daemon makes it at its first start",
        ),
        Err(error) => Finding::other(
            "directory",
            State::Bad,
            error.to_string(),
            "nothing is sent to a daemon in there until that is mended",
        ),
    });
    findings.push(service());
    findings.extend(install::served().into_iter().map(served));
    match connect(&directory, &Start::Never).await {
        Ok(connection) => {
            findings.push(Finding::good(
                "socket",
                format!("a daemon of yours answers at {}", directory.socket().display()),
            ));
            if let Err(failure) = ask(&connection, asked, &mut findings).await {
                findings.push(Finding::other(
                    "daemon",
                    State::Bad,
                    failure,
                    "see its log, then `mcp-sessiond debug stats`",
                ));
            }
        }
        Err(error @ ConnectError::NotRunning { .. }) => findings.push(Finding::other(
            "socket",
            State::Bad,
            error.to_string(),
            "`mcp-sessiond install` starts one at login; `mcp-sessiond token` starts one on demand",
        )),
        Err(error) => findings.push(Finding::other(
            "socket",
            State::Bad,
            error.to_string(),
            "see the line above, and the daemon's log",
        )),
    }
    findings
}

fn service() -> Finding {
    match install::installed().map(|path| (path, install::ailment())) {
        Some((_, Some(install::Ailment { finding, advice }))) => {
            Finding::other("service", State::Doubtful, finding, advice)
        }
        Some((path, None)) => Finding::good("service", format!("installed as {}", path.display())),
        None => Finding::other(
            "service",
            State::Doubtful,
            "not installed as a user service",
            "`mcp-sessiond install`; without it, whoever needs a daemon starts one on demand",
        ),
    }
}

/// A service of `serve`.
fn served((name, ailment): (install::Name, Option<install::Ailment>)) -> Finding {
    match ailment {
        Some(install::Ailment { finding, advice }) => Finding::other("serve", State::Bad, finding, advice),
        None => Finding::good("serve", format!("the service of {} runs", name.as_str())),
    }
}

async fn ask(connection: &Connection, asked: &Asked, findings: &mut Vec<Finding>) -> Result<(), String> {
    let about = connection.about(PATIENCE).await.map_err(|error| error.to_string())?;
    findings.push(versions(&about));
    findings.push(storage(&about));
    findings.extend(about.ailments.iter().map(|one| told(one, State::Bad)));
    findings.extend(about.hints.iter().map(|one| told(one, State::Doubtful)));
    let lost = kept::lost(connection).await.map_err(|error| error.to_string())?;
    let advice = "the next one begins afresh, and says so";
    findings.extend(lost.iter().map(|lost| Finding::other("lost", State::Doubtful, lost.sentence(), advice)));
    let caller = nix::unistd::getppid().as_raw().unsigned_abs();
    let request = ClaimRequest {
        instance: Some(asked.instance.unwrap_or(caller)),
        label: asked.label.clone(),
        ..ClaimRequest::default()
    };
    let who = connection.who_am_i(PATIENCE, request).await.map_err(|error| error.to_string())?;
    match who.map_err(Failure::Refused) {
        Ok(who) => findings.extend([host(&who), key(&who)]),
        Err(Failure::Refused(error)) => {
            findings.push(Finding::other(
                "host",
                State::Bad,
                error.to_string(),
                "say `--for $$` in a shell script",
            ));
        }
        Err(_) => {}
    }
    Ok(())
}

fn versions(about: &About) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let said = format!(
        "pid {}, version {}, protocol {}, started by {}",
        about.pid, about.version, about.protocol, about.started_by
    );
    if about.version == ours && about.protocol == PROTOCOL_VERSION {
        return Finding::good("daemon", said);
    }
    let advice = format!(
        "this command is version {ours}; restart the daemon (pid {}) to upgrade it: sessions stay",
        about.pid
    );
    Finding::other("daemon", State::Doubtful, said, advice)
}

fn storage(about: &About) -> Finding {
    match &about.storage_failure {
        None => Finding::good("storage", about.storage.clone()),
        Some(why) => Finding::other(
            "storage",
            State::Bad,
            format!("{}: {why}", about.storage),
            "what sessions contain is answered with `unavailable` until it works again, which is tried by itself; claims, tokens and `wrap` don't need it",
        ),
    }
}

fn told(ailment: &Ailment, state: State) -> Finding {
    // Those of a newer daemon are found, too.
    let what = match ailment.what.as_str() {
        "settings" => "settings",
        "records" => "records",
        "key" => "key",
        _ => "daemon",
    };
    Finding::other(what, state, ailment.finding.clone(), ailment.advice.clone())
}

fn host(who: &WhoAmI) -> Finding {
    let step = |step: &mcp_sessiond_proto::debug::Step| format!("{} {} ({})", step.name, step.pid, step.role);
    let walk: Vec<String> = who.walk.iter().map(step).collect();
    let walk = walk.join(" < ");
    match &who.host_doubt {
        None => Finding::good("host", walk),
        Some(doubt) => Finding::other(
            "host",
            State::Bad,
            format!("{walk}: {doubt}; resume is disabled"),
            "start the server from its host, or see `launchers`, `adopters` and `pid1_is_host` in docs/settings.md",
        ),
    }
}

fn key(who: &WhoAmI) -> Finding {
    match (&who.key, &who.key_doubt) {
        (Some(key), _) => Finding::good("key", format!("{key} for process {}", who.instance)),
        (None, doubt) => Finding::other(
            "key",
            State::Doubtful,
            format!("doubtful: {}", doubt.as_deref().unwrap_or("unknown")),
            "give the instance a label (`--instance NAME`), so that its session can be resumed",
        ),
    }
}
