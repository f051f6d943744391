//! `mcp-sessiond install` and `uninstall`: the user service, of systemd or launchd.
//!
//! A manager is a module that knows its files and its commands; what is done with them is the same for both.

#[cfg(any(target_os = "macos", test))]
mod launchd;
#[cfg(not(target_os = "macos"))]
mod systemd;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_proto::paths;

use super::{FAILED, UNAVAILABLE, USAGE, complain};
#[cfg(target_os = "macos")]
use launchd as manager;
#[cfg(not(target_os = "macos"))]
use systemd as manager;

#[derive(Debug, Args)]
#[command(after_help = "\
Writes the user service for this very executable, systemd's or launchd's, whichever is there, and has the service \
manager listen on the daemon's socket: the first connection starts the daemon. Sessions stay when it is run again, \
after an upgrade or from another place; it says what has changed. Where MCP_SESSIOND_DIR is set, the service is for \
that directory; but clients that are not told of it look in the usual one.

Exit codes: 0; 64 bad usage or directory; 69 neither a systemd user manager nor launchd can be reached; 70 it failed.

Example: mcp-sessiond install --print")]
pub(super) struct Arguments {
    /// Show the files and the commands, and touch nothing
    #[arg(long)]
    print: bool,
    /// Leave it to the next login to start it
    #[arg(long)]
    no_start: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Stops the daemon and removes what `install` has made. The sessions stay in their directory, which it names. Clients \
start a daemon on demand from then on.

Exit codes: 0, also where nothing was installed; 69 the service manager can't be reached; 70 it failed.

Example: mcp-sessiond uninstall")]
pub(super) struct UninstallArguments {
    /// Show the files and the commands, and touch nothing
    #[arg(long)]
    print: bool,
}

/// Why it was not done. The sentence is for people.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NoManager(String),
    #[error("{0}")]
    Failed(String),
}

impl Problem {
    fn file(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }

    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::NoManager(_) => UNAVAILABLE,
            Self::Failed(_) => FAILED,
        }
    }
}

/// What the service manager is to run, and where. Both are free of control characters.
#[derive(Debug)]
struct Service {
    binary: String,
    directory: String,
    /// By `MCP_SESSIOND_DIR`, so that the daemon has to be told as well.
    #[cfg_attr(target_os = "macos", allow(dead_code, reason = "it is always told there"))]
    named: bool,
}

impl Service {
    fn of_this_machine() -> Result<Self, Problem> {
        let binary = std::env::current_exe().and_then(|path| path.canonicalize());
        let binary = binary.map_err(|error| Problem::Failed(format!("this very executable: {error}")))?;
        let directory = paths::directory().map_err(|error| Problem::Usage(error.to_string()))?;
        let named = std::env::var_os(paths::DIRECTORY_VARIABLE).is_some_and(|value| !value.is_empty());
        Ok(Self { binary: writable(&binary)?, directory: writable(&directory)?, named })
    }

    fn socket(&self) -> String {
        paths::socket(Path::new(&self.directory)).display().to_string()
    }
}

/// A path as text that can stand in a file of lines.
fn writable(path: &Path) -> Result<String, Problem> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(Problem::Usage(format!("{path:?} can't be written into a service file; use another path"))),
    }
}

/// A file of the service.
#[derive(Debug)]
struct File {
    path: PathBuf,
    text: String,
}

/// What writing a file did.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    New,
    /// What went and what came, line by line.
    Changed(String),
    Unchanged,
}

/// What there was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Another,
    TheSame,
}

/// A command to the service manager.
#[derive(Debug)]
struct Step {
    words: Vec<String>,
    failure: Failure,
}

/// What it means that a command fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Final,
    /// Nothing: there may be nothing to do.
    Ignored,
    /// What came before may still be under way, which the manager does not tell.
    #[cfg_attr(not(target_os = "macos"), allow(dead_code, reason = "systemd tells"))]
    Passing,
}

/// How often and after which pause a command is repeated whose failure may be passing.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

impl Step {
    fn new(words: &[&str]) -> Self {
        Self { words: words.iter().map(|&word| word.to_owned()).collect(), failure: Failure::Final }
    }

    fn or(self, failure: Failure) -> Self {
        Self { failure, ..self }
    }

    fn text(&self) -> String {
        let quoted = |word: &String| if word.contains(' ') { format!("'{word}'") } else { word.clone() };
        self.words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    fn run(&self) -> Result<(), Problem> {
        let mut attempts = 1;
        loop {
            match answer(&self.words) {
                Ok(_) => {
                    say(format_args!("ran      {}", self.text()));
                    return Ok(());
                }
                Err(_) if self.failure == Failure::Ignored => return Ok(()),
                Err(_) if self.failure == Failure::Passing && attempts < ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(Problem::Failed(format!("`{}` failed: {error}", self.text()))),
            }
        }
    }
}

/// Runs a command, and returns its standard output, or what it complained of.
fn answer(words: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    manager::prepare(&mut command);
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(if complaint.is_empty() { output.status.to_string() } else { complaint })
}

/// The file by which clients and `debug check` know that the service is installed.
pub(super) fn installed() -> Option<PathBuf> {
    manager::paths().ok()?.pop().filter(|path| path.is_file())
}

/// Something about the installed service that needs a hand.
pub(super) struct Ailment {
    pub(super) finding: String,
    pub(super) advice: String,
}

/// What is wrong with the installed service.
pub(super) fn ailment() -> Option<Ailment> {
    manager::ailment()
}

pub(super) fn install(arguments: &Arguments) -> ExitCode {
    exit(if arguments.print { show_install(arguments) } else { do_install(arguments) })
}

pub(super) fn uninstall(arguments: &UninstallArguments) -> ExitCode {
    exit(if arguments.print { show_uninstall() } else { do_uninstall() })
}

fn exit(done: Result<(), Problem>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            ExitCode::from(problem.code())
        }
    }
}

fn show_install(arguments: &Arguments) -> Result<(), Problem> {
    let service = Service::of_this_machine()?;
    let files = manager::files(&service)?;
    let before = before(&files.iter().map(compare).collect::<Result<Vec<_>, _>>()?);
    for file in &files {
        say(format_args!("# {}\n{}", file.path.display(), file.text));
    }
    say("# then");
    for step in manager::steps(before, !arguments.no_start)? {
        say(step.text());
    }
    Ok(())
}

fn do_install(arguments: &Arguments) -> Result<(), Problem> {
    let service = Service::of_this_machine()?;
    let files = manager::files(&service)?;
    manager::reach()?;
    let found = files.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    for (file, found) in files.iter().zip(&found) {
        if *found != Written::Unchanged {
            write(file).map_err(|error| Problem::file(&file.path, &error))?;
        }
        match found {
            Written::New => say(format_args!("wrote    {}", file.path.display())),
            Written::Changed(lines) => {
                say(format_args!("changed  {}\n{}", file.path.display(), lines.trim_end()));
            }
            Written::Unchanged => say(format_args!("kept     {}", file.path.display())),
        }
    }
    // launchd does not make it, and systemd would. Either way it is found out now whether it can be used.
    Directory::open(Path::new(&service.directory)).map_err(|error| Problem::Failed(error.to_string()))?;
    for step in manager::steps(before(&found), !arguments.no_start)? {
        step.run()?;
    }
    if arguments.no_start {
        say("From the next login on, the first connection starts the daemon.");
    } else {
        say(format_args!("The first connection to {} starts the daemon.", service.socket()));
    }
    if let Some(built) = build_directory(Path::new(&service.binary)) {
        complain(format_args!(
            "warning: {} is in a build directory, {}, and goes when that is cleaned; `cargo install` it, then \
             install again",
            service.binary,
            built.display()
        ));
    }
    Ok(())
}

fn show_uninstall() -> Result<(), Problem> {
    for step in manager::farewell()? {
        say(step.text());
    }
    for path in manager::paths()?.iter().filter(|path| path.exists()) {
        say(format_args!("rm '{}'", path.display()));
    }
    for step in manager::aftermath() {
        say(step.text());
    }
    Ok(())
}

fn do_uninstall() -> Result<(), Problem> {
    let files = manager::paths()?;
    if !files.iter().any(|path| path.exists()) {
        say("Nothing is installed.");
        return Ok(());
    }
    manager::reach()?;
    // Not the one that is derived now: it may have been installed for another.
    let socket = manager::socket(&files);
    for step in manager::farewell()? {
        step.run()?;
    }
    for path in &files {
        match std::fs::remove_file(path) {
            Ok(()) => say(format_args!("removed  {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Problem::file(path, &error)),
        }
    }
    for step in manager::aftermath() {
        step.run()?;
    }
    if let Some((directory, socket)) = socket.as_deref().and_then(|socket| Some((socket.parent()?, socket)))
        && directory.is_dir()
    {
        unlink(directory, socket);
        say(format_args!("The sessions stay in {0}; `rm -r '{0}'` forgets them.", directory.display()));
    }
    Ok(())
}

/// Removes a socket that nobody listens on any more. Only who holds the lock may: another daemon may be using it.
fn unlink(directory: &Path, socket: &Path) {
    let Ok(directory) = Directory::open_existing(directory) else { return };
    if directory.try_lock().is_ok() && std::fs::remove_file(socket).is_ok() {
        say(format_args!("removed  {}", socket.display()));
    }
}

fn before(found: &[Written]) -> Before {
    if found.iter().all(|one| *one == Written::New) {
        Before::Nothing
    } else if found.iter().all(|one| *one == Written::Unchanged) {
        Before::TheSame
    } else {
        Before::Another
    }
}

/// What writing the file will do.
fn compare(file: &File) -> Result<Written, Problem> {
    match std::fs::symlink_metadata(&file.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Written::New),
        Err(error) => return Err(Problem::file(&file.path, &error)),
        Ok(found) if !found.is_file() => {
            let path = file.path.display();
            return Err(Problem::Failed(format!(
                "{path} is no file of ours, but a symlink (was it masked, or does something else manage it?); remove it first"
            )));
        }
        Ok(_) => {}
    }
    let former = std::fs::read_to_string(&file.path).map_err(|error| Problem::file(&file.path, &error))?;
    Ok(if former == file.text {
        Written::Unchanged
    } else {
        Written::Changed(difference(&former, &file.text))
    })
}

/// The lines that are in one text only; comments don't matter.
fn difference(former: &str, text: &str) -> String {
    let mut lines = String::new();
    for (mark, of, other) in [('-', former, text), ('+', text, former)] {
        let only =
            of.lines().filter(|line| !line.starts_with('#') && !other.lines().any(|known| known == *line));
        for line in only {
            let _ = writeln!(lines, "  {mark} {}", line.trim());
        }
    }
    lines
}

/// Writes a file whole.
fn write(file: &File) -> io::Result<()> {
    let directory = file.path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let temporary = file.path.with_extension("new");
    std::fs::write(&temporary, &file.text)?;
    std::fs::rename(&temporary, &file.path)
}

/// The build directory that the executable is in: cargo tags its own for the tools that make backups.
fn build_directory(binary: &Path) -> Option<&Path> {
    binary.ancestors().skip(1).find(|directory| directory.join("CACHEDIR.TAG").is_file())
}

fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
