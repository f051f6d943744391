//! `mcp-sessiond install` and `uninstall`: the user service, of systemd or launchd.
//!
//! A manager is a module that knows its files and its commands; what is done with them is the same
//! for both.

mod files;
#[cfg(any(target_os = "macos", test))]
mod launchd;
mod served;
mod steps;
#[cfg(not(target_os = "macos"))]
mod systemd;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_proto::paths;

use self::files::{File, Written, before, compare, write};
pub(super) use self::served::Name;
use self::served::{Served, Unit};
use super::{FAILED, NOT_THERE, UNAVAILABLE, USAGE, complain};
#[cfg(target_os = "macos")]
use launchd as manager;
#[cfg(not(target_os = "macos"))]
use systemd as manager;

#[derive(Debug, Args)]
#[command(after_help = "\
Writes the user service for this very executable, systemd's or launchd's, whichever is there, and has the service \
manager listen on the daemon's socket: the first connection starts the daemon. Sessions stay when it is run again, \
after an upgrade or from another place; it says what has changed. Where MCP_SESSIOND_DIR is set, the service is for \
that directory; but clients that are not told of it look in the usual one. Where a package of the system has brought units for this \
executable, it writes none, and enables those.

With `--serve NAME` it writes a service for `mcp-sessiond serve --name NAME` with the options and the command that follow, and starts \
it. The service starts again at each login and whenever it ends. `serve` and the servers behind it run in this directory, \
with this shell's PATH; all other variables are the service manager's. Servers survive when the service is restarted. If `serve` exits \
with 64, 70 or 75, systemd does not start it again.

Exit codes: 0; 64 bad usage or directory; 69 neither a systemd user manager nor launchd can be reached; 70 it failed.

Examples:
  mcp-sessiond install --print
  mcp-sessiond install --serve browser --listen 127.0.0.1:8000 -- npx @playwright/mcp")]
pub(super) struct Arguments {
    /// Show the files and the commands, and touch nothing
    #[arg(long)]
    print: bool,
    /// Leave it to the next login to start it
    #[arg(long)]
    no_start: bool,
    /// Install `serve` under this name instead of the daemon
    #[arg(long, value_name = "NAME")]
    serve: Option<Name>,
    /// With `--serve`: options of `serve`, `--`, and the server's command; or `--upstream URL`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        requires = "serve",
        value_name = "SERVING"
    )]
    serving: Vec<OsString>,
}

impl Arguments {
    fn unit(&self) -> Unit {
        unit(self.serve.as_ref())
    }

    /// What is written, and, for `serve`, how it runs.
    fn files(&self, service: &Service) -> Result<(Vec<File>, Option<Served>), Problem> {
        let Some(name) = &self.serve else {
            return Ok((manager::files(service)?, None));
        };
        let served = Served::here(name, &self.serving)?;
        Ok((
            vec![manager::serve_file(name, service, &served)?],
            Some(served),
        ))
    }
}

fn unit(serve: Option<&Name>) -> Unit {
    serve.cloned().map_or(Unit::Daemon, Unit::Serve)
}

#[derive(Debug, Args)]
#[command(after_help = "\
Stops the daemon and removes what `install` has made; units of a package are disabled, and stay. The sessions stay in their directory, which it names. Clients \
start a daemon on demand from then on.

With `--serve NAME` it stops and removes the service of that name instead. The sessions stay; their servers end after \
`http.linger_ms`.

Exit codes: 0, also where nothing was installed; 69 the service manager can't be reached; 70 it failed.

Examples:
  mcp-sessiond uninstall
  mcp-sessiond uninstall --serve browser")]
pub(super) struct UninstallArguments {
    /// Show the files and the commands, and touch nothing
    #[arg(long)]
    print: bool,
    /// The service of `serve` under this name, instead of the daemon's
    #[arg(long, value_name = "NAME")]
    serve: Option<Name>,
}

/// `mcp-sessiond service restart`.
#[derive(Debug, Args)]
#[command(after_help = "\
The service manager restarts the daemon, with the executable that is there now. Sessions and servers stay, and connected clients come back by themselves.

With `--serve NAME` it does the same with the service of that name; its servers stay, too.

Exit codes: 0; 66 nothing is installed; 69 the service manager can't be reached; 70 it failed.

Examples:
  mcp-sessiond service restart
  mcp-sessiond service restart --serve browser")]
pub(super) struct RestartArguments {
    /// The service of `serve` under this name, instead of the daemon's
    #[arg(long, value_name = "NAME")]
    serve: Option<Name>,
}

/// Why it was not done. The sentence is for people.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotThere(String),
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
            Self::NotThere(_) => NOT_THERE,
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
    #[cfg_attr(
        target_os = "macos",
        allow(dead_code, reason = "it is always told there")
    )]
    named: bool,
}

impl Service {
    fn of_this_machine() -> Result<Self, Problem> {
        let binary = std::env::current_exe().and_then(|path| path.canonicalize());
        let binary =
            binary.map_err(|error| Problem::Failed(format!("this very executable: {error}")))?;
        let directory = paths::directory().map_err(|error| Problem::Usage(error.to_string()))?;
        let named =
            std::env::var_os(paths::DIRECTORY_VARIABLE).is_some_and(|value| !value.is_empty());
        Ok(Self {
            binary: writable(&binary)?,
            directory: writable(&directory)?,
            named,
        })
    }

    fn socket(&self) -> String {
        paths::socket(Path::new(&self.directory))
            .display()
            .to_string()
    }
}

/// A path as text that can stand in a file of lines.
fn writable(path: &Path) -> Result<String, Problem> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(Problem::Usage(format!(
            "{path:?} can't be written into a service file; use another path"
        ))),
    }
}

/// The file by which clients and `doctor` know that the service is installed.
pub(super) fn installed() -> Option<PathBuf> {
    manager::installed()
}

/// What manages the service.
pub(super) const MANAGER: &str = manager::NAME;

/// Whether its units are those of a package.
pub(super) fn is_packaged() -> bool {
    manager::packaged().is_some()
}

/// The files of the installed service, or of that of `serve` under this name.
pub(super) fn units(serve: Option<&Name>) -> Vec<PathBuf> {
    let packaged = serve.is_none().then(manager::packaged).flatten();
    let files = packaged.or_else(|| manager::paths(&unit(serve)).ok());
    files
        .unwrap_or_default()
        .into_iter()
        .filter(|path| path.is_file())
        .collect()
}

/// What the service manager says of a service. What it does not say is none.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// It is there after the next login.
    pub(super) enabled: Option<bool>,
    /// It listens on the daemon's socket.
    pub(super) listens: Option<bool>,
    /// Its process.
    pub(super) pid: Option<u32>,
}

/// What the service manager says of the installed service, or of that of `serve` under this name.
pub(super) fn runs(serve: Option<&Name>) -> Runs {
    manager::runs(&unit(serve))
}

/// Where what a service writes to its standard error can be read.
pub(super) enum Log {
    /// In this file.
    File(PathBuf),
    /// In systemd's journal, under this unit.
    #[cfg_attr(
        target_os = "macos",
        allow(dead_code, reason = "launchd has no journal")
    )]
    Journal(String),
    /// It can't. The sentence says why.
    Nowhere(String),
}

/// Where the installed daemon logs, or the service of `serve` under this name.
pub(super) fn log(serve: Option<&Name>) -> Log {
    manager::log(&unit(serve))
}

/// Something about the installed service that needs a hand.
pub(super) struct Ailment {
    pub(super) finding: String,
    pub(super) advice: String,
    /// Whether something does not work because of it.
    pub(super) is_grave: bool,
}

/// The executable that the installed service starts, where that can be told.
pub(super) fn executable() -> Option<PathBuf> {
    manager::executable()
}

/// What is wrong with the installed service.
pub(super) fn ailment() -> Option<Ailment> {
    manager::ailment()
}

/// The services of `serve` that are installed, and what is wrong with each.
pub(super) fn served() -> Vec<(Name, Option<Ailment>)> {
    let with_ailment = |name: Name| {
        let ailment = manager::serve_ailment(&name);
        (name, ailment)
    };
    manager::served().into_iter().map(with_ailment).collect()
}

/// Said where nothing is written.
const PACKAGED: &str = "The units are those of the package that has brought this executable.";

pub(super) fn install(arguments: &Arguments) -> ExitCode {
    exit(if arguments.print {
        show_install(arguments)
    } else {
        do_install(arguments)
    })
}

pub(super) fn uninstall(arguments: &UninstallArguments) -> ExitCode {
    exit(if arguments.print {
        show_uninstall(arguments)
    } else {
        do_uninstall(arguments)
    })
}

pub(super) fn restart(arguments: &RestartArguments) -> ExitCode {
    exit(do_restart(arguments))
}

fn do_restart(arguments: &RestartArguments) -> Result<(), Problem> {
    let unit = unit(arguments.serve.as_ref());
    if units(arguments.serve.as_ref()).is_empty() {
        return Err(Problem::NotThere(match &unit {
            Unit::Daemon => "no service is installed; `mcp-sessiond service install` does that. A daemon that was started on demand ends by `kill`, and the next client starts another".to_owned(),
            Unit::Serve(name) => format!(
                "no service of `serve` is called `{0}`; `mcp-sessiond service install --serve {0}` makes one",
                name.as_str()
            ),
        }));
    }
    manager::reach()?;
    manager::anew(&unit).run()
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
    let (files, _) = arguments.files(&service)?;
    let before = before(&files.iter().map(compare).collect::<Result<Vec<_>, _>>()?);
    for file in &files {
        say(format_args!("# {}\n{}", file.path.display(), file.text));
    }
    if files.is_empty() {
        say(format_args!("# {PACKAGED}"));
    }
    say("# then");
    for step in manager::steps(&arguments.unit(), before, !arguments.no_start)? {
        say(step.text());
    }
    Ok(())
}

fn do_install(arguments: &Arguments) -> Result<(), Problem> {
    let service = Service::of_this_machine()?;
    let (files, served) = arguments.files(&service)?;
    manager::reach()?;
    let found = files.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    put(&files, &found)?;
    if files.is_empty() {
        say(PACKAGED);
    }
    // launchd does not make it, and systemd would. Either way it is found out now whether it can be
    // used.
    Directory::open(Path::new(&service.directory))
        .map_err(|error| Problem::Failed(error.to_string()))?;
    for step in manager::steps(&arguments.unit(), before(&found), !arguments.no_start)? {
        step.run()?;
    }
    let socket = service.socket();
    match (served, arguments.no_start) {
        (None, true) => say("From the next login on, the first connection starts the daemon."),
        (None, false) => say(format_args!(
            "The first connection to {socket} starts the daemon."
        )),
        (Some(Served { at, directory, .. }), no_start) => say(format_args!(
            "{}`serve` listens at {at}. Servers run in {directory}, with this shell's PATH.",
            if no_start {
                "From the next login on, "
            } else {
                ""
            }
        )),
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

/// Writes the files that are not there yet as they should be, and says which.
fn put(files: &[File], found: &[Written]) -> Result<(), Problem> {
    for (file, found) in files.iter().zip(found) {
        if *found != Written::Unchanged {
            write(file).map_err(|error| Problem::file(&file.path, &error))?;
        }
        match found {
            Written::New => say(format_args!("wrote    {}", file.path.display())),
            Written::Changed(lines) => {
                say(format_args!(
                    "changed  {}\n{}",
                    file.path.display(),
                    lines.trim_end()
                ));
            }
            Written::Unchanged => say(format_args!("kept     {}", file.path.display())),
        }
    }
    Ok(())
}

fn show_uninstall(arguments: &UninstallArguments) -> Result<(), Problem> {
    let unit = unit(arguments.serve.as_ref());
    for step in manager::farewell(&unit)? {
        say(step.text());
    }
    for path in manager::paths(&unit)?.iter().filter(|path| path.exists()) {
        say(format_args!("rm '{}'", path.display()));
    }
    for step in manager::aftermath(&unit) {
        say(step.text());
    }
    Ok(())
}

fn do_uninstall(arguments: &UninstallArguments) -> Result<(), Problem> {
    let unit = unit(arguments.serve.as_ref());
    let mut files = manager::paths(&unit)?;
    let packaged = manager::packaged().filter(|_| matches!(unit, Unit::Daemon));
    if packaged.is_none() && !files.iter().any(|path| path.exists()) {
        say("Nothing is installed.");
        return Ok(());
    }
    manager::reach()?;
    // Not the one that is derived now: it may have been installed for another.
    let socket = manager::socket(packaged.as_ref().unwrap_or(&files))
        .filter(|_| matches!(unit, Unit::Daemon));
    if packaged.is_some() {
        files.clear();
        say(
            "The units are those of a package, and stay until that is removed. They are disabled for this user.",
        );
    }
    for step in manager::farewell(&unit)? {
        step.run()?;
    }
    for path in &files {
        match std::fs::remove_file(path) {
            Ok(()) => say(format_args!("removed  {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Problem::file(path, &error)),
        }
    }
    for step in manager::aftermath(&unit) {
        step.run()?;
    }
    if let Some((directory, socket)) = socket
        .as_deref()
        .and_then(|socket| Some((socket.parent()?, socket)))
        && directory.is_dir()
    {
        unlink(directory, socket);
        say(format_args!(
            "The sessions stay in {0}; `rm -r '{0}'` forgets them.",
            directory.display()
        ));
    }
    if let Unit::Serve(name) = &unit {
        say(format_args!(
            "The sessions stay, and their servers for another while (`http.linger_ms`). To end them now: \
             `mcp-sessiond debug sweep --service serve.{} --older-than 0s`",
            name.as_str()
        ));
    }
    Ok(())
}

/// Removes a socket that nobody listens on any more. Only who holds the lock may: another daemon
/// may be using it.
fn unlink(directory: &Path, socket: &Path) {
    let Ok(directory) = Directory::open_existing(directory) else {
        return;
    };
    if directory.try_lock().is_ok() && std::fs::remove_file(socket).is_ok() {
        say(format_args!("removed  {}", socket.display()));
    }
}

/// The build directory that the executable is in: cargo tags its own for the tools that make
/// backups.
fn build_directory(binary: &Path) -> Option<&Path> {
    binary
        .ancestors()
        .skip(1)
        .find(|directory| directory.join("CACHEDIR.TAG").is_file())
}

fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
