"""What is measured, as processes that can be killed and started again: our daemon, and Redis."""

import contextlib, os, pathlib, resource, shutil, socket, subprocess, tempfile, threading, time

import installed, sessiond

GIB = 1 << 30
# Far beyond what any part reaches, so that no figure is one of a limit.
RAISED = {
    "limits.connections": 20_000,
    "limits.connections_per_process": 20_000,
    "limits.sessions_per_host": 200_000,
    "limits.sessions_per_service": 4_000_000,
    "limits.events": 1_000_000,
    "limits.stream_events": 1_000_000,
    "limits.event_bytes": GIB,
    "limits.stream_event_bytes": GIB,
    "limits.state_value_bytes": 2_000_000,
    "limits.frame_bytes": GIB,
    "limits.owner_bytes": 64 * GIB,
    "limits.total_bytes": 64 * GIB,
}


@contextlib.contextmanager
def scratch():
    """A directory in memory, as /run/user/UID is, that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sessiond-", dir="/dev/shm") as directory:
        yield pathlib.Path(directory)


@contextlib.contextmanager
def running(*kinds):
    """A process of each kind, in that directory; all are gone afterwards, also when something fails."""
    with scratch() as directory, contextlib.ExitStack() as killed:
        sides = [kind(directory) for kind in kinds]
        for side in sides:
            killed.callback(side.start().kill)
        yield sides


def allow_descriptors():
    """As many as may be, for all that are started from here."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Side:
    """A process that says on a pipe when it is ready."""

    def start(self):
        """Starts it, to its readiness."""
        self.process = subprocess.Popen(self.command, env=self.environment, text=True, **self.pipes)
        lines = self.process.stderr or self.process.stdout
        if not any(self.says in line for line in lines):
            raise SystemExit(f"{self.command} did not start")
        threading.Thread(target=lambda: [None for _ in lines], daemon=True).start()
        return self

    def start_again(self):
        """The ms from its SIGKILL to the readiness of the next one."""
        self.killed = time.monotonic()
        self.kill()
        self.start()
        return self.since_killed()

    def since_killed(self):
        """The ms from its last SIGKILL to now."""
        return (time.monotonic() - self.killed) * 1000

    def kill(self):
        self.process.kill()
        self.process.wait()

    def resident(self):
        """Bytes that it holds for itself: without the pages of programs, which come and go."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return sum(int(status.split(name)[1].split()[0]) * 1024 for name in ("RssAnon:", "RssShmem:"))


class Daemon(Side):
    name, says = "mcp-sessiond", " ready "
    pipes = {"stderr": subprocess.PIPE}

    def __init__(self, directory, name="d", **settings):
        directory = directory / name
        settings = [f"--set={name}={value}" for name, value in {**RAISED, **settings}.items()]
        self.command = [installed.BINARY, "run", *settings]
        self.environment = {**os.environ, "MCP_SESSIOND_DIR": str(directory), "MCP_SESSIOND_CONFIG": f"{directory}.toml"}
        self.of = {"daemon": str(directory)}

    def first_answer(self, session):
        """Returns once it has answered what this session of the load has: it may be ready before it has read all that it keeps."""
        os.environ["MCP_SESSIOND_DIR"] = self.of["daemon"]
        sessiond.connect.cache_clear()
        of = {"session": session, "service": "bench"}
        while True:
            with contextlib.suppress(sessiond.Refused):
                assert sessiond.call("read_state", {"of": of, "keys": ["k"]})
                return
            # It says by when to ask again, which is too coarse for a figure.
            time.sleep(0.005)


class Redis(Side):
    """It keeps nothing."""

    name, says = "Redis", "is now ready to accept"
    pipes = {"stdout": subprocess.PIPE}
    environment = None
    keeps = ["--appendonly", "no"]

    def __init__(self, directory):
        directory = directory / self.name
        directory.mkdir()
        where = ["--port", "0", "--unixsocket", f"{directory}/socket", "--dir", str(directory)]
        self.command = [shutil.which("redis-server"), *where, "--save", "", *self.keeps]
        self.of = {"redis": f"{directory}/socket"}

    def first_answer(self, session):
        """Returns once it has answered this key."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.of["redis"])
            stream.sendall(f"GET {session}\r\n".encode())
            assert stream.recv(4096).startswith(b"$1")


class RedisWithFile(Redis):
    """A write is in its file before it is answered, so that it outlives SIGKILL, as ours does."""

    name = "Redis, appendonly"
    # A file that is rewritten meanwhile would be measured, too.
    keeps = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]
