//! The listening socket, and who is behind its path.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, socket};
#[cfg(target_os = "linux")]
use nix::sys::stat::{Mode, fchmod};

use crate::sys;

/// How many connections may wait to be accepted: all servers of all hosts may start at once. The
/// kernel may lower it.
const BACKLOG: i32 = 1024;

/// A listening socket, and the path that clients know it by.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
}

impl Listener {
    /// Binds a socket of mode 0600. Whatever has the path is unlinked: the caller holds the
    /// directory's lock.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let fd = socket(AddressFamily::Unix, SockType::Stream, socket_flags(), None)?;
        // Before bind, so that there is no moment in which the umask decides. macOS ignores it, and
        // has the directory's mode.
        #[cfg(target_os = "linux")]
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        sys::listen(fd.as_fd(), BACKLOG)?;
        Self::inherited(fd, path)
    }

    /// Takes a socket that systemd or launchd has bound to `path`.
    ///
    /// # Errors
    /// When the path is not there, or is open to others.
    pub fn inherited(fd: OwnedFd, path: &Path) -> io::Result<Self> {
        let socket = UnixListener::from(fd);
        socket.set_nonblocking(true)?;
        let found = std::fs::symlink_metadata(path)?;
        if found.permissions().mode() & 0o077 != 0 && !cfg!(target_os = "macos") {
            return Err(io::Error::other(
                "the socket is open to other users; set SocketMode=0600",
            ));
        }
        Ok(Self {
            socket,
            path: path.into(),
            identity: (found.dev(), found.ino()),
        })
    }

    /// Whether the path still leads to this socket: when another one was bound over it, no client
    /// comes any more.
    pub fn is_in_place(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    /// Takes the path away, if it is still ours, so that nobody connects to a daemon that is about
    /// to exit.
    pub fn unlink(&self) {
        if self.is_in_place() {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// A second handle, for who looks after the path while another one accepts from the first.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            path: self.path.clone(),
            identity: self.identity,
        })
    }
}

impl From<Listener> for UnixListener {
    fn from(listener: Listener) -> Self {
        listener.socket
    }
}

/// Whether somebody listens at `path`. Under the directory's lock that can only be a service
/// manager.
pub fn is_served(path: &Path) -> bool {
    // EAGAIN: so many wait that there is no place left in the queue.
    matches!(knock(path), Ok(_) | Err(Errno::EAGAIN))
}

/// Connects to who listens at `path`, and does not wait for a place in its queue.
///
/// # Errors
/// Those of connect(2): `EAGAIN` where so many wait that there is no place left.
pub fn connect_now(path: &Path) -> io::Result<UnixStream> {
    Ok(UnixStream::from(knock(path)?))
}

/// Whether who connects to `path` comes to this listening socket, or at least to one of who listens
/// on it.
pub fn leads_to(path: &Path, socket: &OwnedFd) -> bool {
    match knock(path) {
        #[cfg(target_os = "linux")]
        Ok(connected) => {
            use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
            // Of both ends the kernel has who called listen(2).
            let listens = |fd| getsockopt(fd, PeerCredentials).map(|credentials| credentials.pid());
            listens(&connected) == listens(socket)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(_) => {
            let _ = socket;
            true
        }
        Err(errno) => errno == Errno::EAGAIN,
    }
}

/// Ends the connections that wait to be accepted, so that these clients look for another daemon.
pub fn turn_all_away(socket: OwnedFd) {
    let socket = UnixListener::from(socket);
    if socket.set_nonblocking(true).is_ok() {
        while socket.accept().is_ok() {}
    }
}

/// Connects, and does not wait.
fn knock(path: &Path) -> Result<OwnedFd, Errno> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, socket_flags(), None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}

fn socket_flags() -> SockFlag {
    #[cfg(target_os = "linux")]
    return SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    #[cfg(not(target_os = "linux"))]
    SockFlag::empty()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Listener, connect_now};

    /// Also where the C library's SOMAXCONN is lower: it is 128 in musl. On macOS the kernel itself
    /// has such a limit.
    #[test]
    fn many_may_wait_to_be_accepted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let _listener = Listener::bind(&path).expect("it listens");
        let waiting: Vec<_> = (0..200).map_while(|_| connect_now(&path).ok()).collect();
        assert_eq!(waiting.len(), 200);
    }
}
