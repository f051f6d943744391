"""`serve`, its daemon and its server, which can be killed, and the client's program."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

from harness import PROGRAM, PYTHON, kill_marked, processes, start_of

HERE = Path(__file__).resolve().parent
# Short, so that a round does not take long; and yet so long that `serve` is back before a client has tried twice.
RETRY_MS = 500


class World:
    """A runtime directory of its own. `server`: the command behind `serve`, instead of the one that counts. `durable`: a server that speaks
    HTTP itself, in the place of `serve` and all that is behind it.
    """

    def __init__(self, wire, server=None, settings=f"http.retry_ms = {RETRY_MS}", durable=None):
        self.wire = wire
        self.root = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
        self.run, self.journal = self.root / "run", self.root / "journal"
        self.run.mkdir(mode=0o700)
        self.server = server or [PYTHON, "-I", "-S", str(HERE / "server.py"), str(self.journal)]
        (self.root / "config.toml").write_text(f"{settings}\n")
        self.environment = {"HOME": str(self.root), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(self.root),
                            "MCP_SESSIOND_DIR": str(self.run), "MCP_SESSIOND_CONFIG": str(self.root / "config.toml")}
        self.serve, self.at, self.durable = None, "127.0.0.1:0", durable

    async def start(self):
        """Starts `serve`, and waits until it listens."""
        command = [str(PROGRAM), "serve", "--listen", self.at, "--name", "campaign", "--", *self.server]
        if self.durable:
            command = [str(self.durable), self.at, str(self.journal)]
        with open(self.root / "serve.log", "ab") as errors:
            self.serve = await asyncio.create_subprocess_exec(
                *command, env={**self.environment, "MCP_SESSIOND_BIN": str(PROGRAM)}, cwd=self.root, stdout=asyncio.subprocess.PIPE, stderr=errors,
                stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
        line = (await self.serve.stdout.readline()).decode()
        if "http://" not in line:
            raise RuntimeError(f"serve does not listen: {line!r} {(self.root / 'serve.log').read_text()[-2000:]}")
        self.at = line.split("http://", 1)[1].split("/", 1)[0]
        self.wire.serve_port = int(self.at.rsplit(":", 1)[1])

    async def kill_serve(self):
        self.serve.kill()
        await self.serve.wait()

    async def kill_daemon(self):
        """Kills the daemon, and waits until it is gone. Whoever misses it starts it again. Returns how many there were."""
        return await self._kill(self._is_daemon)

    async def daemon_back(self):
        """Starts the daemon, if nobody has missed it since it was killed, and waits until it listens."""
        if not self._found(self._is_daemon):
            with open(self.root / "daemon.log", "ab") as errors:
                await asyncio.create_subprocess_exec(str(PROGRAM), "run", env=self.environment, cwd=self.root, stderr=errors,
                                                     stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_unix_connection(self.run / "daemon.sock")
                writer.close()
                return
            await asyncio.sleep(0.005)

    async def kill_server(self):
        """Kills the servers, and waits until they are gone. A keeper starts each again at the next request."""
        await self._kill(self._is_server)

    def _is_daemon(self, arguments):
        return Path(arguments[0]).name == PROGRAM.name and arguments[1:2] == ["run"]

    def _is_server(self, arguments):
        return arguments[0] == PYTHON and arguments[-1] == str(self.journal)

    def _found(self, is_meant):
        """These processes of this directory, each with its start."""
        mine = f"MCP_SESSIOND_DIR={self.run}"
        return {pid: start_of(pid) for pid, arguments, environment in processes()
                if mine in environment and arguments and is_meant(arguments)}

    async def _kill(self, is_meant):
        pids = self._found(is_meant)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(start_of(pid) == began for pid, began in pids.items()):
            await asyncio.sleep(0.005)
        return len(pids)

    def executed(self, key):
        """How often a call was begun."""
        return self.journal.read_text().splitlines().count(key) if self.journal.exists() else 0

    async def close(self, kept):
        """Ends whatever is left, by pid, and keeps what a failure needs to be understood."""
        mark = str(self.root)
        for _ in range(100):
            if not kill_marked(mark):
                break
            await asyncio.sleep(0.1)
        if self.serve:
            await self.serve.wait()
        for path in [*self.root.glob("*"), *self.run.glob("*.log")]:
            if path.is_file():
                shutil.copy(path, kept)
        shutil.rmtree(self.root, ignore_errors=True)


class Alone:
    """A server that speaks HTTP by itself, if it is told to, and no `serve`."""

    def __init__(self, wire, server, settings):
        self.wire, self.server = wire, [*server, "http"]

    async def start(self):
        """Starts it, and waits until it listens."""
        self.process = await asyncio.create_subprocess_exec(*self.server, stdout=asyncio.subprocess.PIPE)
        line = (await self.process.stdout.readline()).decode()
        self.wire.serve_port = int(line.split("http://", 1)[1].split("/", 1)[0].rsplit(":", 1)[1])

    async def close(self, kept):
        self.process.kill()
        await self.process.wait()


class Driver:
    """A program that calls what it reads, and writes what it gets."""

    def __init__(self, command, url, seconds, world):
        self.command = [*command, url, str(seconds)]
        self.seconds, self.world = seconds, world
        self.process = None

    async def start(self):
        with open(self.world.root / "driver.log", "ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *map(str, self.command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                cwd=self.world.root, env=self.world.environment, start_new_session=True)
        if not (await self._line(60)).get("ready"):
            raise RuntimeError(f"{self.command} does not connect: {(self.world.root / 'driver.log').read_text()[-3000:]}")

    async def _line(self, seconds):
        """What it says next; what is missing is said by `gone` or `silent`."""
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), seconds)
        except asyncio.TimeoutError:
            return {"silent": True}
        return json.loads(line) if line else {"gone": True}

    async def call(self, calls):
        """All that it says about calls that it makes at once, to the end of each."""
        said, open_calls = [], {arguments["key"] for arguments in calls}
        with contextlib.suppress(OSError):
            self.process.stdin.write(b"".join(json.dumps(arguments).encode() + b"\n" for arguments in calls))
            await self.process.stdin.drain()
        while open_calls and not (said and said[-1].keys() & {"gone", "silent"}):
            # Its own limit is shorter: it is given some time to say so.
            said.append(await self._line(self.seconds + 20))
            if said[-1].keys() & {"result", "error"}:
                open_calls.discard(said[-1]["key"])
        if said[-1].keys() & {"gone", "silent"}:
            await self.end()
        return said

    async def end(self, seconds=10):
        """Ends it: by its end of input, or after so many seconds by SIGKILL."""
        self.process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            while "gone" not in await asyncio.wait_for(self._line(seconds), seconds):
                pass
            await asyncio.wait_for(self.process.wait(), seconds)
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.process = None
