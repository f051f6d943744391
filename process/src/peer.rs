//! Who speaks on a socket, and for whom.

use std::io;
use std::os::fd::AsFd;

use nix::unistd::geteuid;

use super::os;
use super::pinned::Pinned;
use super::walk::{confirm_child, hold_parent, parent_pid};

/// The process at the other end of a connection: the one that connected, not necessarily the one that writes. A
/// forked child speaks under its parent's name.
#[derive(Debug)]
pub struct Peer {
    /// The process.
    pub process: Pinned,
    /// Its user, who is ours.
    pub uid: u32,
}

/// A peer that nobody should talk to. Only the first is an attack by its looks.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It is another user's.
    #[error("the peer belongs to user {0}, not to ours")]
    OtherUid(u32),
    /// It is in another pid namespace, so that nothing can be said about its parents.
    #[error("the peer is in another pid namespace")]
    OtherNamespace,
    /// The kernel is older than Linux 6.5, and can't tell a peer from one that got its pid later.
    #[error("this kernel can't say for sure who the peer is (SO_PEERPIDFD, Linux 6.5)")]
    NoPidfd,
    /// It has exited.
    #[error("the peer has exited")]
    Gone,
    /// The system would not say.
    #[error("the peer can't be identified: {0}")]
    Io(#[from] io::Error),
}

/// Who is at the other end of a connected Unix socket.
///
/// # Errors
/// [`PeerError`]. The user is looked at first, before anything is read about the process.
pub fn peer(socket: &impl AsFd) -> Result<Peer, PeerError> {
    let uid = geteuid().as_raw();
    let (handle, pid) = os::peer(socket.as_fd(), uid)?;
    let process = Pinned::identify(handle, pid)?.ok_or(PeerError::Gone)?;
    let kin =
        os::kin(pid).map_err(|error| if os::is_gone(&error) { PeerError::Gone } else { error.into() })?;
    if !process.is_alive() {
        return Err(PeerError::Gone);
    }
    if let Some(other) = kin.other_uid(uid) {
        return Err(PeerError::OtherUid(other));
    }
    if !kin.in_our_namespace {
        return Err(PeerError::OtherNamespace);
    }
    Ok(Peer { process, uid })
}

/// Ancestors that are looked at in search of a named one.
const ANCESTORS_MAX: usize = 32;

/// A process that was named as the instance, and is neither the peer nor one of its ancestors of the same user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {pid} is not the peer, nor an ancestor of it")]
pub struct NotAnAncestor {
    /// The pid that was named.
    pub pid: u32,
}

/// The process that a peer speaks for: itself, or the ancestor that it names.
///
/// # Errors
/// [`NotAnAncestor`], also where the way there changed while it was looked at.
pub fn instance(peer: &Pinned, named: Option<u32>) -> Result<Pinned, NotAnAncestor> {
    let Some(pid) = named.filter(|pid| *pid != peer.pid()) else {
        return Ok(peer.clone());
    };
    let refused = NotAnAncestor { pid };
    let uid = geteuid().as_raw();
    let mut child = peer.clone();
    for _ in 0..ANCESTORS_MAX {
        let above = parent_pid(&child).map_err(|_| refused)?;
        // Nobody speaks for pid 1, and it may not even be ours to look at.
        if above == 1 {
            return Err(refused);
        }
        let parent = hold_parent(above, uid).map_err(|_| refused)?;
        confirm_child(&child, &parent).map_err(|_| refused)?;
        if above == pid {
            return Ok(parent);
        }
        child = parent;
    }
    Err(refused)
}
