"""The examples, which all do the same, and what is installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import unittest

from programs import BUILT, LIBRARIES, Case, Process


class Servers:
    """The examples: each language's does the same."""

    name = ""
    logs = False

    def server(self, *more: str) -> Process:
        return self.run_of(str(BUILT / self.name / "server"), *more)  # type: ignore[attr-defined]

    def test_the_token_survives_the_server_and_the_daemon(self: Case) -> None:
        for turn in range(3):
            for who in "ab":
                server = self.server(who)
                self.assertEqual(server.line(), f"resumed {who} {turn - 1}" if turn else "fresh")
                self.assertEqual(server.ask(f"issue {who} {turn}"), "ok")
                self.assertIn("resumed" if turn else "begun afresh", server.ask("status"))
                server.kill()
            self.daemon.kill()
            self.daemon.start()
        server = self.server("a")
        self.assertEqual((server.line(), server.ask("refuse")), ("resumed a 2", "ok"))
        server.kill()
        self.assertEqual(self.server("a").line(), "fresh")
        self.assertEqual(self.server("b").line(), "resumed b 2")

    def test_the_daemon_is_killed_between_the_calls(self: Case) -> None:
        server = self.server()
        self.assertEqual(server.line(), "fresh")
        for turn in range(3):
            self.daemon.kill()
            self.assertEqual(server.ask(f"issue {turn}"), "ok")
            pid = self.daemon.pid()
            assert pid, "the library has started another one"
            self.daemon.process = None
            self.daemon.kill = lambda pid=pid: os.kill(pid, signal.SIGKILL)  # type: ignore[method-assign]
        self.assertEqual(server.rest()[1].count("\n"), 1 if self.logs else 0, "the library writes nothing itself")
        self.assertEqual(self.server().line(), "resumed 2")

    def test_what_is_not_kept_is_said(self: Case) -> None:
        server = self.server()
        server.line()
        self.assertEqual(server.ask("issue "), "a resume token has at least 1 byte; this one is empty")
        # Where tokens are to be written stands something else.
        tokens = self.daemon.directory / "tokens"
        tokens.rename(tokens.with_name("away"))
        tokens.write_text("")
        self.assertRegex(server.ask("issue one"), "^Failed to write token file: ")


class InC(Servers, Case):
    name, logs = "c", True


class InCStatically(Servers, Case):
    name, logs = "static", True


class InCxx(Servers, Case):
    name, logs = "c++", True


class InGo(Servers, Case):
    name = "go"


if (BUILT / "swift" / "server").exists():

    class InSwift(Servers, Case):
        name = "swift"


class Files(unittest.TestCase):
    """What is installed."""

    def test_nothing_but_the_header_s_functions_is_exported(self) -> None:
        header = (BUILT / "root/usr/include/mcp_sessiond.h").read_text()
        said = re.findall(r"^(?:\w+ )+?\*?(mcp_sessiond_\w+)\(", header, re.MULTILINE)
        library = str(LIBRARIES / "libmcp_sessiond.so")
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
        )
        self.assertEqual(sorted(line.split()[-1] for line in symbols.stdout.splitlines()), sorted(said))
        self.assertEqual(len(said), 13)

    def test_the_shared_library_has_a_name_with_the_number_of_its_interface(self) -> None:
        dynamic = subprocess.run(
            ["readelf", "-d", str(LIBRARIES / "libmcp_sessiond.so")], capture_output=True, text=True, check=True
        )
        self.assertIn("soname: [libmcp_sessiond.so.0]", dynamic.stdout)
        needed = re.findall(r"NEEDED.*\[(.*?)\.so", dynamic.stdout)
        self.assertLessEqual(set(needed), {"libc", "libgcc_s", "libm", "ld-linux-x86-64", "ld-linux-aarch64"})

    def test_what_is_installed_can_be_taken_away(self) -> None:
        left = [path for path in (BUILT / "gone").rglob("*") if not path.is_dir()]
        self.assertEqual((left, (BUILT / "gone/usr/lib/pkgconfig").is_dir()), ([], True))
