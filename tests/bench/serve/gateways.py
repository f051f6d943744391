"""`mcp-sessiond serve`, and others that put HTTP in front of a server on stdio."""

import json, os, pathlib, shlex, shutil, signal, socket, subprocess, sys, tempfile, time

import installed, processes
from wire import MODERN, OLDER, Http, Lost, Refused, Stdio

SERVER = str(pathlib.Path(__file__).with_name("server.py"))
# Room for the last answers of fifty sessions, of 1 MiB each: a session keeps 16 MiB of them at most. By default there are
# 64 MiB for all, and calls fail that need more at one time.
LIMITS = {"limits.owner_bytes": 1024**3, "limits.total_bytes": 1024**3, "http.sessions": 1024}
COMMAND = [sys.executable, "-I", "-S", SERVER]


class Direct:
    """The server itself."""

    name = "direct"

    def start(self):
        return self

    def client(self, era=OLDER):
        return Stdio(COMMAND, era)

    def refusal(self):
        """It speaks both eras."""

    def own_pids(self):
        return []

    def stop(self):
        """Each server ends with its client."""


class Gateway:
    """A process that listens, and whatever it has started. `directory` is what it writes to."""

    path = "/mcp"
    # An argument that only its daemon has, if it has one.
    daemon = None
    # What ends it and its sessions.
    end_signal = signal.SIGTERM

    def __init__(self):
        # Closed to others, as it has to be.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        # All of its processes have it in their environment: a daemon of ours has only what it needs.
        self.mark = str(self.directory)
        self.prepare()

    def prepare(self):
        """Writes what the command needs."""

    def environment(self):
        """Its own variables."""
        return {}

    def start(self):
        """Starts it, and waits until it listens."""
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment(), "BENCH_GATEWAY": self.mark},
                cwd=self.directory,
                start_new_session=True,
            )
        until = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except ConnectionRefusedError:
                time.sleep(0.001)
        raise Lost(f"{self.name} does not listen: {(self.directory / 'log').read_text()[-2000:]}")

    def client(self, era=OLDER):
        """A client that has not said anything yet."""
        return Http(self.port, self.path, era)

    def refusal(self):
        """What it answers to a client of MCP 2026-07-28; none if it speaks that."""
        client = self.client(MODERN)
        try:
            found = client.ask("server/discover", {}).result()
            return None if MODERN in found.get("supportedVersions", []) else f"it names {found.get('supportedVersions')}"
        except Refused as refused:
            status, said = refused.args
            return f"status {status}, {said.get('code') if isinstance(said, dict) else said[:60]!r}"
        except Lost as lost:
            return str(lost)
        finally:
            client.close()

    def pids(self):
        """Those of the gateway, and those of its servers."""
        found = processes.marked(self.mark)
        servers = [pid for pid in found if processes.arguments_of(pid) == COMMAND]
        return [pid for pid in found if pid not in servers], servers

    def own_pids(self):
        return self.pids()[0]

    def kill(self, daemon=False):
        """SIGKILL of the process that listens, and of its daemon."""
        own = self.own_pids() if daemon else []
        self.process.kill(), self.process.wait()
        for pid in own:
            if self.daemon in processes.arguments_of(pid)[1:]:
                processes.end(pid, signal.SIGKILL)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(self.end_signal)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()
        # Keepers and daemons; and servers that were left behind.
        for pid in processes.marked(self.mark):
            processes.end(pid)
        for pid in processes.marked(self.mark):
            processes.end(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


class Serve(Gateway):
    name = "serve"
    daemon = "run"
    end_signal = signal.SIGINT

    def prepare(self):
        (self.directory / "run").mkdir(mode=0o700)
        (self.directory / "config.toml").write_text("".join(f"{name} = {value}\n" for name, value in LIMITS.items()))

    def environment(self):
        return {"MCP_SESSIOND_DIR": str(self.directory / "run"), "MCP_SESSIOND_CONFIG": str(self.directory / "config.toml")}

    def command(self):
        return [installed.BINARY, "serve", "--listen", f"127.0.0.1:{self.port}", "--name", "bench", "--", *COMMAND]


class Supergateway(Gateway):
    name = "supergateway"

    def command(self):
        command = ["node", installed.SUPERGATEWAY / "dist/index.js", "--stdio", shlex.join(COMMAND), "--port", self.port]
        return [*command, "--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]


class Proxy(Gateway):
    """PyPI's mcp-proxy."""

    name = "mcp-proxy"

    def command(self):
        return [installed.PROXY, "--log-level", "ERROR", "--port", self.port, "--", *COMMAND]


class Porter(Gateway):
    """npm's mcporter: its daemon keeps the server, `mcporter serve --http` listens."""

    name = "mcporter"
    daemon = "daemon"
    path = "/mcp/kept"

    def prepare(self):
        command, *args = COMMAND
        kept = {"command": command, "args": args, "lifecycle": "keep-alive"}
        (self.directory / "mcporter.json").write_text(json.dumps({"mcpServers": {"kept": kept}, "imports": []}))

    def environment(self):
        return {"MCPORTER_DAEMON_DIR": str(self.directory), "MCPORTER_CONFIG": str(self.directory / "mcporter.json")}

    def command(self):
        return ["node", installed.PORTER, "serve", "--http", self.port, "--servers", "kept"]


GATEWAYS = [Serve, Supergateway, Proxy, Porter]
