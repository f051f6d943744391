//! Who speaks on a socket, and for whom.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::unistd::geteuid;

use super::challenge::Challenge;
use super::exhausted::{Exhausted, readable};
use super::launchers::{Kind, Table, base_name};
use super::peer_error::PeerError;
use super::pinned::PinnedProcess;
use super::walk::{HostDoubt, confirm_child, hold_parent, kind_above, parent_pid};
use super::{executable, os};

/// The process at the other end of a connection: the one that opened it, or that listens.
#[derive(Debug)]
pub enum Peer {
    /// The kernel says who it is, which is not necessarily who writes: a forked child speaks under
    /// its parent's name.
    Known(PinnedProcess),
    /// The kernel says only which pid it had, so that it has to answer.
    Claimed(Challenge),
}

impl Peer {
    /// The process. Where it has not answered yet, it may be a later owner of the peer's pid.
    pub fn process(&self) -> &PinnedProcess {
        match self {
            Self::Known(process) => process,
            Self::Claimed(challenge) => challenge.process(),
        }
    }
}

/// Who is at the other end of a connected Unix socket.
///
/// # Errors
/// [`PeerError`]. The user is looked at first, before anything is read about the process.
pub fn peer(socket: &impl AsFd) -> Result<Peer, PeerError> {
    let (process, is_certain) = claimed(socket)?;
    Ok(if is_certain {
        Peer::Known(process)
    } else {
        Peer::Claimed(Challenge::new(socket.as_fd(), process)?)
    })
}

/// Whether the process at the other end is this user's, and in our pid namespace: for who serves
/// all processes of this user alike.
pub fn is_ours(socket: &impl AsFd) -> bool {
    claimed(socket).is_ok()
}

/// The process that has the peer's pid, and whether it surely is the peer.
pub(super) fn claimed(socket: &impl AsFd) -> Result<(PinnedProcess, bool), PeerError> {
    let uid = geteuid().as_raw();
    let (handle, pid, is_certain) = os::peer(socket.as_fd(), uid)?;
    let process = PinnedProcess::identify(handle, pid)?.ok_or(PeerError::Gone)?;
    let status = os::status(pid).map_err(|error| {
        if os::is_gone(&error) {
            PeerError::Gone
        } else {
            error.into()
        }
    })?;
    if !process.is_alive() {
        return Err(PeerError::Gone);
    }
    if let Some(other) = status.other_uid(uid) {
        return Err(PeerError::OtherUid(other));
    }
    if !status.in_our_namespace {
        return Err(PeerError::OtherNamespace);
    }
    Ok((process, is_certain))
}

/// Whether the kernel says by itself who a peer is; otherwise each has to answer a
/// [challenge](Challenge).
///
/// # Errors
/// Where processes can't be held, so that nobody can be identified; and those of making a pair of
/// sockets.
pub fn peers_are_known() -> io::Result<bool> {
    drop(PinnedProcess::own()?);
    let (ours, _theirs) = UnixStream::pair()?;
    match os::peer(ours.as_fd(), geteuid().as_raw()) {
        Ok((_, _, is_certain)) => Ok(is_certain),
        Err(PeerError::Io(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Ancestors that are looked at in search of a named one.
const ANCESTORS_MAX: usize = 32;

/// A process that can't be claimed for by the peer that named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnInstance {
    /// It is neither the peer nor one of its ancestors of the same user, or the way there changed
    /// while it was looked at.
    #[error("process {0} is not the peer, nor an ancestor of it")]
    Stranger(u32),
    /// It is the host of whoever asks, or above that one.
    #[error("process {0} is the host, or above it")]
    Host(u32),
    /// It may well be the peer's: this passes.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// The process that a peer speaks for: itself, or the launcher or shell script above it that it
/// names. Never its host, or anything above that: two servers that named their host would share one
/// session.
///
/// From below, a host and an instance look alike: each is the parent of what it runs. So what
/// counts is who asks: the peer. But our own `token` and `debug` ask for whoever called them, a
/// program (`subprocess.run(["mcp-sessiond", …])`) or a shell script; and a launcher on the way
/// there that was given the number (`sh -c "… --for 4711"`, of a server that wrote its own pid
/// there) only carries it. A shell that finds the number out (`sh -c '… --for $PPID'`, a script) is
/// the one who asks, and the first program above it is its host.
///
/// What the kernel can't tell: a shell that has become `token`, by exec. Its parent passes for the
/// caller. No server is left there to use what it gets.
///
/// # Errors
/// [`NotAnInstance`].
pub fn instance(
    peer: &PinnedProcess,
    named: Option<u32>,
    table: &Table,
) -> Result<PinnedProcess, NotAnInstance> {
    let Some(pid) = named.filter(|pid| *pid != peer.pid()) else {
        return Ok(peer.clone());
    };
    // Whether the one who asks was reached on the way up, and whether its host was.
    let (mut asks, mut host) = (!is_our_command(peer.pid())?, false);
    let found = climb(peer, pid, |child, above| {
        let launches = HostDoubt::settled(kind_above(child, above, table))? == Some(Kind::Launcher);
        if asks {
            host |= !launches;
        } else {
            asks = !(launches && is_given(pid, above)?);
        }
        Ok(())
    });
    match found? {
        Some(_) if host => Err(NotAnInstance::Host(pid)),
        Some(found) => Ok(found),
        None => Err(NotAnInstance::Stranger(pid)),
    }
}

/// The ancestor that has this pid, if it is one of the same user, and the way there did not change
/// meanwhile.
///
/// # Errors
/// [`Exhausted`].
pub fn ancestor(peer: &PinnedProcess, pid: u32) -> Result<Option<PinnedProcess>, Exhausted> {
    climb(peer, pid, |_, _| Ok(()))
}

/// Shows every child on the way up and the pid of its parent, while both are held.
fn climb(
    peer: &PinnedProcess,
    pid: u32,
    mut show: impl FnMut(&PinnedProcess, u32) -> Result<(), Exhausted>,
) -> Result<Option<PinnedProcess>, Exhausted> {
    let uid = geteuid().as_raw();
    let mut child = peer.clone();
    for _ in 0..ANCESTORS_MAX {
        let Some(above) = HostDoubt::settled(parent_pid(&child))? else {
            break;
        };
        // Nobody speaks for pid 1, and it may not even be ours to look at.
        if above == 1 {
            break;
        }
        let Some(parent) = HostDoubt::settled(hold_parent(above, uid))? else {
            break;
        };
        show(&child, above)?;
        if HostDoubt::settled(confirm_child(&child, &parent))?.is_none() {
            break;
        }
        if above == pid {
            return Ok(Some(parent));
        }
        child = parent;
    }
    Ok(None)
}

/// Whether this is `mcp-sessiond token` or `mcp-sessiond debug`. Before and after an upgrade they
/// have the name in common, and where they have another name, the file.
fn is_our_command(pid: u32) -> Result<bool, Exhausted> {
    let ours = |path: PathBuf| {
        base_name(&path) == "mcp-sessiond" || executable::own().is_some_and(|own| own == path)
    };
    let verbs: [&[u8]; 2] = [b"token", b"debug"];
    if !readable(os::executable(pid))?.is_some_and(ours) {
        return Ok(false);
    }
    Ok(arguments(pid)?
        .get(1)
        .is_some_and(|verb| verbs.contains(&verb.as_slice())))
}

/// Whether the arguments of a process say `--for` this pid.
fn is_given(named: u32, pid: u32) -> Result<bool, Exhausted> {
    let text = arguments(pid)?.join(&b' ');
    let text = String::from_utf8_lossy(&text);
    Ok([format!("--for {named}"), format!("--for={named}")]
        .iter()
        .any(|said| {
            text.match_indices(said).any(|(at, _)| {
                !text[at + said.len()..].starts_with(|next: char| next.is_ascii_digit())
            })
        }))
}

fn arguments(pid: u32) -> Result<Vec<Vec<u8>>, Exhausted> {
    Ok(readable(os::arguments(pid))?.flatten().unwrap_or_default())
}
