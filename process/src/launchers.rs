//! What a process above an instance is: a launcher, an adopter of orphans, or a program of its own.
//!
//! A process is judged by its own executable and arguments, never by what started it. When in doubt it is a program:
//! then the host is too near and its sessions are lost early, while one that is too far up would mix the sessions of
//! several hosts.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What the configuration adds to the built-in rules, which always hold. The default adds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether pid 1 may be a host, as in a container whose only program is the host.
    pub pid1_is_host: bool,
    /// More programs that start servers on behalf of a host.
    pub launchers: Vec<Launcher>,
    /// More executables that adopt orphans: file names, which may end in `*`, or absolute paths.
    pub adopters: Vec<String>,
    /// More variables that say nothing about what a server is for. A name may end in `*`.
    pub ignored_variables: Vec<String>,
    /// More variables in which a host tells its servers the conversation.
    pub conversation_variables: Vec<String>,
}

/// A program that starts servers on behalf of a host, and stays while they run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launcher {
    /// The file name of its executable, or its absolute path. Of an interpreted program, the interpreter's.
    pub executable: String,
    /// What its arguments must begin with, after `argv[0]`.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It starts servers on behalf of others.
    Launcher,
    /// It becomes the parent of processes that it did not start.
    Adopter,
    /// Anything else.
    Program,
}

/// Executables that adopt orphans, beside `systemd --user`: service managers, and the inits of containers.
const ADOPTERS: [&str; 7] =
    ["launchd", "containerd-shim*", "tini", "dumb-init", "docker-init", "catatonit", "conmon"];

const SHELLS: [&str; 10] = ["sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "fish"];

/// Executables that are many programs in one, and go by `argv[0]`, or by the first argument.
const MULTI_CALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

impl Table {
    /// What the process with this executable and these arguments (from `argv[0]` on) is.
    pub(super) fn kind(&self, executable: &Path, arguments: &[Vec<u8>]) -> Kind {
        let texts: Vec<String> =
            arguments.iter().map(|argument| String::from_utf8_lossy(argument).into_owned()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if self.adopts(executable, &texts) {
            Kind::Adopter
        } else if self.launches(executable, &texts) {
            Kind::Launcher
        } else {
            Kind::Program
        }
    }

    fn adopts(&self, executable: &Path, arguments: &[&str]) -> bool {
        let systemd = base_name(executable) == "systemd" && arguments.contains(&"--user");
        let more = self.adopters.iter().map(String::as_str);
        systemd || ADOPTERS.into_iter().chain(more).any(|pattern| names(pattern, executable))
    }

    fn launches(&self, executable: &Path, arguments: &[&str]) -> bool {
        let operands = arguments.get(1..).unwrap_or_default();
        let configured = |launcher: &Launcher| {
            names(&launcher.executable, executable)
                && operands.iter().take(launcher.arguments.len()).eq(launcher.arguments.iter())
        };
        is_launcher(&base_name(executable), arguments) || self.launchers.iter().any(configured)
    }
}

/// The last component of a path, for comparing and for display.
pub(super) fn base_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether a name, a name that ends in `*`, or an absolute path is about this executable.
pub(super) fn names(pattern: &str, executable: &Path) -> bool {
    if pattern.contains('/') {
        return Path::new(pattern) == executable;
    }
    matches(pattern, &base_name(executable))
}

/// Whether a text is the pattern, or begins with it where the pattern ends in `*`.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => pattern == text,
    }
}

/// The built-in table of launchers.
fn is_launcher(program: &str, arguments: &[&str]) -> bool {
    let operands = arguments.get(1..).unwrap_or_default();
    match program {
        "env" => true,
        // The helper that Claude Desktop on macOS starts every server under, and that stays.
        "disclaimer" => true,
        "node" | "nodejs" => is_npm(arguments),
        "uvx" => true,
        "uv" => is_uv(operands),
        shell if SHELLS.contains(&shell) => is_shell_with_work(shell, operands),
        many if MULTI_CALL.contains(&many) => match arguments {
            [first, applet, ..] if base_name(Path::new(first)) == many => is_applet(applet, &arguments[1..]),
            [applet, ..] => is_applet(&base_name(Path::new(applet)), arguments),
            [] => false,
        },
        _ => false,
    }
}

fn is_applet(name: &str, arguments: &[&str]) -> bool {
    !MULTI_CALL.contains(&name) && is_launcher(name, arguments)
}

/// npx, `npm exec` and `npm x`. npm overwrites its command line with one string, the rest of which is NULs
/// (measured with 11.19); before that it is node with npm's or npx's script.
fn is_npm(arguments: &[&str]) -> bool {
    let Some((first, operands)) = arguments.split_first() else { return false };
    if let Some(title) = first.strip_prefix("npm ") {
        return matches!(title.split(' ').next(), Some("exec" | "x"));
    }
    let Some((script, rest)) = operands.split_first() else { return false };
    match base_name(Path::new(script)).as_str() {
        "npx" | "npx-cli.js" => true,
        "npm" | "npm-cli.js" => matches!(first_operand(rest, &[]), Some(("exec" | "x", _))),
        _ => false,
    }
}

/// Options of uv that take their value from the next argument and may precede the subcommand, as in the common
/// `uv --directory DIR run server.py`.
const UV_VALUE_OPTIONS: [&str; 10] = [
    "--allow-insecure-host",
    "--cache-dir",
    "--color",
    "--config-file",
    "--directory",
    "--preview-features",
    "--project",
    "--python-fetch",
    "--python-preference",
    "--trusted-host",
];

/// `uv run`, `uv tool run`, and `uv tool uvx`, which is what uvx turns itself into.
fn is_uv(operands: &[&str]) -> bool {
    match first_operand(operands, &UV_VALUE_OPTIONS) {
        Some(("run", _)) => true,
        Some(("tool", rest)) => matches!(first_operand(rest, &UV_VALUE_OPTIONS), Some(("run" | "uvx", _))),
        _ => false,
    }
}

/// The first argument that is no option, and what follows it.
fn first_operand<'a, 'b>(arguments: &'a [&'b str], with_value: &[&str]) -> Option<(&'b str, &'a [&'b str])> {
    let mut rest = arguments;
    while let Some((argument, behind)) = rest.split_first() {
        if !argument.starts_with('-') {
            return Some((argument, behind));
        }
        let skipped = usize::from(with_value.contains(argument));
        rest = behind.get(skipped..).unwrap_or_default();
    }
    None
}

/// Long options of shells that take their value from the next argument.
const SHELL_VALUE_OPTIONS: [&str; 9] = [
    "--rcfile",
    "--init-file",
    "--emulate",
    "--init-command",
    "--debug",
    "--debug-output",
    "--debug-stack-frames",
    "--features",
    "--profile",
];

/// Whether a shell was given something to run, a command or a script, and is not interactive. One that reads its
/// standard input, as a login shell or a terminal's does, is a program of its own.
fn is_shell_with_work(shell: &str, operands: &[&str]) -> bool {
    // Letters whose value is the next argument: names of options to be set, and whatever fish takes.
    let value_letters = if shell == "fish" { "CDdfop" } else { "oO" };
    let (mut command, mut standard_input) = (false, false);
    let mut rest = operands.iter();
    while let Some(argument) = rest.next() {
        let mut values = 0;
        match argument.strip_prefix(['-', '+']) {
            None => return command || !standard_input,
            // `-` and `--` end the options.
            Some("" | "-") => return rest.next().is_some() && (command || !standard_input),
            Some("-interactive") => return false,
            Some("-command") => command = true,
            Some(long) if long.starts_with('-') => {
                if long.starts_with("-command=") {
                    return true;
                }
                values = usize::from(SHELL_VALUE_OPTIONS.contains(argument));
            }
            Some(cluster) => {
                values = cluster.chars().filter(|letter| value_letters.contains(*letter)).count();
                if argument.starts_with('-') {
                    if cluster.contains('i') {
                        return false;
                    }
                    command |= cluster.contains('c');
                    standard_input |= cluster.contains('s');
                }
            }
        }
        for _ in 0..values {
            rest.next();
        }
    }
    false
}

#[cfg(test)]
mod tests;
