//! The table of hosts: what each does to its servers decides what a claim of theirs gets.

use mcp_sessiond_process::CommandLine;
use mcp_sessiond_proto::Siblings;
use serde::{Deserialize, Serialize};

/// A host, and what counts for claims of its servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRow {
    /// The file name of its executable, which may end in `*`, or its absolute path. Of an
    /// interpreted program, the interpreter's.
    pub executable: String,
    /// A part of the path of one of its first arguments: of an interpreted program, the name of its
    /// package or script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// What its servers get, unless they ask for something else.
    pub siblings: Siblings,
}

/// Hosts whose executables are their own. Claude Desktop starts each server twice from one process,
/// for its chat and for its agent panel, and closes one before it starts it again. One process of
/// Codex has all threads, each with servers of its own (run: 0.169), and so has one process of
/// Goose's desktop application (read, not run). Docker's gateway serves several clients.
const NAMED: [(&str, Siblings); 6] = [
    ("Claude", Siblings::Successor),
    ("claude-desktop", Siblings::Successor),
    ("codex", Siblings::Never),
    ("codex-*", Siblings::Never),
    ("goosed", Siblings::Never),
    ("docker-mcp", Siblings::Never),
];

/// Programs in Node and Python that serve several clients from one process, and don't say which to
/// their servers.
const INTERPRETED: [&str; 8] = [
    "supergateway",
    "mcp-proxy",
    "mcp_proxy",
    "mcphub",
    "metamcp",
    "librechat",
    "LibreChat",
    "@librechat",
];

const INTERPRETERS: [&str; 5] = ["node", "nodejs", "bun", "python*", "deno"];

/// What counts for this host: what the configuration says, else the built-in table.
pub(super) fn siblings_of(configured: &[HostRow], host: &CommandLine) -> Option<Siblings> {
    let of_row = |row: &&HostRow| {
        host.is_called(&row.executable)
            && row.argument.as_deref().is_none_or(|part| host.runs(part))
    };
    let configured = configured.iter().find(of_row).map(|row| row.siblings);
    let named = || {
        NAMED
            .iter()
            .find(|(name, _)| host.is_called(name))
            .map(|(_, siblings)| *siblings)
    };
    let interpreted = || {
        let is_interpreter = INTERPRETERS.iter().any(|name| host.is_called(name));
        (is_interpreter && INTERPRETED.iter().any(|part| host.runs(part)))
            .then_some(Siblings::Never)
    };
    configured.or_else(named).or_else(interpreted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(executable: &str, arguments: &[&str]) -> CommandLine {
        CommandLine::new(
            executable,
            arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
        )
    }

    #[test]
    fn what_is_known_of_hosts() {
        let siblings =
            |executable, arguments: &[&str]| siblings_of(&[], &host(executable, arguments));
        assert_eq!(
            siblings("/Applications/Claude.app/Contents/MacOS/Claude", &[]),
            Some(Siblings::Successor)
        );
        assert_eq!(siblings("/usr/bin/claude", &["claude"]), None);
        assert_eq!(
            siblings(
                "/opt/codex-x86_64-unknown-linux-musl",
                &["codex", "app-server"]
            ),
            Some(Siblings::Never)
        );
        let gateway = "/home/u/.npm/_npx/1/node_modules/.bin/supergateway";
        assert_eq!(
            siblings("/usr/bin/node", &["node", gateway, "--stdio", "x"]),
            Some(Siblings::Never)
        );
        assert_eq!(
            siblings("/usr/bin/python3.11", &["python", "-m", "mcp_proxy"]),
            Some(Siblings::Never)
        );
        assert_eq!(
            siblings("/usr/bin/node", &["node", "/srv/my-supergateway-notes.js"]),
            None
        );
        assert_eq!(siblings("/usr/bin/cat", &["cat", "supergateway"]), None);
    }

    #[test]
    fn the_configuration_comes_first() {
        let row = HostRow {
            executable: "codex".into(),
            argument: Some("exec".into()),
            siblings: Siblings::Fresh,
        };
        assert_eq!(
            siblings_of(
                std::slice::from_ref(&row),
                &host("/bin/codex", &["codex", "exec"])
            ),
            Some(Siblings::Fresh)
        );
        assert_eq!(
            siblings_of(&[row], &host("/bin/codex", &["codex", "app-server"])),
            Some(Siblings::Never)
        );
    }
}
