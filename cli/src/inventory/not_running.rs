//! Servers that do not run while their host is connected: somebody has stopped them, or nobody has
//! called them yet. The daemon knows their sessions; what they are is in their fronts' arguments.

use std::ffi::OsString;

use mcp_sessiond_client::{Connection, Directory, SessionId};
use mcp_sessiond_process::{self as process, PinnedProcess};
use mcp_sessiond_proto::debug::{HostInfo, Page, SessionInfo};
use mcp_sessiond_proxy::program::display_name;
use mcp_sessiond_proxy::unkept;
use serde::Serialize;

use super::{Host, Server, Unready, host_title_of, known_of};
use crate::calls::{ANSWER_TIMEOUT, all_pages};
use crate::hosts::names::EntryNames;
use crate::servers::is_http;
use crate::ui::table::printable;

/// A server that does not run, whose host is connected.
#[derive(Debug, Serialize)]
pub(crate) struct NotRunning {
    /// What its user calls it.
    pub(crate) server: String,
    pub(crate) session: SessionId,
    /// The pid of its host; none for what the user has named.
    pub(crate) host: Option<u32>,
    /// What people call its host.
    pub(crate) host_name: Option<String>,
    /// The pid of its front.
    pub(crate) front: u32,
}

impl NotRunning {
    /// The first columns of its line in the table, which are all that there is to say.
    pub(crate) fn row(&self) -> Vec<String> {
        let host = match (&self.host_name, self.host) {
            (Some(name), Some(pid)) => printable(&format!("{name} {pid}")),
            (_, Some(pid)) => pid.to_string(),
            (_, None) => "-".to_owned(),
        };
        vec![printable(&self.server), host, "not running".to_owned()]
    }

    /// Why nothing can be done to it, and when it runs again.
    pub(crate) fn sentence(&self) -> String {
        let host = self.host_name.as_deref().unwrap_or("its host");
        format!(
            "{} is not running; it starts when {host} next calls it",
            printable(&self.server)
        )
    }
}

/// All of them. What can't be found out is none.
pub(super) async fn read(
    connection: &Connection,
    directory: &Directory,
    (servers, unready): (&[Server], &[Unready]),
    hosts: &[HostInfo],
    names: &mut EntryNames,
) -> Vec<NotRunning> {
    let page = |after| connection.list_sessions(ANSWER_TIMEOUT, Page { after });
    let sessions = all_pages(page, |info| &info.session).await;
    let unkept = unkept::list(directory.path());
    let is_listed = |session: &SessionId| {
        servers
            .iter()
            .any(|server| server.session.as_ref() == Some(session))
            || unready.iter().any(|unready| unready.session == *session)
    };
    let mut found = Vec::new();
    for SessionInfo {
        session,
        host,
        holder,
        ..
    } in sessions.unwrap_or_default()
    {
        let Some(front) = holder.filter(|_| !is_listed(&session)) else {
            continue;
        };
        if unkept.iter().any(|unkept| unkept.process.pid == front) {
            continue;
        }
        let owner = hosts.iter().find(|one| one.pid == host && host != 0);
        let host_name = owner.map(host_title_of);
        let of_host = owner.and_then(known_of).and_then(Host::of);
        let named = of_host.map(|of_host| (of_host, host));
        if let Some(server) = server_of(front, named, names) {
            found.push(NotRunning {
                server,
                session,
                host: (host != 0).then_some(host),
                host_name,
                front,
            });
        }
    }
    found
}

/// What the user calls the one server of this process, if it is a front that has one on this
/// machine.
fn server_of(front: u32, host: Option<(Host, u32)>, names: &mut EntryNames) -> Option<String> {
    let front = PinnedProcess::open(front).ok()?;
    let arguments = process::arguments_of(&front).ok().flatten()?;
    let words: Vec<String> = arguments
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let (label, command) = front_of(&words)?;
    if let Some(label) = label {
        return Some(label.to_owned());
    }
    let named = host.and_then(|(host, pid)| {
        // A front tells nobody its own, unless that asks as root.
        let hosts = || process::directory_of(&PinnedProcess::open(pid).ok()?).ok();
        let directory = process::directory_of(&front).ok().or_else(hosts);
        names.of(host, command, directory.as_deref())
    });
    let (program, rest) = command.split_first()?;
    let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
    Some(named.unwrap_or_else(|| display_name::of(program.as_ref(), &rest)))
}

/// The name that a front's arguments give the server, and the server's command. None: these are not
/// those of a front with one server on this machine, or no `--` stands before its command.
fn front_of(words: &[String]) -> Option<(Option<&str>, &[String])> {
    let [_, verb, rest @ ..] = words else {
        return None;
    };
    let at = rest.iter().position(|word| word == "--")?;
    let (options, command) = (&rest[..at], &rest[at + 1..]);
    let first = command.first().filter(|_| verb == "wrap")?;
    if is_http(first) || first.starts_with('@') {
        return None;
    }
    let value = |option: &str| {
        let at = options.iter().position(|word| word == option)?;
        options.get(at + 1).map(String::as_str)
    };
    Some((value("--name").or_else(|| value("--entry")), command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_s_arguments_say_what_its_server_is() {
        for (line, expected) in [
            (
                "m wrap --entry browser -- npx x",
                Some((Some("browser"), "npx x")),
            ),
            (
                "m wrap --name b --take -- x --entry y",
                Some((Some("b"), "x --entry y")),
            ),
            ("m wrap --lazy -- x", Some((None, "x"))),
            ("m wrap -- https://example.org/mcp", None),
            ("m wrap -- @browser", None),
            ("m wrap --all", None),
            ("m serve -- x", None),
            ("m", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = front_of(&words).map(|(name, command)| (name, command.join(" ")));
            let found = found.as_ref().map(|(name, command)| (*name, &**command));
            assert_eq!(found, expected, "{line}");
        }
    }
}
