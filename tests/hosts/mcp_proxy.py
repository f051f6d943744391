"""mcp-proxy of PyPI: one process that serves several HTTP clients from one server, or from several named ones."""

import json
import shlex
import signal

import over_http
from drivers import Client, Peer, free_port
from harness import INSTALLED, until

NAME, PACKAGE = "mcp-proxy", ("pip", "mcp-proxy", "0.13.0")
PROXY = INSTALLED / "mcp_proxy" / "bin" / "mcp-proxy"


def gateway(world, *command):
    """The process, and the URL at which it listens."""
    port = free_port()
    process = world.start([PROXY, "--port", port, *(command or ["--", *world.wrapped()])], log=f"gateway-{port}")
    log = world.root / f"gateway-{port}.log"
    listening = until(lambda: b"Uvicorn running" in log.read_bytes() or process.poll() is not None)
    world.check("it listens", listening and process.poll() is None, log.read_text()[-500:])
    return process, f"http://127.0.0.1:{port}"


def added_url(world, url, token=None):
    """The command that makes a server on stdio of a served one."""
    options = ["--headers", "Authorization", f"Bearer {token}"] if token else []
    return [PROXY, "--transport", "streamablehttp", *options, url]


class OnStdio(Peer):
    """The proxy as a server on stdio, and what its host does."""

    def __init__(self, world, command):
        super().__init__(world, command, world.environment())
        self.world = world
        self.call("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1.0.0"}})
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, name, steps="count"):
        """Does what the steps say, as a model would."""
        told = self.world.api.told.setdefault(name, [])
        for step in steps.split():
            if step == "count":
                told.append(json.dumps(self.call("tools/call", {"name": "count", "arguments": {}, "_meta": {"progressToken": name}})))
            else:
                self.world.api.hooks[step]()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def one_server(path):
    def scenario(world):
        process, url = gateway(world)
        a, b = Client(url + path), Client(url + path)
        counted = [a.count(), b.count(), a.count()]
        world.check("all clients have one server, as without us", counted == [1, 2, 3], counted)
        a.leave()
        world.kill("daemon")
        counted = [b.count(), Client(url + path).count()]
        world.check("a client that leaves, and SIGKILL of the daemon, change nothing", counted == [4, 5], counted)
        world.lives(1, "the gateway's server")
        world.kill("front")
        world.lives(0, "it starts no killed server again, so nobody can reach what is left: it is ended")
        process.send_signal(signal.SIGTERM)
        world.lives(0, "after SIGTERM of the gateway")
    scenario.__name__ = f"one_server_{path[1:]}"
    return scenario


def without_dashes(world):
    """`mcp-proxy CMD ARG…`, which keeps no `--` of the command's own."""
    process, url = gateway(world, *world.wrapped(bare=True))
    counted = [Client(f"{url}/mcp").count() for _ in range(2)]
    world.check("`wrap CMD…` without `--` is wrapped as with it", counted == [1, 2], counted)
    process.send_signal(signal.SIGTERM)
    world.lives(0, "after SIGTERM of the gateway")


def named(world):
    """Two named servers with one command: the same process starts it twice, with one client name."""
    command = shlex.join(world.wrapped())
    process, url = gateway(world, "--named-server", "one", command, "--named-server", "two", command)
    one, two = Client(f"{url}/servers/one/mcp"), Client(f"{url}/servers/two/mcp")
    counted = [one.count(), two.count(), two.count(), one.count()]
    world.check("each of two named servers has its own count", counted == [1, 1, 2, 2], counted)
    world.lives(2, "two named servers")
    process.send_signal(signal.SIGTERM)
    world.lives(0, "after SIGTERM of the gateway")


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    process, url = gateway(world, "--", *world.server("--stubborn"))
    Client(f"{url}/mcp").count()
    world.describe()
    world.watch("SIGTERM of the gateway", lambda: process.send_signal(signal.SIGTERM))


OVER_HTTP = over_http.Host(added_url, OnStdio, deletes=True, goes_on=False, renewed=(None, None))
SCENARIOS = [one_server("/mcp"), one_server("/sse"), without_dashes, named, *over_http.scenarios(OVER_HTTP)]
OBSERVED = [observed, over_http.observed(OVER_HTTP)]
