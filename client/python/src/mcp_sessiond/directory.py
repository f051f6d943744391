"""The runtime directory: where it is, and what must hold of it before a client says a word."""

from __future__ import annotations

import os
import pwd
import socket
import stat
import struct
import sys
from pathlib import Path

from .errors import ConnectError, NotRunning, Untrusted

VARIABLE = "MCP_SESSIOND_DIR"
"""The environment variable that names another runtime directory: an absolute path."""

_SOCKET = "daemon.sock"
_SOCKET_PATH_MAX = 103
_MODE = 0o700


def derived() -> Path:
    """The directory that follows from the uid alone. The service manager's units serve this one."""
    uid = os.geteuid()
    if sys.platform == "darwin":
        return Path(pwd.getpwuid(uid).pw_dir, "Library", "Application Support", "mcp-sessiond")
    run = Path(f"/run/user/{uid}")
    try:
        found = run.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == uid
    except OSError:
        is_ours = False
    return run / "mcp-sessiond" if is_ours else Path(f"/tmp/mcp-sessiond-{uid}")


def directory(chosen: os.PathLike[str] | str | None = None) -> Path:
    """The runtime directory: the chosen one, else `MCP_SESSIOND_DIR`, else the one that follows from the uid.

    Raises `ConnectError` where the path is relative, or too long for a socket in it.
    """
    path = Path(chosen or os.environ.get(VARIABLE) or derived())
    if not path.is_absolute():
        raise ConnectError(f"{VARIABLE} must be an absolute path, not {str(path)!r}")
    # Keepers' sockets are in there, too.
    if len(os.fsencode(path / "keepers" / "00000000")) > _SOCKET_PATH_MAX:
        raise ConnectError(f"{path} is too long for a socket in it; set {VARIABLE} to a shorter path")
    return path


def socket_in(path: Path) -> Path:
    """The path of the daemon's socket in a runtime directory."""
    return path / _SOCKET


def check(path: Path) -> None:
    """Checks that the directory itself is this user's and closed to everybody else.

    Raises `NotRunning` where there is none, `Untrusted` where it is not to be trusted.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise not_running(path) from None
    except OSError as error:
        raise ConnectError(f"{path} can't be read: {error.strerror}") from error
    ours = os.geteuid()
    mode = stat.S_IMODE(found.st_mode) & 0o777
    if stat.S_ISLNK(found.st_mode):
        raise Untrusted(
            f"{path} is a symbolic link, which is never followed; remove it, and the daemon makes a directory"
        )
    if not stat.S_ISDIR(found.st_mode):
        raise Untrusted(f"{path} is not a directory; remove it, and the daemon makes one")
    if found.st_uid != ours:
        raise Untrusted(
            f"{path} belongs to uid {found.st_uid}, not to {ours}; remove it, or set {VARIABLE} to another"
        )
    if mode != _MODE:
        raise Untrusted(
            f"{path} has mode {mode:04o} and must have 0700; see who changed it, then `chmod 700` it"
        )


def check_daemon(connection: socket.socket) -> None:
    """Checks that the process that listens is this user's. Raises `Untrusted` where it is not."""
    if not hasattr(socket, "SO_PEERCRED"):
        # Python has no `getpeereid`. The directory is closed to everybody else.
        return
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid != os.geteuid():
        raise Untrusted(f"the process at the daemon's socket has uid {uid}; nothing was sent to it")


def not_running(path: Path) -> NotRunning:
    """The error where nobody listens."""
    where = socket_in(path)
    return NotRunning(
        f"no daemon listens at {where}; start one with `mcp-sessiond run`, or `mcp-sessiond install` it"
    )
