//! Where this process runs, as far as what a server tells of itself may depend on it.

use std::collections::{BTreeMap, BTreeSet};

use mcp_sessiond_process as process;
use serde::{Deserialize, Serialize};

/// Variables that are named when they differ.
const NAMES_SHOWN: usize = 8;

/// Variables that differ from one window, login or conversation to the next, by how their names
/// begin: what a server tells of itself does not depend on them. Those that tell sessions apart are
/// others. No program has its settings under one of these, as it may under `SSH_`.
const VOLATILE_PREFIXES: [&str; 9] = [
    // Hosts: the process, its sockets, and the conversation.
    "CLAUDE_CODE_",
    // Terminals: the window.
    "ALACRITTY_",
    "GHOSTTY_",
    "GNOME_TERMINAL_",
    "ITERM_",
    "KITTY_",
    "WEZTERM_",
    // The login.
    "DBUS_SESSION_BUS_",
    "XDG_SESSION_",
];

/// The same by their whole names.
const VOLATILE: [&str; 31] = [
    "CLAUDECODE",
    "COLUMNS",
    "CURSOR_AGENT",
    "CURSOR_SESSION_ID",
    "CURSOR_TRACE_ID",
    "GPG_TTY",
    "LINES",
    "OPENCODE",
    "SSH_AGENT_PID",
    SSH_AGENT,
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "VSCODE_CODE_CACHE_PATH",
    "VSCODE_CRASH_REPORTER_PROCESS_TYPE",
    "VSCODE_CWD",
    "VSCODE_ESM_ENTRYPOINT",
    "VSCODE_GIT_ASKPASS_EXTRA_ARGS",
    "VSCODE_GIT_ASKPASS_MAIN",
    "VSCODE_GIT_ASKPASS_NODE",
    "VSCODE_GIT_IPC_HANDLE",
    "VSCODE_INJECTION",
    "VSCODE_IPC_HOOK",
    "VSCODE_IPC_HOOK_CLI",
    "VSCODE_PID",
    "WINDOWID",
    "XDG_VTNR",
];

/// The agent's socket: its path is another one at each login, and it is the name of no account.
const SSH_AGENT: &str = "SSH_AUTH_SOCK";

/// What is in the names of credentials, and of what asks for them. These count always: with another
/// account a server may tell something else.
const CREDENTIAL_PARTS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASS", "AUTH"];

/// Names that have it for another reason.
const NO_CREDENTIALS: [&str; 5] = [
    // It is for the host's own socket, and another one at each launch.
    "CLAUDE_CODE_MESSAGING_TOKEN",
    SSH_AGENT,
    "VSCODE_GIT_ASKPASS_EXTRA_ARGS",
    "VSCODE_GIT_ASKPASS_MAIN",
    "VSCODE_GIT_ASKPASS_NODE",
];

/// The directory, and the variables with digests of their values. Secrets can't be read from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchPlace {
    directory: String,
    variables: BTreeMap<String, String>,
}

impl LaunchPlace {
    /// That of this process.
    pub(crate) fn own() -> Self {
        let directory = std::env::current_dir().unwrap_or_default();
        Self {
            directory: directory.to_string_lossy().into_owned(),
            variables: stable(process::own_variables()),
        }
    }

    /// As one text.
    pub(crate) fn fingerprint(&self) -> String {
        serde_json::json!([self.directory, self.variables]).to_string()
    }

    /// In what this one differs from a former one, for people: the names of variables and not their
    /// values. None: in nothing.
    pub(crate) fn difference(&self, former: &Self) -> Option<String> {
        if self.directory != former.directory {
            return Some(format!(
                "the last time it was started in {}",
                former.directory
            ));
        }
        let names: BTreeSet<&String> = self
            .variables
            .keys()
            .chain(former.variables.keys())
            .filter(|name| self.variables.get(*name) != former.variables.get(*name))
            .collect();
        let shown: Vec<&str> = names
            .iter()
            .take(NAMES_SHOWN)
            .map(|name| name.as_str())
            .collect();
        let more = names.len() - shown.len();
        let shown = shown.join(", ");
        match (names.len(), more) {
            (0, _) => None,
            (_, 0) => Some(format!(
                "these variables differ from the last time: {shown}"
            )),
            _ => Some(format!(
                "these variables differ from the last time: {shown} and {more} more"
            )),
        }
    }
}

fn stable(mut variables: BTreeMap<String, String>) -> BTreeMap<String, String> {
    variables.retain(|name, _| !is_volatile(name));
    variables
}

fn is_volatile(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_credential =
        !NO_CREDENTIALS.contains(&name) && CREDENTIAL_PARTS.iter().any(|part| upper.contains(part));
    !is_credential
        && (VOLATILE.contains(&name)
            || VOLATILE_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_logins_do_not_count_and_all_else_does() {
        let of = |names: &[&str]| {
            names
                .iter()
                .map(|name| ((*name).to_owned(), String::new()))
                .collect()
        };
        let all = of(&[
            "API_KEY",
            "CLAUDE_CODE_MESSAGING_SOCKET",
            "CLAUDE_CODE_MESSAGING_TOKEN",
            "PATH",
            "SSH_CLIENT",
            "TERM",
            "TERM_SESSION_ID",
        ]);
        assert_eq!(
            stable(all).keys().collect::<Vec<_>>(),
            ["API_KEY", "PATH", "TERM"]
        );
    }

    #[test]
    fn a_difference_is_named_without_values() {
        let place = |directory: &str, variables: &[(&str, &str)]| LaunchPlace {
            directory: directory.to_owned(),
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let one = place("/a", &[("A", "1"), ("B", "2"), ("C", "3")]);
        assert_eq!(one.difference(&one), None);
        assert_eq!(
            one.difference(&place("/b", &[])).as_deref(),
            Some("the last time it was started in /b")
        );
        assert_eq!(
            one.difference(&place("/a", &[("A", "1"), ("B", "0"), ("D", "4")]))
                .as_deref(),
            Some("these variables differ from the last time: B, C, D")
        );
        let many: Vec<String> = (10..20).map(|number| format!("V{number}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "")).collect();
        assert_eq!(
            place("/a", &many).difference(&place("/a", &[])).as_deref(),
            Some(
                "these variables differ from the last time: V10, V11, V12, V13, V14, V15, V16, V17 and 2 more"
            )
        );
    }

    #[test]
    fn credentials_count_whatever_their_names_begin_with() {
        for name in [
            "CURSOR_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "VSCODE_CLIENT_SECRET",
            "cursor_token",
            "CLAUDE_CODE_PASSWORD",
            "XDG_SESSION_PASS",
            "KITTY_AUTH",
        ] {
            assert!(!is_volatile(name), "{name}");
        }
        for name in [
            "STYTCH_PROJECT",
            "LINES_OF_BUSINESS",
            "TMUXINATOR_CONFIG",
            "OPENCODE_CONFIG",
            "COLUMNS_MAX",
            "SSH_HOST",
            "SSH_USER",
            "SSH_PASSWORD",
            "SSH_AUTH_SOCK_OF",
            "CURSOR_ACCOUNT",
            "VSCODE_PROFILE",
        ] {
            assert!(!is_volatile(name), "{name}");
        }
        for name in [
            "STY",
            "LINES",
            "COLUMNS",
            "TMUX",
            "CLAUDECODE",
            "WINDOWID",
            "OPENCODE",
            "CURSOR_TRACE_ID",
            "SSH_AUTH_SOCK",
            "SSH_CONNECTION",
            "VSCODE_PID",
            "VSCODE_GIT_ASKPASS_NODE",
        ] {
            assert!(is_volatile(name), "{name}");
        }
    }
}
