"""What the rules of the Tasks extension have in common: a server process, and a client that speaks HTTP itself.

MCP_SESSIOND_TEST_STORAGE: another storage in which all of them run, by its URL.
"""

from __future__ import annotations

import os
from typing import Any

import support
from modern import TASKS, Modern
from processes import Server

NAME = {"action": "accept", "content": {"name": "Ann"}}
MISSING, INVALID, NO_METHOD = -32021, -32602, -32601


class Rules:
    kind: str
    storage: str

    daemon: support.Daemon
    server: Server
    client: Modern

    @classmethod
    def setUpClass(cls) -> None:
        storage = os.environ.get("MCP_SESSIOND_TEST_STORAGE", cls.storage)
        cls.daemon = support.Daemon().start(f'storage.url="{storage}"')
        cls.server = Server(cls.daemon, cls.kind, None, script="task_server.py")
        cls.client = Modern(cls.server.port)
        cls.plain = Modern(cls.server.port, extensions=())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.kill()
        cls.server.listening.close()
        cls.daemon.remove()

    def open(self: Any, gate: str) -> None:
        (self.daemon.directory / gate).touch()

    def journal(self: Any) -> str:
        return (self.daemon.directory / "journal").read_text()

    def assert_error(self: Any, answer: Any, code: int) -> None:
        self.assertEqual(answer.get("error", {}).get("code"), code, answer)
        self.assertTrue(answer["error"]["message"])

    def assert_missing(self: Any, answer: Any) -> None:
        self.assert_error(answer, MISSING)
        self.assertEqual(answer["error"]["data"], {"requiredCapabilities": {"extensions": {TASKS: {}}}})
