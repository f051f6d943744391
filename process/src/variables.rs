//! Which variables of a server's environment say what it is for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use mcp_sessiond_identity::digest;

use super::exhausted::{Exhausted, readable};
use super::launchers::{Table, matches};
use super::os;
use super::pinned::PinnedProcess;

/// Bytes of a digest that are enough to see that two values differ.
const DIGEST_SHOWN: usize = 8;

/// What a variable says, where it does not say what a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// A host tells its servers the conversation that they serve.
    Conversation,
    /// It differs between two starts of the same server, and says nothing.
    Nothing,
}

/// The variables that say nothing about what a server is for.
///
/// Those that npx and npm add (`npm_*`) are not among them: they differ only where package or
/// settings do (measured with npm 11.19).
const VARIABLES: [(&str, Meaning); 26] = [
    ("CLAUDE_CODE_SESSION_ID", Meaning::Conversation),
    // Copilot CLI 1.0 has a server for each session of an editor (ACP).
    ("COPILOT_AGENT_SESSION_ID", Meaning::Conversation),
    ("QWEN_CODE_SESSION_ID", Meaning::Conversation),
    // Claude Code 2.1 has the conversation in these, too: it changes them at `/clear`.
    ("CLAUDE_CODE_CHILD_NOTES_DIR", Meaning::Nothing),
    ("CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", Meaning::Nothing),
    // opencode 1.18 has it once it has loaded a provider, and hands it to the servers that it
    // starts from then on.
    ("npm_config_user_agent", Meaning::Nothing),
    // Shells keep account of themselves. The directory is part of the key anyway.
    ("_", Meaning::Nothing),
    ("SHLVL", Meaning::Nothing),
    ("PWD", Meaning::Nothing),
    ("OLDPWD", Meaning::Nothing),
    // systemd numbers each start of a unit, and names descriptors and pids of that one start.
    ("INVOCATION_ID", Meaning::Nothing),
    ("JOURNAL_STREAM", Meaning::Nothing),
    ("SYSTEMD_EXEC_PID", Meaning::Nothing),
    ("LISTEN_PID", Meaning::Nothing),
    ("LISTEN_PIDFDID", Meaning::Nothing),
    ("LISTEN_FDS", Meaning::Nothing),
    ("LISTEN_FDNAMES", Meaning::Nothing),
    ("NOTIFY_SOCKET", Meaning::Nothing),
    ("WATCHDOG_PID", Meaning::Nothing),
    ("WATCHDOG_USEC", Meaning::Nothing),
    ("MEMORY_PRESSURE_WATCH", Meaning::Nothing),
    ("MEMORY_PRESSURE_WRITE", Meaning::Nothing),
    // Node numbers the channel to a child, and the workers of a cluster.
    ("NODE_CHANNEL_FD", Meaning::Nothing),
    ("NODE_UNIQUE_ID", Meaning::Nothing),
    // Tracing names the one call that started the process (OpenTelemetry, environment variables as
    // carriers).
    ("TRACEPARENT", Meaning::Nothing),
    ("TRACESTATE", Meaning::Nothing),
];

fn meaning(name: &str) -> Option<Meaning> {
    let (_, meaning) = VARIABLES.iter().find(|(known, _)| *known == name)?;
    Some(*meaning)
}

/// The variables that keys ignore.
#[cfg(test)]
pub(super) fn ignored() -> impl Iterator<Item = &'static str> {
    VARIABLES
        .into_iter()
        .filter(|(_, meaning)| *meaning == Meaning::Nothing)
        .map(|(name, _)| name)
}

/// Whether a host tells its servers the conversation in this variable.
pub(super) fn is_conversation(name: &str, table: &Table) -> bool {
    meaning(name) == Some(Meaning::Conversation)
        || table
            .conversation_variables
            .iter()
            .any(|known| known == name)
}

/// Whether this variable says nothing about what a server is for.
pub(super) fn is_ignored(name: &str, table: &Table) -> bool {
    meaning(name) == Some(Meaning::Nothing)
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

/// Whether a process was started with this variable and something in it that its host has set: that
/// was not started with the same. False where an environment can't be read.
///
/// # Errors
/// [`Exhausted`].
pub fn is_set_by(
    host: &PinnedProcess,
    process: &PinnedProcess,
    name: &str,
) -> Result<bool, Exhausted> {
    let value = |variables: &[Vec<u8>]| {
        let value = |variable: &Vec<u8>| {
            let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            (!value.is_empty()).then(|| value.to_vec())
        };
        variables.iter().find_map(value)
    };
    let given = readable(os::environment(process.pid()))?;
    let of_host = readable(os::environment(host.pid()))?;
    Ok(given.zip(of_host).is_some_and(|(given, of_host)| {
        let given = value(&given);
        given.is_some() && given != value(&of_host)
    }))
}

/// This process's variables, by name, each with a digest of its value: but for those that say
/// nothing about what a server is for, and those that tell the conversation.
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
