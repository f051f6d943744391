//! The one module where `unsafe` is allowed: system calls for which nix 0.31 has no safe function.
//!
//! **Architecture Invariant:** every function here is safe to call with any argument, and decides
//! nothing. What the answers mean is for the rest of this crate, and for those who call, to say.
#![allow(unsafe_code)]

use std::io;

#[cfg(target_os = "linux")]
pub use linux::{pidfd_open, pidfd_send_signal, take_fd};
#[cfg(target_os = "macos")]
pub use macos::{
    all_pids, bsd_info, executable, launchd_sockets, process_strings, short_info, sysctl_text,
    task_info, unique_ids, working_directory,
};

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use bytes::BytesMut;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
    use std::sync::{Mutex, PoisonError};

    /// A descriptor of the process that has this pid now, closed on exec.
    ///
    /// # Errors
    /// `ESRCH` where there is no such process, `EINVAL` for pid 0 or the id of a thread, `EMFILE`
    /// and its like.
    pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
        let pid =
            libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: the call takes two integers and touches no memory of ours.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let raw = RawFd::try_from(result).map_err(io::Error::other)?;
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows its
        // number.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }

    /// Sends a signal to the process that this descriptor was opened for.
    ///
    /// # Errors
    /// `ESRCH` where it has exited, `EPERM` where it is another user's, `EBADF` for any other
    /// descriptor.
    pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the call takes three integers and a pointer that may be null.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                pidfd.as_raw_fd(),
                signal,
                nothing,
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Takes over a descriptor that the service manager left open for us (sd_listen_fds(3)), and
    /// closes it on exec.
    ///
    /// The number must come from `LISTEN_FDS`, before anything else in this process could have
    /// opened one: that part no check can make good for a careless caller.
    ///
    /// # Errors
    /// The standard streams and what was taken already are refused; `EBADF` where nothing is open
    /// at that number.
    pub fn take_fd(raw: RawFd) -> io::Result<OwnedFd> {
        static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
        if raw <= libc::STDERR_FILENO {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a standard stream is not ours to take",
            ));
        }
        // SAFETY: the call takes three integers, and fails where the number names no open
        // descriptor.
        if unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            return Err(io::Error::last_os_error());
        }
        if !TAKEN
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(raw)
        {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this descriptor was taken before",
            ));
        }
        // SAFETY: it is open, as fcntl says, it was inherited, so nothing in this process owns it,
        // and `TAKEN` lets each number through once.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }
}

#[cfg(target_os = "macos")]
mod macos {
    use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;
    use std::ptr;

    /// `PROC_PIDUNIQIDENTIFIERINFO` of <sys/proc_info_private.h>, which libc does not have.
    const PIDUNIQIDENTIFIERINFO: c_int = 17;

    /// `struct proc_uniqidentifierinfo` of <sys/proc_info_private.h>.
    #[repr(C)]
    struct UniqueIdentifierInfo {
        uuid: [u8; 16],
        unique: u64,
        parent_unique: u64,
        version: i32,
        original_parent_version: i32,
        reserved: [u64; 2],
    }

    /// What tells a process from every other one since the system started.
    #[derive(Clone, Copy)]
    pub struct UniqueIds {
        /// Given at fork, kept through exec, never given again.
        pub process: u64,
        /// Given anew at fork and at exec: what an audit token names together with the pid.
        pub version: u32,
    }

    #[link(name = "System")]
    unsafe extern "C" {
        /// <launch.h>; libc does not have it.
        fn launch_activate_socket(
            name: *const c_char,
            fds: *mut *mut c_int,
            count: *mut usize,
        ) -> c_int;
    }

    /// Start time, ids of user and group, and parent of a process of our own user.
    pub fn bsd_info(pid: u32) -> io::Result<libc::proc_bsdinfo> {
        // SAFETY: this flavor fills exactly this structure, which consists of integers.
        unsafe { pidinfo(pid, libc::PROC_PIDTBSDINFO) }
    }

    /// Ids of user and parent, and the state, of anybody's process.
    pub fn short_info(pid: u32) -> io::Result<libc::proc_bsdshortinfo> {
        // SAFETY: this flavor fills exactly this structure, which consists of integers.
        unsafe { pidinfo(pid, libc::PROC_PIDT_SHORTBSDINFO) }
    }

    /// The pids of all processes.
    pub fn all_pids() -> io::Result<Vec<u32>> {
        /// More than there can be at once, by far: the system's default limit is below 10,000.
        const MOST: usize = 1 << 17;
        let mut pids = vec![0_i32; MOST];
        let size = c_int::try_from(size_of_val(pids.as_slice())).map_err(io::Error::other)?;
        // SAFETY: the pointer and the size are those of one buffer of ours, of which any bit
        // pattern is a value.
        let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), size) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        pids.truncate(count);
        Ok(pids
            .into_iter()
            .filter_map(|pid| u32::try_from(pid).ok())
            .collect())
    }

    /// What a process of our own user uses of memory and time.
    pub fn task_info(pid: u32) -> io::Result<libc::proc_taskinfo> {
        // SAFETY: this flavor fills exactly this structure, which consists of integers.
        unsafe { pidinfo(pid, libc::PROC_PIDTASKINFO) }
    }

    /// The numbers that are never given twice.
    pub fn unique_ids(pid: u32) -> io::Result<UniqueIds> {
        // SAFETY: this flavor fills exactly this structure, which consists of integers.
        let info: UniqueIdentifierInfo = unsafe { pidinfo(pid, PIDUNIQIDENTIFIERINFO) }?;
        Ok(UniqueIds {
            process: info.unique,
            version: info.version.cast_unsigned(),
        })
    }

    /// The working directory.
    pub fn working_directory(pid: u32) -> io::Result<PathBuf> {
        // SAFETY: this flavor fills exactly this structure, which consists of integers.
        let info: libc::proc_vnodepathinfo = unsafe { pidinfo(pid, libc::PROC_PIDVNODEPATHINFO) }?;
        let path = info.pvi_cdir.vip_path.as_flattened();
        Ok(path_of(
            path.iter()
                .map(|byte| byte.cast_unsigned())
                .take_while(|byte| *byte != 0)
                .collect(),
        ))
    }

    /// The path of the executable.
    pub fn executable(pid: u32) -> io::Result<PathBuf> {
        let mut buffer = vec![0_u8; libc::PROC_PIDPATHINFO_MAXSIZE as usize];
        // SAFETY: the pointer and the size are those of one buffer of ours.
        let length = unsafe {
            libc::proc_pidpath(
                number(pid)?,
                buffer.as_mut_ptr().cast(),
                buffer.len() as u32,
            )
        };
        match usize::try_from(length) {
            Ok(length) if length > 0 => {
                buffer.truncate(length);
                Ok(path_of(buffer))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What `KERN_PROCARGS2` answers: the number of arguments as a native `int`, the executable's
    /// path, padding, the arguments, and the environment where the kernel lets us see it.
    pub fn process_strings(pid: u32) -> io::Result<Vec<u8>> {
        let mut bound = [0_u8; size_of::<c_int>()];
        sysctl(&mut [libc::CTL_KERN, libc::KERN_ARGMAX], &mut bound)?;
        let bound = usize::try_from(c_int::from_ne_bytes(bound)).map_err(io::Error::other)?;
        // A smaller buffer would get the *end* of the strings.
        let mut strings = vec![0_u8; bound];
        let length = sysctl(
            &mut [libc::CTL_KERN, libc::KERN_PROCARGS2, number(pid)?],
            &mut strings,
        )?;
        strings.truncate(length);
        Ok(strings)
    }

    /// The value of a sysctl that is a text.
    pub fn sysctl_text(name: &CStr) -> io::Result<String> {
        let mut buffer = [0_u8; 256];
        let mut length = buffer.len();
        // SAFETY: name is a C string; pointer and length are those of one buffer of ours; nothing
        // is set.
        let result = unsafe {
            libc::sysctlbyname(
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                &raw mut length,
                ptr::null_mut(),
                0,
            )
        };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        let text = CStr::from_bytes_until_nul(&buffer).map_err(io::Error::other)?;
        text.to_str().map(str::to_owned).map_err(io::Error::other)
    }

    /// The listening sockets that launchd holds for us under this name of the property list's
    /// `Sockets`. Each name can be had once.
    ///
    /// # Errors
    /// `ESRCH` where launchd did not start us, `ENOENT` where it knows no such name, `EALREADY` the
    /// second time.
    pub fn launchd_sockets(name: &str) -> io::Result<Vec<OwnedFd>> {
        let name = CString::new(name).map_err(io::Error::other)?;
        let mut descriptors: *mut c_int = ptr::null_mut();
        let mut count = 0_usize;
        // SAFETY: name is a C string, and the other two point at variables of ours.
        let error =
            unsafe { launch_activate_socket(name.as_ptr(), &raw mut descriptors, &raw mut count) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        if descriptors.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: on success it points at an array of `count` descriptors, made for us, which
        // nobody else owns.
        let sockets = unsafe { std::slice::from_raw_parts(descriptors, count) }
            .iter()
            // SAFETY: as above; each occurs once.
            .map(|raw| unsafe { OwnedFd::from_raw_fd(*raw) })
            .collect();
        // SAFETY: launch_activate_socket(3) leaves it to its caller to free the array, which is not
        // used after this.
        unsafe { libc::free(descriptors.cast()) };
        Ok(sockets)
    }

    /// What `proc_pidinfo` answers. A zombie counts as no process (argument 0).
    ///
    /// # Safety
    /// `T` must be the structure of `flavor`, and any bit pattern a value of it.
    unsafe fn pidinfo<T>(pid: u32, flavor: c_int) -> io::Result<T> {
        let mut info = MaybeUninit::<T>::zeroed();
        let size = c_int::try_from(size_of::<T>()).map_err(io::Error::other)?;
        // SAFETY: the pointer and the size are those of one variable of ours.
        let filled =
            unsafe { libc::proc_pidinfo(number(pid)?, flavor, 0, info.as_mut_ptr().cast(), size) };
        match filled {
            // SAFETY: it was zeroed and then filled, and every bit pattern is a value, as the
            // caller warrants.
            filled if filled == size => Ok(unsafe { info.assume_init() }),
            filled if filled > 0 => Err(io::Error::other(
                "the kernel knows this structure in another size",
            )),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads the sysctl of this number into the buffer, and says how much of it was filled.
    fn sysctl(mib: &mut [c_int], buffer: &mut [u8]) -> io::Result<usize> {
        let names = libc::c_uint::try_from(mib.len()).map_err(io::Error::other)?;
        let mut length = buffer.len();
        let into: *mut c_void = buffer.as_mut_ptr().cast();
        // SAFETY: both pointers go with their own lengths, and nothing is set.
        let result = unsafe {
            libc::sysctl(
                mib.as_mut_ptr(),
                names,
                into,
                &raw mut length,
                ptr::null_mut(),
                0,
            )
        };
        if result == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(length)
        }
    }

    fn number(pid: u32) -> io::Result<c_int> {
        c_int::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn path_of(bytes: Vec<u8>) -> PathBuf {
        OsString::from_vec(bytes).into()
    }
}

/// Lets tokio tell when a descriptor becomes readable.
///
/// # Errors
/// `EPERM` for a file, which always is; `ENOSPC` where this user watches too many.
pub fn when_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor for as long as it is owned, and `AsyncFd`
    // owns it until it has deregistered it.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(registered?)
}

/// Lets tokio tell when a descriptor becomes writable.
///
/// # Errors
/// `EPERM` for a file, which always is; `ENOSPC` where this user watches too many; `EEXIST` where
/// something else watches this descriptor.
pub fn when_writable(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: a `BorrowedFd` names the same open descriptor for as long as it is borrowed, and
    // `AsyncFd` has it until it has deregistered it.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::WRITABLE) };
    Ok(registered?)
}

/// Lets a socket listen. nix refuses a backlog above the C library's SOMAXCONN, which is not the
/// kernel's limit.
///
/// # Errors
/// Those of listen(2).
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the call takes two integers and touches no memory of ours.
    let result = unsafe { libc::listen(socket.as_raw_fd(), backlog) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: nix::sys::signal::Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call changes nothing, and the old one goes into a variable
    // of ours.
    let result =
        unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros are a value of it, too, and the call has left zeros or a value.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Has a signal its default action again if this process ignores it.
pub fn stop_ignoring(signal: nix::sys::signal::Signal) {
    if is_ignored(signal) {
        // SAFETY: no handler is set, neither ours nor anybody's.
        let _ = unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) };
    }
}

/// Unblocks all signals and resets their handlers, except for SIGPIPE, which stays ignored as Rust
/// has it. Call it before there is another thread, and before anything handles a signal.
pub fn forget_given_signals() {
    use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
    for each in Signal::iterator().filter(|each| *each != Signal::SIGPIPE) {
        // SAFETY: no handler of ours is set, and the kernel refuses those that can't be.
        let _ = unsafe { signal(each, SigHandler::SigDfl) };
    }
    let _ = SigSet::empty().thread_set_mask();
}

/// Reads what is there behind what is in `to`, as much as it has room for, and does not wait, although
/// the descriptor may be one that does: others may have it, too, so its flags are not changed. For
/// pipes, from Linux 6.4 on.
///
/// # Errors
/// `EAGAIN` where nothing is there. `EOPNOTSUPP` where that can't be done with this descriptor.
pub fn read_at_once(from: BorrowedFd<'_>, to: &mut BytesMut) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    return append(to, |room, len| {
        let piece = libc::iovec {
            iov_base: room,
            iov_len: len,
        };
        // SAFETY: the kernel writes into the piece alone, which is ours for as long as the call lasts.
        let read = unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                from.as_raw_fd(),
                &raw const piece,
                1,
                CURRENT,
                CURRENT,
                libc::RWF_NOWAIT,
            )
        };
        read as isize
    });
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (from, to);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// The same for sockets.
///
/// # Errors
/// `EAGAIN` where nothing is there, and those of recv(2).
pub fn receive_at_once(from: BorrowedFd<'_>, to: &mut BytesMut) -> io::Result<usize> {
    append(to, |room, len| {
        // SAFETY: the kernel writes into the room alone, which is ours for as long as the call lasts.
        unsafe { libc::recv(from.as_raw_fd(), room, len, libc::MSG_DONTWAIT) }
    })
}

/// Has `read` write behind what is in `to`, into room of this length in bytes. It returns how many it
/// wrote, or -1 and the reason in `errno`.
fn append(
    to: &mut BytesMut,
    read: impl FnOnce(*mut libc::c_void, usize) -> isize,
) -> io::Result<usize> {
    let room = to.spare_capacity_mut();
    let read = usize::try_from(read(room.as_mut_ptr().cast(), room.len()))
        .map_err(|_| io::Error::last_os_error())?;
    // SAFETY: so many bytes behind those that were there were written just now.
    unsafe { to.set_len(to.len() + read) };
    Ok(read)
}

/// The same for writing: these pieces, as far as there is room for them.
///
/// # Errors
/// `EAGAIN` where there is no room. `EOPNOTSUPP` where that can't be done with this descriptor.
pub fn write_at_once(to: BorrowedFd<'_>, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    // SAFETY: an `IoSlice` is laid out as the system's, as its documentation promises, and the kernel
    // reads no more pieces than there are.
    return at_once(unsafe {
        libc::syscall(
            libc::SYS_pwritev2,
            to.as_raw_fd(),
            pieces.as_ptr(),
            pieces.len().min(PIECES_MAX),
            CURRENT,
            CURRENT,
            libc::RWF_NOWAIT,
        )
    });
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (to, pieces);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// Where the descriptor stands, as preadv2(2) has it: each half of an offset of -1.
#[cfg(target_os = "linux")]
const CURRENT: libc::c_long = -1;

/// The most pieces that Linux takes in one call (`UIO_MAXIOV`).
#[cfg(target_os = "linux")]
const PIECES_MAX: usize = 1024;

#[cfg(target_os = "linux")]
fn at_once(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets this thread's nice value, on macOS the process's. A new thread inherits that of the one
/// that starts it.
///
/// # Errors
/// `EACCES` if this user may not lower it.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: the call takes three integers and touches no memory of ours.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Closes every descriptor but the standard streams at the next exec, whoever opened it, and but
/// those of `also` that the next exec would have left open. Call it before there is another thread:
/// one that opens a descriptor meanwhile may be missed.
///
/// # Errors
/// When the descriptors can't be listed, on a kernel that can't do it by itself.
pub fn keep_only_standard_streams(also: &[i32]) -> io::Result<()> {
    // SAFETY: the call takes integers, and a number that names no descriptor is refused.
    let is_left_open = |raw: &i32| unsafe { libc::fcntl(*raw, libc::F_GETFD) } == 0;
    let also: Vec<i32> = also.iter().copied().filter(is_left_open).collect();
    close_all_but_standard_streams()?;
    for raw in also {
        // SAFETY: as above.
        unsafe { libc::fcntl(raw, libc::F_SETFD, 0) };
    }
    Ok(())
}

fn close_all_but_standard_streams() -> io::Result<()> {
    const FIRST: libc::c_int = 3;
    let close_at_exec = |raw: libc::c_int| {
        // SAFETY: the call takes integers, and a number that names no descriptor is refused.
        // Nothing is closed now.
        unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) };
    };
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call takes three integers. It closes nothing now, so no descriptor that is
        // in use is affected.
        let result = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // Before Linux 5.9 there is no such call, before 5.11 no such flag, and some containers
        // refuse what their filter does not know.
        if !matches!(
            error.raw_os_error(),
            Some(libc::ENOSYS | libc::EINVAL | libc::EPERM)
        ) {
            return Err(error);
        }
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let name = entry?.file_name();
            if let Some(raw) = name.to_str().and_then(|name| name.parse().ok())
                && raw >= FIRST
            {
                close_at_exec(raw);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    // SAFETY: the call takes nothing.
    (FIRST..unsafe { libc::getdtablesize() }).for_each(close_at_exec);
    Ok(())
}

/// Has all threads share one heap, for a process whose threads seldom allocate at the same time. A
/// heap of a thread's own grows a page at a time, each with a call of the system (`mprotect`): that
/// took a seventh of a start with 10,000 sessions. Call it before there are threads.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes two integers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory back to the system that this process has no use for at the moment: of freed
/// buffers, and of program text and stack that were needed only to start. There is no harm where it
/// fails.
pub(crate) fn give_back_memory() {
    // What this needs is freed by it.
    #[cfg(target_os = "linux")]
    drop(let_go_of_text());
    give_back_freed();
}

/// Gives the memory of freed buffers back to the system, if the allocator can do that.
fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes an integer, and the allocator is ready for it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the pages of program text and constants that this process has touched so far: they
/// stay in the page cache, and those that are needed again come back one by one. What was needed
/// only to start no longer counts as ours. The same of the first thread's stack, if it is the caller.
#[cfg(target_os = "linux")]
fn let_go_of_text() -> io::Result<()> {
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let here = (&raw const smaps).addr();
    if let Some((start, end)) = unused_stack(&smaps, here) {
        let at = std::ptr::without_provenance_mut::<libc::c_void>(start);
        // SAFETY: what is below the frames of this thread is nobody's, and whoever comes there next
        // writes before it reads. Those of this call and of the system's are above `end`.
        unsafe { libc::madvise(at, end - start, libc::MADV_DONTNEED) };
    }
    for (start, end) in untouched_mappings(&smaps) {
        let at = std::ptr::without_provenance_mut::<libc::c_void>(start);
        // Without the first, two MiB would come back for every page that is needed.
        for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTNEED] {
            // SAFETY: the kernel says that this is a private mapping of a file which can't be
            // written to, and none of whose pages ever was; so what comes back is what was there.
            unsafe { libc::madvise(at, end - start, advice) };
        }
    }
    Ok(())
}

/// Bytes of the stack for what is called from here on, which are not let go of.
#[cfg(target_os = "linux")]
const STACK_IN_USE: usize = 16 * 1024;

/// Which part of the first thread's stack nobody uses, if the caller, who is `here`, is on it.
#[cfg(target_os = "linux")]
fn unused_stack(smaps: &str, here: usize) -> Option<(usize, usize)> {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    let page = usize::try_from(page).ok()?;
    let head = smaps.lines().find(|line| line.ends_with("[stack]"))?;
    let (start, end) = range_of(head.split_ascii_whitespace().next()?)?;
    let unused = here.checked_sub(STACK_IN_USE)? / page * page;
    (start < unused && here < end).then_some((start, unused))
}

/// `start-end`, as smaps has it.
#[cfg(target_os = "linux")]
fn range_of(text: &str) -> Option<(usize, usize)> {
    let bound = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = text.split_once('-')?;
    bound(start).zip(bound(end))
}

/// Where files are mapped that can't be written to, and of which no page was written to before they
/// were made so: all that is there is in the file. `smaps` is as proc_pid_smaps(5) has it.
#[cfg(target_os = "linux")]
fn untouched_mappings(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        match (fields.next(), fields.next(), fields.nth(3)) {
            // `start-end perms offset device inode path`.
            (Some(range), Some("r-xp" | "r--p"), Some(path)) if path.starts_with('/') => {
                mapping = range_of(range);
            }
            // Relocated data, in memory or swapped out, is in no file.
            (Some("Anonymous:" | "Swap:"), Some(kib), _) if kib != "0" => mapping = None,
            // The last line of every mapping.
            (Some("VmFlags:"), ..) => found.extend(mapping.take()),
            _ => {}
        }
    }
    found
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn what_was_ever_written_to_is_not_let_go_of() {
        let mapping = |head: &str, anonymous: u32, swap: u32| {
            format!(
                "{head}\nRss: 8 kB\nAnonymous: {anonymous} kB\nSwap: {swap} kB\nLocked: 0 kB\nVmFlags: rd ex\n"
            )
        };
        let smaps = [
            mapping("1000-2000 r--p 00000000 08:01 7 /bin/x", 0, 0),
            mapping("2000-4000 r-xp 00001000 08:01 7 /bin/x", 0, 0),
            mapping("4000-5000 r--p 00003000 08:01 7 /bin/x", 4, 0),
            mapping("5000-6000 r--p 00004000 08:01 7 /bin/x", 0, 4),
            mapping("6000-7000 rw-p 00005000 08:01 7 /bin/x", 0, 0),
            mapping("7000-8000 r-xp 00000000 00:00 0 [vdso]", 0, 0),
            mapping("8000-9000 r--p 00000000 00:00 0", 0, 0),
        ];
        assert_eq!(
            super::untouched_mappings(&smaps.concat()),
            [(0x1000, 0x2000), (0x2000, 0x4000)]
        );
    }

    #[test]
    fn of_the_stack_what_is_below_the_caller_is_let_go_of_and_nothing_of_another_thread() {
        let smaps = "1000-2000 r--p 00000000 08:01 7 /bin/x\nRss: 8 kB\n\
             7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0 [stack]\nRss: 8 kB\n";
        let (start, end) = (0x7ffc_0000_0000, 0x7ffc_0010_0000);
        let unused = |here| super::unused_stack(smaps, here);
        // The largest pages that a system has are of 64 KiB.
        let of = unused(end - 0x1234).expect("a part");
        assert_eq!(of.0, start);
        assert!((end - 0x2_0000..end - 0x1234 - super::STACK_IN_USE).contains(&of.1));
        for elsewhere in [0x1800, start - 8, start + super::STACK_IN_USE, end] {
            assert_eq!(unused(elsewhere), None, "{elsewhere:x}");
        }
    }

    #[test]
    fn what_was_let_go_of_comes_back() {
        crate::tests::alone(|| {
            let before = crate::resident_bytes(std::process::id()).expect("memory");
            super::let_go_of_text().expect("let go");
            let after = crate::resident_bytes(std::process::id()).expect("memory");
            // Formatting and comparing need text and constants that have just gone.
            assert_eq!(format!("{:?}", [1.5, f64::INFINITY]), "[1.5, inf]");
            assert!(after < before, "{before} bytes before, {after} after");
        });
    }
}
