"""supergateway: one process that serves several HTTP clients, over SSE from one server, over Streamable HTTP from one each."""

import shlex
import signal

from drivers import Client, free_port
from harness import INSTALLED, until

NAME, PACKAGE = "supergateway", ("npm", "supergateway", "4.0.0")
SUPERGATEWAY = INSTALLED / "supergateway" / "node_modules" / ".bin" / "supergateway"


def gateway(world, *options, server=None):
    """The process, and the URL at which it listens."""
    port = free_port()
    process = world.start([SUPERGATEWAY, "--stdio", shlex.join(server or world.wrapped()), "--port", port, *options], log=f"gateway-{port}")
    log = world.root / f"gateway-{port}.log"
    listening = until(lambda: b"Listening on port" in log.read_bytes())
    world.check("it listens", listening, log.read_text())
    return process, f"http://127.0.0.1:{port}"


def stateful(world):
    process, url = gateway(world, "--outputTransport", "streamableHttp", "--stateful")
    a, b = Client(f"{url}/mcp"), Client(f"{url}/mcp")
    counted = [a.count(), b.count(), b.count(), a.count()]
    world.check("each client has its own count", counted == [1, 1, 2, 2], counted)
    world.lives(2, "two clients")
    a.leave()
    world.lives(1, "a client that has left leaves no server behind")
    c = Client(f"{url}/mcp")
    counted = [c.count(), b.count()]
    world.check("a new client gets nobody's count, and the other goes on", counted == [1, 3], counted)
    b.leave()
    c.leave()
    world.lives(0, "all clients have left")
    process.send_signal(signal.SIGTERM)


def in_turn(world):
    """One client after the other: the one free session of the key is another client's."""
    _, url = gateway(world, "--outputTransport", "streamableHttp", "--stateful")
    for which in ("first", "second", "third"):
        client = Client(f"{url}/mcp")
        counted = [client.count(), client.count()]
        world.check(f"the {which} client gets nobody's count", counted == [1, 2], counted)
        client.leave()
        world.lives(0, "it leaves no server behind")


def stateful_killed(*what):
    def scenario(world):
        process, url = gateway(world, "--outputTransport", "streamableHttp", "--stateful")
        a, b = Client(f"{url}/mcp"), Client(f"{url}/mcp")
        counted = [a.count(), b.count(), b.count()]
        world.check("each client has its own count", counted == [1, 1, 2], counted)
        world.kill(*what)
        if what == ("daemon",):
            counted = [a.count(), b.count()]
            world.check("SIGKILL of the daemon is not noticed", counted == [2, 3], counted)
        else:
            counted = [a.count(), b.count()]
            world.check("a client whose server was killed gets an error, as without us", not any(isinstance(one, int) for one in counted), counted)
            world.lives(0, "nobody can reach what is left: it is ended")
        c = Client(f"{url}/mcp")
        counted = [c.count()]
        world.check("a new client gets nobody's count", counted == [1], counted)
        process.send_signal(signal.SIGKILL)
        world.lives(0, "after SIGKILL of the gateway")
    scenario.__name__ = "stateful_SIGKILL_of_" + "_and_".join(what)
    return scenario


def stateless(world):
    process, url = gateway(world, "--outputTransport", "streamableHttp")
    counted = [Client(f"{url}/mcp", session=False).count() for _ in range(3)]
    world.check("each request has a server of its own, as without us", counted == [1, 1, 1], counted)
    world.lives(0, "after the requests")
    process.send_signal(signal.SIGTERM)


def sse(world):
    """All clients of it have one server, with or without us."""
    process, url = gateway(world)
    a, b = Client(f"{url}/sse"), Client(f"{url}/sse")
    counted = [a.count(), b.count(), a.count()]
    world.check("all clients have one server, as without us", counted == [1, 2, 3], counted)
    a.leave()
    a = Client(f"{url}/sse")
    world.kill("daemon")
    counted = [a.count(), b.count()]
    world.check("a client that comes back, and SIGKILL of the daemon, change nothing", counted == [4, 5], counted)
    world.lives(1, "the gateway's server")
    world.kill("front")
    world.check("SIGKILL of the front ends the gateway, as without us", until(lambda: process.poll() is not None), process.poll())
    world.lives(0, "after the end of the gateway")


def sse_ends(world):
    process, url = gateway(world)
    Client(f"{url}/sse").count()
    process.send_signal(signal.SIGTERM)
    world.check("SIGTERM ends the gateway", until(lambda: process.poll() is not None), process.poll())
    world.lives(0, "after SIGTERM of the gateway")


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    process, url = gateway(world, "--outputTransport", "streamableHttp", "--stateful", server=world.server("--stubborn"))
    client = Client(f"{url}/mcp")
    client.count()
    world.describe()
    world.watch("DELETE of the session", client.leave)
    Client(f"{url}/mcp").count()
    world.watch("SIGTERM of the gateway", lambda: process.send_signal(signal.SIGTERM))
    process, url = gateway(world, server=world.server("--stubborn"))
    Client(f"{url}/sse").count()
    world.watch("SIGTERM of the gateway, SSE", lambda: process.send_signal(signal.SIGTERM))


SCENARIOS = [stateful, in_turn, stateful_killed("front"), stateful_killed("daemon"), stateful_killed("front", "daemon"), stateless, sse, sse_ends]
OBSERVED = [observed]
