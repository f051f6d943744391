//! The daemon: reached, or started as any client would, and what it says of itself.

use mcp_sessiond_client::{ConnectError, Connection, Directory, Start, connect};
use mcp_sessiond_daemon::config::{Applies, Loaded};
use mcp_sessiond_process::executable;
use mcp_sessiond_proto::PROTOCOL_VERSION;
use mcp_sessiond_proto::debug::{About, Setting};
use mcp_sessiond_proto::hello::HelloError;

use super::{Finding, Findings, page};
use crate::calls::{ANSWER_TIMEOUT, Failure, reach};
use crate::version::OWN;

/// The connection to it, if it can be used.
pub(super) async fn check(directory: &Directory, findings: &mut Findings) -> Option<Connection> {
    let (connection, about, was_started) = match reach_or_start(directory).await {
        Ok(reached) => reached,
        Err(failure) => {
            let fix = match &failure {
                Failure::Connect(error) => fix(error, directory),
                _ => "`mcp-sessiond logs` shows its log".to_owned(),
            };
            let what = match failure {
                Failure::Call(error) => format!("the daemon listens, but does not answer: {error}"),
                failure => failure.to_string(),
            };
            findings.add(Finding::problem("daemon", what, fix));
            return None;
        }
    };
    findings.add(running(&about, was_started));
    findings.add(peers(&about.peers));
    storage(&about, findings);
    for ailment in &about.faults {
        let (what, fix) = (ailment.finding.clone(), ailment.advice.clone());
        match ailment.what.as_str() {
            // Of the same file. This says what to do for the daemon that runs.
            "settings" => findings.replace(Finding::problem("config", what, fix)),
            "records" => findings.add(Finding::problem("records", what, fix)),
            // Those of a newer daemon are found, too.
            _ => findings.add(Finding::problem("daemon", what, fix)),
        }
    }
    Some(connection)
}

/// Asks again about the storage, which is opened when it is first used. Returns whether it works.
pub(super) async fn recheck(connection: &Connection, findings: &mut Findings) -> bool {
    let Ok(about) = connection.about(ANSWER_TIMEOUT).await else {
        return true;
    };
    storage(&about, findings);
    about.storage_failure.is_none()
}

/// How the daemon knows which process has connected, and what follows from that.
fn peers(by: &str) -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let system = release.map_or_else(
        |_| "this system".to_owned(),
        |release| format!("Linux {}", release.trim_end()),
    );
    match by {
        "" => Finding::problem(
            "kernel",
            format!(
                "{system} does not let the daemon hold processes (pidfd_open, Linux 5.3), so it can identify none, and no server is kept"
            ),
            format!(
                "if this is a container, allow it pidfd_open, as the default profiles of Docker and Podman do; {}",
                page("requirements")
            ),
        ),
        "challenge" => Finding::ok(
            "kernel",
            format!(
                "{system} does not tell which process has connected (SO_PEERPIDFD, Linux 6.5), so the daemon asks each one; nothing is missing without it"
            ),
        ),
        by => Finding::ok(
            "kernel",
            format!("{system} tells the daemon which process has connected ({by})"),
        ),
    }
}

fn storage(about: &About, findings: &mut Findings) {
    match &about.storage_failure {
        None => findings.replace(Finding::ok(
            "storage",
            match &*about.storage {
                "sqlite:" => format!(
                    "what sessions contain is in a database in {}",
                    about.directory
                ),
                "memory:" => {
                    "what sessions contain is in the daemon's memory, and ends with it".to_owned()
                }
                url => format!("what sessions contain is in {url}"),
            },
        )),
        Some(why) => {
            // What was found here before is more exact about what to do.
            let fix = findings
                .fix_of("storage")
                .unwrap_or_else(|| "fix that, or the setting storage.url".to_owned());
            findings.replace(Finding::problem(
                "storage",
                format!("what sessions contain can't be stored in {}: {why}", about.storage),
                format!("{fix}; the daemon tries again by itself, and claims, tokens and `wrap` don't need it"),
            ));
        }
    }
}

/// Whether the daemon goes by what the file says now.
pub(super) async fn settings(connection: &Connection, loaded: &Loaded, findings: &mut Findings) {
    let Ok(in_force) = connection.settings(ANSWER_TIMEOUT).await else {
        return;
    };
    // What comes from the environment or by a flag is its own business, or ours.
    let is_of_file = |setting: &Setting| ["default", "file"].contains(&&*setting.source);
    let written = loaded.settings();
    let mut other: Vec<&str> = written
        .iter()
        .filter(|own| {
            let its = in_force.iter().find(|its| its.name == own.name);
            its.is_some_and(|its| its.value != own.value && is_of_file(its) && is_of_file(own))
        })
        .map(|own| &*own.name)
        .collect();
    let Ok(about) = connection.about(ANSWER_TIMEOUT).await else {
        return;
    };
    // Another version's defaults are no news, and a file with faults was found before.
    if other.is_empty() || about.version != OWN || findings.has_problem("config") {
        return;
    }
    let (pid, names) = (about.pid, other.join(", "));
    other.retain(|name| Applies::of(name) == Applies::DaemonStart);
    let fix = if other.is_empty() {
        format!(
            "`kill -HUP {pid}`, so that it reads its file again; nothing, if you have started it with another one"
        )
    } else {
        format!("`kill {pid}`: the next daemon reads the file; sessions and servers stay")
    };
    let what = format!("the running daemon uses other values than the file has now, of {names}");
    findings.replace(Finding::note("config", what, fix));
}

/// A connection, what the daemon says of itself, and whether it was started for that.
async fn reach_or_start(directory: &Directory) -> Result<(Connection, About, bool), Failure> {
    match reach(directory).await {
        Err(Failure::Connect(ConnectError::NotRunning { .. })) => {
            let start = Start::Auto {
                binary: executable::own(),
            };
            let connection = connect(directory, &start).await?;
            let about = connection.about(ANSWER_TIMEOUT).await?;
            Ok((connection, about, true))
        }
        reached => reached.map(|(connection, about)| (connection, about, false)),
    }
}

fn running(about: &About, was_started: bool) -> Finding {
    let About {
        version,
        pid,
        protocol,
        started_by,
        ..
    } = about;
    let how = match &**started_by {
        "on_demand" => "on demand",
        "foreground" => "by hand",
        by => by,
    };
    if version != OWN || *protocol != PROTOCOL_VERSION {
        let what = format!(
            "the daemon that runs (pid {pid}) is version {version}, and this executable is {OWN}"
        );
        let restart = match &**started_by {
            "systemd" => "systemctl --user restart mcp-sessiond.service".to_owned(),
            "launchd" => {
                format!(
                    "launchctl kickstart -k gui/{}/io.github.mcp-sessiond",
                    nix::unistd::getuid()
                )
            }
            _ => format!("kill {pid}"),
        };
        let fix = format!(
            "`{restart}`: the next one is of the version that is installed; sessions and servers stay"
        );
        return Finding::note("daemon", what, fix);
    }
    Finding::ok(
        "daemon",
        if was_started {
            format!(
                "none was running, which is normal: one was started, as any client does (pid {pid}, version {version}), and exits when nothing needs it"
            )
        } else {
            format!("answers (pid {pid}, version {version}, started {how})")
        },
    )
}

fn fix(error: &ConnectError, directory: &Directory) -> String {
    match error {
        ConnectError::NotStarted { .. } => "install it again, or set MCP_SESSIOND_BIN to its path".to_owned(),
        ConnectError::StartFailed { .. } => "`mcp-sessiond run` in a terminal shows why".to_owned(),
        ConnectError::DaemonUid(_) => {
            format!("see whose socket it is: `ls -l {}`", directory.socket().display())
        }
        ConnectError::Hello(HelloError::Unidentified) => {
            format!(
                "run both in one container, or both outside, and allow it pidfd_open; {}",
                page("requirements")
            )
        }
        ConnectError::Hello(_) => {
            "end that daemon, or use the executable of its version: `fuser -v` on its socket names it"
                .to_owned()
        }
        _ => format!(
            "see its log, `{}`, and end it if it hangs",
            directory.path().join("daemon.log").display()
        ),
    }
}
