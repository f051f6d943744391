"""`mcp-sessiond serve` in front of the counter, with a recording proxy before it, and the scenarios that every host over HTTP has.

A scenario begins a session of the host, which calls by its model. All assert by the count: it goes on in the same server only.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from dataclasses import dataclass

from harness import PROGRAM, number, until
from recorder import Recorder


class Served:
    """`serve` at one port, whatever is killed. `run` is its daemon's directory: by default that of the scenario."""

    def __init__(self, world, *options, server=None, run=None):
        self.world, self.options, self.at, self.process = world, options, "127.0.0.1:0", None
        self.run = run or world.run
        self.server = server or world.server("--progress")
        self.wire = Recorder(world.root / "wire.log")
        world.open.callback(self.wire.down)
        self.start()

    def start(self):
        """Starts it as its unit would, and waits until it listens."""
        env = self.world.environment(MCP_SESSIOND_DIR=str(self.run), MCP_SESSIOND_CONFIG=str(self.world.config_path))
        self.process = self.world.start([PROGRAM, "serve", "--listen", self.at, "--name", "counter", *self.options, "--", *self.server],
                                        log="serve", env=env, stdout=subprocess.PIPE)
        line = self.process.stdout.readline().decode()
        if "http://" not in line:
            raise RuntimeError(f"serve does not listen: {line!r} {(self.world.root / 'serve.log').read_text()[-2000:]}")
        self.at = line.split("http://", 1)[1].split("/", 1)[0]
        self.wire.up(int(self.at.rsplit(":", 1)[1]))

    def url(self, path="/mcp"):
        """The address of the proxy."""
        return f"http://127.0.0.1:{self.wire.port}{path}"

    def token(self):
        return (self.world.root / "serve.token").read_text().strip()

    def down(self):
        """SIGKILL. What comes until it is started again is refused."""
        self.wire.down()
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.down()
        self.start()

    def end_sessions(self):
        """Ends all sessions."""
        sessions = {one["headers"]["mcp-session-id"] for one in self.wire.seen("response") if "mcp-session-id" in one["headers"]}
        for session in sessions:
            request = urllib.request.Request(f"http://{self.at}/mcp", headers={"mcp-session-id": session}, method="DELETE")
            urllib.request.urlopen(request, timeout=10).close()

    def kill(self, *what):
        """SIGKILL of `serve`, which is started again at once, of the `daemon`, which whoever misses it starts again, or of both."""
        if "daemon" in what:
            self.world.kill("daemon")
        if "serve" in what:
            self.restart()

    @contextlib.contextmanager
    def holding(self, act):
        """Lets the next call stop after its first progress. Then acts, and lets the call go on."""
        gate, held = self.world.journal_path.with_name("journal.hold"), len(self.world.journal("held"))
        gate.touch()

        def cut():
            told = len(self.wire.seen("event", "notifications/progress"))
            try:
                until(lambda: len(self.world.journal("held")) > held, 60)
                # The host, too, has the progress, if it has asked for any.
                until(lambda: len(self.wire.seen("event", "notifications/progress")) > told, 2)
                # It takes a moment to read. A client that has read no event of a call can't resume it.
                time.sleep(0.2)
                act()
            finally:
                gate.unlink()
        cutting = threading.Thread(target=cut, daemon=True)
        cutting.start()
        try:
            yield
        finally:
            cutting.join()


def told(wire, since=0):
    """What went over the wire, a short line for each."""
    for one in wire.notes[since:]:
        headers = {name: value for name, value in one.get("headers", {}).items()
                   if name not in ("content-type", "user-agent") or one["what"] == "request"}
        message = one.get("message") or {}
        if one["what"] == "request":
            what = f"-> {one['http']} {one['path']}"
        else:
            what = f"<- {one['what']} {one.get('status', '')}{one.get('by', '')} {one.get('event', '')} id={one.get('id', '')[-12:]!r} {one.get('retry', '')}"
        print(f"  {one['at']:8.3f} #{one['connection']} {what} {str(message)[:260]} {headers}", flush=True)


@dataclass(frozen=True)
class Host:
    """A host: `add(world, url, token)` adds a served endpoint to it, and returns what `begin` starts it with.
    `begin(world, added)` begins a session, which has `ask(name, steps)` and `end()`."""

    add: object
    begin: object
    # Whether it ends its session by DELETE when it ends.
    deletes: bool
    # Whether it speaks MCP 2026-07-28, and asks for it by `server/discover`.
    is_modern: bool = False
    # Whether it goes on after a call that found no `serve`.
    goes_on: bool = True
    # What its first and its second call count to when its session has ended meanwhile.
    renewed: tuple = (1, 2)

    def connect(self, world, served, token=None):
        """A session of the host, with the served endpoint."""
        return self.begin(world, self.add(world, served.url(), token))


def handshakes(world, served, expected=1):
    """Checks how often hosts have sent `initialize`."""
    seen = len(served.wire.seen("request", "initialize"))
    world.check(f"`initialize` was sent {expected} times in all", seen == expected, seen)


def scenarios(host):
    """What holds for every host over Streamable HTTP."""
    def http_call(world):
        served = Served(world)
        added = host.add(world, served.url())
        for name in ("one", "two"):
            session = host.begin(world, added)
            session.ask(name, "count count")
            world.counts([1, 2], name, "two calls meet one server, and no former host's")
            session.end()
        world.lives(0 if host.deletes else 2, "after the end of two hosts")

    def killed(*what):
        def scenario(world):
            served = Served(world)
            session = host.connect(world, served)
            session.ask("one", "count count")
            served.kill(*what)
            session.ask("two", "count count")
            world.counts([1, 2], "one", "the first calls")
            world.counts([3, 4], "two", "the same server goes on")
            handshakes(world, served)
        scenario.__name__ = "http_SIGKILL_of_" + "_and_".join(what)
        return scenario

    def killed_in_a_call(*what, silent=False):
        def scenario(world):
            served = Served(world, server=world.server() if silent else None)
            session = host.connect(world, served)
            session.ask("one")
            with served.holding(lambda: served.kill(*what)):
                session.ask("two")
            session.ask("three")
            world.counts([1], "one", "a first call")
            world.counts([2], "two", "a call is answered in the middle of which there was a kill")
            world.counts([3], "three", "the next call")
            handshakes(world, served)
        scenario.__name__ = f"http_SIGKILL_in_a_{'silent_' * silent}call_of_" + "_and_".join(what)
        return scenario

    def http_serve_is_gone(world):
        served = Served(world)
        session = host.connect(world, served)
        session.ask("one")
        served.down()
        session.ask("two")
        served.start()
        session.ask("three")
        world.counts([1], "one", "a first call")
        world.counts([None], "two", "a call while no serve runs gets an error")
        world.counts([2] if host.goes_on else [None], "three", "a call when serve is back")
        handshakes(world, served)

    def http_session_has_ended(world):
        """As one ends that was idle for long."""
        served = Served(world)
        session = host.connect(world, served)
        session.ask("one")
        served.end_sessions()
        session.ask("two", "count count")
        world.counts([1], "one", "a first call")
        world.counts(list(host.renewed), "two", "calls when the session has ended")

    def http_two_hosts(world):
        served = Served(world)
        added = host.add(world, served.url())
        first, second = host.begin(world, added), host.begin(world, added)
        first.ask("one", "count count")
        second.ask("two")
        served.kill("serve")
        first.ask("three")
        second.ask("four")
        for name, counts in {"one": [1, 2], "two": [1], "three": [3], "four": [2]}.items():
            world.counts(counts, name, "each host has its own server")
        handshakes(world, served, 2)

    def http_token(world):
        served = Served(world, "--token")
        session = host.connect(world, served, served.token())
        session.ask("one")
        served.kill("serve")
        session.ask("two")
        world.counts([1], "one", "a host with the token")
        world.counts([2], "two", "after SIGKILL of serve the same server goes on")

    def http_2026(world):
        """The version without sessions: no kill of `serve` costs more than the call that is open."""
        served = Served(world, server=world.server("--2026"))
        session = host.connect(world, served)
        session.ask("one", "count count")
        for what in (["serve"], ["daemon"]):
            served.kill(*what)
            session.ask("-".join(what))
        for count, name in enumerate(("serve", "daemon"), 3):
            world.counts([count], name, f"after SIGKILL of {name} the same server goes on")
        with served.holding(lambda: served.kill("serve")):
            session.ask("two")
        session.ask("three")
        world.counts([None], "two", "a call in the middle of which serve is killed gets an error: this version can't resume it")
        world.counts([6], "three", "the next call")
        handshakes(world, served, 0)

    modern = [http_2026] if host.is_modern else []
    return [*modern, http_call, http_serve_is_gone, http_session_has_ended, killed("serve"), killed("daemon"), killed("serve", "daemon"), killed_in_a_call("serve"),
            killed_in_a_call("daemon"), killed_in_a_call("serve", "daemon"), killed_in_a_call("serve", silent=True), http_two_hosts, http_token]


def single_calls(call):
    """What holds for a command that makes one call: `call(world, url, token)` runs it, and returns its code and what it said."""
    def http_one_call(world):
        served = Served(world)
        for which in ("one", "another"):
            code, said = call(world, served.url())
            world.check(f"{which} process: its call meets a fresh server", code == 0 and number(said) == 1, (code, said))
        world.lives(2, "neither ends its session")

    def http_many_calls(world):
        """None ends its session: a new one takes the place of the oldest."""
        world.config_path.write_text("http.sessions = 2\nhttp.unused_ms = 500\n")
        served = Served(world)
        codes = [call(world, served.url())[0] for _ in range(4)]
        world.check("four commands find room where there may be two sessions", codes == [0] * 4, codes)
        world.lives(2, "the other servers have ended")

    def http_token(world):
        served = Served(world, "--token")
        code, said = call(world, served.url(), served.token())
        world.check("with the token the call is answered", code == 0 and number(said) == 1, (code, said))
        code, said = call(world, served.url())
        world.check("without it the command fails", code != 0 and number(said) is None, (code, said))
        world.check("and reaches no server", len(world.started()) == 1, world.started())

    def http_SIGKILL_in_a_call(world):
        served = Served(world, server=world.server())
        with served.holding(lambda: served.kill("serve", "daemon")):
            code, said = call(world, served.url())
        world.check("a call is answered in the middle of which there was a kill", code == 0 and number(said) == 1, (code, said))
        handshakes(world, served)

    return [http_one_call, http_many_calls, http_token, http_SIGKILL_in_a_call]


def observed(host):
    """What a host does over HTTP."""
    def scenario(world):
        served = Served(world)
        added = host.add(world, served.url())
        session = None

        def begin():
            nonlocal session
            session = host.begin(world, added)

        def in_the_middle(act, name):
            with served.holding(act):
                session.ask(name)

        def watched(what, act, seconds):
            since, begun = len(served.wire.notes), time.monotonic() - served.wire.began
            act()
            time.sleep(seconds)
            print(f"{what}: from {begun:.3f}", flush=True)
            told(served.wire, since)
        watched("start", begin, 3)
        watched("a call", lambda: session.ask("one"), 2)
        watched("SIGKILL of serve in a call", lambda: in_the_middle(served.restart, "two"), 6)
        watched("SIGKILL of the daemon in a call", lambda: in_the_middle(lambda: world.kill("daemon"), "three"), 3)
        watched("serve is gone", served.down, 15)
        watched("serve is back", served.start, 15)
        watched("a call", lambda: session.ask("four"), 2)
        watched("SIGKILL of the server", lambda: os.kill(world.servers()[-1], signal.SIGKILL), 2)
        watched("a call", lambda: session.ask("five"), 2)
        watched("its end", session.end, 3)
        print(f"  servers left: {world.servers()}")
        watched("a new host", begin, 3)
        watched("a call", lambda: session.ask("six"), 2)
        served.down()
        watched("a call while serve is gone", lambda: session.ask("seven"), 2)
        watched("serve is back", served.start, 8)
        watched("a call", lambda: session.ask("eight"), 2)
        print(json.dumps(world.api.told))
    scenario.__name__ = "http_observed"
    return scenario
