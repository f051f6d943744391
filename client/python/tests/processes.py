"""Servers and clients of the SDKs, as processes of their own."""

from __future__ import annotations

import queue
import socket
import subprocess
import threading
from typing import Any

import support

PYTHONS = {name: support.INSTALLED / name / "bin" / "python" for name in ("mcp1", "mcp2", "fastmcp")}


class Process:
    """A process that writes lines."""

    def __init__(
        self, daemon: support.Daemon, kind: str, script: str, *arguments: str, fds: tuple[int, ...] = ()
    ) -> None:
        command = [str(PYTHONS[kind]), str(support.HERE / script), kind, *arguments]
        pipe = subprocess.PIPE
        with (daemon.directory / f"{script}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=daemon.environment,
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                text=True,
                bufsize=1,
                pass_fds=fds,
            )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")
        self.process.stdout.close()

    def line(self) -> str:
        """The next line. Fails where the process has ended."""
        line = self.lines.get(timeout=60)
        if not line:
            raise AssertionError(f"{self.process.args} has ended")
        return line.strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


class Server(Process):
    """A server. The test holds its listening socket, so that a client that comes back while it starts again waits."""

    def __init__(
        self,
        daemon: support.Daemon,
        kind: str,
        listening: socket.socket | None = None,
        *more: str,
        script: str = "http_server.py",
    ) -> None:
        self.listening = listening or socket.create_server(("127.0.0.1", 0))
        number = self.listening.fileno()
        journal = str(daemon.directory / "journal")
        super().__init__(daemon, kind, script, str(number), journal, *more, fds=(number,))
        self.url = self.line()
        self.port = int(self.url.split(":")[2].split("/")[0])


class Served:
    """Tests of one SDK, which share a server and a daemon of their own."""

    kind: str
    more: tuple[str, ...] = ()
    """Further arguments of the server."""

    @classmethod
    def setUpClass(cls: Any) -> None:
        cls.daemon = support.Daemon().start()
        cls.addClassCleanup(cls.daemon.remove)
        cls.server = cls.serve(*cls.more)

    @classmethod
    def serve(cls: Any, *more: str, listening: Any = None) -> Server:
        server = Server(cls.daemon, cls.kind, listening, *more)
        cls.addClassCleanup(server.kill)
        return server

    def restart(self: Any) -> None:
        """Kills the server, and starts it again at its port."""
        self.server.kill()
        type(self).server = self.serve(*self.more, listening=self.server.listening)
