"""Servers and clients of the SDKs, as processes of their own."""

from __future__ import annotations

import queue
import subprocess
import threading

import support

PYTHONS = {name: support.INSTALLED / name / "bin" / "python" for name in ("mcp1", "mcp2", "fastmcp")}


class Process:
    """A process that writes lines."""

    def __init__(self, daemon: support.Daemon, kind: str, script: str, *arguments: str) -> None:
        command = [str(PYTHONS[kind]), str(support.HERE / script), kind, *arguments]
        pipe = subprocess.PIPE
        with (daemon.directory / f"{script}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=daemon.environment, stdin=pipe, stdout=pipe, stderr=log, text=True, bufsize=1
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
    def __init__(self, daemon: support.Daemon, kind: str, port: int = 0, *more: str) -> None:
        super().__init__(daemon, kind, "http_server.py", str(port), str(daemon.directory / "journal"), *more)
        self.url = self.line()
        self.port = int(self.url.split(":")[2].split("/")[0])
