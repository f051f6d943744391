//! From an instance up to its host.

use std::fmt;
use std::io;
use std::path::PathBuf;

use mcp_sessiond_identity::ProcessId;
use nix::unistd::geteuid;

use super::exhausted::{Exhausted, readable};
use super::launchers::{Evidence, Kind, Table, base_name, is_packaged};
use super::os;
use super::pinned::PinnedProcess;

/// Launchers that may lie between an instance and its host. The longest chains seen have four
/// (`sh`, `npm`, `sh`, `env`).
const LAUNCHERS_MAX: usize = 16;

/// The pid that adopts every orphan that nobody else does.
const PID_ONE: u32 = 1;

/// How an instance's host was looked for, and what came of it.
#[derive(Debug)]
pub struct Walk {
    /// The processes that were looked at, from the instance upwards.
    pub steps: Vec<Step>,
    /// The host, or why there is none that could be verified.
    pub host: Result<PinnedProcess, HostDoubt>,
    /// The process that the host has started, where there is a host: the instance, or the outermost
    /// launcher.
    pub started: ProcessId,
}

/// One process on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its pid.
    pub pid: u32,
    /// The file name of its executable; where that can't be read, the name that the kernel has for
    /// it.
    pub name: String,
    /// What it is.
    pub role: Role,
}

/// What a process on the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Where the walk began.
    Instance,
    /// It starts servers on behalf of others; the walk goes on above it.
    Launcher,
    /// The first that is no launcher.
    Host,
    /// The walk ended here without a host.
    Ended,
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Instance => "instance",
            Self::Launcher => "launcher",
            Self::Host => "host",
            Self::Ended => "ended",
        })
    }
}

/// Why there is no host that could be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostDoubt {
    /// It was orphaned, or started by the system.
    #[error("the parent is pid 1, which adopts orphans")]
    PidOne,
    /// A known adopter of orphans: whoever started the instance may be gone.
    #[error("the parent {0} adopts orphans")]
    Adopter(String),
    /// Another user's process.
    #[error("the parent belongs to another user")]
    OtherUser,
    /// It is out of sight.
    #[error("the parent is in another pid namespace")]
    OtherNamespace,
    /// A process on the way exited, or became another program, or was given another parent.
    #[error("the parent changed while it was read")]
    Changed,
    /// There is no end to them.
    #[error("there are more than {LAUNCHERS_MAX} launchers above the instance")]
    TooManyLaunchers,
    /// The operating system's words.
    #[error("the parent could not be read: {0}")]
    Unreadable(String),
    /// There may be one: this passes.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

impl HostDoubt {
    /// What was found. None: nothing, and that does not pass.
    pub(super) fn settled<T>(found: Result<T, Self>) -> Result<Option<T>, Exhausted> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Self::Exhausted(exhausted)) => Err(exhausted),
            Err(_) => Ok(None),
        }
    }
}

/// Walks from the instance up to its host: the first process above it that is no launcher.
///
/// The instance itself is never taken for a launcher. Each parent is held before it is read, and
/// its child is looked at again afterwards, so a process that took over a parent's pid is never
/// mistaken for it.
///
/// What can't be seen: an orphan that was adopted by an ancestor which asked for orphans (a child
/// subreaper) and is in no table of [adopters](Table::adopters). It is taken for a child of that
/// ancestor.
pub fn find_host(instance: &PinnedProcess, table: &Table) -> Walk {
    let name = name_of(instance.pid());
    let mut steps = vec![Step {
        pid: instance.pid(),
        name,
        role: Role::Instance,
    }];
    let mut child = instance.clone();
    let host = climb(&mut child, table, &mut steps);
    Walk {
        steps,
        host,
        started: child.id(),
    }
}

/// The host. `child` is the process below it from then on.
fn climb(
    child: &mut PinnedProcess,
    table: &Table,
    steps: &mut Vec<Step>,
) -> Result<PinnedProcess, HostDoubt> {
    let uid = geteuid().as_raw();
    for _ in 0..=LAUNCHERS_MAX {
        let pid = parent_pid(child)?;
        let read = read_parent(child, pid, uid, table);
        let role = match &read {
            Ok((_, Kind::Launcher)) => Role::Launcher,
            Ok((_, Kind::Program | Kind::Unclear(_))) => Role::Host,
            Ok((_, Kind::Adopter)) | Err(_) => Role::Ended,
        };
        let name = name_of(pid);
        steps.push(Step {
            pid,
            name: name.clone(),
            role,
        });
        match read? {
            (parent, Kind::Program | Kind::Unclear(_)) => return Ok(parent),
            (parent, Kind::Launcher) => *child = parent,
            (_, Kind::Adopter) => return Err(HostDoubt::Adopter(name)),
        }
    }
    Err(HostDoubt::TooManyLaunchers)
}

/// Holds the parent and says what it is, as of a moment at which it was the parent.
fn read_parent(
    child: &PinnedProcess,
    pid: u32,
    uid: u32,
    table: &Table,
) -> Result<(PinnedProcess, Kind), HostDoubt> {
    if pid == PID_ONE && !table.pid1_is_host {
        return Err(HostDoubt::PidOne);
    }
    let parent = hold_parent(pid, uid)?;
    let kind = kind_above(child, pid, table)?;
    confirm_child(child, &parent)?;
    Ok((parent, kind))
}

/// What the process with this pid is to its child: never [`Kind::Unclear`].
pub(super) fn kind_above(
    child: &PinnedProcess,
    pid: u32,
    table: &Table,
) -> Result<Kind, HostDoubt> {
    Ok(
        match if pid == PID_ONE {
            Kind::Program
        } else {
            kind_of(pid, table)?
        } {
            Kind::Unclear(evidence) if has_given(evidence, child.pid(), pid)? => Kind::Launcher,
            Kind::Unclear(_) => Kind::Program,
            kind => kind,
        },
    )
}

/// Whether the evidence is there that a parent is a launcher. What can't be read is none.
fn has_given(evidence: Evidence, child: u32, parent: u32) -> Result<bool, Exhausted> {
    let streams = readable(os::standard_streams(parent))?.flatten();
    if streams.is_none() || readable(os::standard_streams(child))?.flatten() != streams {
        return Ok(false);
    }
    Ok(match evidence {
        Evidence::Streams => true,
        Evidence::StreamsAndPackage => {
            readable(os::executable(child))?.is_some_and(|path| is_packaged(&path))
        }
    })
}

/// The pid of the parent, as of a moment at which the child was alive.
pub(super) fn parent_pid(child: &PinnedProcess) -> Result<u32, HostDoubt> {
    let status = os::status(child.pid()).map_err(|error| unreadable(&error))?;
    if !child.is_alive() {
        return Err(HostDoubt::Changed);
    }
    if !status.in_our_namespace || status.parent == 0 {
        return Err(HostDoubt::OtherNamespace);
    }
    Ok(status.parent)
}

/// Holds the process that has this pid, if it is this user's and in sight.
pub(super) fn hold_parent(pid: u32, uid: u32) -> Result<PinnedProcess, HostDoubt> {
    let parent = match PinnedProcess::pin(pid) {
        Ok(parent) => parent.ok_or(HostDoubt::Changed)?,
        // macOS does not say when another user's process started.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(HostDoubt::OtherUser);
        }
        Err(error) => return Err(unreadable(&error)),
    };
    let status = os::status(pid).map_err(|error| unreadable(&error))?;
    if !status.in_our_namespace {
        return Err(HostDoubt::OtherNamespace);
    }
    if status.other_uid(uid).is_some() {
        return Err(HostDoubt::OtherUser);
    }
    Ok(parent)
}

/// Makes sure that the one is the parent of the other. To be called last: the child still names
/// that pid as its parent's, and the process that was held under it has not exited since, so what
/// was read of it in between was read of the parent.
pub(super) fn confirm_child(
    child: &PinnedProcess,
    parent: &PinnedProcess,
) -> Result<(), HostDoubt> {
    let still_there = parent_pid(child)? == parent.pid() && parent.is_alive();
    if still_there {
        Ok(())
    } else {
        Err(HostDoubt::Changed)
    }
}

/// What the process with this pid is, by its own executable and arguments.
fn kind_of(pid: u32, table: &Table) -> Result<Kind, HostDoubt> {
    let read = || match os::executable(pid) {
        Ok(path) => Ok(Some(path)),
        // A process that is not dumpable, as Codex makes itself on Linux, hides this from its own
        // user.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(unreadable(&error)),
    };
    let executable = read()?;
    let arguments = os::arguments(pid)
        .map_err(|error| unreadable(&error))?
        .unwrap_or_default();
    if read()? != executable {
        return Err(HostDoubt::Changed);
    }
    match executable {
        Some(path) => Ok(table.kind(&path, &arguments)),
        None => {
            let name = os::short_name(pid).map_err(|error| unreadable(&error))?;
            kind_without_executable(&name, &arguments, table)
        }
    }
}

/// Launchers and adopters have nothing to hide. So a process whose executable can't be read is none
/// of them, unless it goes by the name of one: then there is no telling.
fn kind_without_executable(
    name: &str,
    arguments: &[Vec<u8>],
    table: &Table,
) -> Result<Kind, HostDoubt> {
    let called = arguments
        .first()
        .map(|first| PathBuf::from(String::from_utf8_lossy(first).as_ref()));
    let suspects = [Some(PathBuf::from(name)), called];
    let innocent = suspects
        .iter()
        .flatten()
        .all(|path| table.kind(path, arguments) == Kind::Program);
    if innocent {
        Ok(Kind::Program)
    } else {
        Err(HostDoubt::Unreadable(format!(
            "{name} hides its executable, and has the name of a launcher"
        )))
    }
}

fn unreadable(error: &io::Error) -> HostDoubt {
    match error {
        error if os::is_gone(error) => HostDoubt::Changed,
        error if Exhausted::is_cause(error) => HostDoubt::Exhausted(Exhausted),
        error => HostDoubt::Unreadable(error.to_string()),
    }
}

/// What people know a process by. For display alone.
pub fn name_of(pid: u32) -> String {
    let executable = os::executable(pid).map(|path| base_name(&path));
    executable
        .or_else(|_| os::short_name(pid))
        .unwrap_or_else(|_| "?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_its_executable_is_a_host_unless_it_looks_like_a_launcher() {
        let table = Table::default();
        let arguments =
            |text: &str| -> Vec<Vec<u8>> { text.split(' ').map(|part| part.into()).collect() };
        let kind = |name, line| kind_without_executable(name, &arguments(line), &table);
        assert_eq!(
            kind("codex", "/usr/bin/codex app-server"),
            Ok(Kind::Program)
        );
        assert_eq!(kind("bash", "-bash"), Ok(Kind::Program));
        for (name, line) in [
            ("sh", "server -c x"),
            ("run.sh", "/bin/bash ./run.sh"),
            ("tini", "/t -- x"),
        ] {
            assert!(
                matches!(kind(name, line), Err(HostDoubt::Unreadable(_))),
                "{name}"
            );
        }
    }
}
