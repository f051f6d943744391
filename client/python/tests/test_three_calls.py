"""The session that holds version 1's token, in a server of which this process is the host. The three calls are in tests/languages."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest

import support


class TheSessionOfAClaim(unittest.TestCase):
    def test_it_has_state_and_can_be_begun_anew(self) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        command = [sys.executable, str(support.HERE / "stdio_server.py")]
        orders = "session\nsession\nbegin_anew\nrelease\n"
        done = subprocess.run(command, env=daemon.environment, input=orders, stdout=subprocess.PIPE, text=True)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([one["result"] for one in said], [1, 2, 1, None])
        self.assertEqual(said[-1]["state"], "unclaimed")


if __name__ == "__main__":
    unittest.main()
