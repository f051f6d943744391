//! Which variables of a server's environment say what it is for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use mcp_sessiond_identity::digest;

use super::launchers::{Table, matches};

/// Bytes of a digest that are enough to see that two values differ.
const DIGEST_SHOWN: usize = 8;

/// Variables in which a host tells its servers the conversation that they serve.
const CONVERSATION_VARIABLES: [&str; 1] = ["CLAUDE_CODE_SESSION_ID"];

/// Variables that differ between two starts of the same server, and say nothing about what it is
/// for, and that the recipe of the version before did not know as such.
pub(super) const NEWLY_IGNORED_VARIABLES: [&str; 3] = [
    // opencode 1.18 has it once it has loaded a provider, and hands it to the servers that it
    // starts from then on.
    "npm_config_user_agent",
    // Claude Code 2.1 has the conversation in these, too: it changes them at `/clear`.
    "CLAUDE_CODE_CHILD_NOTES_DIR",
    "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
];

/// Variables that differ between two starts of the same server, and say nothing about what it is
/// for.
///
/// Those that npx and npm add (`npm_*`) are not among them: they differ only where package or
/// settings do (measured with npm 11.19).
pub(super) const IGNORED_VARIABLES: [&str; 20] = [
    // Shells keep account of themselves. The directory is part of the key anyway.
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    // systemd numbers each start of a unit, and names descriptors and pids of that one start.
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    // Node numbers the channel to a child, and the workers of a cluster.
    "NODE_CHANNEL_FD",
    "NODE_UNIQUE_ID",
    // Tracing names the one call that started the process (OpenTelemetry, environment variables as
    // carriers).
    "TRACEPARENT",
    "TRACESTATE",
];

/// Whether a host tells its servers the conversation in this variable.
pub(super) fn is_conversation(name: &str, table: &Table) -> bool {
    CONVERSATION_VARIABLES.contains(&name)
        || table
            .conversation_variables
            .iter()
            .any(|known| known == name)
}

/// Whether this variable says nothing about what a server is for.
pub(super) fn is_ignored(name: &str, table: &Table) -> bool {
    NEWLY_IGNORED_VARIABLES.contains(&name) || was_ignored(name, table)
}

/// The same by the recipe of the version before.
pub(super) fn was_ignored(name: &str, table: &Table) -> bool {
    IGNORED_VARIABLES.contains(&name)
        || table
            .ignored_variables
            .iter()
            .any(|known| matches(known, name))
}

/// The variables whose names are wanted, in an order that does not depend on the one they came in.
pub(super) fn sorted(variables: &[Vec<u8>], wanted: impl Fn(&str) -> bool) -> Vec<&[u8]> {
    let name = |variable: &[u8]| {
        let end = variable
            .iter()
            .position(|byte| *byte == b'=')
            .unwrap_or(variable.len());
        String::from_utf8_lossy(&variable[..end]).into_owned()
    };
    let mut chosen: Vec<&[u8]> = variables
        .iter()
        .map(Vec::as_slice)
        .filter(|variable| wanted(&name(variable)))
        .collect();
    chosen.sort_unstable();
    chosen
}

/// This process's variables, by name, each with a digest of its value: but for those that say
/// nothing about what a server is for, and those that tell the conversation.
#[must_use]
pub fn own_variables() -> BTreeMap<String, String> {
    digests(std::env::vars_os())
}

fn digests(variables: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let table = Table::default();
    let of = |(name, value): (OsString, OsString)| {
        let name = name.to_string_lossy().into_owned();
        let counts = !is_ignored(&name, &table) && !is_conversation(&name, &table);
        counts.then(|| {
            (
                name,
                hex(&digest("mcp-sessiond variable", value.as_bytes())[..DIGEST_SHOWN]),
            )
        })
    };
    variables.filter_map(of).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_compared_by_name_and_digest() {
        let of = |all: &[(&str, &str)]| {
            digests(all.iter().map(|(name, value)| (name.into(), value.into())))
        };
        let one = of(&[
            ("A", "secret"),
            ("SHLVL", "1"),
            ("CLAUDE_CODE_SESSION_ID", "x"),
        ]);
        assert_eq!(one.keys().collect::<Vec<_>>(), ["A"]);
        assert!(one["A"].len() == 16 && !one["A"].contains("secret"));
        assert_eq!(one, of(&[("SHLVL", "2"), ("A", "secret")]));
        assert_ne!(one, of(&[("A", "other")]));
    }
}
