//! Where the listening socket comes from: systemd, launchd, or ourselves.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use mcp_sessiond_process::socket::{self, Listener};

use super::Fatal;

/// The name of the socket in the launchd agent's `Sockets`.
#[cfg(target_os = "macos")]
const LAUNCHD_SOCKET: &str = "Listeners";

/// Who bound the socket, or will.
pub(super) enum Origin {
    /// A service manager: the path is its own, and is never unlinked.
    Activated {
        manager: &'static str,
        socket: OwnedFd,
    },
    /// This daemon.
    OwnSocket { started_by: &'static str },
}

/// Finds out how this process was started.
pub(super) fn origin(detached: bool, path: &Path) -> Result<Origin, Fatal> {
    #[cfg(not(target_os = "linux"))]
    let _ = path;
    #[cfg(target_os = "linux")]
    let failed = |error| Fatal::Socket {
        path: path.into(),
        error,
    };
    #[cfg(target_os = "linux")]
    if let Some(socket) = from_systemd().map_err(failed)? {
        return Ok(Origin::Activated {
            manager: "systemd",
            socket,
        });
    }
    // launchd refuses a process that it did not start, which is no failure.
    #[cfg(target_os = "macos")]
    if let Some(socket) = mcp_sessiond_process::sys::launchd_sockets(LAUNCHD_SOCKET)
        .ok()
        .and_then(|found| found.into_iter().next())
    {
        return Ok(Origin::Activated {
            manager: "launchd",
            socket,
        });
    }
    let under_systemd = std::env::var_os("NOTIFY_SOCKET").is_some();
    let started_by = match (detached, under_systemd) {
        (true, _) => "on_demand",
        (false, true) => "systemd",
        (false, false) => "foreground",
    };
    Ok(Origin::OwnSocket { started_by })
}

#[cfg(target_os = "linux")]
fn from_systemd() -> io::Result<Option<OwnedFd>> {
    let mut passed = sd_notify::listen_fds()?;
    let first = passed.next();
    if passed.next().is_some() {
        return Err(io::Error::other(
            "systemd passed more than one socket; the unit must have one ListenStream",
        ));
    }
    first.map(mcp_sessiond_process::sys::take_fd).transpose()
}

impl Origin {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Activated { manager, .. } => manager,
            Self::OwnSocket { started_by } => started_by,
        }
    }

    /// Whether the socket is the one that clients find, as far as that is not up to this daemon.
    pub(super) fn is_in_place(&self, path: &Path) -> bool {
        match self {
            Self::Activated { socket, .. } => socket::leads_to(path, socket),
            Self::OwnSocket { .. } => true,
        }
    }

    /// Gives up a service manager's socket that no client finds any more: the manager does not
    /// notice that the directory was replaced, and passes the same socket again and again. Then
    /// this daemon binds its own.
    pub(super) fn settle(self, path: &Path) -> Self {
        match self {
            Self::Activated { manager, socket } if !socket::leads_to(path, &socket) => {
                tracing::warn!(path = %path.display(), "the socket of {manager} is gone; binding another");
                socket::turn_all_away(socket);
                Self::OwnSocket {
                    started_by: manager,
                }
            }
            origin => origin,
        }
    }

    pub(super) fn listener(self, path: &Path) -> io::Result<Listener> {
        match self {
            Self::Activated { socket, .. } => Listener::inherited(socket, path),
            Self::OwnSocket { .. } => Listener::bind(path),
        }
    }
}
