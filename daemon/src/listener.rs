//! Connections: who is let in, how many, and for how long they may be silent at the door.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use mcp_sessiond_proto::codec;
use mcp_sessiond_proto::frame::Budget;
use mcp_sessiond_proto::hello::{Answer, Hello, HelloError};
use mcp_sessiond_proto::service::Sessiond;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
#[cfg(target_os = "linux")]
use nix::sys::stat::{Mode, fchmod};
use tarpc::server::{BaseChannel, Channel, Config as ChannelConfig};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::counters::count;
use crate::process::{self, Peer, PeerError, ProcessId};
use crate::service::{Daemon, Service};

/// How long a peer may take for its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a peer that is turned away may take for it.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Peers that are turned away with an answer at the same time. Beyond that they are hung up on.
const TURNED_AWAY_MAX: usize = 32;

/// How long accepting pauses when there are no descriptors left: something must be closed first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that may wait to be accepted: all servers of all hosts may start at once.
const BACKLOG: i32 = 1024;

/// One process may be in the middle of this part of all large frames.
pub const FRAME_SHARES: usize = 4;

/// Answers of one connection that may wait to be written before its requests have to wait.
const ANSWERS_WAITING: usize = 16;

/// A listening socket, and the path that clients know it by.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
}

impl Listener {
    /// Binds a socket of mode 0600. Whatever has the path is unlinked: the caller holds the directory's lock.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let fd = socket(AddressFamily::Unix, SockType::Stream, socket_flags(), None)?;
        // Before bind, so that there is no moment in which the umask decides. macOS ignores it, and has the
        // directory's mode.
        #[cfg(target_os = "linux")]
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
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
            return Err(io::Error::other("the socket is open to other users; set SocketMode=0600"));
        }
        Ok(Self { socket, path: path.into(), identity: (found.dev(), found.ino()) })
    }

    /// Whether the path still leads to this socket: when another one was bound over it, no client comes any more.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    /// Takes the path away, if it is still ours, so that nobody connects to a daemon that is about to exit.
    pub fn unlink(&self) {
        if self.is_in_place() {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// A second handle, for who looks after the path while [`serve`] has the first.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, path: self.path.clone(), identity: self.identity })
    }
}

/// Whether somebody listens at `path`. Under the directory's lock that can only be a service manager.
#[must_use]
pub fn is_served(path: &Path) -> bool {
    // EAGAIN: so many wait that there is no place left in the queue.
    matches!(knock(path), Ok(_) | Err(Errno::EAGAIN))
}

/// Whether who connects to `path` comes to this listening socket, or at least to one of who listens on it.
#[must_use]
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

/// How many connections there are, in all and for each process.
#[derive(Debug, Default)]
pub struct Gauge {
    open: AtomicUsize,
    turned_away: AtomicUsize,
    by_process: Mutex<HashMap<ProcessId, OfProcess>>,
}

/// One process's part.
#[derive(Debug)]
struct OfProcess {
    open: usize,
    frames: Budget,
}

impl Gauge {
    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection in, within the limits. `frames`: the budget of all.
    fn enter(daemon: &Arc<Daemon>, process: ProcessId, frames: &Budget) -> Option<Place> {
        let settings = daemon.edge.settings();
        let limits = &settings.loaded.config.limits;
        let gauge = &daemon.connections;
        let mut by_process = gauge.by_process.lock().unwrap_or_else(PoisonError::into_inner);
        let own = by_process.get(&process).map_or(0, |own| own.open);
        if gauge.open() >= limits.connections || own >= limits.connections_per_process {
            return None;
        }
        gauge.open.fetch_add(1, Ordering::Relaxed);
        let share = || OfProcess { open: 0, frames: frames.share(limits.frame_bytes / FRAME_SHARES) };
        let own = by_process.entry(process).or_insert_with(share);
        own.open += 1;
        Some(Place { daemon: daemon.clone(), process, frames: own.frames.clone() })
    }
}

/// A connection's place in the [`Gauge`].
struct Place {
    daemon: Arc<Daemon>,
    process: ProcessId,
    frames: Budget,
}

impl Drop for Place {
    fn drop(&mut self) {
        let gauge = &self.daemon.connections;
        gauge.open.fetch_sub(1, Ordering::Relaxed);
        let mut by_process = gauge.by_process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = by_process.get_mut(&self.process) {
            own.open -= 1;
            if own.open == 0 {
                by_process.remove(&self.process);
            }
        }
    }
}

/// Serves connections until `draining` says otherwise, then waits for the calls under way. The caller bounds that.
///
/// # Errors
/// When the socket can't be listened on.
pub async fn serve(
    listener: Listener,
    daemon: Arc<Daemon>,
    mut draining: watch::Receiver<bool>,
) -> io::Result<()> {
    let socket = tokio::net::UnixListener::from_std(listener.socket)?;
    let budget = Budget::new(daemon.edge.settings().loaded.config.limits.frame_bytes);
    let mut connections = JoinSet::new();
    let told = draining.clone();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, daemon.clone(), budget.clone(), told.clone()));
                }
                Err(error) => {
                    tracing::error!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = drained(&mut draining) => break,
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// One connection, from its first byte to its last.
async fn converse(
    mut stream: UnixStream,
    daemon: Arc<Daemon>,
    budget: Budget,
    mut draining: watch::Receiver<bool>,
) {
    let peer = match process::peer(&stream) {
        Ok(Peer { process, .. }) => process,
        Err(error) => {
            refuse(stream, &daemon, &error).await;
            return;
        }
    };
    let Some(place) = Gauge::enter(&daemon, peer.id(), &budget) else {
        count(&daemon.edge.counters.connections_over_limit_total);
        tracing::warn!(pid = peer.id().pid, "refused a connection: as many as the limits allow are open");
        turn_away(stream, &daemon, Answer::Busy).await;
        return;
    };
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(HELLO_TIMEOUT, greet(&mut stream)) => greeted,
        () = drained(&mut draining) => {
            turn_away(stream, &daemon, Answer::Draining).await;
            return;
        }
    };
    let hello = match greeted {
        Ok(Ok(Some(hello))) => hello,
        Ok(Ok(None)) => return,
        Ok(Err(_)) | Err(_) => {
            count(&daemon.edge.counters.connections_broken_total);
            tracing::debug!(pid = peer.id().pid, "a connection ended at its hello");
            return;
        }
    };
    count(&daemon.edge.counters.connections_total);
    let Ok(codec) = hello.accept() else { return };
    let transport = codec::server(stream, codec, hello.frame_max, place.frames.clone());
    let most = daemon.edge.settings().loaded.config.limits.requests_per_connection;
    let channel = BaseChannel::new(ChannelConfig { pending_response_buffer: ANSWERS_WAITING }, transport)
        .max_concurrent_requests(most);
    let pid = peer.id().pid;
    let service = Service { daemon: daemon.clone(), peer: Arc::new(peer) };
    let mut requests = Box::pin(channel.requests());
    // In this task, not in tasks of their own: most calls are answered before anything could be scheduled.
    let mut calls = FuturesUnordered::new();
    loop {
        // In this order: a call that has ended still has to be written, which polling the requests does.
        tokio::select! {
            biased;
            request = requests.next() => match request {
                Some(Ok(request)) => {
                    calls.push(request.execute(service.clone().serve()));
                    // Whoever sends many at once must not keep the first from being answered.
                    let _ = calls.next().now_or_never();
                }
                Some(Err(error)) => {
                    count(&daemon.edge.counters.connections_broken_total);
                    tracing::debug!(pid, %error, "a connection was broken off");
                    return;
                }
                None => return,
            },
            Some(()) = calls.next() => {}
            () = drained(&mut draining), if calls.is_empty() => return,
        }
    }
}

/// Returns when the daemon is about to exit.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender is gone only when the daemon is.
    let _ = draining.wait_for(|draining| *draining).await.map(drop);
}

/// Reads the hello and answers it. None: it was refused.
async fn greet(stream: &mut UnixStream) -> Result<Option<Hello>, HelloError> {
    let hello = Hello::read(stream).await?;
    match hello.accept() {
        Ok(_) => {
            hello.reply(Answer::Welcome).write(stream).await?;
            Ok(Some(hello))
        }
        Err(answer) => {
            hello.reply(answer).write(stream).await?;
            Ok(None)
        }
    }
}

/// Turns away a peer that could not be identified.
async fn refuse(stream: UnixStream, daemon: &Daemon, error: &PeerError) {
    match error {
        // It connected, and was killed: nobody did anything wrong.
        PeerError::Gone => tracing::debug!("a process was gone before its connection was accepted"),
        // Not told anything.
        PeerError::OtherUid(_) => {
            count(&daemon.edge.counters.connections_refused_total);
            tracing::warn!(%error, "refused a connection");
        }
        // Our own trouble, such as too many open files.
        PeerError::Io(_) => {
            count(&daemon.edge.counters.connections_refused_total);
            tracing::error!(%error, "refused a connection");
            turn_away(stream, daemon, Answer::Busy).await;
        }
        PeerError::OtherNamespace | PeerError::NoPidfd => {
            count(&daemon.edge.counters.connections_refused_total);
            tracing::warn!(%error, "refused a connection");
            turn_away(stream, daemon, Answer::Unidentified).await;
        }
    }
}

/// Tells a peer why it is not let in, while there are not too many to tell.
async fn turn_away(mut stream: UnixStream, daemon: &Daemon, answer: Answer) {
    let turned_away = &daemon.connections.turned_away;
    if turned_away.fetch_add(1, Ordering::Relaxed) < TURNED_AWAY_MAX {
        let told = async {
            let hello = Hello::read(&mut stream).await?;
            hello.reply(answer).write(&mut stream).await?;
            Ok::<_, HelloError>(())
        };
        let _ = tokio::time::timeout(TURN_AWAY_TIMEOUT, told).await;
    }
    turned_away.fetch_sub(1, Ordering::Relaxed);
}
