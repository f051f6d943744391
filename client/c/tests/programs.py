"""What the tests have in common: programs that this process starts and kills, and so is the host of.

`client/c/test` has built them into the directory that MCP_SESSIOND_C_BUILT names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests"))

import support  # noqa: E402

BUILT = Path(os.environ["MCP_SESSIOND_C_BUILT"])
LIBRARIES = BUILT / "root" / "usr" / "lib"


class Process:
    """A program that is asked and answers by lines."""

    def __init__(self, daemon: support.Daemon, *command: str, **more: str) -> None:
        environment = {**daemon.environment, "LD_LIBRARY_PATH": str(LIBRARIES), **more}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1
        )

    def ask(self, line: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        return self.line()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def rest(self, given: str | None = None) -> tuple[list[str], str]:
        """What it says until it ends, which it must do well; on standard error, too."""
        said, wrong = self.process.communicate(given, timeout=120)
        if self.process.returncode != 0:
            raise AssertionError(f"{self.process.args}: {self.process.returncode}\n{said}\n{wrong}")
        return said.splitlines(), wrong

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)

    def run_of(self, *command: str, **more: str) -> Process:
        process = Process(self.daemon, *command, **more)
        self.addCleanup(process.kill)
        return process
