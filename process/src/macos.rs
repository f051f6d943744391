//! Facts about processes on macOS: libproc, sysctl and kqueue. The same functions as in `linux.rs`.
//!
//! There is no pidfd. What takes its place is the kernel's unique id of a process, which is never
//! given again and is compared after each look.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use mcp_sessiond_identity::{ProcessId, StartTime};
use nix::errno::Errno;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Pid, getsid};

use super::ProcessStatus;
use super::health::Activity;
use super::peer_error::PeerError;
use super::procargs::{self, ProcessStrings};
use crate::sys;

/// A process by its unique id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    unique: u64,
}

pub(super) fn boot_id() -> io::Result<String> {
    sys::sysctl_text(c"kern.bootsessionuuid")
}

/// Whether an error says that there is no such process, rather than that it can't be looked at.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Takes note of the process that has this pid now. `Ok(None)`: there is no such process.
pub(super) fn hold(pid: u32) -> io::Result<Option<Handle>> {
    match sys::unique_ids(pid) {
        Ok(ids) => Ok(Some(Handle {
            unique: ids.process,
        })),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what names the process. Fails with `ESRCH` where another one has its pid by now.
pub(super) fn identify(handle: &Handle, pid: u32) -> io::Result<ProcessId> {
    let info = sys::bsd_info(pid)?;
    if sys::unique_ids(pid)?.process != handle.unique {
        return Err(Errno::ESRCH.into());
    }
    let start = info
        .pbi_start_tvsec
        .saturating_mul(1_000_000)
        .saturating_add(info.pbi_start_tvusec);
    Ok(ProcessId {
        pid,
        start: StartTime(start),
        inode: Some(handle.unique),
    })
}

/// Whether it has not exited yet. A zombie has: libproc says `ESRCH` of it.
pub(super) fn is_alive(handle: &Handle, id: &ProcessId) -> bool {
    match sys::unique_ids(id.pid) {
        Ok(ids) if ids.process == handle.unique => {}
        Ok(_) => return false,
        Err(error) => return !is_gone(&error),
    }
    match sys::short_info(id.pid) {
        Ok(info) => info.pbsi_status != libc::SZOMB,
        Err(error) => !is_gone(&error),
    }
}

/// Where an audit token (<bsm/audit.h>) has the pid, and the version of it that tells who had it at
/// that time.
const TOKEN_PID: usize = 5;
const TOKEN_PID_VERSION: usize = 7;

/// The process at the other end of a socket when it connected, and that it surely is that one. The
/// user is looked at first.
pub(super) fn peer(socket: BorrowedFd<'_>, our_uid: u32) -> Result<(Handle, u32, bool), PeerError> {
    let credentials = getsockopt(&socket, sockopt::LocalPeerCred).map_err(io::Error::from)?;
    if credentials.uid() != our_uid {
        return Err(PeerError::OtherUid(credentials.uid()));
    }
    // Not LOCAL_PEERPID: that pid may be somebody else's by now. ENOTCONN is what it says once the
    // peer has hung up.
    let token = match getsockopt(&socket, sockopt::LocalPeerToken) {
        Ok(token) => token.val,
        Err(Errno::ENOTCONN | Errno::ESRCH) => return Err(PeerError::Gone),
        Err(errno) => return Err(PeerError::Io(errno.into())),
    };
    let pid = token[TOKEN_PID];
    match sys::unique_ids(pid) {
        Ok(ids) if ids.version == token[TOKEN_PID_VERSION] => Ok((
            Handle {
                unique: ids.process,
            },
            pid,
            true,
        )),
        // An exec changes the version too. Who connects and then becomes another program is
        // refused.
        Ok(_) => Err(PeerError::Gone),
        Err(error) if is_gone(&error) => Err(PeerError::Gone),
        Err(error) => Err(PeerError::Io(error)),
    }
}

/// The kernel can't say who writes, and need not: it always says who has connected.
pub(super) fn have_writers_named(_: BorrowedFd<'_>, _: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The same.
pub(super) fn receive_named(
    _: BorrowedFd<'_>,
    _: &mut [u8],
) -> io::Result<(usize, Option<(u32, u32)>)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What it is doing, which this system does not tell so that it could be compared.
pub(super) fn activity(_pid: u32) -> io::Result<Activity> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Resident memory, in bytes.
pub(super) fn resident_bytes(pid: u32) -> io::Result<u64> {
    Ok(sys::task_info(pid)?.pti_resident_size)
}

pub(super) fn status(pid: u32) -> io::Result<ProcessStatus> {
    let info = sys::short_info(pid)?;
    Ok(ProcessStatus {
        parent: info.pbsi_ppid,
        uids: [info.pbsi_ruid, info.pbsi_uid],
        in_our_namespace: true,
    })
}

/// Sends a signal to this process, which is looked at immediately before.
pub(super) fn signal(handle: &Handle, id: &ProcessId, signal: Signal) -> io::Result<()> {
    if !is_alive(handle, id) {
        return Err(Errno::ESRCH.into());
    }
    Ok(kill(Pid::from_raw(id.pid.cast_signed()), signal)?)
}

/// Every process of the system.
pub(super) fn pids() -> io::Result<Vec<u32>> {
    sys::all_pids()
}

/// The id of its session.
pub(super) fn session(pid: u32) -> io::Result<u32> {
    Ok(getsid(Some(Pid::from_raw(pid.cast_signed())))?
        .as_raw()
        .cast_unsigned())
}

pub(super) fn executable(pid: u32) -> io::Result<PathBuf> {
    sys::executable(pid)
}

/// The arguments, with `argv[0]`. Always as many as the process was started with; never `None`
/// here.
pub(super) fn arguments(pid: u32) -> io::Result<Option<Vec<Vec<u8>>>> {
    Ok(Some(process_strings(pid)?.arguments))
}

/// The environment that the process was started with, each variable as `NAME=value`. An empty one
/// is how macOS withholds it, so it counts as unreadable.
pub(super) fn environment(pid: u32) -> io::Result<Vec<Vec<u8>>> {
    let environment = process_strings(pid)?.environment;
    if environment.is_empty() {
        Err(io::ErrorKind::PermissionDenied.into())
    } else {
        Ok(environment)
    }
}

pub(super) fn directory(pid: u32) -> io::Result<PathBuf> {
    sys::working_directory(pid)
}

/// Not read here, so that nothing is known of them.
pub(super) fn standard_streams(_pid: u32) -> io::Result<Option<[PathBuf; 2]>> {
    Ok(None)
}

/// The name that the kernel has for it, at most 15 bytes. For where the executable can't be read.
pub(super) fn short_name(pid: u32) -> io::Result<String> {
    let name = sys::short_info(pid)?.pbsi_comm;
    let bytes: Vec<u8> = name
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn process_strings(pid: u32) -> io::Result<ProcessStrings> {
    procargs::parse(&sys::process_strings(pid)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reports the exit of many processes, each under a number of the caller's.
#[derive(Debug)]
pub(super) struct Events {
    queue: Kqueue,
    /// The numbers by pid. The kernel knows a watch by its pid alone.
    tokens: HashMap<u32, u64>,
    /// Fetched from the queue, or known without it, and not reported yet.
    exited: Vec<u64>,
}

/// Exits that are fetched in one call.
const BATCH: usize = 64;

/// The event of our own that makes the queue readable for exits that it does not know of.
const WAKE: usize = 0;

const NO_WAIT: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        let events = Self {
            queue: Kqueue::new()?,
            tokens: HashMap::new(),
            exited: Vec::new(),
        };
        events.change(
            WAKE,
            EventFilter::EVFILT_USER,
            EvFlags::EV_ADD | EvFlags::EV_CLEAR,
            FilterFlag::empty(),
        )?;
        Ok(events)
    }

    pub(super) fn add(&mut self, handle: &Handle, id: &ProcessId, token: u64) -> io::Result<()> {
        if self.tokens.contains_key(&id.pid) {
            // A former process of this pid. Its exit lies in the queue, and must not be taken for
            // the new one's.
            self.fetch();
            self.wake()?;
        }
        let flags = EvFlags::EV_ADD | EvFlags::EV_ONESHOT;
        let added = self.change(
            id.pid as usize,
            EventFilter::EVFILT_PROC,
            flags,
            FilterFlag::NOTE_EXIT,
        );
        match added {
            Ok(()) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
        // It may have exited before it was watched, and another one may be watched in its place.
        if is_alive(handle, id) {
            self.tokens.insert(id.pid, token);
        } else {
            self.exited.push(token);
            self.wake()?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, _handle: &Handle, id: &ProcessId) {
        // It fails where the exit was reported, which ends the watch by itself.
        let _ = self.change(
            id.pid as usize,
            EventFilter::EVFILT_PROC,
            EvFlags::EV_DELETE,
            FilterFlag::NOTE_EXIT,
        );
        self.tokens.remove(&id.pid);
    }

    /// The numbers of those that exited, each once.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        self.fetch();
        std::mem::take(&mut self.exited)
    }

    fn fetch(&mut self) {
        let nothing = KEvent::new(
            WAKE,
            EventFilter::EVFILT_USER,
            EvFlags::empty(),
            FilterFlag::empty(),
            0,
            0,
        );
        let mut batch = [nothing; BATCH];
        loop {
            let count = match self.queue.kevent(&[], &mut batch, Some(NO_WAIT)) {
                Ok(0) => return,
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            for event in &batch[..count] {
                if event.filter() == Ok(EventFilter::EVFILT_PROC) {
                    let pid = u32::try_from(event.ident()).ok();
                    self.exited
                        .extend(pid.and_then(|pid| self.tokens.remove(&pid)));
                }
            }
        }
    }

    fn wake(&self) -> io::Result<()> {
        self.change(
            WAKE,
            EventFilter::EVFILT_USER,
            EvFlags::empty(),
            FilterFlag::NOTE_TRIGGER,
        )
    }

    fn change(
        &self,
        ident: usize,
        filter: EventFilter,
        flags: EvFlags,
        filter_flags: FilterFlag,
    ) -> io::Result<()> {
        let change = KEvent::new(ident, filter, flags, filter_flags, 0, 0);
        // Without room for events an error in the change is the call's own.
        Ok(self
            .queue
            .kevent(&[change], &mut [], Some(NO_WAIT))
            .map(drop)?)
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
