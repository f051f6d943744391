"""A target, started: a daemon of its own, the target's process, and what stands behind it, in a directory of its own."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from exchange import PATIENCE, Silent
from forks import Forks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOKEN = "0123456789abcdef" * 4
# Who sends a request where a case does not say it.
ANYBODY = "t0"
# So that clients come back soon, and sessions that a case has left open go.
SETTINGS = "http.retry_ms = 100\n"
FORKS = Forks()


class World:
    def __init__(self, target, sessiond, settings=""):
        self.target, self.sessiond = target, sessiond
        self.root = Path(tempfile.mkdtemp(prefix="mcp-conformance-", dir="/tmp"))
        self.directory, self.journal = self.root / "run", self.root / "journal"
        self.gates, self.revoked = self.root / "gates", self.root / "revoked"
        for folder in (self.directory, self.gates, self.revoked):
            folder.mkdir(mode=0o700)
        self.journal.touch()
        (self.root / "config.toml").write_text(SETTINGS + target.get("settings", "") + settings)
        with open(os.open(self.root / "serve.token", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"{TOKEN}\n")
        self.environment = {"HOME": str(self.root), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(self.root),
                            "MCP_SESSIOND_DIR": str(self.directory), "MCP_SESSIOND_BIN": str(sessiond), "PYTHONDONTWRITEBYTECODE": "1",
                            "MCP_SESSIOND_CONFIG": str(self.root / "config.toml"), "MCP_SESSIOND_CLIENTS": os.environ.get("MCP_SESSIOND_CLIENTS", "")}
        self.ports = {"start": 0, "behind": 0}
        self.processes = {}
        try:
            self.start_daemon()
            self.start()
        except BaseException:
            self.close()
            raise

    def start_daemon(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(self.root / "ready"))
            ready.settimeout(PATIENCE * 2)
            with open(self.root / "daemon.log", "ab") as log:
                self.processes["daemon"] = subprocess.Popen(
                    [self.sessiond, "run"], stderr=log, stdin=subprocess.DEVNULL, env={**self.environment, "NOTIFY_SOCKET": str(self.root / "ready")})
            while b"READY=1" not in ready.recv(4096):
                pass
        (self.root / "ready").unlink()

    def start(self):
        """Starts what does not run of the target and what is behind it, and waits until it listens."""
        for which in ("behind", "start"):
            if which in self.target and self.processes.get(which) is None:
                self._launch(which)

    def _launch(self, which):
        fill = {"sessiond": self.sessiond, "python": sys.executable, "here": HERE, "client": ROOT / "client", "root": self.root, "journal": self.journal, "gates": self.gates,
                "revoked": self.revoked, "venvs": ROOT / "target" / "py", "debug": Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve() / "debug", "port": self.ports[which],
                "upstream": f"http://127.0.0.1:{self.ports['behind']}/mcp"}
        command = [part.format(**fill) for part in self.target[which]]
        with open(self.root / f"{which}.log", "ab") as log:
            if "{venvs}" in self.target[which][0]:
                process = FORKS.start(command, log, self.environment, self.root)
            else:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, env=self.environment, cwd=self.root)
        self.processes[which] = process
        line = process.stdout.readline().decode()
        if "http://" not in line:
            raise Silent(f"the target does not listen: {line!r} {(self.root / f'{which}.log').read_text()[-2000:]}")
        self.ports[which] = int(line.split("http://", 1)[1].split("/", 1)[0].rsplit(":", 1)[1])
        # What it says later must not fill the pipe, and may be what a case waits for.
        threading.Thread(target=self._note, args=(process.stdout, which), daemon=True).start()

    def _note(self, output, which):
        with output, open(self.root / f"{which}.log", "ab", buffering=0) as log:
            for line in output:
                log.write(line)

    def said(self):
        """How many bytes the target has said so far."""
        return (self.root / "start.log").stat().st_size

    def wait_said(self, word, after):
        """Waits until the target says this word behind so many bytes, and returns where it ends."""
        until = time.monotonic() + PATIENCE
        while True:
            log = (self.root / "start.log").read_bytes()
            found = log.find(word.encode(), after)
            if found >= 0:
                return found + len(word)
            if time.monotonic() > until:
                raise Silent(f"the target does not say {word}: {log[after:][-600:]!r}")
            time.sleep(0.01)

    @property
    def address(self):
        return ("127.0.0.1", self.ports["start"])

    def headers(self, caller):
        fill = {"token": TOKEN, "as": caller or ANYBODY}
        return {name: value.format(**fill) for name, value in self.target["headers"].items()}

    def end(self):
        """Ends the target as SIGTERM does, and waits until it is gone."""
        process = self.processes.pop("start")
        process.terminate()
        process.wait(PATIENCE)

    def kill(self, which="start"):
        """Kills it as SIGKILL does, and waits until it is gone."""
        process = self.processes.pop(which, None)
        if process:
            process.kill()
            process.wait()

    def deploy(self):
        """Kills the target, and starts the next version of it."""
        deploys = self.root / "deploys"
        deploys.write_text(str(int(deploys.read_text()) + 1 if deploys.exists() else 1))
        self.kill()
        self.start()

    def kill_servers(self):
        """Kills the servers on stdio, and waits until they are gone."""
        pids = [pid for pid, arguments in self._mine() if any(part.endswith("servers/stdio.py") for part in arguments) and "serve" not in arguments[1:2]
                and Path(arguments[0]).name.startswith("python")]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        while any(pid in pids for pid, _ in self._mine()):
            if time.monotonic() > until:
                raise Silent("the servers do not end")
            time.sleep(0.01)

    def _mine(self):
        """The processes of this world, by a variable of their environment."""
        mark = f"MCP_SESSIOND_DIR={self.directory}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                if arguments[0] and mark in (entry / "environ").read_bytes():
                    yield int(entry.name), arguments

    def control(self, order=None):
        """Tells the server behind what to do; without an order it says what it has received."""
        data = None if order is None else json.dumps(order).encode()
        url = f"http://127.0.0.1:{self.ports['behind']}/control"
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=PATIENCE) as response:
            return json.load(response)

    def wait_journal(self, key, count=1):
        """Waits until so many calls with this key were begun."""
        until = time.monotonic() + PATIENCE
        while self.executed(key) < count:
            if time.monotonic() > until:
                raise Silent(f"the call {key} does not begin")
            time.sleep(0.01)

    def executed(self, key):
        return self.journal.read_text().splitlines().count(key)

    def log(self, tail=1500):
        """The end of what the target has said on standard error."""
        path = self.root / "start.log"
        return path.read_text(errors="replace")[-tail:] if path.exists() else ""

    def close(self):
        for which in ("start", "behind", "daemon"):
            self.kill(which)
        for pid, _ in list(self._mine()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)
