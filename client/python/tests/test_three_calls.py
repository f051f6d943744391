"""Version 1's three calls, in a server that this process starts, kills and starts again: this process is its host."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest

import support


class Server:
    def __init__(self, daemon: support.Daemon, *more: str) -> None:
        command = [sys.executable, str(support.HERE / "stdio_server.py"), *more]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=daemon.environment, stdin=pipe, stdout=pipe, text=True)

    def ask(self, line: str) -> tuple[object, str, list[str]]:
        assert self.process.stdin and self.process.stdout
        print(line, file=self.process.stdin, flush=True)
        said = json.loads(self.process.stdout.readline())
        return said["result"], said["state"], said["lines"]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class ThreeCalls(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)

    def server(self, *more: str) -> Server:
        server = Server(self.daemon, *more)
        self.addCleanup(server.kill)
        return server

    def test_a_token_survives_the_server(self) -> None:
        first = self.server()
        absent = "Token file not found (first run or clean slate)"
        self.assertEqual(first.ask("load"), (None, "active", [absent]))
        self.assertEqual(first.ask("store one"), (True, "active", []))
        first.kill()
        second = self.server()
        self.assertEqual(second.ask("load"), ("one", "active", []))
        self.assertEqual(second.ask("store two"), (True, "active", ["Session resumed successfully"]))
        second.kill()
        third = self.server()
        self.assertEqual(third.ask("load"), ("two", "active", []))
        rejected = "Broker rejected resume token, starting fresh session"
        self.assertEqual(third.ask("reject"), (True, "active", [rejected]))
        self.assertEqual(third.ask("store three"), (True, "active", []))
        third.kill()
        self.assertEqual(self.server().ask("load")[0], "three")

    def test_the_daemon_is_killed_between_the_calls(self) -> None:
        server = self.server()
        server.ask("load")
        self.daemon.kill()
        self.assertEqual(server.ask("store one"), (True, "active", []))
        self.assertEqual(server.ask("load"), ("one", "active", []))

    def test_without_a_daemon_resume_is_disabled_and_one_line_says_so(self) -> None:
        self.daemon.kill()
        server = self.server("/nowhere")
        result, state, lines = server.ask("load")
        self.assertEqual((result, state, len(lines)), (None, "disabled", 1))
        self.assertTrue(lines[0].startswith("Session resume disabled: "), lines)
        self.assertEqual(server.ask("store one"), (False, "disabled", []))
        self.assertEqual(server.ask("reject"), (False, "disabled", []))

    def test_a_token_that_is_none(self) -> None:
        server = self.server()
        server.ask("load")
        result, _, lines = server.ask(f"store {'x' * 65_537}")
        self.assertEqual(result, False)
        self.assertEqual(lines, ["Resume token not stored: a token has 1 to 65536 bytes, not 65537"])

    def test_a_corrupted_token_is_stale(self) -> None:
        first = self.server()
        first.ask("load")
        first.ask("store one")
        first.kill()
        (token,) = (self.daemon.directory / "tokens").iterdir()
        token.write_text("other")
        lines = ["Token file corrupted, treating as stale"]
        self.assertEqual(self.server().ask("load"), (None, "active", lines))

    def test_the_session_of_a_claim_has_state_and_can_be_begun_anew(self) -> None:
        server = self.server()
        self.assertEqual(server.ask("session")[0], 1)
        self.assertEqual(server.ask("session")[0], 2)
        self.assertEqual(server.ask("begin_anew")[0], 1)
        self.assertEqual(server.ask("release")[:2], (None, "unclaimed"))


if __name__ == "__main__":
    unittest.main()
