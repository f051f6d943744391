"""The SDK's own transport with the event store: one store for all sessions, and none sees another's events."""

from __future__ import annotations

import json
import os
import unittest
from typing import Any

import support
from processes import Server
from raw import Raw

from mcp_sessiond import Sessions, StreamStart


class Stored:
    kind: str

    def setUp(self: Any) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.gate = str(self.daemon.directory / "gate")
        self.server = Server(self.daemon, self.kind, None, "store")
        self.addCleanup(self.server.kill)

    def begun(self: Any, key: str) -> tuple[Raw, str]:
        """A client that has left a call of its own, with the same id as everybody's, and the id of its first event."""
        raw = Raw(self.server.port)
        raw.initialize()
        response = raw.tool(1, "count", key=key, steps=2, hold=1, gate=self.gate)
        events = response.events()
        first = next(events)[0]
        next(events)
        response.close()
        return raw, str(first)

    def test_calls_of_one_id_in_two_sessions_are_replayed_each_to_its_own(self: Any) -> None:
        clients = {key: self.begun(key) for key in ("a", "b")}
        os.close(os.open(self.gate, os.O_CREAT))

        async def ended(sessions: Sessions) -> None:
            for view in await sessions.list():
                session = await sessions.open(view.id)
                for stream in await session.streams():
                    if stream.id.startswith("post-"):
                        async for said in session.follow(StreamStart(stream.id)):
                            if any("method" not in event.message for event in said.events):
                                break

        # The SDK loses what is said while it replays: both calls come to their ends first.
        self.daemon.ask(ended)
        for key, (raw, first) in clients.items():
            # The SDK keeps a stream open that is said to its end.
            said = []
            for _, message in raw.send("GET", Last_Event_ID=first).messages():
                said.append(message)
                if "method" not in message:
                    break
            told = [message["params"]["message"] for message in said if "method" in message]
            self.assertEqual(told, [key, key])
            self.assertEqual(said[-1]["result"]["content"][0]["text"], f"{key} 2")


    def test_a_client_that_comes_back_takes_over_a_stream_that_still_looks_read(self: Any) -> None:
        raw = Raw(self.server.port)
        raw.initialize()
        # Its connection is open, and nobody reads it any more.
        stale = raw.tool(1, "count", key="a", steps=2, hold=1, gate=self.gate)
        first = str(next(stale.events())[0])
        for _ in range(2):
            events = raw.send("GET", Last_Event_ID=first).events()
            said = next(events)[1]
            self.assertEqual(json.loads(said)["params"]["progress"], 1)
            # The SDK hands this reader what comes from now on.
            self.assertEqual(next(events)[1], "")
        os.close(os.open(self.gate, os.O_CREAT))
        self.assertEqual(json.loads(next(events)[1])["params"]["progress"], 2)
        self.assertEqual(json.loads(next(events)[1])["result"]["content"][0]["text"], "a 2")

    def test_a_client_that_comes_back_takes_over_the_standalone_stream(self: Any) -> None:
        raw = Raw(self.server.port)
        raw.initialize()
        readers = [raw.send("GET") for _ in range(3)]
        self.assertEqual([one.status for one in readers], [200, 200, 200])
        raw.tool(1, "announce").answer()
        last, message = next(readers[-1].messages())
        self.assertEqual(message["method"], "notifications/tools/list_changed")
        # The former ones have come to their ends.
        self.assertEqual([list(one.messages()) for one in readers[:-1]], [[], []])
        resumed = raw.send("GET", Last_Event_ID=str(last))
        self.assertEqual(next(resumed.events())[1], "")
        raw.tool(2, "announce").answer()
        self.assertEqual(next(resumed.messages())[1]["method"], "notifications/tools/list_changed")


class WithoutADaemon(unittest.TestCase):
    def test_without_a_daemon_calls_are_answered_all_the_same(self) -> None:
        daemon = support.Daemon()
        self.addCleanup(daemon.remove)
        daemon.environment["MCP_SESSIOND_BIN"] = "/nowhere"
        server = Server(daemon, "mcp2", None, "store")
        self.addCleanup(server.kill)
        raw = Raw(server.port)
        raw.initialize()
        answer = raw.tool(1, "count", key="a", steps=1, hold=-1, gate="").answer()
        self.assertEqual(answer["result"]["content"][0]["text"], "a 1")


class Mcp1(Stored, unittest.TestCase):
    kind = "mcp1"


class Mcp2(Stored, unittest.TestCase):
    kind = "mcp2"


class FastMcp(Stored, unittest.TestCase):
    kind = "fastmcp"


if __name__ == "__main__":
    unittest.main()
