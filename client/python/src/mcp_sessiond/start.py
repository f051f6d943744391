"""Which command starts a daemon, and what its exit code means."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import directory
from .deadline import Deadline
from .errors import NotStarted

VARIABLE = "MCP_SESSIOND_BIN"
"""The environment variable that names the daemon's executable."""

_BINARY = "mcp-sessiond"
_ANOTHER_RUNS = 75
_BAD_CONFIGURATION = 64


@dataclass(frozen=True)
class Command:
    """A command that starts a daemon: its arguments, and its environment."""

    arguments: list[str]
    environment: dict[str, str]
    is_last: bool
    """Whether nothing else is tried where it fails."""

    async def run(self, deadline: Deadline) -> int | None:
        """Runs it without input and output. Its exit code; None: it still runs. Raises `OSError`."""
        # Not by asyncio's own means: those need a watcher of children, which is the server's.
        null = subprocess.DEVNULL
        child = subprocess.Popen(self.arguments, env=self.environment, stdin=null, stdout=null, stderr=null)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()

        def wait() -> None:
            status = child.wait()
            try:
                loop.call_soon_threadsafe(_tell, done, status)
            except RuntimeError:
                pass  # The loop is closed: nobody waits.

        threading.Thread(target=wait, daemon=True).start()
        try:
            return await asyncio.wait_for(done, deadline.left)
        except asyncio.TimeoutError:
            return None

    def judge(self, status: int | None) -> bool:
        """Whether a daemon is there, or about to be. None: the command still runs, and the next
        attempt to connect shows it.

        Raises `NotStarted` where it has failed and nothing else is tried.
        """
        if status is None or status == 0 or (self.is_last and status == _ANOTHER_RUNS):
            return True
        if not self.is_last:
            return False
        hint = ": its configuration has an error" if status == _BAD_CONFIGURATION else ""
        raise NotStarted(
            f"`{self.arguments[0]} run` failed (exit code {status}){hint}; run it in a terminal to see why"
        )

    def not_found(self, error: OSError) -> NotStarted:
        """The error where the command can't be run."""
        why = f"no daemon runs, and {self.arguments[0]} could not be started: {error.strerror}"
        return NotStarted(f"{why}; install it, or set {VARIABLE} to its path")


def commands(runtime: Path, binary: os.PathLike[str] | str | None) -> Iterator[Command]:
    """The commands to try, in order: the service manager where it knows the daemon, then the executable
    itself.
    """
    is_derived = runtime == directory.derived()
    service = _service(runtime) if is_derived else None
    if service:
        yield service
    environment = dict(os.environ)
    if runtime != Path(environment.get(directory.VARIABLE) or directory.derived()):
        environment[directory.VARIABLE] = str(runtime)
    yield Command([os.fspath(binary) if binary else _find(), "run", "--on-demand"], environment, is_last=True)


def _tell(done: asyncio.Future[int], status: int) -> None:
    if not done.done():
        done.set_result(status)


# Where the administrator and packages have the units of all users.
_UNITS = ("/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")


def _find() -> str:
    if named := os.environ.get(VARIABLE):
        return named
    beside = Path(sys.executable).with_name(_BINARY)
    return str(beside) if sys.executable and beside.is_file() else shutil.which(_BINARY) or _BINARY


def _service(runtime: Path) -> Command | None:
    home = os.environ.get("HOME")
    environment = dict(os.environ)
    if sys.platform == "darwin":
        label = "io.github.mcp-sessiond"
        agent = Path(home or "/", "Library", "LaunchAgents", f"{label}.plist")
        arguments = ["/bin/launchctl", "kickstart", f"gui/{os.getuid()}/{label}"]
        return Command(arguments, environment, is_last=False) if home and agent.is_file() else None
    config = os.environ.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
    if not config or Path("/run/user") not in runtime.parents:
        return None
    # Hosts don't pass it on, and without it the user manager is not found.
    environment["XDG_RUNTIME_DIR"] = str(runtime.parent)
    # As systemd looks for it: the first one counts, also if it is masked, by a link to /dev/null.
    folders = (os.path.join(config, "systemd/user"), *_UNITS)
    units = (Path(folder, "mcp-sessiond.socket") for folder in folders)
    unit = next((unit for unit in units if os.path.lexists(unit)), None)
    arguments = ["systemctl", "--user", "start", "mcp-sessiond.service"]
    return Command(arguments, environment, is_last=False) if unit and unit.is_file() else None
