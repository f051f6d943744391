//! The user service, of systemd or launchd: installed, removed, restarted, and looked at.
//!
//! A manager is a module that knows its files and its commands; what is done with them is the same
//! for both.

mod files;
mod last_line;
#[cfg(any(target_os = "macos", test))]
mod launchd;
mod serve_unit;
mod steps;
#[cfg(not(target_os = "macos"))]
mod systemd;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_proto::paths;

use self::files::{Change, File, Former, compare, write};
use self::serve_unit::Unit;
pub(crate) use self::serve_unit::{Name, ServeCommand};

use crate::exit_code::{NO_INPUT, SOFTWARE, UNAVAILABLE, USAGE};
use crate::ui::output::warn;
#[cfg(target_os = "macos")]
use launchd as manager;
#[cfg(not(target_os = "macos"))]
use systemd as manager;

fn unit(serve: Option<&Name>) -> Unit {
    serve.cloned().map_or(Unit::Daemon, Unit::Serve)
}

/// The files that are written: the daemon's, or that of `serve` under a name.
fn files(
    service: &Service,
    serve: Option<&(Name, ServeCommand)>,
) -> Result<Vec<File>, ServiceError> {
    match serve {
        None => manager::files(service),
        Some((name, command)) => Ok(vec![manager::serve_file(name, service, command)?]),
    }
}

/// Why it was not done. The sentence is for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotThere(String),
    #[error("{0}")]
    NoManager(String),
    #[error("{0}")]
    Failed(String),
    /// What was to be started would exit at once, with this code.
    #[error("{sentence}")]
    NoStart { code: u8, sentence: String },
}

impl ServiceError {
    fn file(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }

    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::NotThere(_) => NO_INPUT,
            Self::NoManager(_) => UNAVAILABLE,
            Self::Failed(_) => SOFTWARE,
            Self::NoStart { code, .. } => *code,
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
    fn of_this_machine() -> Result<Self, ServiceError> {
        let binary = std::env::current_exe().and_then(|path| path.canonicalize());
        let binary = binary.map_err(|error| {
            ServiceError::Failed(format!(
                "the path of this executable can't be read: {error}"
            ))
        })?;
        let directory =
            paths::directory().map_err(|error| ServiceError::Usage(error.to_string()))?;
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
pub(crate) fn writable(path: &Path) -> Result<String, ServiceError> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(ServiceError::Usage(format!(
            "{path:?} can't be written into a service file; use another path"
        ))),
    }
}

/// The file by which clients and `doctor` know that the service is installed.
pub(crate) fn installed() -> Option<PathBuf> {
    manager::installed()
}

/// What manages the service.
pub(crate) const MANAGER: &str = manager::NAME;

/// Whether its units are those of a package.
pub(crate) fn is_packaged() -> bool {
    manager::packaged().is_some()
}

/// The files of the installed service, or of that of `serve` under this name.
pub(crate) fn units(serve: Option<&Name>) -> Vec<PathBuf> {
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
pub(crate) struct UnitState {
    /// It is there after the next login.
    pub(crate) enabled: Option<bool>,
    /// It listens on the daemon's socket.
    pub(crate) listens: Option<bool>,
    /// Its process.
    pub(crate) pid: Option<u32>,
}

/// What the service manager says of the installed service, or of that of `serve` under this name.
pub(crate) fn unit_state(serve: Option<&Name>) -> UnitState {
    manager::unit_state(&unit(serve))
}

/// Where what a service writes to its standard error can be read.
pub(crate) enum Log {
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
pub(crate) fn log(serve: Option<&Name>) -> Log {
    manager::log(&unit(serve))
}

/// Something about the installed service that needs a hand.
pub(crate) struct Fault {
    pub(crate) finding: String,
    pub(crate) advice: String,
    /// Whether something does not work because of it.
    pub(crate) is_grave: bool,
}

/// The executable that the installed service starts, where that can be told.
pub(crate) fn executable() -> Option<PathBuf> {
    manager::executable()
}

/// What is wrong with the installed service.
pub(crate) fn fault() -> Option<Fault> {
    manager::fault()
}

/// The services of `serve` that are installed, and what is wrong with each.
pub(crate) fn serve_services() -> Vec<(Name, Option<Fault>)> {
    let with_fault = |name: Name| {
        let fault = manager::serve_fault(&name);
        (name, fault)
    };
    manager::serve_services()
        .into_iter()
        .map(with_fault)
        .collect()
}

/// Said where nothing is written.
const PACKAGED: &str = "The units are those of the package that has brought this executable.";

/// Installs the daemon's service, or that of `serve` with this name and command. With `is_dry` it
/// prints the files and the commands, and touches nothing.
pub(crate) fn install(
    serve: Option<&(Name, ServeCommand)>,
    starts: bool,
    is_dry: bool,
) -> Result<(), ServiceError> {
    if is_dry {
        show_install(serve, starts)
    } else {
        do_install(serve, starts)
    }
}

/// Removes the daemon's service, or that of `serve` with this name. With `is_dry` it prints the
/// commands, and touches nothing.
pub(crate) fn uninstall(serve: Option<&Name>, is_dry: bool) -> Result<(), ServiceError> {
    if is_dry {
        show_uninstall(serve)
    } else {
        do_uninstall(serve)
    }
}

/// Restarts the daemon's service, or that of `serve` with this name.
pub(crate) fn restart(serve: Option<&Name>) -> Result<(), ServiceError> {
    let unit = unit(serve);
    if units(serve).is_empty() {
        return Err(ServiceError::NotThere(match &unit {
            Unit::Daemon => "no service is installed; `mcp-sessiond install` does that. A daemon that was started on demand ends by `kill`, and the next client starts another".to_owned(),
            Unit::Serve(name) => format!(
                "no service of `serve` is called `{0}`; `mcp-sessiond install --serve {0}` makes one",
                name.as_str()
            ),
        }));
    }
    manager::check_reachable()?;
    manager::restart_step(&unit).run()
}

/// Reports how it went, and returns the exit code.
pub(crate) fn report(done: Result<(), ServiceError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            warn(&problem);
            ExitCode::from(problem.code())
        }
    }
}

fn show_install(serve: Option<&(Name, ServeCommand)>, starts: bool) -> Result<(), ServiceError> {
    let service = Service::of_this_machine()?;
    let files = files(&service, serve)?;
    let before = files::former(&files.iter().map(compare).collect::<Result<Vec<_>, _>>()?);
    for file in &files {
        print_line(format_args!("# {}\n{}", file.path.display(), file.text));
    }
    if files.is_empty() {
        print_line(format_args!("# {PACKAGED}"));
    }
    print_line("# then");
    for step in manager::steps(&unit(serve.map(|(name, _)| name)), before, starts)? {
        print_line(step.text());
    }
    Ok(())
}

fn do_install(serve: Option<&(Name, ServeCommand)>, starts: bool) -> Result<(), ServiceError> {
    let service = Service::of_this_machine()?;
    let files = files(&service, serve)?;
    manager::check_reachable()?;
    let found = files.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let unit = unit(serve.map(|(name, _)| name));
    let former = former_files(&files);
    let began = SystemTime::now();
    let was_running = manager::unit_state(&unit).pid.is_some();
    write_files(&files, &found)?;
    if files.is_empty() {
        print_line(PACKAGED);
    }
    // launchd does not make it, and systemd would. Either way it is found out now whether it can be
    // used.
    Directory::open(Path::new(&service.directory))
        .map_err(|error| ServiceError::Failed(error.to_string()))?;
    let mut steps = manager::steps(&unit, files::former(&found), starts)?.into_iter();
    while let Some(step) = steps.next() {
        let Err(error) = step.run() else { continue };
        if let Unit::Daemon = unit {
            return Err(error);
        }
        // The last step starts it, and the manager does not say what is wrong with it.
        let has_started = starts && steps.len() == 0;
        let said = has_started.then(|| last_line::of(manager::log(&unit), began));
        let why = said.flatten().unwrap_or_else(|| error.to_string());
        let now = take_back(&unit, &files, &former, was_running);
        return Err(ServiceError::Failed(format!(
            "the service did not start, and {now}: {why}"
        )));
    }
    let socket = service.socket();
    match (serve, starts) {
        (None, false) => {
            print_line("From the next login on, the first connection starts the daemon.");
        }
        (None, true) => print_line(format_args!(
            "The first connection to {socket} starts the daemon."
        )),
        (Some((_, ServeCommand { at, directory, .. })), _) => print_line(format_args!(
            "{}`serve` listens at {at}. Servers run in {directory}, with this shell's PATH.",
            if starts {
                ""
            } else {
                "From the next login on, "
            }
        )),
    }
    if let Some(line) = manager::at_logout(serve.is_some()) {
        print_line(line);
    }
    if let Some(built) = build_directory(Path::new(&service.binary)) {
        warn(format_args!(
            "warning: {} is in a build directory, {}, and is deleted when that is cleaned; `cargo install` it, then \
             install again",
            service.binary,
            built.display()
        ));
    }
    Ok(())
}

/// What there is where these files are to be.
fn former_files(files: &[File]) -> Vec<File> {
    let former = files.iter().filter_map(|file| {
        let text = std::fs::read_to_string(&file.path).ok()?;
        let path = file.path.clone();
        Some(File { path, text })
    });
    former.collect()
}

/// A service does not start with these files: it is to be as it was. Returns how that went.
fn take_back(unit: &Unit, files: &[File], former: &[File], was_running: bool) -> String {
    let is_new = former.is_empty();
    let done = if is_new {
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        remove(unit, &paths)
    } else {
        put_back(unit, former, was_running)
    };
    match done {
        Err(error) => error.to_string(),
        Ok(()) if is_new => "its unit was removed".to_owned(),
        Ok(()) => "its unit is the previous one again".to_owned(),
    }
}

fn put_back(unit: &Unit, former: &[File], was_running: bool) -> Result<(), ServiceError> {
    let found = former.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    write_files(former, &found)?;
    for step in manager::steps(unit, Former::Different, was_running)? {
        step.run()?;
    }
    Ok(())
}

/// Writes the files that are not there yet as they should be, and says which.
fn write_files(files: &[File], found: &[Change]) -> Result<(), ServiceError> {
    for (file, found) in files.iter().zip(found) {
        if *found != Change::Unchanged {
            write(file).map_err(|error| ServiceError::file(&file.path, &error))?;
        }
        match found {
            Change::New => print_line(format_args!("wrote    {}", file.path.display())),
            Change::Changed(lines) => {
                print_line(format_args!(
                    "changed  {}\n{}",
                    file.path.display(),
                    lines.trim_end()
                ));
            }
            Change::Unchanged => print_line(format_args!("kept     {}", file.path.display())),
        }
    }
    Ok(())
}

fn show_uninstall(serve: Option<&Name>) -> Result<(), ServiceError> {
    let unit = unit(serve);
    for step in manager::removal_steps(&unit)? {
        print_line(step.text());
    }
    for path in manager::paths(&unit)?.iter().filter(|path| path.exists()) {
        print_line(format_args!("rm '{}'", path.display()));
    }
    for step in manager::cleanup_steps(&unit) {
        print_line(step.text());
    }
    Ok(())
}

fn do_uninstall(serve: Option<&Name>) -> Result<(), ServiceError> {
    let unit = unit(serve);
    let mut files = manager::paths(&unit)?;
    let packaged = manager::packaged().filter(|_| matches!(unit, Unit::Daemon));
    if packaged.is_none() && !files.iter().any(|path| path.exists()) {
        print_line("Nothing is installed.");
        return Ok(());
    }
    manager::check_reachable()?;
    // Not the one that is derived now: it may have been installed for another.
    let socket = manager::socket(packaged.as_ref().unwrap_or(&files))
        .filter(|_| matches!(unit, Unit::Daemon));
    if packaged.is_some() {
        files.clear();
        print_line(
            "The units are those of a package, and stay until that is removed. They are disabled for this user.",
        );
    }
    remove(&unit, &files)?;
    if let Some((directory, socket)) = socket
        .as_deref()
        .and_then(|socket| Some((socket.parent()?, socket)))
        && directory.is_dir()
    {
        unlink(directory, socket);
        print_line(format_args!(
            "The sessions stay in {0}; `rm -r '{0}'` forgets them.",
            directory.display()
        ));
    }
    if let Unit::Serve(name) = &unit {
        print_line(format_args!(
            "The sessions stay, and their servers for another while (`http.linger_ms`). To end them now: \
             `mcp-sessiond debug sweep --service serve.{} --older-than 0s`",
            name.as_str()
        ));
    }
    Ok(())
}

/// Ends a service, and removes its files.
fn remove(unit: &Unit, files: &[PathBuf]) -> Result<(), ServiceError> {
    for step in manager::removal_steps(unit)? {
        step.run()?;
    }
    for path in files {
        match std::fs::remove_file(path) {
            Ok(()) => print_line(format_args!("removed  {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ServiceError::file(path, &error)),
        }
    }
    for step in manager::cleanup_steps(unit) {
        step.run()?;
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
        print_line(format_args!("removed  {}", socket.display()));
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

fn print_line(line: impl std::fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
