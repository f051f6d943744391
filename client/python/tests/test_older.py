"""Daemons of before: `tests/python/older.py` stands between the library and the daemon, and refuses what those don't know."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
import unittest
from typing import Any

import support
from processes import Server
from raw import Raw

from mcp_sessiond import InvalidArgument, Options, Sessions, StreamClosed, blocking
from mcp_sessiond.wire import TAKES_CLOSE

PROGRAM = support.ROOT / "tests" / "python" / "older.py"
THIS = (1 << 64) - 1
DAEMONS = (THIS, THIS & ~TAKES_CLOSE, 0)
"""This daemon, one of before appends could close, and one of before there were feature bits."""


class Older:
    """A directory in which the daemon passes for an older one."""

    def __init__(self, daemon: support.Daemon, features: int) -> None:
        self.directory = daemon.directory / f"older-{features}"
        command = [sys.executable, "-I", "-S", str(PROGRAM), str(self.directory), str(daemon.directory), str(features)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._lines.get(timeout=60) == "ready"

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as said:
            for line in said:
                self._lines.put(line.strip())

    def calls(self, last: str) -> list[str]:
        """The calls since this was asked, up to this one."""
        found: list[str] = []
        while not found or found[-1] != last:
            found.append(self._lines.get(timeout=60))
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Library(unittest.TestCase):
    def test_a_stream_is_closed_with_its_last_message(self) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        for features in DAEMONS:
            older = Older(daemon, features)
            self.addCleanup(older.kill)
            asyncio.run(self.close(older, Options(directory=older.directory), features))

    async def close(self, older: Older, options: Options, features: int) -> None:
        session = await Sessions("web", options).create()
        stream = await session.open_stream("call", will={"late": True})
        older.calls("open_stream")
        appended = await stream.append({"n": 1}, close=True)
        if features & TAKES_CLOSE:
            self.assertEqual(older.calls("append close"), ["append close"])
        else:
            self.assertEqual(older.calls("close_stream"), ["append", "close_stream"])
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

    def test_a_call_is_answered_and_its_stream_closed_with_every_daemon(self: Any) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        sessions = blocking.Sessions("test", Options(directory=daemon.directory))
        for features in DAEMONS:
            older = Older(daemon, features)
            self.addCleanup(older.kill)
            daemon.environment["MCP_SESSIOND_DIR"] = str(older.directory)
            server = Server(daemon, self.kind)
            daemon.environment["MCP_SESSIOND_DIR"] = str(daemon.directory)
            self.addCleanup(server.kill)
            raw = Raw(server.port)
            raw.initialize()
            # The first of two, so that what the handshake asks of the daemon is over.
            for id in (1, 2):
                self.assertIn("result", raw.request(id, "tools/list").answer())
                closing = "append close" if features & TAKES_CLOSE else "close_stream"
                calls = older.calls(closing)
            steps = ["append close"] if features & TAKES_CLOSE else ["append", "close_stream"]
            kept = [call for call in calls if "stream" in call or "append" in call]
            self.assertEqual(kept, ["open_stream", "append", *steps])
            streams = [one for one in sessions.open(str(raw.session)).streams() if one.id.startswith("post-")]
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
