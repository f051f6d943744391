//! systemd's user units.

mod serve;

use std::path::{Path, PathBuf};

use mcp_sessiond_proto::paths::{self as places, DIRECTORY_VARIABLE};

use super::files::{File, Former};
use super::serve_unit::{Name, ServeCommand, Unit};
use super::steps::{OnFailure, Step, answer};
use super::{Fault, Log, Service, ServiceError, UnitState};

pub(super) const NAME: &str = "systemd";

const SERVICE: &str = "mcp-sessiond.service";
const SOCKET: &str = "mcp-sessiond.socket";

const SERVICE_UNIT: &str = include_str!("../../../systemd/mcp-sessiond.service");
const SOCKET_UNIT: &str = include_str!("../../../systemd/mcp-sessiond.socket");

/// Makes sure that there is a user manager, and that it reads the directory that we write to.
pub(super) fn check_reachable() -> Result<(), ServiceError> {
    let asked = [
        "systemctl",
        "--user",
        "show",
        "--property=UnitPath",
        "--value",
    ];
    let read = answer(&asked).map_err(|error| {
        ServiceError::NoManager(format!(
            "no systemd user manager can be reached ({error}). Log in as this user, not by su or sudo, or have \
             `loginctl enable-linger` start one. Without it nothing is lost: clients start the daemon on demand"
        ))
    })?;
    let directory = directory()?;
    if read.split(' ').any(|known| Path::new(known) == directory) {
        return Ok(());
    }
    Err(ServiceError::NoManager(format!(
        "the systemd user manager does not read {}; does it have another XDG_CONFIG_HOME than this shell?",
        directory.display()
    )))
}

fn directory() -> Result<PathBuf, ServiceError> {
    places::own_units().ok_or_else(|| {
        ServiceError::Usage("this user has no home directory, in which user units belong".into())
    })
}

/// What is said about a logout, after which the user manager ends, and all that it runs. The
/// daemon's own service is not missed then, unless the session is one of SSH, whose servers are to
/// go on.
pub(super) fn at_logout(is_serve: bool) -> Option<String> {
    let is_remote = || std::env::var_os("SSH_CONNECTION").is_some();
    if !is_serve && !is_remote() {
        return None;
    }
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok()??;
    let lingers = Path::new("/var/lib/systemd/linger").join(&user.name);
    (!lingers.exists()).then(|| {
        "The service ends when you log out. `loginctl enable-linger` keeps it running, and starts it at boot."
            .to_owned()
    })
}

/// The files, that of the daemon's socket last.
pub(super) fn paths(unit: &Unit) -> Result<Vec<PathBuf>, ServiceError> {
    let directory = directory()?;
    Ok(match unit {
        Unit::Daemon => vec![directory.join(SERVICE), directory.join(SOCKET)],
        Unit::Serve(name) => vec![directory.join(serve::called(name))],
    })
}

/// The names of the services of `serve` that are installed.
pub(super) fn serve_services() -> Vec<Name> {
    let entries = directory()
        .ok()
        .and_then(|directory| std::fs::read_dir(directory).ok());
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| serve::named(entry.file_name().to_str()?))
        .collect()
}

/// The unit by which clients know that the service is installed, whoever has put it there.
pub(super) fn installed() -> Option<PathBuf> {
    places::unit(SOCKET)
}

/// The units of a package for all users, where the user has none of his own.
pub(super) fn packaged() -> Option<Vec<PathBuf>> {
    let found: Vec<_> = [SERVICE, SOCKET]
        .into_iter()
        .map(places::unit)
        .collect::<Option<_>>()?;
    let own = directory().ok();
    found
        .iter()
        .all(|unit| unit.parent() != own.as_deref())
        .then_some(found)
}

/// Whether the units of a package are for this very executable and directory, so that there is
/// nothing to write.
fn is_packaged_for(packaged: &[PathBuf], service: &Service) -> bool {
    let [unit, _] = packaged else { return false };
    let unit = std::fs::read_to_string(unit).unwrap_or_default();
    let runs_it = binary_of(&unit).is_some_and(|binary| binary == service.binary);
    runs_it
        && !service.named
        && socket(packaged).is_some_and(|path| path == Path::new(&service.socket()))
}

pub(super) fn files(service: &Service) -> Result<Vec<File>, ServiceError> {
    if packaged().is_some_and(|packaged| is_packaged_for(&packaged, service)) {
        return Ok(Vec::new());
    }
    let texts = [service_unit(service), socket_unit(service)];
    Ok(paths(&Unit::Daemon)?
        .into_iter()
        .zip(texts)
        .map(|(path, text)| File { path, text })
        .collect())
}

/// The file of a service of `serve`.
pub(super) fn serve_file(
    name: &Name,
    service: &Service,
    served: &ServeCommand,
) -> Result<File, ServiceError> {
    Ok(File {
        path: directory()?.join(serve::called(name)),
        text: serve::unit(service, served),
    })
}

/// What people may ask for when a service of `serve` does not run.
pub(super) fn status_command(name: &Name) -> String {
    format!("`systemctl --user status {}`", serve::called(name))
}

/// What is wrong with a service of `serve` that is installed.
pub(super) fn serve_fault(name: &Name) -> Option<Fault> {
    let unit = serve::called(name);
    let asked = answer(&[
        "systemctl",
        "--user",
        "show",
        "--property=ActiveState",
        "--value",
        &unit,
    ]);
    let state = match asked {
        Ok(state) => state,
        Err(why) => {
            return Some(Fault {
                finding: format!("systemd does not say whether {unit} runs: {why}"),
                advice: format!("ask it where you are logged in: {}", status_command(name)),
                is_grave: false,
            });
        }
    };
    (state != "active").then(|| Fault {
        finding: format!("{unit} is {state}"),
        advice: format!(
            "see {}, then `systemctl --user restart {unit}`",
            status_command(name)
        ),
        is_grave: true,
    })
}

/// What systemd says of a service.
pub(super) fn unit_state(unit: &Unit) -> UnitState {
    // The daemon's is enabled by its socket, which starts it.
    let (service, first) = match unit {
        Unit::Daemon => (SERVICE.to_owned(), SOCKET.to_owned()),
        Unit::Serve(name) => (serve::called(name), serve::called(name)),
    };
    let property = |unit: &str, name: &str| {
        let asked = [
            "systemctl",
            "--user",
            "show",
            "--value",
            "--property",
            name,
            unit,
        ];
        answer(&asked).ok().filter(|said| !said.is_empty())
    };
    let listens = || property(SOCKET, "ActiveState").map(|state| state == "active");
    UnitState {
        enabled: property(&first, "UnitFileState").map(|state| state.starts_with("enabled")),
        listens: matches!(unit, Unit::Daemon).then(listens).flatten(),
        pid: property(&service, "MainPID")
            .and_then(|pid| pid.parse().ok())
            .filter(|pid| *pid != 0),
    }
}

/// Starts a service anew.
pub(super) fn restart_step(unit: &Unit) -> Step {
    let unit = match unit {
        Unit::Daemon => SERVICE.to_owned(),
        Unit::Serve(name) => serve::called(name),
    };
    Step::new(&["systemctl", "--user", "restart", &unit])
}

/// Where a service's standard error goes. The user's own settings may have changed that.
pub(super) fn log(unit: &Unit) -> Log {
    let unit = match unit {
        Unit::Daemon => SERVICE.to_owned(),
        Unit::Serve(name) => serve::called(name),
    };
    let asked = [
        "systemctl",
        "--user",
        "show",
        "--property=StandardOutput",
        "--property=StandardError",
        &unit,
    ];
    let said = answer(&asked).unwrap_or_default();
    let goes = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
    };
    let (key, mut to) = match ("StandardError=", goes("StandardError=")) {
        (_, "inherit") => ("StandardOutput=", goes("StandardOutput=")),
        found => found,
    };
    let files;
    if ["file", "append", "truncate"].contains(&to) {
        // systemd 252 does not say which file. The last setting counts.
        files = answer(&["systemctl", "--user", "cat", &unit]).unwrap_or_default();
        let mut settings = files.lines().rev();
        to = settings
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or(to);
    }
    match to.split_once(':') {
        Some(("file" | "append" | "truncate", path)) => Log::File(PathBuf::from(path)),
        Some(_) => Log::Nowhere(format!(
            "the standard error of {unit} goes to {to}; look there"
        )),
        None if ["null", "tty", "socket"].contains(&to) => Log::Nowhere(format!(
            "the standard error of {unit} goes to {to}; `systemctl --user edit {unit}` changes that"
        )),
        None => Log::Journal(unit),
    }
}

/// The executable that the installed service starts.
pub(super) fn executable() -> Option<PathBuf> {
    let unit = std::fs::read_to_string(places::unit(SERVICE)?).ok()?;
    binary_of(&unit).map(PathBuf::from)
}

/// What is wrong with the installed service, whose executable is there, and what to do about it.
pub(super) fn fault() -> Option<Fault> {
    let fault = |finding: String, advice: &str| {
        let is_grave = finding.ends_with("has failed");
        Some(Fault {
            finding,
            advice: advice.into(),
            is_grave,
        })
    };
    match answer(&[
        "systemctl",
        "--user",
        "show",
        "--property=ActiveState",
        "--value",
        SOCKET,
    ])
    .as_deref()
    {
        Ok("active") => None,
        Ok("failed") => fault(
            format!("{SOCKET} has failed"),
            "see `systemctl --user status mcp-sessiond.service`, then `systemctl --user restart mcp-sessiond.socket`",
        ),
        Ok(state) => fault(
            format!("{SOCKET} is {state}"),
            "`systemctl --user enable --now mcp-sessiond.socket`",
        ),
        Err(_) => fault(
            "installed, but no systemd user manager can be reached from here".into(),
            "nothing, if this is not your login session: clients start a daemon on demand",
        ),
    }
}

/// The executable that a unit starts.
fn binary_of(unit: &str) -> Option<String> {
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))?;
    let binary = line.strip_suffix(" run")?.trim_matches('"');
    // What systemd would expand first is not looked for.
    (!binary.contains(['%', '\\', '$'])).then(|| binary.to_owned())
}

fn service_unit(service: &Service) -> String {
    let unit = fill(
        SERVICE_UNIT,
        "ExecStart=",
        &format!("ExecStart={} run", quoted(&service.binary)),
    );
    place(unit, service)
}

/// The unit with the daemon's directory, where `MCP_SESSIOND_DIR` has named one.
fn place(unit: String, service: &Service) -> String {
    if !service.named {
        return unit;
    }
    let variable = format!("{DIRECTORY_VARIABLE}={}", service.directory);
    fill(
        &unit,
        "UnsetEnvironment=",
        &format!("Environment={}", quoted(&variable)),
    )
}

fn socket_unit(service: &Service) -> String {
    fill(
        SOCKET_UNIT,
        LISTEN,
        &format!("{LISTEN}{}", service.socket().replace('%', "%%")),
    )
}

const LISTEN: &str = "ListenStream=";

/// The unit with another line in place of the one that begins with `key`.
fn fill(unit: &str, key: &str, line: &str) -> String {
    let lines = unit
        .lines()
        .map(|known| if known.starts_with(key) { line } else { known });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// A word of a setting that is split into words (systemd.syntax(7)), with its specifiers (`%`)
/// disarmed.
fn quoted(word: &str) -> String {
    let escaped = word
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('%', "%%");
    let escaped = escaped.replace('\n', r"\n").replace('\t', r"\t");
    if escaped == word && !word.is_empty() && !word.contains([' ', '\'', ';']) {
        escaped
    } else {
        format!("\"{escaped}\"")
    }
}

/// What has to be done once the units are there.
#[expect(clippy::unnecessary_wraps, reason = "launchd's can fail")]
pub(super) fn steps(unit: &Unit, before: Former, start: bool) -> Result<Vec<Step>, ServiceError> {
    let mut steps = vec![Step::new(&["systemctl", "--user", "daemon-reload"])];
    if let Unit::Serve(name) = unit {
        let unit = serve::called(name);
        steps.push(Step::new(&[
            "systemctl",
            "--user",
            "--quiet",
            "enable",
            &unit,
        ]));
        if start {
            steps.push(Step::new(&["systemctl", "--user", "restart", &unit]));
        }
        return Ok(steps);
    }
    if !start {
        steps.push(Step::new(&[
            "systemctl",
            "--user",
            "--quiet",
            "enable",
            SOCKET,
        ]));
        return Ok(steps);
    }
    steps.push(Step::new(&[
        "systemctl",
        "--user",
        "--quiet",
        "enable",
        "--now",
        SOCKET,
    ]));
    match before {
        Former::Absent => {}
        // The service goes with the socket that it requires.
        Former::Different => steps.push(Step::new(&["systemctl", "--user", "restart", SOCKET])),
        // The executable may be a new one. The socket listens on meanwhile, so nobody is refused.
        Former::Same => steps.push(Step::new(&["systemctl", "--user", "try-restart", SERVICE])),
    }
    Ok(steps)
}

/// What has to be done before the units go.
#[expect(clippy::unnecessary_wraps, reason = "launchd's can fail")]
pub(super) fn removal_steps(unit: &Unit) -> Result<Vec<Step>, ServiceError> {
    if let Unit::Serve(name) = unit {
        let unit = serve::called(name);
        return Ok(vec![Step::new(&[
            "systemctl",
            "--user",
            "--quiet",
            "disable",
            "--now",
            &unit,
        ])]);
    }
    Ok(vec![
        Step::new(&["systemctl", "--user", "--quiet", "disable", "--now", SOCKET]),
        Step::new(&["systemctl", "--user", "stop", SERVICE]),
    ])
}

/// What has to be done when they are gone.
pub(super) fn cleanup_steps(unit: &Unit) -> Vec<Step> {
    let units = match unit {
        Unit::Daemon => vec![SERVICE.to_owned(), SOCKET.to_owned()],
        Unit::Serve(name) => vec![serve::called(name)],
    };
    let mut forgotten = vec!["systemctl", "--user", "--quiet", "reset-failed"];
    forgotten.extend(units.iter().map(String::as_str));
    vec![
        Step::new(&["systemctl", "--user", "daemon-reload"]),
        Step::new(&forgotten).on_failure(OnFailure::Ignored),
    ]
}

/// The socket that the service was installed for.
pub(super) fn socket(files: &[PathBuf]) -> Option<PathBuf> {
    let unit = std::fs::read_to_string(files.last()?).ok()?;
    let path = unit.lines().find_map(|line| line.strip_prefix(LISTEN))?;
    let path = match path.strip_prefix("%t/") {
        Some(path) => format!("/run/user/{}/{path}", nix::unistd::getuid()),
        None => path.replace("%%", "%"),
    };
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(binary: &str, directory: &str, named: bool) -> Service {
        Service {
            binary: binary.into(),
            directory: directory.into(),
            named,
        }
    }

    fn lines<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
        unit.lines().filter(|line| line.starts_with(key)).collect()
    }

    #[test]
    fn a_usual_place() {
        let service = service(
            "/usr/bin/mcp-sessiond",
            "/run/user/1000/mcp-sessiond",
            false,
        );
        let unit = service_unit(&service);
        assert_eq!(
            lines(&unit, "ExecStart="),
            ["ExecStart=/usr/bin/mcp-sessiond run"]
        );
        assert_eq!(
            lines(&unit, "UnsetEnvironment="),
            ["UnsetEnvironment=MCP_SESSIOND_DIR"]
        );
        assert!(lines(&unit, "Environment=").is_empty());
        let unit = socket_unit(&service);
        assert_eq!(
            lines(&unit, "ListenStream="),
            ["ListenStream=/run/user/1000/mcp-sessiond/daemon.sock"]
        );
    }

    #[test]
    fn an_odd_place() {
        let service = service(r#"/opt/a "b" \ %c/mcp-sessiond"#, "/tmp/100% mine", true);
        let unit = service_unit(&service);
        assert_eq!(
            lines(&unit, "ExecStart="),
            [r#"ExecStart="/opt/a \"b\" \\ %%c/mcp-sessiond" run"#]
        );
        assert_eq!(
            lines(&unit, "Environment="),
            [r#"Environment="MCP_SESSIOND_DIR=/tmp/100%% mine""#]
        );
        assert!(lines(&unit, "UnsetEnvironment=").is_empty(), "it would win");
        let unit = socket_unit(&service);
        assert_eq!(
            lines(&unit, "ListenStream="),
            ["ListenStream=/tmp/100%% mine/daemon.sock"]
        );
    }
}
