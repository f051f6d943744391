//! `mcp-sessiond install --status`: the user service, and what it is doing.

use std::path::PathBuf;
use std::process::ExitCode;

use mcp_sessiond_client::{Directory, Start, connect};
use mcp_sessiond_proto::debug::About;
use serde::Serialize;

use crate::calls::ANSWER_TIMEOUT;
use crate::exit_code::{SOFTWARE, UNAVAILABLE};
use crate::runtime::block_on;
use crate::service_manager::{self, Name, UnitState};
use crate::ui::output::{print, to_json, warn};
use crate::ui::table::{BAD, DOUBTFUL, GOOD, HEADING, paint, printable, wrapped};
use crate::version;

/// Columns of what is printed, and of the names of what is told.
const COLUMNS: usize = 80;
const NAMES: usize = 12;

/// The service, as it is.
#[derive(Debug, Serialize)]
struct Service {
    manager: &'static str,
    installed: bool,
    packaged: bool,
    units: Vec<PathBuf>,
    enabled: Option<bool>,
    listens: Option<bool>,
    pid: Option<u32>,
    executable: Option<PathBuf>,
    version: Option<String>,
    own_version: &'static str,
    daemon: Option<Daemon>,
    serve: Vec<ServeService>,
    finding: Option<String>,
    advice: Option<String>,
    #[serde(skip)]
    is_grave: bool,
}

/// The daemon that answers.
#[derive(Debug, Serialize)]
struct Daemon {
    pid: u32,
    version: String,
    started_by: String,
}

/// A service of `serve`.
#[derive(Debug, Serialize)]
struct ServeService {
    name: String,
    units: Vec<PathBuf>,
    enabled: Option<bool>,
    pid: Option<u32>,
}

/// Shows whether it is installed, enabled and running, from which files, and of which version.
pub(super) fn show(json: bool) -> ExitCode {
    let service = match block_on(look()) {
        Ok(service) => service,
        Err(error) => {
            warn(error);
            return ExitCode::from(SOFTWARE);
        }
    };
    let printed = print(&if json {
        to_json(&service)
    } else {
        text(&service)
    });
    if service.is_grave {
        ExitCode::from(UNAVAILABLE)
    } else {
        printed
    }
}

async fn look() -> Service {
    let served = service_manager::serve_services();
    let serve = served.iter().map(|(name, _)| of_serve(name)).collect();
    let installed = service_manager::installed().is_some();
    let UnitState {
        enabled,
        listens,
        pid,
    } = if installed {
        service_manager::unit_state(None)
    } else {
        UnitState::default()
    };
    // Whoever connects to the manager's socket has it start a daemon.
    let is_idle = listens == Some(true) && pid.is_none();
    let daemon = if is_idle { None } else { running().await };
    let mut service = Service {
        manager: service_manager::MANAGER,
        installed,
        packaged: installed && service_manager::is_packaged(),
        units: Vec::new(),
        enabled,
        listens,
        pid,
        executable: None,
        version: None,
        own_version: version::OWN,
        daemon,
        serve,
        finding: None,
        advice: None,
        is_grave: false,
    };
    if !installed {
        return service;
    }
    service.units = service_manager::units(None);
    service.executable = service_manager::executable();
    let again = "`mcp-sessiond install` rewrites it for this executable";
    if let Some(executable) = &service.executable {
        service.version = version::of(executable).await;
        if !version::is_program(executable) {
            service.finding = Some(format!(
                "{} is not there, or can't be run",
                executable.display()
            ));
            (service.advice, service.is_grave) = (Some(again.to_owned()), true);
            return service;
        }
    }
    if let Some(service_manager::Fault {
        finding,
        advice,
        is_grave,
    }) = service_manager::fault()
    {
        (service.finding, service.advice, service.is_grave) =
            (Some(finding), Some(advice), is_grave);
    } else if service
        .version
        .as_deref()
        .is_some_and(|version| version != version::OWN)
    {
        let ours = version::OWN;
        service.finding = Some(format!(
            "it starts another version than that of this executable, {ours}"
        ));
        service.advice = Some("`mcp-sessiond install` with the one that you want".to_owned());
    } else if let Some(Daemon { pid, version, .. }) = &service.daemon
        && service.pid == Some(*pid)
        && service
            .version
            .as_ref()
            .is_some_and(|starts| starts != version)
    {
        service.finding = Some(format!("the daemon that runs is of version {version}"));
        service.advice =
            Some("`mcp-sessiond install --restart`; sessions and servers stay".to_owned());
    }
    service
}

/// The daemon that runs, no matter what has started it.
async fn running() -> Option<Daemon> {
    let connection = connect(&Directory::of_user().ok()?, &Start::Never)
        .await
        .ok()?;
    let About {
        pid,
        version,
        started_by,
        ..
    } = connection.about(ANSWER_TIMEOUT).await.ok()?;
    Some(Daemon {
        pid,
        version,
        started_by,
    })
}

fn of_serve(name: &Name) -> ServeService {
    let UnitState { enabled, pid, .. } = service_manager::unit_state(Some(name));
    ServeService {
        name: name.as_str().to_owned(),
        units: service_manager::units(Some(name)),
        enabled,
        pid,
    }
}

fn text(service: &Service) -> String {
    let mut text = String::new();
    let mut say = |name: &str, what: String| {
        // The blanks come after the style, so that they are counted as what they are.
        text += &paint(HEADING, name);
        text += &" ".repeat(NAMES.saturating_sub(name.chars().count()).max(1));
        text += &what;
        text += "\n";
    };
    let yes = |is: Option<bool>, yes: &str, no: &str| match is {
        Some(true) => paint(GOOD, yes),
        Some(false) => paint(DOUBTFUL, no),
        None => paint(DOUBTFUL, "not known"),
    };
    if service.installed {
        let by = if service.packaged {
            ", by a package"
        } else {
            ""
        };
        say(
            "service",
            format!("{}, for {}{by}", paint(GOOD, "installed"), service.manager),
        );
        for unit in &service.units {
            say("unit", printable(&unit.display().to_string()));
        }
        say(
            "enabled",
            yes(
                service.enabled,
                "yes",
                "no: it is not there after the next login",
            ),
        );
        say(
            "listens",
            yes(
                service.listens,
                "yes: the first connection starts the daemon",
                "no",
            ),
        );
        if let Some(executable) = &service.executable {
            let version = service.version.as_deref().unwrap_or("not known");
            say(
                "starts",
                format!(
                    "{}, version {}",
                    printable(&executable.display().to_string()),
                    printable(version)
                ),
            );
        }
    } else {
        say(
            "service",
            "not installed: the first program that needs a daemon starts one".to_owned(),
        );
    }
    say(
        "daemon",
        match &service.daemon {
            Some(Daemon {
                pid,
                version,
                started_by,
            }) => {
                let by = match &**started_by {
                    "on_demand" => "on demand",
                    "foreground" => "by hand",
                    by => by,
                };
                let by = if by.starts_with(['o', 'b']) {
                    by.to_owned()
                } else {
                    format!("by {by}")
                };
                format!(
                    "{} (pid {pid}), version {version}, started {by}",
                    paint(GOOD, "runs")
                )
            }
            None => "none runs just now".to_owned(),
        },
    );
    for ServeService {
        name, enabled, pid, ..
    } in &service.serve
    {
        let runs = match (pid, enabled) {
            (Some(pid), _) => format!("{} (pid {pid})", paint(GOOD, "runs")),
            // The manager can't be asked.
            (None, None) => paint(DOUBTFUL, "not known"),
            (None, Some(_)) => paint(BAD, "does not run"),
        };
        let enabled = if *enabled == Some(false) {
            "; not enabled"
        } else {
            ""
        };
        say(&format!("serve.{name}"), format!("{runs}{enabled}"));
    }
    if let Some(finding) = &service.finding {
        let advice = service.advice.as_deref().unwrap_or_default();
        text += "\n";
        text += &wrapped(&format!("{finding}: {advice}"), Some(COLUMNS));
    } else if !service.installed {
        text += "\nTo have one start at the first connection, run `mcp-sessiond install`.\n";
    }
    text
}
