"""Ways to several servers: each as a plain child, `mcp-sessiond wrap --all`, and what else puts several behind one."""

import json, os, pathlib, shutil, subprocess, sys, tempfile

import installed
from installed import BINARY, FASTMCP, PORTER
from processes import arguments_of, end, held, marked
from stdio import Host

TINY = installed.ROOT / "tests/python/tiny.py"
HANGS = ["sleep", "100000"]


def servers(number, hanging=0):
    """Commands by name: so many, of which the last ones hang."""
    command = [sys.executable, "-I", "-S", str(TINY)]
    names = [f"s{at:02}" for at in range(number)]
    return {name: command if at < number - hanging else HANGS for at, name in enumerate(names)}


class Way:
    """Its directory is in the environment of all of its processes."""

    def __init__(self, commands):
        self.commands, self.directory = commands, pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
        self.env = {"BENCH_OF": str(self.directory)}

    def entries(self, **more):
        return {name: {"command": command[0], "args": command[1:], **more} for name, command in self.commands.items()}

    def is_server(self, pid):
        arguments = arguments_of(pid)
        return arguments[:1] == [sys.executable] and str(TINY) in arguments or arguments == HANGS

    def between(self):
        """The processes that are not servers."""
        return [pid for pid in marked(str(self.directory)) if not self.is_server(pid)]

    def memory(self):
        """MiB resident, and the proportional share, of what is not a server; and how many processes that is."""
        pids = self.between()
        rss, pss = zip(*(held(pid) for pid in pids)) if pids else ([0], [0])
        return sum(rss), sum(share for share in pss if share is not None), len(pids)

    def spawn(self):
        """A host that has begun its session."""
        return Host(self.command, self.env, self.prefix)

    def list(self, host, timeout=60):
        """How many tools are listed."""
        return len(host.request("tools/list", {}, timeout)["tools"])

    def stop(self):
        for pid in self.between() + marked(str(self.directory)):
            end(pid)
        shutil.rmtree(self.directory, ignore_errors=True)


class Direct(Way):
    name = "direct"

    def spawn(self):
        self.hosts = [Host(command, self.env) for command in self.commands.values()]
        return self

    def initialize(self):
        for host in self.hosts:
            host.initialize()
        return self

    def list(self, host, timeout=60):
        return sum(len(host.request("tools/list", {}, timeout)["tools"]) for host in self.hosts)

    def drive(self, *arguments):
        return self.hosts[-1].drive(*arguments)

    def close(self):
        for host in self.hosts:
            host.close()

    def between(self):
        return []


class Wrap(Way):
    name = "wrap --all"

    def __init__(self, commands):
        super().__init__(commands)
        (self.directory / "run").mkdir(mode=0o700)
        (self.directory / "config.toml").write_text('bundle.names = "always"\n')
        (self.directory / "servers.json").write_text(json.dumps({"mcpServers": self.entries()}))
        self.env |= {"MCP_SESSIOND_DIR": str(self.directory / "run"), "MCP_SESSIOND_CONFIG": str(self.directory / "config.toml")}
        self.command, self.prefix = [BINARY, "wrap", "--all"], f"{[*commands][-1]}_"


class Porter(Way):
    """npm's mcporter: a daemon keeps the servers, `mcporter serve --stdio` is the host's."""

    name = "mcporter serve"

    def __init__(self, commands):
        super().__init__(commands)
        config = self.directory / "mcporter.json"
        config.write_text(json.dumps({"mcpServers": self.entries(lifecycle="keep-alive"), "imports": []}))
        self.env |= {"MCPORTER_DAEMON_DIR": str(self.directory), "MCPORTER_CONFIG": str(config)}
        self.command, self.prefix = ["node", PORTER, "serve", "--stdio", "--servers", ",".join(commands)], f"{[*commands][-1]}__"

    def stop(self):
        subprocess.run(["node", PORTER, "daemon", "stop"], env=os.environ | self.env, capture_output=True, timeout=60)
        super().stop()


class Proxy(Way):
    """FastMCP's create_proxy, on stdio. With one server names are bare."""

    name = "FastMCP create_proxy"

    def __init__(self, commands):
        super().__init__(commands)
        config = self.directory / "servers.json"
        config.write_text(json.dumps({"mcpServers": self.entries()}))
        self.command = [FASTMCP, pathlib.Path(__file__).with_name("proxy.py"), config]
        self.prefix = f"{[*commands][-1]}_" if len(commands) > 1 else ""


ALL = [Direct, Wrap, Porter, Proxy]
