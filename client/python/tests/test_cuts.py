"""The connection is cut, the server or the daemon is killed, after a number of bytes that is drawn at random, and the official client is
at the other end. MCP_SESSIOND_CUTS: how often, for each SDK (5); MCP_SESSIOND_SEED: repeats a run; MCP_SESSIOND_RESULTS: a file that gets
a line of JSON for each SDK.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import random
import threading
import unittest
from collections.abc import Callable
from typing import Any, cast

import support
from processes import Server
from proxy import Proxy
from test_http import UNKNOWN, Client

from mcp_sessiond import Sessions

ROUNDS = int(os.environ.get("MCP_SESSIOND_CUTS", "5"))
SEED = int(os.environ.get("MCP_SESSIOND_SEED", random.randrange(2**32)))
STEPS = 20


class Cuts:
    """The rounds, for each SDK."""

    kind: str

    def setUp(self: Any) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.server = self.serve()
        self.proxy = Proxy(self.server.port)
        self.addCleanup(self.proxy.close)
        self.client = self.connect()

    def connect(self: Any) -> Client:
        client = Client(self.daemon, self.kind, self.proxy.url)
        self.addCleanup(client.kill)
        return client

    def serve(self: Any, listening: Any = None) -> Server:
        server = Server(self.daemon, self.kind, listening)
        self.addCleanup(server.kill)
        return server

    def again(self: Any) -> None:
        self.server.kill()
        self.server = self.serve(self.server.listening)

    def visit(self: Any) -> dict[str, Any]:
        """What a call that counts the visits gets; an error, too, if the client has ended."""
        try:
            self.client.call("visits")
            return cast("dict[str, Any]", self.client.outcome(None))
        except (AssertionError, BrokenPipeError) as error:
            return {"error": f"the client has ended: {error}"}

    def test_random_cuts(self: Any) -> None:
        # Another SDK has other rounds.
        drawn = random.Random(f"{SEED} {self.kind}")
        counts: collections.Counter[str] = collections.Counter()
        visits = ended = 0
        story = f"seed {SEED}"
        for number in range(ROUNDS):
            # Most of what can go wrong does so when the server is gone.
            what = drawn.choice(["connection", "server", "server", "daemon"])
            after = drawn.randrange(6_000)
            story += f", {what} after {after} bytes"
            done = threading.Event()

            def burn(
                cut: Callable[[], None], what: str = what, done: threading.Event = done
            ) -> None:
                if what == "connection":
                    cut()
                elif what == "server":
                    self.again()
                else:
                    self.daemon.kill()
                    self.daemon.start()
                done.set()

            self.proxy.light(after, burn)
            key = f"r{number}"
            # The server goes on once the client has heard so much, so that some kills find it in the middle.
            gate, hold = self.daemon.directory / f"gate-{number}", drawn.randint(1, STEPS)
            self.client.call("count", key=key, steps=STEPS, hold=hold, gate=str(gate))
            try:
                said = self.client.until(
                    lambda said, key=key, hold=hold: said.get("key") == key
                    and said.get("progress", hold) == hold
                )
                gate.touch()
                if "progress" in said:
                    said = self.client.outcome(key)
            except queue.Empty:
                # The client of mcp 1.30 waits for ever for a call that was cut before its first event.
                said = {"error": "no answer"}
            except AssertionError:
                said = {"ended": True}
            told = self.client.progress(key)
            place = f"{story}: told {told}, then {said}"
            self.assertEqual(told, list(range(1, len(told) + 1)), f"once and in order: {place}")
            if said.get("error") == UNKNOWN:
                self.assertEqual(what, "server", f"only a server that is gone leaves a call unanswered: {place}")
                outcome = "outcome unknown"
            elif "ended" in said:
                # The clients of mcp 1.30 and 2.3 end with an exception when a POST gets no response.
                self.assertEqual(told, [], place)
                outcome = "client ended"
            elif "error" in said:
                # A call that is cut before its first event has no place to come back to.
                self.assertEqual(told, [], place)
                outcome = "no event id"
            else:
                self.assertEqual((said["result"], len(told)), (f"{key} {STEPS}", STEPS), place)
                outcome = "ok"
            counts[outcome] += 1
            # What has not burnt by now does not: the next call begins with a client that is well.
            if not self.proxy.put_out():
                done.wait()
                counts[f"{what} cut"] += 1
            if outcome == "client ended":
                self.client, visits, ended = self.connect(), 0, ended + 1
            said = self.visit()
            if outcome == "no event id" and said.get("error"):
                # The client has told the call first, and has ended after it: FastMCP's says the reason to the calls that follow.
                self.client.kill()
                self.client, visits, ended = self.connect(), 0, ended + 1
                said = self.visit()
            visits += 1
            self.assertEqual(said.get("result", "").split()[1:2], [str(visits)], f"{place}, {said}")
        self.assertEqual(len(self.daemon.ask(Sessions.list)), 1 + ended, f"the client has not begun again: {story}")
        if results := os.environ.get("MCP_SESSIOND_RESULTS"):
            with open(results, "a") as file:
                print(json.dumps({"sdk": f"Python, {self.kind}", "rounds": ROUNDS, "counts": counts}), file=file)


class Mcp1(Cuts, unittest.TestCase):
    kind = "mcp1"


class Mcp2(Cuts, unittest.TestCase):
    kind = "mcp2"


class FastMcp(Cuts, unittest.TestCase):
    kind = "fastmcp"


if __name__ == "__main__":
    unittest.main()
