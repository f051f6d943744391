"""What the tests have in common: a daemon of their own, in a directory of its own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCE = HERE.parent / "src"
if os.environ.get("MCP_SESSIOND_INSTALLED") is None:
    sys.path.insert(0, str(SOURCE))
from mcp_sessiond import Options, Sessions  # noqa: E402

T = TypeVar("T")
INSTALLED = ROOT / "target" / "py"
BINARY = os.environ.get("MCP_SESSIOND_BIN") or str(ROOT / "target" / "debug" / "mcp-sessiond")


# Runs a command for which the kernel refuses SO_PEERPIDFD, as Linux does before 6.5.
BEFORE_LINUX_6_5 = (
    sys.executable,
    str(ROOT / "tests" / "python" / "refusing.py"),
    "getsockopt:2=77=ENOPROTOOPT",
    "--",
)


class Daemon:
    """A daemon that the tests may kill. It ends with them, and its directory goes."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="sessiond-py-", dir="/tmp"))
        self.environment = {**os.environ, "MCP_SESSIOND_DIR": str(self.directory), "MCP_SESSIOND_BIN": BINARY}
        # No settings of the user's.
        self.environment["XDG_CONFIG_HOME"] = str(self.directory / "config")
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)

    def start(self, *settings: str, prefix: tuple[str, ...] = ()) -> Daemon:
        """Starts it, and returns once it says that it is ready, or another one is there."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(self.directory / "ready"))
            environment = {**self.environment, "NOTIFY_SOCKET": str(self.directory / "ready")}
            given = [word for setting in settings for word in ("--set", setting)]
            self.process = subprocess.Popen(
                [*prefix, BINARY, "run", *given], env=environment, stderr=subprocess.DEVNULL
            )
            ready.settimeout(0.1)
            # It exits where a server that has missed the former one was quicker to start another.
            while self.process.poll() is None:
                with contextlib.suppress(TimeoutError):
                    if b"READY=1" in ready.recv(4096):
                        break
        (self.directory / "ready").unlink()
        return self

    def kill(self) -> None:
        """Kills it, as SIGKILL does."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def pid(self) -> int | None:
        """The process that serves the directory, if any does."""
        about = subprocess.run(
            [BINARY, "debug", "about", "--json"], env=self.environment, capture_output=True
        )
        return int(json.loads(about.stdout)["pid"]) if about.returncode == 0 else None

    def ask(self, work: Callable[[Sessions], Awaitable[T]]) -> T:
        """The result of work with the sessions of the service `test`."""

        async def asked() -> T:
            sessions = Sessions("test", Options(directory=self.directory))
            try:
                return await work(sessions)
            finally:
                await sessions.close()

        return asyncio.run(asked())

    def remove(self) -> None:
        """Ends whatever daemon runs in the directory, and removes that."""
        pid = self.pid() if self.directory.exists() else None
        if pid:
            os.kill(pid, signal.SIGTERM)
        if self.process:
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
