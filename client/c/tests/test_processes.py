"""What the library does to the process that it is in, and to its children: the scenarios of processes.c."""

from __future__ import annotations

import os
import re
import select
import signal

from programs import BUILT, LIBRARIES, Case, Process

FORKED = "the handle is the parent process's: after fork, call mcp_sessiond_init for one of this process"


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
        # Whoever starts the tests in the background has them ignore these.
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            former = signal.signal(ignored, signal.SIG_DFL)
            self.addCleanup(signal.signal, ignored, former)
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
