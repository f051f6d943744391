"""What keeps events: a daemon of ours, SQLite, or Redis. `where` is what a server is told of it, `environment` its variables."""

import os, pathlib, shutil, subprocess, tempfile, time

import installed, processes

ROOM = ["--set", "limits.owner_bytes=1073741824", "--set", "limits.total_bytes=1073741824"]


class Nothing:
    """Events are not kept."""

    where, environment = [], {}

    def start(self):
        """Nothing runs."""

    def stop(self):
        """Nothing runs."""


class Sqlite(Nothing):
    """A file, of the server's process."""

    def start(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
        self.where = [self.directory / "events.db"]

    def stop(self):
        shutil.rmtree(self.directory, ignore_errors=True)


class Process(Nothing):
    """A process with a directory of its own."""

    # As `/run/user/UID`, where a daemon's directory is by default: a file system in memory.
    parent = "/dev/shm"

    def start(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=self.parent))
        command = [str(part) for part in self.command()]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env={**os.environ, **self.environment}, **quiet)
        until = time.monotonic() + 30
        while not (self.directory / self.socket).exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise OSError(f"{command[0]} did not start")
            time.sleep(0.01)

    def stop(self):
        processes.end(self.process.pid)
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Daemon(Process):
    """Ours, with the default settings but for room."""

    socket, settings = "daemon.sock", ROOM

    def command(self):
        self.environment = {"MCP_SESSIOND_DIR": str(self.directory), "MCP_SESSIOND_CONFIG": str(self.directory / "none")}
        return [installed.BINARY, "run", *self.settings]


class Power(Daemon):
    """The same on a disk, where each event is synced."""

    parent, settings = "/tmp", [*ROOM, "--set", "storage.durability=power"]


class Redis(Process):
    """A Redis that keeps nothing on a disk."""

    socket = "socket"

    def command(self):
        path = self.directory / self.socket
        self.where = [f"unix://{path}"]
        return ["redis-server", "--port", 0, "--save", "", "--appendonly", "no", "--dir", self.directory, "--unixsocket", path]
