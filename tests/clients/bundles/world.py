"""What a bundle runs in: its directory, its file, its processes."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path

from harness import PROGRAM, PYTHON, kill_marked, processes, start_of

HERE = Path(__file__).resolve().parent
# So many may be starting at once.
STARTING_MAX = 2
SETTINGS = f"""bundle.init_concurrency = {STARTING_MAX}
bundle.init_timeout_ms = 3000
bundle.ready_wait_ms = 3000
backends.stop_wait_ms = 200
backends.closed_linger_ms = 500
backends.linger_ms = 20000
"""


class World:
    """A runtime directory of its own."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="mb-", dir="/tmp"))
        self.run, self.journal_path, self.starts = self.root / "run", self.root / "journal", self.root / "starts"
        self.run.mkdir(mode=0o700)
        self.journal_path.touch(), self.starts.touch()
        (self.root / "config.toml").write_text(SETTINGS)
        self.environment = {"HOME": str(self.root), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(self.root),
                            "MCP_SESSIOND_DIR": str(self.run), "MCP_SESSIOND_CONFIG": str(self.root / "config.toml")}
        self.command = [str(PROGRAM), "wrap", "--all"]
        # By name: what it does, and a number that makes it another one.
        self.servers = {}

    def entry(self, name, does, number):
        server = shlex.join([PYTHON, "-I", "-S", str(HERE / "server.py"), name, str(self.starts), str(self.journal_path)])
        what = {"serve": f"exec {server}", "hang": "exec sleep 100000", "crash": "exit 3"}.get(does)
        if what is None:
            return {"command": f"no-such-program-{number}"}
        return {"command": "sh", "args": ["-c", f'echo "+ $PPID $$ {name}" >>{self.starts}; {what}'], "env": {"NUMBER": str(number)}}

    def write_down(self):
        """The file, in one step."""
        entries = {name: self.entry(name, *of) for name, of in self.servers.items()}
        self.write_text(json.dumps({"mcpServers": entries}))

    def write_text(self, text):
        new = self.root / "servers.new"
        new.write_text(text)
        new.rename(self.root / "servers.json")

    def journal(self, word):
        """The words of its lines that begin so."""
        lines = [line.split() for line in self.journal_path.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == word]

    def most_starting(self):
        """How many were starting at once, at most."""
        return max((int(line[2:]) for line in self.starts.read_text().splitlines() if line.startswith("= ")), default=0)

    def ours(self, verb):
        """The processes of mcp-sessiond, by what they do: `keep` or `run`."""
        mine = f"MCP_SESSIOND_DIR={self.run}"
        return {pid: start_of(pid) for pid, arguments, environment in processes()
                if mine in environment and arguments[1:2] == [verb] and Path(arguments[0]).name == PROGRAM.name}

    def living(self):
        """By server, the pid of its process and that of its keeper: the one that was started last. A server that was edited while no front was there stays
        for `backends.linger_ms`."""
        keepers, servers = {}, {}
        for pid, arguments, _ in processes():
            if arguments[1:2] == ["keep"] and str(self.starts) in arguments[-1]:
                name = arguments[arguments.index("--name") + 1]
                keepers[name] = max(keepers.get(name, (0, 0)), (start_of(pid) or 0, pid))
            elif arguments[-1:] == [str(self.journal_path)] and arguments[0] == PYTHON:
                with contextlib.suppress(OSError):
                    servers[int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])] = pid
        return {name: (servers[keeper], keeper) for name, (_, keeper) in keepers.items() if keeper in servers}

    def all(self):
        """Whatever is left of this world, but this process."""
        mark = str(self.root)
        return [(pid, arguments) for pid, arguments, environment in processes()
                if pid != os.getpid() and any(mark in text for text in arguments + environment)]

    async def kill(self, pids, how=signal.SIGKILL):
        """Kills these, and waits until they are gone."""
        began = {pid: start_of(pid) for pid in pids}
        for pid in began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        while any(start is not None and start_of(pid) == start for pid, start in began.items()):
            await asyncio.sleep(0.005)

    async def close(self, kept):
        """Ends whatever is left, by pid, and keeps what a failure needs to be understood."""
        for _ in range(100):
            if not kill_marked(str(self.root)):
                break
            await asyncio.sleep(0.05)
        for path in [*self.root.glob("*"), *self.run.glob("*.log")]:
            if path.is_file() and not path.name.startswith("gate"):
                shutil.copy(path, kept)
        shutil.rmtree(self.root, ignore_errors=True)
