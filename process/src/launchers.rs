//! What a process above an instance is: a launcher, an adopter of orphans, or a program of its own.
//!
//! A process is judged by its own executable and arguments, never by what started it. When in doubt
//! it is a program: then the host is too near and its sessions are lost early, while one that is
//! too far up would mix the sessions of several hosts. Where arguments leave two readings, what the
//! process has given its child decides.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::programs::{
    self, ADOPTERS, Launches, MULTI_CALL, NODE_SCRIPTS, NPM_SCRIPT, PYTHON_SCRIPTS,
    SHELL_VALUE_OPTIONS, Script, is_shell,
};

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
    /// The file name of its executable, or its absolute path. Of an interpreted program, the
    /// interpreter's.
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
    /// Arguments alone don't tell: a launcher if its child shows it to be one, else a program.
    Unclear(Evidence),
    /// It becomes the parent of processes that it did not start.
    Adopter,
    /// Anything else.
    Program,
}

/// What shows that an unclear one is a launcher. Its child must have its standard input and output:
/// whoever has given these away does not speak to the child. That is not enough by itself, or a
/// host that starts a helper would go for a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// No more than that.
    Streams,
    /// And the child's executable must be out of an npm package.
    StreamsAndPackage,
}

/// The folder that npm's packages are in.
const PACKAGES: &str = "node_modules";

impl Table {
    /// What the process with this executable and these arguments (from `argv[0]` on) is.
    pub(super) fn kind(&self, executable: &Path, arguments: &[Vec<u8>]) -> Kind {
        let texts: Vec<String> = arguments
            .iter()
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if self.adopts(executable, &texts) {
            Kind::Adopter
        } else if self.configured(executable, texts.get(1..).unwrap_or_default()) {
            Kind::Launcher
        } else {
            built_in(&base_name(executable), &texts)
        }
    }

    fn adopts(&self, executable: &Path, arguments: &[&str]) -> bool {
        let systemd = base_name(executable) == "systemd" && arguments.contains(&"--user");
        let more = self.adopters.iter().map(String::as_str);
        systemd
            || ADOPTERS
                .into_iter()
                .chain(more)
                .any(|pattern| names(pattern, executable))
    }

    fn configured(&self, executable: &Path, operands: &[&str]) -> bool {
        self.launchers.iter().any(|launcher| {
            names(&launcher.executable, executable)
                && operands
                    .iter()
                    .take(launcher.arguments.len())
                    .eq(launcher.arguments.iter())
        })
    }
}

/// Whether a file is part of an npm package.
pub(super) fn is_packaged(path: &Path) -> bool {
    path.components()
        .any(|component| component.as_os_str() == PACKAGES)
}

/// The last component of a path, for comparing and for display.
pub(super) fn base_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// How names of executables end out of npm packages of native programs, on every system:
/// `opencode.exe`.
const ON_WINDOWS: &str = ".exe";

/// Whether a name, a name that ends in `*`, or an absolute path is about this executable. A name is
/// about that with `.exe` behind it, too.
pub(super) fn names(pattern: &str, executable: &Path) -> bool {
    if pattern.contains('/') {
        return Path::new(pattern) == executable;
    }
    let name = base_name(executable);
    let stem = name.strip_suffix(ON_WINDOWS);
    matches(pattern, &name) || stem.is_some_and(|stem| matches(pattern, stem))
}

/// Whether a text is the pattern, or begins with it where the pattern ends in `*`.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => pattern == text,
    }
}

/// Whether the operands of a launcher begin with one of these verbs. No verbs: whatever they are.
fn has_verb(launches: Launches, operands: &[&str]) -> bool {
    let is_given = |verb: &&str| {
        let mut rest = operands;
        verb.split(' ')
            .all(|word| match first_operand(rest, launches.values) {
                Some((found, behind)) => {
                    rest = behind;
                    found == word
                }
                None => false,
            })
    };
    launches.verbs.is_empty() || launches.verbs.iter().any(is_given)
}

fn executable_kind(program: &str, operands: &[&str]) -> Kind {
    match programs::launches(program) {
        Some(launches) if has_verb(launches, operands) => Kind::Launcher,
        _ => Kind::Program,
    }
}

fn script_kind(scripts: &[Script], script: &str, operands: &[&str]) -> Kind {
    let path = Path::new(script);
    let is_about = |known: &&str| path.ends_with(known) || matches(known, &base_name(path));
    let found = scripts.iter().any(|script| {
        let (verbs, values) = (script.verbs, script.values);
        script.names.iter().any(is_about) && has_verb(Launches { verbs, values }, operands)
    });
    if found { Kind::Launcher } else { Kind::Program }
}

/// What a program is by the built-in rules, which know no adopters.
fn built_in(program: &str, arguments: &[&str]) -> Kind {
    let Some((first, operands)) = arguments.split_first() else {
        return executable_kind(program, &[]);
    };
    match program {
        "node" | "nodejs" => node(first, operands),
        "bun" | "bun.exe" => bun(first, operands),
        python if matches("python*", python) => script(
            &PYTHON_SCRIPTS,
            operands.strip_prefix(&["-m"]).unwrap_or(operands),
        ),
        shell if is_shell(shell) && is_shell_with_work(shell, operands) => Kind::Launcher,
        many if MULTI_CALL.contains(&many) => match arguments {
            [first, applet, ..] if base_name(Path::new(first)) == many => {
                applet_kind(applet, &arguments[1..])
            }
            [applet, ..] => applet_kind(&base_name(Path::new(applet)), arguments),
            [] => Kind::Program,
        },
        _ => executable_kind(program, operands),
    }
}

fn applet_kind(name: &str, arguments: &[&str]) -> Kind {
    if MULTI_CALL.contains(&name) {
        Kind::Program
    } else {
        built_in(name, arguments)
    }
}

/// What an interpreter is by the script that it runs. One with options before that is a program.
fn script(scripts: &[Script], operands: &[&str]) -> Kind {
    operands
        .split_first()
        .map_or(Kind::Program, |(script, rest)| {
            script_kind(scripts, script, rest)
        })
}

/// npm overwrites its command line with one string, the rest of which is NULs (measured with
/// 11.19); before that it is node with npm's script. Any other script out of a package may be a
/// shim, which starts the package's executable for this machine and waits for it (`spawnSync`), or
/// a host.
fn node(first: &str, operands: &[&str]) -> Kind {
    if let Some(title) = first.strip_prefix("npm ") {
        return script_kind(&[NPM_SCRIPT], "npm", &title.split(' ').collect::<Vec<_>>());
    }
    match script(&NODE_SCRIPTS, operands) {
        Kind::Program
            if operands
                .first()
                .is_some_and(|script| is_packaged(Path::new(script))) =>
        {
            Kind::Unclear(Evidence::StreamsAndPackage)
        }
        kind => kind,
    }
}

/// Bun runs JavaScript itself, and with it maybe a host, but packages' commands and scripts of
/// package.json as children. `bun run NAME` and `bun NAME` do the one where there is a script of
/// that name, else the other: `NAME.ts`.
fn bun(first: &str, operands: &[&str]) -> Kind {
    match base_name(Path::new(first)).trim_end_matches(".exe") {
        "bunx" => return Kind::Launcher,
        "bun" => {}
        // As `node`, as which it runs scripts that ask for that, it runs files only.
        _ => return Kind::Program,
    }
    let name = match first_operand(
        operands,
        &["--cwd", "--config", "-c", "--env-file", "-r", "--preload"],
    ) {
        Some(("x" | "exec", _)) => return Kind::Launcher,
        Some(("run", rest)) => first_operand(rest, &[]).map(|(name, _)| name),
        other => other.map(|(name, _)| name),
    };
    match name {
        Some(name) if !name.contains('/') && Path::new(name).extension().is_none() => {
            Kind::Unclear(Evidence::Streams)
        }
        _ => Kind::Program,
    }
}

/// The first argument that is no option, and what follows it.
fn first_operand<'a, 'b>(
    arguments: &'a [&'b str],
    with_value: &[&str],
) -> Option<(&'b str, &'a [&'b str])> {
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

/// Whether a shell was given something to run, a command or a script, and is not interactive. One
/// that reads its standard input, as a login shell or a terminal's does, is a program of its own.
fn is_shell_with_work(shell: &str, operands: &[&str]) -> bool {
    // Letters whose value is the next argument: names of options to be set, and whatever fish
    // takes.
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
                values = cluster
                    .chars()
                    .filter(|letter| value_letters.contains(*letter))
                    .count();
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
