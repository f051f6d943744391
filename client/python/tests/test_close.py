"""A stream is closed in one step with its last message."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any
from unittest import mock

import support
from processes import Server
from raw import Raw

from mcp_sessiond import InvalidArgument, Options, Sessions, StreamClosed, StreamView
from mcp_sessiond.connection import Connection


class Library(unittest.TestCase):
    def test_a_stream_is_closed_with_its_last_message(self) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        asyncio.run(self.close(Options(directory=daemon.directory)))

    async def close(self, options: Options) -> None:
        calls: list[str] = []
        request = Connection.request

        async def recorded(self: Connection, method: str, params: dict[str, Any], deadline: Any) -> Any:
            calls.append(f"{method} close" if params.get("close") else method)
            return await request(self, method, params, deadline)

        session = await Sessions("web", options).create()
        with mock.patch.object(Connection, "request", recorded):
            stream = await session.open_stream("call", will={"late": True})
            appended = await stream.append({"n": 1}, close=True)
        self.assertEqual(calls, ["open_stream", "append close"])
        self.assertTrue((await session.find_event(appended.id)).ended)
        with self.assertRaises(StreamClosed):
            await stream.append({"n": 2})
        stream = await session.open_stream("again")
        first = await stream.append_all([{"n": 1}], "r", close=True)
        self.assertEqual(await stream.append_all([{"n": 1}], "r", close=True), first)
        with self.assertRaises(InvalidArgument):
            await session.standalone().append({"n": 3}, close=True)


class Served:
    """A call through `durable`, for each SDK."""

    kind: str

    def test_a_call_is_answered_and_its_stream_closed(self: Any) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        server = Server(daemon, self.kind)
        self.addCleanup(server.kill)
        raw = Raw(server.port)
        raw.initialize()
        for id in (1, 2):
            self.assertIn("result", raw.request(id, "tools/list").answer())

        async def listed(sessions: Sessions) -> list[StreamView]:
            return await (await sessions.open(str(raw.session))).streams()

        streams = [one for one in daemon.ask(listed) if one.id.startswith("post-")]
        self.assertEqual([one.closed for one in streams], [True] * len(streams))
        self.assertGreaterEqual(len(streams), 2)
        log = (daemon.directory / "http_server.py.log").read_text()
        for word in ("Traceback", "lost", "stored"):
            self.assertNotIn(word, log)


class Mcp1(Served, unittest.TestCase):
    kind = "mcp1"


class Mcp2(Served, unittest.TestCase):
    kind = "mcp2"


class FastMcp(Served, unittest.TestCase):
    kind = "fastmcp"


if __name__ == "__main__":
    unittest.main()
