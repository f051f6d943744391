"""What the library makes of values: the scenarios of values.c."""

from __future__ import annotations

from programs import BUILT, Case

REFUSE = "Broker rejected resume token, starting fresh session"


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
        self.assertEqual(first, "state 0 outcome 0 epoch 0 session 0: no session is claimed")
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
            said[5], r"^state 1 outcome 3 epoch 1 session 36 final 0: session \S+ is held .*begun afresh$"
        )
        self.assertEqual([*said[6:], last], ["release: 0", "strange 0"])

    def test_without_a_daemon_resume_is_disabled_and_one_line_says_so(self) -> None:
        self.daemon.kill()
        (self.daemon.directory / "daemon.sock").unlink()
        first, line, *calls, status, release, strange = self.scenario("alone")
        why = "session resume is disabled: no daemon listens at "
        self.assertEqual(line[:46], "log 2 Session resume disabled: no daemon liste")
        self.assertEqual([call.split(why)[0] for call in calls], ["load: 2 ", "store: 2 ", "reject: 2 "])
        self.assertRegex(status, f"^state 2 outcome 0 epoch 0 session 0 final 0: {why}")
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


MISUSE = """
init without a place: 6 `sessiond` is NULL; it must point to where the result goes
no size: 6 options.size is 0; set it to sizeof(mcp_sessiond_options)
blank: 6 options.label: a label is 1 to 128 bytes of printable text, without blanks at its ends
not UTF-8: 6 options.label must be UTF-8
relative: 6 options.directory must be an absolute path
start: 6 options.start is 7, which is not a mcp_sessiond_start that this version knows
siblings: 6 options.siblings is 9, which is not a mcp_sessiond_siblings that this version knows
timeout: 6 options.timeout_ms is 86400001; it can be 86400000 at most
later field: 6 `options` has a field set that this version of the library does not know; upgrade it
later field that is 0: 0
less than ever: 6 options.size is 79; set it to sizeof(mcp_sessiond_options)
first options: 0
less status than ever: 6 status.size is 668; set it to sizeof(mcp_sessiond_status)
first status: 0
text 1, what follows 1
load nowhere: 6 `token` is NULL; it must point to where the result goes
load by nobody: 6 `sessiond` is NULL; it must be a handle that mcp_sessiond_init has made
token 0
store nothing: 6 `token` is NULL; it must point to the bytes of the token
store empty: 6 a resume token has at least 1 byte; this one is empty
store too much: 6 a resume token has at most 65536 bytes; this one has 65537
store no size: 6 `size` is larger than anything in memory
status without size: 6 status.size is 0; set it to sizeof(mcp_sessiond_status)
status nowhere: 6 `status` is NULL; it must point to a mcp_sessiond_status
reject by nobody: 6 `sessiond` is NULL; it must be a handle that mcp_sessiond_init has made
release by nobody: 6 `sessiond` is NULL; it must be a handle that mcp_sessiond_init has made
nothing 0 0
-1 a result that this version of the mcp-sessiond library does not know
0 it was done
1 there is no token: start afresh
2 session resume is disabled
3 the daemon did not do it; the previous token is still kept
4 it timed out, and whether it was done is not known
5 the handle is the parent process's: after fork, call mcp_sessiond_init for one of this process
6 an argument is not valid
7 there is no thread or descriptor left
8 a fault of the mcp-sessiond library; please report it
9 a result that this version of the mcp-sessiond library does not know
version 0
"""
