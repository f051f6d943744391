"""Ways to a server: a plain child, `mcp-sessiond wrap`, and others that keep one."""

import itertools, json, os, pathlib, shutil, socket, subprocess, sys, tempfile, time

import installed
from installed import BINARY, PORTER, PROXY
from processes import child_of, end
from stdio import Host

TINY = [sys.executable, "-I", "-S", installed.ROOT / "tests/python/tiny.py"]
EVERYTHING = ["node", installed.EVERYTHING]


class Direct:
    name = "direct"

    def __init__(self, server):
        self.server = server

    def spawn(self):
        return Host(self.server)

    def pids(self, host):
        return {"backend": host.pid}

    def killed(self, _what):
        """Its host spawns it again."""

    def stop(self):
        pass


class Wrap:
    name = "wrap"
    binary = BINARY
    labels = itertools.count()

    def __init__(self, server):
        self.server = server
        # Closed to others, as it has to be.
        self.directory = tempfile.mkdtemp(prefix="bench-")
        self.env = {"MCP_SESSIOND_DIR": self.directory}
        self.label = "bench"

    def another(self):
        """From now on it is another session."""
        self.label = f"bench {next(self.labels)}"

    def spawn(self):
        return Host([self.binary, "wrap", "--instance", self.label, "--", *self.server], self.env)

    def debug(self, *topic):
        command = [self.binary, "debug", "--json", *topic]
        asked = subprocess.run(command, env=os.environ | self.env, capture_output=True, text=True)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def pids(self, host):
        backend = next(each for each in self.debug("backends") if each["status"]["front"] == host.pid)
        return {
            "front": host.pid,
            "daemon": self.debug("about")["pid"],
            "keeper": backend["keeper_pid"],
            "backend": backend["status"]["pid"],
        }

    def killed(self, _what):
        """Nobody has to do anything."""

    def stop(self):
        about = self.debug("about")
        for backend in self.debug("backends") or []:
            end(backend["keeper_pid"])
        if about:
            end(about["pid"])
        shutil.rmtree(self.directory, ignore_errors=True)


class Proxy:
    """PyPI's mcp-proxy, twice: one keeps the server and is an HTTP server, the other is the host's stdio server and its client."""

    name = "mcp-proxy"

    def __init__(self, server):
        self.server = server
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        command = [PROXY, "--log-level", "ERROR", "--port", self.port, "--", *self.server]
        self.holder = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.002)

    def spawn(self):
        url = f"http://127.0.0.1:{self.port}/mcp"
        return Host([PROXY, "--log-level", "ERROR", "--transport", "streamablehttp", url])

    def pids(self, host):
        return {"front": host.pid, "holder": self.holder.pid, "backend": child_of(self.holder.pid)}

    def killed(self, what):
        """As whatever supervises it would, at once."""
        if what == "holder":
            self.holder.wait()
            self.start()

    def stop(self):
        self.holder.terminate(), self.holder.wait()


class Porter:
    """npm's mcporter: a daemon keeps the server, `mcporter serve --stdio` is the host's."""

    name = "mcporter"

    def __init__(self, server):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
        command, *args = map(str, server)
        kept = {"command": command, "args": args, "lifecycle": "keep-alive"}
        config = self.directory / "mcporter.json"
        config.write_text(json.dumps({"mcpServers": {"kept": kept}, "imports": []}))
        self.env = {"MCPORTER_DAEMON_DIR": str(self.directory), "MCPORTER_CONFIG": str(config)}
        self.command = ["node", PORTER]

    def spawn(self):
        return Host([*self.command, "serve", "--stdio", "--servers", "kept"], self.env, "kept__")

    def run(self, *arguments):
        """The command, to its end."""
        command = [str(part) for part in [*self.command, *arguments]]
        done = subprocess.run(command, env=os.environ | self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def daemon(self):
        said = self.run("daemon", "status")
        return int(said.split("pid ")[1].split()[0]) if "pid " in said else None

    def pids(self, host):
        daemon = self.daemon()
        return {"front": host.pid, "daemon": daemon, "backend": child_of(daemon)}

    def killed(self, _what):
        """Its own front starts it again."""

    def stop(self):
        self.run("daemon", "stop")
        shutil.rmtree(self.directory, ignore_errors=True)
