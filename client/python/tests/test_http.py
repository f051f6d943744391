"""Servers of the SDKs with one line added: killed in the middle of a call and started again, the official client at the other end."""

from __future__ import annotations

import json
import os
import unittest
from pathlib import Path
from typing import Any

import support
from balancer import Balancer
from processes import Process, Server

from mcp_sessiond import Sessions

UNKNOWN = "the server ended before it had answered: the outcome of this call is unknown"


class Client(Process):
    def __init__(self, daemon: support.Daemon, kind: str, url: str) -> None:
        super().__init__(daemon, kind, "http_client.py", url)
        self.told: list[dict[str, Any]] = []
        self.until(lambda said: said.get("ready"))

    def call(self, tool: str, **arguments: Any) -> None:
        assert self.process.stdin
        print(json.dumps({"tool": tool, **arguments}), file=self.process.stdin, flush=True)

    def until(self, is_it: Any) -> dict[str, Any]:
        while True:
            said: dict[str, Any] = json.loads(self.line())
            self.told.append(said)
            if is_it(said):
                return said

    def outcome(self, key: str | None) -> dict[str, Any]:
        return self.until(lambda said: said.get("key") == key and "progress" not in said)

    def progress(self, key: str) -> list[int]:
        return [said["progress"] for said in self.told if said.get("key") == key and "progress" in said]


class Killed:
    """The cases, for each SDK."""

    kind: str

    def setUp(self: Any) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.gate = str(self.daemon.directory / "gate")
        self.server = self.serve()
        self.client = Client(self.daemon, self.kind, self.server.url)
        self.addCleanup(self.client.kill)

    def serve(self: Any, listening: Any = None, *more: str) -> Server:
        server = Server(self.daemon, self.kind, listening, *more)
        self.addCleanup(server.kill)
        return server

    def test_a_call_is_answered_and_the_session_goes_on(self: Any) -> None:
        self.client.call("visits")
        session, number, client = self.client.outcome(None)["result"].split()
        self.assertEqual(number, "1")
        self.client.call("count", key="a", steps=3, hold=2, gate=self.gate)
        self.client.until(lambda said: said == {"key": "a", "progress": 2})
        self.server.kill()
        self.serve(self.server.listening)
        said = self.client.outcome("a")
        self.assertEqual((said.get("error"), said["code"]), (UNKNOWN, -32000))
        self.assertEqual(self.client.progress("a"), [1, 2])
        self.client.call("count", key="b", steps=2, hold=-1, gate=self.gate)
        self.assertEqual(self.client.outcome("b")["result"], "b 2")
        self.assertEqual(self.client.progress("b"), [1, 2])
        self.client.call("visits")
        # Its state, its id, and who the client is.
        self.assertEqual(self.client.outcome(None)["result"], f"{session} 2 {client}")
        # A client that had sent `initialize` again would have another one.
        self.assertEqual([one.id for one in self.daemon.ask(Sessions.list)], [session])
        self.assertEqual(Path(self.daemon.directory, "journal").read_text().split(), ["a", "b"])

    def test_the_daemon_is_killed_in_the_middle_of_a_call(self: Any) -> None:
        self.client.call("count", key="a", steps=4, hold=2, gate=self.gate)
        self.client.until(lambda said: said == {"key": "a", "progress": 2})
        self.daemon.kill()
        os.close(os.open(self.gate, os.O_CREAT))
        self.daemon.start()
        self.assertEqual(self.client.outcome("a")["result"], "a 4")
        self.assertEqual(self.client.progress("a"), [1, 2, 3, 4])


    def test_a_large_result_is_whole_for_each_client(self: Any) -> None:
        # `mcp` 2 reads at most 1 MiB an event. From a server of its own version it gets JSON, by MCP 2026-07-28.
        for server in (self.server, self.serve(None, "json")):
            for kind in ("mcp1", "mcp2"):
                client = Client(self.daemon, kind, server.url)
                self.addCleanup(client.kill)
                for size in (900_000, 1_100_000, 3_000_000, 16_000_000):
                    client.call("big", key="a", bytes=size)
                    said = client.outcome("a")
                    self.assertEqual((said.get("error"), len(said.get("result", ""))), (None, size), server.process.args)


class Balanced:
    """The same with two workers, whose requests alternate."""

    kind: str

    def test_a_worker_is_killed_in_the_middle_of_a_call(self: Any) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        workers = {worker.port: worker for worker in (Server(daemon, self.kind), Server(daemon, self.kind))}
        balancer = Balancer(*workers)
        self.addCleanup(balancer.close)
        for worker in workers.values():
            self.addCleanup(worker.kill)
        client = Client(daemon, self.kind, balancer.url)
        self.addCleanup(client.kill)

        def visits() -> list[str]:
            client.call("visits")
            return list(client.outcome(None)["result"].split())

        session, number, name = visits()
        self.assertEqual(visits(), [session, "2", name])
        gate = str(daemon.directory / "gate")
        client.call("count", key="a", steps=3, hold=2, gate=gate)
        client.until(lambda said: said == {"key": "a", "progress": 2})
        killed = workers[balancer.calls[-1]]
        killed.kill()
        killed.listening.close()
        said = client.outcome("a")
        self.assertEqual((said.get("error"), said["code"]), (UNKNOWN, -32000))
        self.assertEqual(client.progress("a"), [1, 2])
        self.assertEqual(visits(), [session, "3", name])
        another = Server(daemon, self.kind)
        self.addCleanup(another.kill)
        balancer.ports.append(another.port)
        for count in range(4, 8):
            self.assertEqual(visits(), [session, str(count), name])
        self.assertIn(another.port, balancer.calls)
        self.assertEqual(len(set(balancer.calls)), 3)
        self.assertEqual(Path(daemon.directory, "journal").read_text().split(), ["a"])
        self.assertEqual([one.id for one in daemon.ask(Sessions.list)], [session])


class BalancedMcp1(Balanced, unittest.TestCase):
    kind = "mcp1"


class BalancedMcp2(Balanced, unittest.TestCase):
    kind = "mcp2"


class BalancedFastMcp(Balanced, unittest.TestCase):
    kind = "fastmcp"


class Mcp1(Killed, unittest.TestCase):
    kind = "mcp1"


class Mcp2(Killed, unittest.TestCase):
    kind = "mcp2"


class FastMcp(Killed, unittest.TestCase):
    kind = "fastmcp"


if __name__ == "__main__":
    unittest.main()
