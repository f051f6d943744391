//! What a front may do where the daemon does not answer. A server that is not kept must not run
//! beside the kept one that it would be: not beside that of a name, and not beside that of its host
//! where the daemon only hangs.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_sessiond_client::ClaimRequest;
use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_process::{self as process, ListenerLock, PinnedProcess, digest};
use mcp_sessiond_proto::backends::{KeeperReply, KeeperRequest};
use mcp_sessiond_proto::hello::{Codec, Hello, HelloError, greet_blocking};
use mcp_sessiond_proto::{KeeperName, Label, paths};

use super::connector::{NameLock, NoBackend, WithoutKeeper};
use crate::keeper::dial::{Dialled, connected, dial_for, keeper_of};
use crate::program::Program;

/// How long the daemon may take for its hello: it says that before it does anything else.
const HELLO_WAIT: Duration = Duration::from_secs(1);

/// How long a keeper may take to say whose its server is.
const STATUS_WAIT: Duration = Duration::from_millis(500);

/// Whether there is a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    Absent,
    Hangs,
    Answers,
}

/// Looks whether there is a daemon now. Once: if it were looked again for what follows, a daemon
/// that goes on in between would count as one that has answered the claim. None: a claim that had no
/// answer is to be made again, since a daemon can answer it now, or can be started.
fn daemon_after(directory: &Path, why: &NoBackend, is_repeated: bool) -> Option<Daemon> {
    let daemon = daemon_of(directory);
    let is_answered = !matches!(why, NoBackend::Unanswered(_));
    (daemon == Daemon::Hangs || is_answered || is_repeated).then_some(daemon)
}

/// What the front of this server may do, after it could not claim its session for this reason.
/// `is_repeated`: it has claimed again already.
pub(crate) fn decide(
    directory: &Path,
    claim: &ClaimRequest,
    (why, is_repeated): (&NoBackend, bool),
    program: &Program,
    home: Option<&Path>,
) -> WithoutKeeper {
    let Some(daemon) = daemon_after(directory, why, is_repeated) else {
        return WithoutKeeper::ClaimAgain;
    };
    let is_answered = !matches!(why, NoBackend::Unanswered(_));
    match &claim.named {
        // It holds the name's lease, or has heard why it does not.
        Some(_) if daemon == Daemon::Answers && is_answered => WithoutKeeper::RunUnkept(None),
        Some(named) => decide_named(directory, &named.name, daemon),
        None if daemon != Daemon::Hangs => WithoutKeeper::RunUnkept(None),
        None => match keepers(directory).find(|keeper| fits(directory, *keeper, program, home)) {
            Some(keeper) => WithoutKeeper::Wait(kept_sentence(directory, keeper)),
            None => WithoutKeeper::RunUnkept(None),
        },
    }
}

/// The same for the front of a list. It waits for a daemon that hangs if servers of a list are kept
/// for this process's host.
pub(crate) fn decide_list(directory: &Path, why: &NoBackend, is_repeated: bool) -> WithoutKeeper {
    match daemon_after(directory, why, is_repeated) {
        None => return WithoutKeeper::ClaimAgain,
        Some(Daemon::Hangs) => {}
        Some(Daemon::Absent | Daemon::Answers) => return WithoutKeeper::RunUnkept(None),
    }
    let is_member = |keeper: &KeeperName| {
        let options = keeper_of(directory, *keeper)
            .ok()
            .and_then(|process| split(&process))
            .map(|(options, _)| options);
        options.is_some_and(|options| {
            value_of(&options, "--backend").is_some() && value_of(&options, "--service").is_none()
        }) && may_be_ours(directory, *keeper, None)
    };
    match keepers(directory).find(is_member) {
        Some(keeper) => WithoutKeeper::Wait(kept_sentence(directory, keeper)),
        None => WithoutKeeper::RunUnkept(None),
    }
}

fn decide_named(directory: &Path, name: &Label, daemon: Daemon) -> WithoutKeeper {
    let shown = name.as_str();
    if daemon == Daemon::Hangs {
        return WithoutKeeper::Refuse(format!(
            "the daemon does not answer, so mcp-sessiond can't tell whether another process has `{shown}`; it keeps asking; `mcp-sessiond doctor` says more"
        ));
    }
    // It is made where no daemon has ever run; if it can't be used, the lock says so.
    let _ = Directory::open(directory);
    let lock = match ListenerLock::take(&name_locks(directory), number(name)) {
        Ok(lock) => NameLock(lock),
        Err(error) if is_held(&error) => {
            return WithoutKeeper::Refuse(
                taken(directory, name)
                    .unwrap_or_else(|| format!("another process runs `{shown}` without a daemon")),
            );
        }
        // Where nothing can be locked, nobody else could.
        Err(_) => return WithoutKeeper::RunUnkept(None),
    };
    let kept = keepers(directory).find_map(|keeper| {
        let process = keeper_of(directory, keeper).ok()?;
        let (options, _) = split(&process)?;
        let is_its = value_of(&options, "--name")? == shown.as_bytes()
            && value_of(&options, "--backend").is_none()
            && value_of(&options, "--service").is_none();
        is_its.then(|| process.id().pid)
    });
    match kept {
        Some(pid) if daemon == Daemon::Answers => WithoutKeeper::Refuse(format!(
            "process {pid} keeps `{shown}`, and the daemon has not said whether this host can have it; the wrapper keeps asking; `mcp-sessiond doctor` says more"
        )),
        Some(pid) => WithoutKeeper::Refuse(format!(
            "process {pid} keeps `{shown}`, which can't be reached without a daemon; the wrapper keeps trying; `mcp-sessiond doctor` says why no daemon runs"
        )),
        None => WithoutKeeper::RunUnkept(Some(lock)),
    }
}

/// Who runs a server under this name without a daemon, in a sentence; none if that is this process,
/// or nobody.
pub(crate) fn taken(directory: &Path, name: &Label) -> Option<String> {
    let holder = process::lock_holder(&name_locks(directory), number(name)).ok()??;
    Some(format!(
        "`{}` is in use by another wrapper (pid {holder}), which runs it without a daemon; it is free when that process exits",
        name.as_str()
    ))
}

/// The file in which each front that runs a named server without a daemon locks a byte.
fn name_locks(directory: &Path) -> PathBuf {
    directory.join("names.lock")
}

/// Which byte is a name's.
fn number(name: &Label) -> u32 {
    let digest = digest("mcp-sessiond name", name.as_str().as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

fn is_held(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.kind() == io::ErrorKind::PermissionDenied
}

fn daemon_of(directory: &Path) -> Daemon {
    let Ok(mut stream) = connected(&paths::socket(directory), HELLO_WAIT) else {
        return Daemon::Absent;
    };
    let limits = [
        stream.set_read_timeout(Some(HELLO_WAIT)),
        stream.set_write_timeout(Some(HELLO_WAIT)),
    ];
    if limits.iter().any(Result::is_err) {
        return Daemon::Absent;
    }
    match greet_blocking(&mut stream, &Hello::client(Codec::JsonRpc)) {
        Err(HelloError::Io(error))
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Daemon::Hangs
        }
        _ => Daemon::Answers,
    }
}

/// The keepers that have a socket.
fn keepers(directory: &Path) -> impl Iterator<Item = KeeperName> {
    let found = std::fs::read_dir(paths::keepers(directory)).into_iter();
    found
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a keeper has the server that this front would find: the same program in the same
/// directory, for a host of this process's.
fn fits(directory: &Path, keeper: KeeperName, program: &Program, home: Option<&Path>) -> bool {
    let Ok(process) = keeper_of(directory, keeper) else {
        return false;
    };
    let Some((options, command)) = split(&process) else {
        return false;
    };
    let mut words = std::iter::once(&program.name).chain(&program.arguments);
    let same_program = command.len() == 1 + program.arguments.len()
        && command
            .iter()
            .all(|word| words.next().is_some_and(|own| own.as_bytes() == word));
    let is_services = value_of(&options, "--service").is_some();
    let here = home.map(Path::to_owned);
    let here = here.or_else(|| std::env::current_dir().ok());
    same_program && !is_services && may_be_ours(directory, keeper, here.as_deref())
}

/// Whether a keeper's server belongs to a host of this process's, and runs in this directory, where one
/// is given.
fn may_be_ours(directory: &Path, keeper: KeeperName, here: Option<&Path>) -> bool {
    let socket = paths::keeper_socket(directory, keeper);
    match dial_for(&socket, &KeeperRequest::Status {}, STATUS_WAIT) {
        Ok(Dialled {
            reply: KeeperReply::Status(status),
            ..
        }) => {
            let is_here = match (&status.directory, here) {
                (Some(theirs), Some(here)) => Path::new(theirs) == here,
                _ => true,
            };
            is_here && status.host.is_some_and(is_above)
        }
        // It does not say whose its server is, so it may be this host's.
        _ => true,
    }
}

/// Whether a process is above this one.
fn is_above(pid: u32) -> bool {
    PinnedProcess::own().is_ok_and(|own| {
        // It may be above where that can't be found out.
        process::ancestor(&own, pid).map_or(true, |found| found.is_some())
    })
}

fn kept_sentence(directory: &Path, keeper: KeeperName) -> String {
    let pid = keeper_of(directory, keeper).map_or(0, |keeper| keeper.id().pid);
    format!(
        "the daemon does not answer, and a server of this program is kept for this host (keeper {pid}): waiting for the daemon; `mcp-sessiond doctor` says what to do about it"
    )
}

/// The words of a command line, as the kernel has them.
type Words = Vec<Vec<u8>>;

/// The options of a keeper, and the command that it keeps.
fn split(keeper: &PinnedProcess) -> Option<(Words, Words)> {
    let mut options = process::arguments_of(keeper).ok()??;
    let end = options.iter().position(|word| word == b"--")?;
    let command = options.split_off(end + 1);
    (options.get(1)? == b"keep").then_some((options, command))
}

/// What follows an option.
fn value_of<'a>(options: &'a [Vec<u8>], name: &str) -> Option<&'a [u8]> {
    let at = options
        .iter()
        .position(|word| word == OsStr::new(name).as_bytes())?;
    options.get(at + 1).map(Vec::as_slice)
}
