//! launchd's agent.
#![cfg_attr(not(target_os = "macos"), allow(dead_code, reason = "compiled for its tests"))]

use std::path::PathBuf;
use std::process::Command;

use super::{Ailment, Before, Failure, File, Problem, Service, Step, answer};

const LABEL: &str = "io.github.mcp-sessiond";

/// With a user's paths below `/Users/YOU`, in place of which the real ones are put.
const PLIST: &str = include_str!("../../launchd/io.github.mcp-sessiond.plist");

const LAUNCHCTL: &str = "/bin/launchctl";

pub(super) fn prepare(_: &mut Command) {}

/// The domain of the user's graphical session, in which agents live.
fn domain() -> String {
    format!("gui/{}", nix::unistd::getuid())
}

/// Makes sure that the domain is there: a login over SSH alone makes none.
pub(super) fn reach() -> Result<(), Problem> {
    answer(&[LAUNCHCTL, "print", &domain()]).map(drop).map_err(|error| {
        Problem::NoManager(format!(
            "launchd has no graphical session of this user ({error}); log in at the screen, then try again. Without \
             it nothing is lost: clients start the daemon on demand"
        ))
    })
}

fn home() -> Result<PathBuf, Problem> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| Problem::Usage("HOME does not say where launch agents belong".into()))
}

pub(super) fn paths() -> Result<Vec<PathBuf>, Problem> {
    Ok(vec![home()?.join("Library/LaunchAgents").join(format!("{LABEL}.plist"))])
}

pub(super) fn files(service: &Service) -> Result<Vec<File>, Problem> {
    let log = super::writable(&home()?.join("Library/Logs/mcp-sessiond.log"))?;
    let text = plist(service, &log);
    Ok(paths()?.into_iter().map(|path| File { path, text: text.clone() }).collect())
}

/// The directory is always said: launchd's environment may have the variable from `launchctl setenv`.
/// What is wrong with the installed agent, and what to do about it.
pub(super) fn ailment() -> Option<Ailment> {
    let known = answer(&[LAUNCHCTL, "print", &format!("{}/{LABEL}", domain())]);
    known.is_err().then(|| Ailment {
        finding: "installed, but launchd does not know the agent".into(),
        advice: "`mcp-sessiond install` again, in a session of this user's".into(),
    })
}

fn plist(service: &Service, log: &str) -> String {
    let filled = [
        ("/Users/YOU/.cargo/bin/mcp-sessiond", service.binary.as_str()),
        ("/Users/YOU/Library/Application Support/mcp-sessiond/daemon.sock", &service.socket()),
        ("/Users/YOU/Library/Application Support/mcp-sessiond", &service.directory),
        ("/Users/YOU/Library/Logs/mcp-sessiond.log", log),
    ];
    filled.iter().fold(PLIST.to_owned(), |plist, (example, path)| {
        plist.replace(&format!("<string>{example}</string>"), &format!("<string>{}</string>", escaped(path)))
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What has to be done once the file is there. launchd reads the agents of a user at each login.
pub(super) fn steps(_: Before, start: bool) -> Result<Vec<Step>, Problem> {
    let (domain, target) = (domain(), format!("{}/{LABEL}", domain()));
    let mut steps = vec![Step::new(&[LAUNCHCTL, "enable", &target])];
    if start {
        let path = super::writable(&paths()?.pop().unwrap_or_default())?;
        steps.push(Step::new(&[LAUNCHCTL, "bootout", &target]).or(Failure::Ignored));
        // Before macOS 26, bootout returns before it is done, and until then this fails with error 5.
        steps.push(Step::new(&[LAUNCHCTL, "bootstrap", &domain, &path]).or(Failure::Passing));
    }
    Ok(steps)
}

/// What has to be done before the file goes.
#[expect(clippy::unnecessary_wraps, reason = "as systemd's")]
pub(super) fn farewell() -> Result<Vec<Step>, Problem> {
    Ok(vec![Step::new(&[LAUNCHCTL, "bootout", &format!("{}/{LABEL}", domain())]).or(Failure::Ignored)])
}

/// What has to be done when it is gone.
pub(super) fn aftermath() -> Vec<Step> {
    Vec::new()
}

/// The socket that the service was installed for.
pub(super) fn socket(files: &[PathBuf]) -> Option<PathBuf> {
    let plist = std::fs::read_to_string(files.last()?).ok()?;
    let (_, rest) = plist.split_once("<key>SockPathName</key>")?;
    let (_, rest) = rest.split_once("<string>")?;
    let (path, _) = rest.split_once("</string>")?;
    Some(PathBuf::from(path.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_template_is_filled() {
        let service = Service {
            binary: "/opt/bin/mcp-sessiond".into(),
            directory: "/Users/me/Library/R&D <x>".into(),
            named: false,
        };
        let plist = plist(&service, "/Users/me/Library/Logs/mcp-sessiond.log");
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
    }
}
