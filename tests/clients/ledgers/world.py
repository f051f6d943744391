"""What one host and its servers run in: a runtime directory of its own, the ledger, and the processes."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
from pathlib import Path

from harness import PROGRAM, PYTHON, kill_marked, processes, start_of

HERE = Path(__file__).resolve().parent
ENTRIES = ["wrap", "name", "at", "all", "lazy", "shared", "serve", "serve-all", "serve-upstream"]
# Those that one server, or a list, is reached by over HTTP.
OVER_HTTP = ["serve", "serve-all", "serve-upstream"]
# Those whose servers belong to the host, and go on as its row says.
OF_HOST = ["wrap", "at", "all", "lazy"]
# What the host's row says: nothing ends a server; a variable names the conversation, of which there are two; there is no row.
ROWS = {"always": 'hosts = [{ executable = "*", resume = "always" }]', "conversation": 'hosts = [{ executable = "*", conversation = "KILLS_CONVERSATION" }]', "none": ""}
# The host closes often: no number of closes makes a server suspect.
SETTINGS = """backends.stop_wait_ms = 300
backends.closes = 100000
backends.closed_linger_ms = 60000
backends.linger_ms = 120000
wrap.first_line_wait_ms = 5000
wrap.keeper_wait_ms = 10000
http.retry_ms = 100
"""


class World:
    """`entry`: how the servers are reached, one of ENTRIES. `temper`: what they do with a probe. `row`: what is known of the host, one of ROWS."""

    def __init__(self, entry, temper, row):
        self.entry, self.temper, self.row = entry, temper, row
        self.root = Path(tempfile.mkdtemp(prefix="mk-", dir="/tmp"))
        self.run, self.ledger_path = self.root / "run", self.root / "ledger"
        self.run.mkdir(mode=0o700)
        self.ledger_path.touch()
        (self.root / "config.toml").write_text(f"{ROWS[row]}\n{SETTINGS}")
        self.environment = {"HOME": str(self.root), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(self.root),
                            "MCP_SESSIOND_DIR": str(self.run), "MCP_SESSIOND_CONFIG": str(self.root / "config.toml"),
                            "MCP_SESSIOND_BIN": str(PROGRAM)}
        # The program of the servers is a file of this world, so that it can be edited.
        self.program = self.root / "server.py"
        shutil.copy(HERE / "server.py", self.program)
        # The conversations that live at once, as they end a server's name; "" where the host names none.
        self.conversations = ["1", "2"] if row == "conversation" and entry in OF_HOST else [""]
        self.tools = ["a", "b"] if entry in ("all", "serve-all") else ["a"]
        self.names = [tool + conversation for conversation in self.conversations for tool in self.tools]
        self.edits = 0
        self.write_entries()
        options = {"wrap": ["--", *self._server("a")], "name": ["--name", "kept", "--", *self._server("a")], "all": ["--all"],
                   "lazy": ["--lazy", "--", *self._server("a")], "shared": ["@a"], "at": ["@a"]}
        self.command = [str(PROGRAM), "wrap", *options.get(entry, [])]
        # The same, below another host.
        self.other_command = [PYTHON, "-I", "-S", str(HERE / "host.py"), *self.command]
        # Of `serve`: its process, its port, whether it listens, and what it has told its clients.
        self.serve, self.port, self.serves, self.notices = None, 0, asyncio.Event(), []
        # Of a server elsewhere: its process and its port. No port that another program may be given in the meantime.
        self.upstream, self.upstream_port = None, random.randrange(10_000, 30_000)
        # What calls were refused with, by who made them.
        self.refusals = {}

    def _server(self, tool):
        return [PYTHON, "-I", "-S", str(self.program), tool, str(self.ledger_path), self.temper]

    def write_entries(self):
        """Writes the file of the servers. Each edit gives the first one another environment."""
        commands = {tool: self._server(tool) for tool in self.tools}
        entries = {tool: {"command": command[0], "args": command[1:], "shared": self.entry == "shared"} for tool, command in commands.items()}
        if self.edits:
            entries["a"]["env"] = {"EDITED": str(self.edits)}
        written = self.root / "servers.json.new"
        written.write_text(json.dumps({"mcpServers": entries}))
        written.rename(self.root / "servers.json")

    def edit(self):
        """Edits what the servers are started from: the file of the servers where there is one, else their program."""
        self.edits += 1
        if self.entry in ("at", "all"):
            self.write_entries()
        else:
            with open(self.program, "a") as program:
                program.write(f"# Edit {self.edits}\n")

    async def say(self, *words):
        """Runs a command of mcp-sessiond to its end: its exit code, and what it said."""
        process = await asyncio.create_subprocess_exec(
            str(PROGRAM), *words, env=self.environment, cwd=self.root, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True)
        said, _ = await process.communicate()
        return process.returncode, said.decode(errors="replace")

    def ledger(self, what):
        """The words of its lines of one kind."""
        lines = [line.split() for line in self.ledger_path.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == what]

    def starts(self, name):
        """The pids of its processes, in order."""
        return [int(pid) for of, pid in self.ledger("start") if of == name]

    def told(self):
        """All lines that say something to a reader, by where: the standard error of each front but those that only probed, also that of another host,
        or that of `serve` and its notifications, and refusals of calls."""
        files = sorted(self.root.glob("front-*.err"), key=lambda path: int(path.stem.split("-")[1]))
        told = {path.name: path.read_text(errors="replace").splitlines() for path in [*files, *self.root.glob("other.err"), *self.root.glob("serve.err")]}
        refusals = {place: list(texts) for place, texts in self.refusals.items()}
        return {**told, **refusals, "notifications": list(self.notices)}

    # Processes.

    def ours(self, verb):
        """The pids of what mcp-sessiond does here: `run`, `keep` or `wrap`."""
        mine = f"MCP_SESSIOND_DIR={self.run}"
        return [pid for pid, arguments, environment in processes()
                if mine in environment and arguments[1:2] == [verb] and Path(arguments[0]).name == PROGRAM.name]

    def living(self, name):
        """The pids of its processes that live. A server elsewhere keeps a session that nobody comes back to."""
        if self.upstream:
            return []
        return [pid for pid in self.starts(name) if start_of(pid)]

    def server(self, name):
        """The pid of the server that was started last; None where it has ended."""
        if self.upstream:
            return self.upstream.pid
        started = self.starts(name)
        return started[-1] if started and start_of(started[-1]) else None

    def keeper(self, name):
        """The pid of the keeper of this server."""
        with contextlib.suppress(OSError, TypeError):
            parent = int(Path(f"/proc/{self.server(name)}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")[1] == b"keep":
                return parent
        return None

    async def daemon(self):
        """The pid of the daemon. It is started where nobody has missed it since it was killed."""
        for _ in range(2000):
            if pids := self.ours("run"):
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_unix_connection(self.run / "daemon.sock")
                    writer.close()
                    return pids[0]
            else:
                with open(self.root / "daemon.err", "ab") as errors:
                    await asyncio.create_subprocess_exec(
                        str(PROGRAM), "run", env=self.environment, cwd=self.root, stdin=asyncio.subprocess.DEVNULL, stdout=errors,
                        stderr=errors, start_new_session=True)
            await asyncio.sleep(0.02)
        raise RuntimeError("the daemon does not start")

    async def kill(self, pids):
        """Kills these, one right after the other, and waits until they are gone."""
        began = {pid: start_of(pid) for pid in pids}
        for pid in began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(start is not None and start_of(pid) == start for pid, start in began.items()):
            await asyncio.sleep(0.002)

    async def start_serve(self):
        """Starts `serve`, and waits until it listens."""
        if self.entry == "serve-upstream" and not self.upstream:
            await self.start_upstream()
        servers = {"serve-all": ["--all"], "serve-upstream": ["--upstream", f"http://127.0.0.1:{self.upstream_port}/mcp"]}
        command = [str(PROGRAM), "serve", "--listen", f"127.0.0.1:{self.port}", "--name", "kills", *servers.get(self.entry, ["--", *self._server("a")])]
        for _ in range(50):
            with open(self.root / "serve.err", "ab") as errors:
                self.serve = await asyncio.create_subprocess_exec(
                    *command, env=self.environment, cwd=self.root, stdout=asyncio.subprocess.PIPE, stderr=errors,
                    stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
            line = (await self.serve.stdout.readline()).decode()
            if "http://" in line:
                self.port = int(line.split("http://", 1)[1].split("/", 1)[0].rsplit(":", 1)[1])
                self.serves.set()
                return
            await self.serve.wait()
            await asyncio.sleep(0.1)
        raise RuntimeError(f"serve does not listen: {(self.root / 'serve.err').read_text()[-1000:]}")

    async def start_upstream(self):
        """Starts the server elsewhere, and waits until it listens: again where it did, for its clients."""
        for _ in range(100):
            command = [PYTHON, "-I", "-S", str(HERE / "http_server.py"), str(self.upstream_port), str(self.ledger_path), self.temper]
            with open(self.root / "upstream.err", "ab") as errors:
                self.upstream = await asyncio.create_subprocess_exec(
                    *command, env=self.environment, cwd=self.root, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors)
            if await self.upstream.stdout.readline():
                return
            await self.upstream.wait()
            await asyncio.sleep(0.05)
        raise RuntimeError(f"the server does not listen: {(self.root / 'upstream.err').read_text()[-1000:]}")

    async def close(self, kept=None):
        """Ends whatever is left, by pid, and keeps in `kept` what a failure needs to be understood."""
        for _ in range(100):
            if not kill_marked(str(self.root)):
                break
            await asyncio.sleep(0.05)
        if kept:
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for path in [*self.root.glob("*"), *self.run.glob("*.log")]:
                if path.is_file() and not path.name.startswith("gate"):
                    shutil.copy(path, kept)
            (kept / "notifications").write_text("\n".join(self.notices))
        shutil.rmtree(self.root, ignore_errors=True)
