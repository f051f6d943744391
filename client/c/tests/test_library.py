"""The C library, in servers that this process starts and kills: this process is their host.

`client/c/test` has built them into the directory that MCP_SESSIOND_C_BUILT names.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests"))

import support  # noqa: E402

BUILT = Path(os.environ["MCP_SESSIOND_C_BUILT"])
LIBRARIES = BUILT / "root" / "usr" / "lib"
FORKED = "the handle is the parent process's: after fork, call mcp_sessiond_init for one of this process"
REFUSE = "Broker rejected resume token, starting fresh session"


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


class Values(Case):
    """Each scenario of tests/values.c; `kind` says how it was built, or is run."""

    kind = "plain"
    around: tuple[str, ...] = ()

    def scenario(self, *words: str, **more: str) -> list[str]:
        program = str(BUILT / self.kind / "values")
        said, wrong = self.run_of(*self.around, program, *words, **more).rest("")
        self.assertEqual(wrong, "", "the library writes to no standard error")
        return said

    def test_arguments_that_can_not_be_meant(self) -> None:
        self.assertEqual(self.scenario("misuse"), MISUSE.strip().splitlines())
        self.assertFalse(any((self.daemon.directory / "tokens").iterdir()))

    def test_the_longest_token_comes_back_and_is_wiped(self) -> None:
        # A program with a sanitizer has an allocator of its own, in which nobody can look on.
        wiped = "wiped 1" if self.kind == "plain" and not self.around else "wiped -1"
        said = self.scenario("longest")
        self.assertEqual([*said[:3], said[3]], ["store: 0", "load: 0", "same 1", wiped])

    def test_log_lines_and_status(self) -> None:
        first, *said, last = self.scenario("lines")
        self.assertEqual(first, "standing 0 outcome 0 epoch 0 session 0: no session is claimed")
        self.assertEqual(
            said[:5],
            [
                "log 1 Token file not found (first run or clean slate)",
                "load: 1",
                "store: 0",
                f"log 2 {REFUSE}",
                "reject: 0",
            ],
        )
        self.assertRegex(
            said[5], r"^standing 1 outcome 3 epoch 1 session 36 final 0: session \S+ is held .*begun afresh$"
        )
        self.assertEqual([*said[6:], last], ["release: 0", "strange 0"])

    def test_without_a_daemon_resume_is_disabled_and_one_line_says_so(self) -> None:
        self.daemon.kill()
        (self.daemon.directory / "daemon.sock").unlink()
        first, line, *calls, status, release, strange = self.scenario("alone")
        why = "session resume is disabled: no daemon listens at "
        self.assertEqual(line[:46], "log 2 Session resume disabled: no daemon liste")
        self.assertEqual([call.split(why)[0] for call in calls], ["load: 2 ", "store: 2 ", "reject: 2 "])
        self.assertRegex(status, f"^standing 2 outcome 0 epoch 0 session 0 final 0: {why}")
        self.assertEqual((release, strange), ("release: 0", "strange 0"))

    def test_no_descriptor_is_left(self) -> None:
        said = self.scenario("resources")
        self.assertRegex(said[0], "^init: 7 the thread that asks the daemon could not be started: ")
        self.assertEqual(said[1], "handle 0")


class ValuesWithSanitizers(Values):
    """AddressSanitizer and UndefinedBehaviorSanitizer, and the first one's look for leaks."""

    kind = "sanitized"

    # The search for leaks itself would have no descriptor.
    test_no_descriptor_is_left = None  # type: ignore[assignment]


class ValuesWithValgrind(Values):
    # What is "possibly" lost is what the standard library of Rust keeps for each thread, by a pointer into its middle.
    leaks = ("--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite")
    around = ("valgrind", "--quiet", "--error-exitcode=99", *leaks)

    # Valgrind itself would have no descriptor.
    test_no_descriptor_is_left = None  # type: ignore[assignment]


class Processes(Case):
    """Each scenario of tests/processes.c."""

    kind = "plain"

    def scenario(self, *words: str) -> Process:
        return self.run_of(str(BUILT / self.kind / "processes"), *words)

    def test_a_forked_child_makes_its_own_handle(self) -> None:
        said, wrong = self.scenario("fork").rest("")
        refused = [f"child {call}: 5 {FORKED}" for call in ("loads", "stores", "rejects", "releases")]
        own = ["child begins: 0", "child loads: 1", "child stores: 0", "token child", "child loads: 0", "child 0"]
        parent = ["token parent", "parent loads: 0"]
        self.assertEqual(
            said, ["parent stores: 0", *refused, f"child's status: 5 {FORKED}", *own, *parent], wrong
        )

    def test_threads_share_a_handle_while_the_process_forks(self) -> None:
        self.assertEqual(self.scenario("storm").rest(""), (["children that failed 0"], ""))

    def test_a_daemon_that_it_starts_is_ended_by_sigterm(self) -> None:
        # It is started by a thread that blocks all signals, and must not inherit that.
        self.daemon.kill()
        self.scenario("descriptors").rest("")
        pid = self.daemon.pid()
        assert pid, "the library has started one"
        exit_of = os.pidfd_open(pid)
        self.addCleanup(os.close, exit_of)
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(select.select([exit_of], [], [], 60)[0], "it goes on")

    def test_a_handle_that_is_freed_leaves_nothing_open(self) -> None:
        turn = ["store: 0", "descriptors 4", "descriptors 0"]
        self.assertEqual(self.scenario("descriptors").rest(""), (turn * 3, ""))

    def test_it_is_unloaded(self) -> None:
        said = self.scenario("unload", str(LIBRARIES / "libmcp_sessiond.so.0")).rest("")
        self.assertEqual(said, (["store 0"] * 3, ""))

    def test_signals_are_left_to_the_server(self) -> None:
        process = self.scenario("signals")
        said: list[str] = []
        for _ in range(5):
            while (line := process.line()) != "ready":
                said.append(line)
            self.daemon.kill()
            self.daemon.start()
            assert process.process.stdin
            process.process.stdin.write("\n")
        rest, wrong = process.rest()
        said += rest
        self.assertEqual((said.count("store: 0"), wrong), (6, ""))
        masks = [line.split() for line in said if "Sig" in line]
        for mask in ("SigIgn:", "SigCgt:", "SigBlk:"):
            # Signals 32 and 33 are those of the C library itself, which it handles once there are threads.
            values = {int(line[-1], 16) & ~(3 << 31) for line in masks if mask in line and "other" not in line}
            self.assertEqual(values, {0}, f"{mask} {said}")
        others = [int(line[-1], 16) for line in masks if "other" in line]
        # All that can be blocked: SIGKILL and SIGSTOP can't, nor those two.
        self.assertEqual(set(others), {(1 << 64) - 1 & ~(1 << 8 | 1 << 18 | 3 << 31)}, said)

    def test_a_call_ends_when_its_time_is_over(self) -> None:
        process = self.scenario("deadline")
        self.assertEqual((process.line(), process.line()), ("load: 1", "ready"))
        assert self.daemon.process
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            said = process.ask("")
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        match = re.fullmatch(r"results (\d+), (\d+) ms", said)
        assert match, said
        # Each is told that the daemon did not answer (2), or, where it had to wait or the machine is slow, that its time is over (4).
        self.assertIn(int(match[1]), (2 + 2, 2 + 4, 4 + 4))
        self.assertGreaterEqual(int(match[2]), 2000)
        self.assertEqual(process.line(), "freed")


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


MISUSE = """
init without a place: 6 `sessiond` is NULL; it must point to where the result goes
no size: 6 options.size is 0; set it to sizeof(mcp_sessiond_options)
blank: 6 options.label: a label is 1 to 128 bytes of printable text, without blanks at its ends
not UTF-8: 6 options.label must be UTF-8
relative: 6 options.directory must be an absolute path
start: 6 options.start is 7, which is no mcp_sessiond_start that this version knows
siblings: 6 options.siblings is 9, which is no mcp_sessiond_siblings that this version knows
timeout: 6 options.timeout_ms is 86400001; it can be 86400000 at most
later field: 6 `options` has a field set that this version of the library does not know; upgrade it
later field that is 0: 0
load nowhere: 6 `token` is NULL; it must point to where the result goes
load by nobody: 6 `sessiond` is NULL; it must be a handle that mcp_sessiond_init has made
token 0
store nothing: 6 `token` is NULL; it must point to the bytes of the token
store empty: 6 a resume token has at least 1 byte; this one is empty
store too much: 6 a resume token has at most 65536 bytes; this one has 65537
store no size: 6 `size` is no size of anything in memory
status without size: 6 status.size is 0; set it to sizeof(mcp_sessiond_status)
status nowhere: 6 `status` is NULL; it must point to a mcp_sessiond_status
reject by nobody: 6 `sessiond` is NULL; it must be a handle that mcp_sessiond_init has made
release by nobody: 6 `sessiond` is NULL; it must be a handle that mcp_sessiond_init has made
nothing 0 0
-1 a result that this version of the mcp-sessiond library does not know
0 it was done
1 there is no token: start afresh
2 session resume is disabled
3 the daemon did not do it; the former token is still kept
4 the time was over first; whether it was done is not known
5 the handle is the parent process's: after fork, call mcp_sessiond_init for one of this process
6 an argument can't be meant as it is
7 there is no thread or descriptor left
8 a fault of the mcp-sessiond library; please report it
9 a result that this version of the mcp-sessiond library does not know
version 0
"""

if __name__ == "__main__":
    unittest.main()
