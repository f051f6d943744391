"""The wheel in an empty environment, and each example by the command that its README names."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
import venv
from pathlib import Path

import support

PACKAGE = support.HERE.parent
README = (PACKAGE / "README.md").read_text()


class Package(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)

    def run_example(self, python: str, name: str, **more: str) -> list[str]:
        (command,) = re.findall(rf"^    python (examples/{name})\b", README, re.M)
        environment = {**self.daemon.environment, **more}
        done = subprocess.run([python, command], cwd=PACKAGE, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_the_wheel_has_all_that_it_needs(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            build = [
                sys.executable,
                "-m",
                "build",
                "--wheel",
                "--no-isolation",
                "--outdir",
                directory,
                str(PACKAGE),
            ]
            subprocess.run(build, check=True, capture_output=True)
            (wheel,) = Path(directory).glob("*.whl")
            environment = Path(directory, "empty")
            venv.create(environment, with_pip=True)
            python = str(environment / "bin" / "python")
            install = [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-index",
                "--disable-pip-version-check",
                str(wheel),
            ]
            subprocess.run(install, check=True)
            self.assertEqual(self.run_example(python, "counter.py"), ["now: start number 1"])
            again = ["before: start number 1", "now: start number 2"]
            self.assertEqual(self.run_example(python, "counter.py"), again)
            self.assertIn("offer to the broker: None", self.run_example(python, "stdio.py"))
            said = self.run_example(python, "stdio.py")
            self.assertRegex(said[0], r"offer to the broker: b'token of process \d+'")
            typed = environment.glob("lib/python*/site-packages/mcp_sessiond/py.typed")
            self.assertEqual(len(list(typed)), 1)

    def test_a_server_is_killed_between_two_calls(self) -> None:
        python = str(support.INSTALLED / "mcp2" / "bin" / "python")
        said = self.run_example(python, "kill.py", PYTHONPATH=str(support.SOURCE))
        self.assertEqual(
            said, ["notes: buy apples", "the server was killed", "notes: buy apples, sell pears"]
        )

    def test_a_task_outlives_its_server_and_one_that_was_cut_off_says_so(self) -> None:
        python = str(support.INSTALLED / "mcp2" / "bin" / "python")
        said = self.run_example(python, "tasks.py", PYTHONPATH=str(support.SOURCE))
        asked, report = "the task asks: Which title?", "Whales, 3 pages"
        self.assertEqual(said[:2], [asked, f"the report: {report}"])
        # The long task may have asked before the server is killed.
        self.assertEqual([line for line in said[2:-2] if line != asked], ["the server was killed"])
        self.assertEqual(said[-2], f"the same report: {report}")
        self.assertIn("outcome", said[-1])


if __name__ == "__main__":
    unittest.main()
