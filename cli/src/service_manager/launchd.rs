//! launchd's agent.
#![cfg_attr(
    not(target_os = "macos"),
    allow(dead_code, reason = "compiled for its tests")
)]

mod serve;

use std::path::PathBuf;

use mcp_sessiond_proto::paths as places;

use super::files::{File, Former};
use super::serve_unit::{Name, ServeCommand, Unit};
use super::steps::{OnFailure, Step, answer};
use super::{Fault, Log, Service, ServiceError, UnitState};

pub(super) const NAME: &str = "launchd";

const LABEL: &str = "io.github.mcp-sessiond";

/// With a user's paths below `/Users/YOU`, in place of which the real ones are put.
const PLIST: &str = include_str!("../../../launchd/io.github.mcp-sessiond.plist");

const LAUNCHCTL: &str = "/bin/launchctl";

/// The domain of the user's graphical session, in which agents live.
fn domain() -> String {
    format!("gui/{}", nix::unistd::getuid())
}

/// Makes sure that the domain is there: a login over SSH alone makes none.
pub(super) fn check_reachable() -> Result<(), ServiceError> {
    answer(&[LAUNCHCTL, "print", &domain()]).map(drop).map_err(|error| {
        ServiceError::NoManager(format!(
            "launchd has no graphical session of this user ({error}); log in at the screen, then try again. Without \
             it nothing is lost: clients start the daemon on demand"
        ))
    })
}

/// What is said about a logout: an agent belongs to a graphical session, as its user expects.
pub(super) fn at_logout(_: bool) -> Option<String> {
    None
}

fn no_home() -> ServiceError {
    ServiceError::Usage("this user has no home directory, in which launch agents belong".into())
}

/// The folder of the user's agents.
fn agents() -> Result<PathBuf, ServiceError> {
    places::agents().ok_or_else(no_home)
}

/// An agent's label.
fn label(unit: &Unit) -> String {
    match unit {
        Unit::Daemon => LABEL.to_owned(),
        Unit::Serve(name) => serve::called(name),
    }
}

fn target(unit: &Unit) -> String {
    format!("{}/{}", domain(), label(unit))
}

pub(super) fn paths(unit: &Unit) -> Result<Vec<PathBuf>, ServiceError> {
    Ok(vec![agents()?.join(format!("{}.plist", label(unit)))])
}

/// The agent by which clients know that the service is installed.
pub(super) fn installed() -> Option<PathBuf> {
    paths(&Unit::Daemon)
        .ok()?
        .pop()
        .filter(|path| path.is_file())
}

/// Packages bring no agents.
pub(super) fn packaged() -> Option<Vec<PathBuf>> {
    None
}

/// The names of the services of `serve` that are installed.
pub(super) fn serve_services() -> Vec<Name> {
    let entries = agents()
        .ok()
        .and_then(|directory| std::fs::read_dir(directory).ok());
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| serve::named(entry.file_name().to_str()?))
        .collect()
}

/// Where a new agent's standard error is to go.
fn log_path(unit: &Unit) -> Result<PathBuf, ServiceError> {
    let name = match unit {
        Unit::Daemon => "mcp-sessiond.log".to_owned(),
        Unit::Serve(name) => format!("mcp-sessiond-serve-{}.log", name.as_str()),
    };
    let user = places::user_directories().ok_or_else(no_home)?;
    Ok(user.home.join("Library/Logs").join(name))
}

/// What launchd says of an agent. One that it knows is there at each login.
pub(super) fn unit_state(unit: &Unit) -> UnitState {
    let said = answer(&[LAUNCHCTL, "print", &target(unit)]);
    let pid = said
        .iter()
        .flat_map(|said| said.lines())
        .find_map(|line| line.trim().strip_prefix("pid = "));
    UnitState {
        enabled: Some(said.is_ok()),
        listens: matches!(unit, Unit::Daemon).then_some(said.is_ok()),
        pid: pid.and_then(|pid| pid.parse().ok()),
    }
}

/// Starts an agent anew.
pub(super) fn restart_step(unit: &Unit) -> Step {
    Step::new(&[LAUNCHCTL, "kickstart", "-k", &target(unit)])
}

/// Where an agent's standard error goes. The user may have changed that.
pub(super) fn log(unit: &Unit) -> Log {
    let agent = paths(unit)
        .ok()
        .and_then(|mut paths| std::fs::read_to_string(paths.pop()?).ok());
    match agent.as_deref().and_then(log_of) {
        Some(path) => Log::File(path),
        None => Log::Nowhere(format!(
            "the agent {} does not say where it logs (StandardErrorPath)",
            label(unit)
        )),
    }
}

/// The file that an agent says.
fn log_of(agent: &str) -> Option<PathBuf> {
    let (_, rest) = agent.split_once("<key>StandardErrorPath</key>")?;
    let (_, rest) = rest.split_once("<string>")?;
    let (path, _) = rest.split_once("</string>")?;
    Some(PathBuf::from(unescaped(path)))
}

pub(super) fn files(service: &Service) -> Result<Vec<File>, ServiceError> {
    let log = super::writable(&log_path(&Unit::Daemon)?)?;
    let text = plist(service, &log);
    Ok(paths(&Unit::Daemon)?
        .into_iter()
        .map(|path| File {
            path,
            text: text.clone(),
        })
        .collect())
}

/// The file of a service of `serve`.
pub(super) fn serve_file(
    name: &Name,
    service: &Service,
    served: &ServeCommand,
) -> Result<File, ServiceError> {
    let unit = Unit::Serve(name.clone());
    let log = super::writable(&log_path(&unit)?)?;
    let path = paths(&unit)?.pop().unwrap_or_default();
    Ok(File {
        path,
        text: serve::plist(name, service, served, &log),
    })
}

/// What people may ask for when a service of `serve` does not run.
pub(super) fn status_command(name: &Name) -> String {
    log_path(&Unit::Serve(name.clone()))
        .unwrap_or_default()
        .display()
        .to_string()
}

/// What is wrong with a service of `serve` that is installed.
pub(super) fn serve_fault(name: &Name) -> Option<Fault> {
    let unit = Unit::Serve(name.clone());
    let known = answer(&[LAUNCHCTL, "print", &target(&unit)]);
    let runs = known.is_ok_and(|said| said.lines().any(|line| line.trim() == "state = running"));
    (!runs).then(|| Fault {
        finding: format!("{} does not run", label(&unit)),
        advice: format!(
            "see {}, then `launchctl kickstart {}`",
            status_command(name),
            target(&unit)
        ),
        is_grave: true,
    })
}

/// The executable that the installed agent starts.
pub(super) fn executable() -> Option<PathBuf> {
    let agent = std::fs::read_to_string(paths(&Unit::Daemon).ok()?.pop()?).ok()?;
    binary_of(&agent).map(PathBuf::from)
}

/// The first word of the command line in an agent.
fn binary_of(agent: &str) -> Option<String> {
    let (_, words) = agent.split_once("<key>ProgramArguments</key>")?;
    let (_, first) = words.split_once("<string>")?;
    let (first, _) = first.split_once("</string>")?;
    Some(unescaped(first))
}

/// What is wrong with the installed agent, and what to do about it.
pub(super) fn fault() -> Option<Fault> {
    let known = answer(&[LAUNCHCTL, "print", &target(&Unit::Daemon)]);
    known.is_err().then(|| Fault {
        finding: "installed, but launchd does not know the agent".into(),
        advice: "`mcp-sessiond install` again, in a session of this user's".into(),
        is_grave: false,
    })
}

/// The directory is always said: launchd's environment may have the variable from
/// `launchctl setenv`.
fn plist(service: &Service, log: &str) -> String {
    fill(
        PLIST,
        &[
            ("/Users/YOU/.cargo/bin/mcp-sessiond", &service.binary),
            (
                "/Users/YOU/Library/Application Support/mcp-sessiond/daemon.sock",
                &service.socket(),
            ),
            (
                "/Users/YOU/Library/Application Support/mcp-sessiond",
                &service.directory,
            ),
            ("/Users/YOU/Library/Logs/mcp-sessiond.log", log),
        ],
    )
}

/// The agent with these values in place of the examples.
fn fill(plist: &str, values: &[(&str, &str)]) -> String {
    values
        .iter()
        .fold(plist.to_owned(), |plist, (example, value)| {
            plist.replace(
                &format!("<string>{example}</string>"),
                &format!("<string>{}</string>", escaped(value)),
            )
        })
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// What has to be done once the file is there. launchd reads the agents of a user at each login.
pub(super) fn steps(unit: &Unit, _: Former, start: bool) -> Result<Vec<Step>, ServiceError> {
    let (domain, target) = (domain(), target(unit));
    let mut steps = vec![Step::new(&[LAUNCHCTL, "enable", &target])];
    if start {
        let path = super::writable(&paths(unit)?.pop().unwrap_or_default())?;
        steps.push(Step::new(&[LAUNCHCTL, "bootout", &target]).on_failure(OnFailure::Ignored));
        // Before macOS 26, bootout returns before it is done, and until then this fails with error
        // 5.
        steps.push(
            Step::new(&[LAUNCHCTL, "bootstrap", &domain, &path]).on_failure(OnFailure::Passing),
        );
    }
    Ok(steps)
}

/// What has to be done before the file goes.
#[expect(clippy::unnecessary_wraps, reason = "as systemd's")]
pub(super) fn removal_steps(unit: &Unit) -> Result<Vec<Step>, ServiceError> {
    Ok(vec![
        Step::new(&[LAUNCHCTL, "bootout", &target(unit)]).on_failure(OnFailure::Ignored),
    ])
}

/// What has to be done when it is gone.
pub(super) fn cleanup_steps(_: &Unit) -> Vec<Step> {
    Vec::new()
}

/// The socket that the service was installed for.
pub(super) fn socket(files: &[PathBuf]) -> Option<PathBuf> {
    let plist = std::fs::read_to_string(files.last()?).ok()?;
    let (_, rest) = plist.split_once("<key>SockPathName</key>")?;
    let (_, rest) = rest.split_once("<string>")?;
    let (path, _) = rest.split_once("</string>")?;
    Some(PathBuf::from(unescaped(path)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use serde_json::{Value, json};

    use super::*;

    /// What an agent says, as the plist parser of Python reads it.
    pub(super) fn parsed(plist: &str) -> Value {
        let program = "import json, plistlib, sys; print(json.dumps(plistlib.loads(sys.stdin.buffer.read())))";
        let mut python = Command::new("python3")
            .args(["-I", "-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut input = python.stdin.take().expect("a pipe");
        input.write_all(plist.as_bytes()).expect("written");
        drop(input);
        let output = python.wait_with_output().expect("it ends");
        assert!(output.status.success(), "not well-formed: {plist}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    #[test]
    #[ignore = "needs python3"]
    fn every_path_of_the_template_is_filled() {
        let service = Service {
            binary: "/opt/bin/mcp-sessiond".into(),
            directory: "/Users/me/Library/R&D <x>".into(),
            named: false,
        };
        let plist = plist(&service, "/Users/me/Library/Logs/mcp-sessiond.log");
        assert_eq!(binary_of(&plist).as_deref(), Some("/opt/bin/mcp-sessiond"));
        assert_eq!(
            log_of(&plist),
            Some(PathBuf::from("/Users/me/Library/Logs/mcp-sessiond.log"))
        );
        let values = plist.lines().filter(|line| line.contains("<string>/"));
        let values: Vec<&str> = values.map(str::trim).collect();
        assert_eq!(
            values,
            [
                "<string>/opt/bin/mcp-sessiond</string>",
                "<string>/Users/me/Library/R&amp;D &lt;x&gt;</string>",
                "<string>/Users/me/Library/R&amp;D &lt;x&gt;/daemon.sock</string>",
                "<string>/Users/me/Library/Logs/mcp-sessiond.log</string>",
            ]
        );
        let directory = "/Users/me/Library/R&D <x>";
        assert_eq!(
            parsed(&plist)["EnvironmentVariables"],
            json!({"MCP_SESSIOND_DIR": directory})
        );
    }
}
