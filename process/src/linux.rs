//! Facts about processes on Linux: pidfds and /proc.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcp_sessiond_identity::{ProcessId, StartTime};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, getsockopt, recvmsg, setsockopt, sockopt,
};
use nix::sys::{stat, statfs};

use super::ProcessStatus;
use super::health::Activity;
use super::peer_error::PeerError;
use crate::sys;

/// A pidfd.
pub(super) type Handle = Arc<OwnedFd>;

/// `PID_FS_MAGIC` of <linux/magic.h>: the file system that gives every process an inode of its own
/// (Linux 6.9). Before it, all pidfds share one inode.
const PID_FS_MAGIC: i64 = 0x5049_4446;

/// What the kernel appends to the target of /proc/PID/exe when the file was replaced, as an upgrade
/// does.
const DELETED: &[u8] = b" (deleted)";

pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim_end()
        .to_owned())
}

/// Whether an error says that there is no such process, rather than that it can't be looked at.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Opens the pidfd of the process that has this pid now. `Ok(None)`: there is no such process.
pub(super) fn hold(pid: u32) -> io::Result<Option<Handle>> {
    match sys::pidfd_open(pid) {
        Ok(pidfd) => Ok(Some(Arc::new(pidfd))),
        // EINVAL is what it says to pid 0, and to the id of a thread; before 6.9 ENOENT to the
        // latter.
        Err(error) if is_gone(&error) || error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what names the process. Fails with `ESRCH` where /proc knows it by another pid than the
/// kernel told us: then /proc is that of another pid namespace, and nothing in it is about whom it
/// seems to be.
pub(super) fn identify(handle: &Handle, pid: u32) -> io::Result<ProcessId> {
    if pid_in_proc(handle, pid)? != i64::from(pid) {
        return Err(Errno::ESRCH.into());
    }
    let stat = fs::read(proc(pid, "stat"))?;
    let start = field(&stat, START_FIELD).ok_or_else(|| malformed("stat"))?;
    Ok(ProcessId {
        pid,
        start: StartTime(start),
        inode: inode(handle)?,
    })
}

/// Whether it has not exited yet. A pidfd becomes readable when its process turns into a zombie.
pub(super) fn is_alive(handle: &Handle, _id: &ProcessId) -> bool {
    let mut poll_fd = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    // It fails for want of kernel memory alone, which says nothing about the process.
    !matches!(poll(&mut poll_fd, PollTimeout::ZERO), Ok(ready) if ready > 0)
}

/// The process at the other end of a socket when it connected, and whether it surely is that one,
/// or may have got its pid later. The user is looked at first.
pub(super) fn peer(socket: BorrowedFd<'_>, our_uid: u32) -> Result<(Handle, u32, bool), PeerError> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials).map_err(io::Error::from)?;
    if credentials.uid() != our_uid {
        return Err(PeerError::OtherUid(credentials.uid()));
    }
    let claimed = match u32::try_from(credentials.pid()) {
        Ok(0) => return Err(PeerError::OtherNamespace),
        Ok(pid) => pid,
        Err(_) => return Err(PeerError::Gone),
    };
    let (pidfd, is_certain) = match getsockopt(&socket, sockopt::PeerPidfd) {
        Ok(pidfd) => (Arc::new(pidfd), true),
        // Before Linux 6.5 there is no such option, and some containers refuse what their filter
        // does not know.
        Err(Errno::ENOPROTOOPT | Errno::EPERM | Errno::ENOSYS) => {
            let held = hold(claimed).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM) => PeerError::NotHeld(error),
                _ => PeerError::Io(error),
            })?;
            (held.ok_or(PeerError::Gone)?, false)
        }
        // Before 6.16 the kernel makes no pidfd for a process that was reaped.
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENODATA) => return Err(PeerError::Gone),
        Err(errno) => return Err(PeerError::Io(errno.into())),
    };
    match pid_in_proc(&pidfd, claimed).map_err(PeerError::Io)? {
        0 => Err(PeerError::OtherNamespace),
        pid => u32::try_from(pid)
            .map(|pid| (pidfd, pid, is_certain))
            .map_err(|_| PeerError::Gone),
    }
}

/// Has the kernel say who wrote what is received from now on, or no longer.
pub(super) fn have_writers_named(socket: BorrowedFd<'_>, named: bool) -> io::Result<()> {
    Ok(setsockopt(&socket, sockopt::PassCred, &named)?)
}

/// Receives bytes of one writer, and says who that is: pid and user. The pid is 0 where the writer
/// is in another pid namespace. Descriptors that come along are closed: there is no room for them.
pub(super) fn receive_named(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<(u32, u32)>)> {
    let mut room = nix::cmsg_space!(UnixCredentials);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
    let writer = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmCredentials(writer) => {
            Some((u32::try_from(writer.pid()).unwrap_or(0), writer.uid()))
        }
        _ => None,
    });
    Ok((received.bytes, writer))
}

pub(super) fn status(pid: u32) -> io::Result<ProcessStatus> {
    let status = fs::read_to_string(proc(pid, "status"))?;
    parse_status(&status).ok_or_else(|| malformed("status"))
}

/// Resident memory, in bytes: field 2 of /proc/PID/statm (proc(5)), which counts pages.
pub(super) fn resident_bytes(pid: u32) -> io::Result<u64> {
    let memory = fs::read_to_string(proc(pid, "statm"))?;
    let pages: u64 = memory
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .ok_or_else(|| malformed("statm"))?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    Ok(pages * page.unsigned_abs())
}

/// Sends a signal to exactly this process.
pub(super) fn signal(handle: &Handle, _id: &ProcessId, signal: Signal) -> io::Result<()> {
    sys::pidfd_send_signal(handle.as_fd(), signal as i32)
}

/// Every process that /proc has, zombies among them.
pub(super) fn pids() -> io::Result<Vec<u32>> {
    let names = fs::read_dir("/proc")?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    Ok(names
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// The children of all its threads (proc(5)). An error where the kernel does not tell: it was built
/// without `CONFIG_PROC_CHILDREN`.
pub(super) fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(proc(pid, "task"))? {
        let said = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(
            said.split_ascii_whitespace()
                .filter_map(|child| child.parse::<u32>().ok()),
        );
    }
    Ok(children)
}

/// What it is doing: its state, the processor time that it has used, and whether it is frozen.
pub(super) fn activity(pid: u32) -> io::Result<Activity> {
    let stat = fs::read(proc(pid, "stat"))?;
    let state = text_field(&stat, STATE_FIELD).and_then(|state| state.as_bytes().first().copied());
    let times = [USER_TIME_FIELD, SYSTEM_TIME_FIELD].map(|number| field(&stat, number));
    let ([Some(user), Some(system)], Some(state)) = (times, state) else {
        return Err(malformed("stat"));
    };
    Ok(Activity {
        state,
        ticks: user.wrapping_add(system),
        // What can't be read is not known to be frozen.
        is_frozen: fs::read_to_string(proc(pid, "cgroup"))
            .is_ok_and(|groups| groups.lines().any(is_frozen)),
    })
}

/// Whether a line of /proc/PID/cgroup (cgroups(7)) names a cgroup that is frozen, by itself or with
/// one above it. Where the system has its cgroups elsewhere than usual, nothing is known.
fn is_frozen(line: &str) -> bool {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return false;
    };
    let file = |mount: &str, name: &str| {
        let group = Path::new(mount).join(path.trim_start_matches('/'));
        fs::read_to_string(group.join(name)).ok()
    };
    if controllers.is_empty() {
        let events = file("/sys/fs/cgroup", "cgroup.events")
            .or_else(|| file("/sys/fs/cgroup/unified", "cgroup.events"));
        return events.is_some_and(|events| events.lines().any(|line| line == "frozen 1"));
    }
    controllers.split(',').any(|one| one == "freezer")
        && file("/sys/fs/cgroup/freezer", "freezer.state")
            .is_some_and(|state| state.trim_end() != "THAWED")
}

/// The id of its session.
pub(super) fn session(pid: u32) -> io::Result<u32> {
    let stat = fs::read(proc(pid, "stat"))?;
    let session = field(&stat, SESSION_FIELD).and_then(|session| u32::try_from(session).ok());
    session.ok_or_else(|| malformed("stat"))
}

/// The path of the executable, without what the kernel appends once the file was replaced.
pub(super) fn executable(pid: u32) -> io::Result<PathBuf> {
    let mut path = fs::read_link(proc(pid, "exe"))?.into_os_string().into_vec();
    if path.ends_with(DELETED) {
        path.truncate(path.len() - DELETED.len());
    }
    Ok(OsString::from_vec(path).into())
}

/// The arguments, with `argv[0]`. None: the process has overwritten them with something longer, and
/// what they were can't be known.
pub(super) fn arguments(pid: u32) -> io::Result<Option<Vec<Vec<u8>>>> {
    let line = fs::read(proc(pid, "cmdline"))?;
    let stat = fs::read(proc(pid, "stat"))?;
    // Where the area does not end in a NUL, the kernel takes it for a title and answers with
    // another length than the area's. Both fields are 0 where we may not know them.
    let bounds = (
        field(&stat, ARGUMENTS_START_FIELD),
        field(&stat, ARGUMENTS_END_FIELD),
    );
    let intact = match bounds {
        (Some(start), Some(end)) if start != 0 && end > start => end - start == line.len() as u64,
        _ => true,
    };
    Ok(intact.then(|| strings(&line)))
}

/// The environment that the process was started with, each variable as `NAME=value`.
pub(super) fn environment(pid: u32) -> io::Result<Vec<Vec<u8>>> {
    let mut variables = strings(&fs::read(proc(pid, "environ"))?);
    variables.retain(|variable| !variable.is_empty());
    Ok(variables)
}

pub(super) fn directory(pid: u32) -> io::Result<PathBuf> {
    fs::read_link(proc(pid, "cwd"))
}

/// What its standard input and output are, each as a name that no other open file has meanwhile.
/// None: they are no pipes or sockets, as a terminal or /dev/null, which many processes have in
/// common.
pub(super) fn standard_streams(pid: u32) -> io::Result<Option<[PathBuf; 2]>> {
    let stream = |number: u8| fs::read_link(proc(pid, "fd").join(number.to_string()));
    let streams = [stream(0)?, stream(1)?];
    let private = |stream: &PathBuf| {
        let name = stream.to_string_lossy();
        name.starts_with("pipe:[") || name.starts_with("socket:[")
    };
    Ok(streams.iter().all(private).then_some(streams))
}

/// The name that the kernel has for it, at most 15 bytes, which a process may change. For where the
/// executable can't be read.
pub(super) fn short_name(pid: u32) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(proc(pid, "comm"))?)
        .trim_end_matches('\n')
        .to_owned())
}

/// Reports the exit of many processes, each under a number of the caller's.
#[derive(Debug)]
pub(super) struct Events(Epoll);

/// Exits that are fetched in one call.
const BATCH: usize = 64;

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    pub(super) fn add(&mut self, handle: &Handle, _id: &ProcessId, token: u64) -> io::Result<()> {
        // One shot, so that fetching all there is comes to an end although nothing is removed
        // meanwhile.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
        Ok(self.0.add(handle, EpollEvent::new(flags, token))?)
    }

    pub(super) fn remove(&mut self, handle: &Handle, _id: &ProcessId) {
        // It fails only if the descriptor was not added.
        let _ = self.0.delete(handle);
    }

    /// The numbers of those that exited, each once.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        let mut exited = Vec::new();
        let mut batch = [EpollEvent::empty(); BATCH];
        loop {
            match self.0.wait(&mut batch, PollTimeout::ZERO) {
                Ok(0) => return exited,
                Ok(count) => exited.extend(batch[..count].iter().map(EpollEvent::data)),
                Err(Errno::EINTR) => {}
                Err(_) => return exited,
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// Fields of /proc/PID/stat, numbered as in proc_pid_stat(5).
const STATE_FIELD: usize = 3;
const SESSION_FIELD: usize = 6;
const USER_TIME_FIELD: usize = 14;
const SYSTEM_TIME_FIELD: usize = 15;
const START_FIELD: usize = 22;
const ARGUMENTS_START_FIELD: usize = 48;
const ARGUMENTS_END_FIELD: usize = 49;
/// The first field behind the name, which is the only one that may have blanks and parentheses in
/// it.
const FIRST_FIELD_BEHIND_NAME: usize = 3;

fn field(stat: &[u8], number: usize) -> Option<u64> {
    text_field(stat, number)?.parse().ok()
}

fn text_field(stat: &[u8], number: usize) -> Option<&str> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let behind_name = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    behind_name
        .split_ascii_whitespace()
        .nth(number - FIRST_FIELD_BEHIND_NAME)
}

fn parse_status(status: &str) -> Option<ProcessStatus> {
    let line = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let mut uids = line("Uid")?.split_ascii_whitespace();
    let uids = [uids.next()?.parse().ok()?, uids.next()?.parse().ok()?];
    Some(ProcessStatus {
        parent: line("PPid")?.trim().parse().ok()?,
        uids,
        // A kernel without pid namespaces has no such line.
        in_our_namespace: line("NSpid")
            .is_none_or(|pids| pids.split_ascii_whitespace().count() == 1),
    })
}

/// The pid that our /proc knows a process by that the kernel calls `pid`: 0 where it is in a pid
/// namespace that is not below /proc's, -1 where it was reaped.
fn pid_in_proc(handle: &Handle, pid: u32) -> io::Result<i64> {
    let info = match fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())) {
        // On Linux 5.10 the directory is root's where we are not dumpable. If we have the pid there
        // that the kernel calls us by, so have others.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let is_ours = fs::read_link("/proc/self")?.as_os_str() == &*own_pid();
            return Ok(if is_ours { pid.into() } else { 0 });
        }
        read => read?,
    };
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    pid.ok_or_else(|| malformed("fdinfo"))
}

fn own_pid() -> OsString {
    std::process::id().to_string().into()
}

/// The inode of the pidfd, where the kernel gives every process its own.
fn inode(handle: &Handle) -> io::Result<Option<u64>> {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type of the magic number differs between C libraries"
    )]
    let magic = statfs::fstatfs(handle)?.filesystem_type().0 as i64;
    if magic == PID_FS_MAGIC {
        Ok(Some(stat::fstat(handle)?.st_ino))
    } else {
        Ok(None)
    }
}

fn proc(pid: u32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

/// NUL-terminated strings, of which the last may lack its NUL.
fn strings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("/proc/PID/{file} has another form than expected"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_stat_may_hold_anything() {
        let rest = (4..=52)
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        for name in ["sh", "a) b (c", ") R 1 1 (", "", "a\nb", "Z) Z 1"] {
            let stat = format!("77 ({name}) S {rest}\n");
            assert_eq!(field(stat.as_bytes(), START_FIELD), Some(22), "{name:?}");
            assert_eq!(
                field(stat.as_bytes(), ARGUMENTS_END_FIELD),
                Some(49),
                "{name:?}"
            );
        }
        assert_eq!(field(b"77 (sh) S 1 2", START_FIELD), None);
        assert_eq!(
            field(b"77 (\xff) S 4", 4),
            Some(4),
            "a name need not be UTF-8"
        );
        assert_eq!(field(b"", START_FIELD), None);
    }

    #[test]
    fn status_tells_users_and_namespaces_apart() {
        let status =
            |uid: &str, pids: &str| format!("Name:\tsh\nPPid:\t7\nUid:\t{uid}\nNSpid:\t{pids}\n");
        let read = parse_status(&status("5\t5\t5\t5", "9")).expect("well-formed");
        assert_eq!(
            (read.parent, read.uids, read.in_our_namespace),
            (7, [5, 5], true)
        );
        let read = parse_status(&status("5\t0\t0\t0", "9\t1")).expect("well-formed");
        assert_eq!((read.uids, read.in_our_namespace), ([5, 0], false));
        assert!(parse_status("Name:\tsh\n").is_none());
    }

    #[test]
    fn empty_arguments_are_arguments() {
        assert_eq!(
            strings(b"a\0\0b\0"),
            [b"a".to_vec(), b"".to_vec(), b"b".to_vec()]
        );
        assert_eq!(strings(b"a\0\0"), [b"a".to_vec(), b"".to_vec()]);
        assert_eq!(strings(b"a"), [b"a".to_vec()]);
        assert!(strings(b"").is_empty());
    }
}
