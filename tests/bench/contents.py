#!/usr/bin/env python3
"""Memory of sessions that hold something, and the time from the SIGKILL of a daemon to the next one's readiness and first
answer, with 10,000 sessions of a service in SQLite.

Usage: tests/bench/contents.py [SESSIONS], after `cargo build --release -p mcp-sessiond`.
"""

import json, os, pathlib, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
import sessiond

SESSIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
RESTARTS = 5
# 100 bytes.
VALUE = json.dumps({"text": "v" * 88})


def start():
    """Starts a daemon, to its readiness."""
    # The page cache is warm, as after a crash: the file was just written.
    command = [ROOT / "target/release/mcp-sessiond", "run", "--set", f"limits.sessions_per_service={2 * SESSIONS}"]
    daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    next(line for line in daemon.stderr if " ready " in line)
    sessiond.connect.cache_clear()
    return daemon


def resident(daemon):
    """KiB."""
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def ms(began):
    return (time.monotonic() - began) * 1000


def measure(what, fill, look):
    """Fills sessions, and kills the daemon."""
    with tempfile.TemporaryDirectory(prefix="sessiond-") as directory:
        os.environ["MCP_SESSIOND_DIR"] = directory
        daemon = start()
        fill({"session": "first", "service": "bench"})
        empty = resident(daemon)
        for number in range(SESSIONS):
            fill({"session": f"session-{number}", "service": "bench"})
        full = resident(daemon)
        ready, answered = [], []
        for _ in range(RESTARTS):
            began = time.monotonic()
            daemon.kill(), daemon.wait()
            daemon = start()
            ready.append(ms(began))
            look({"session": "session-7", "service": "bench"})
            answered.append(ms(began))
        again = resident(daemon)
        daemon.terminate(), daemon.wait()
    # Of a daemon that wrote all of it, with what its allocator and SQLite keep; and of one that has only read it.
    print(
        f"| {SESSIONS} sessions, each with {what}"
        f" | {(full - empty) / SESSIONS:.2f} KiB | {(again - empty) / SESSIONS:.2f} KiB"
        f" | {sorted(ready)[RESTARTS // 2]:.0f} ms | {sorted(answered)[RESTARTS // 2]:.0f} ms |"
    )


def with_state(of):
    sessiond.call("create_session", of)
    sessiond.call("write_state", {"of": of, "writes": [{"key": "k", "value": VALUE}]})


def read_state(of):
    assert sessiond.call("read_state", {"of": of, "keys": ["k"]})[0]["value"] == VALUE


def with_events(of):
    sessiond.call("create_session", of)
    for _ in range(10):
        sessiond.call("append", {"of": of, "stream": "_GET_stream", "messages": [VALUE]})


def replay(of):
    events = sessiond.call("replay", {"of": of, "after": {"stream": "_GET_stream"}})["events"]
    assert [event["message"] for event in events] == [VALUE] * 10


print(
    "| what they hold | resident, a session | the same after a restart | SIGKILL to ready | to the first answer |\n"
    "| --- | --- | --- | --- | --- |"
)
measure("one state value of 100 bytes", with_state, read_state)
measure("10 events of 100 bytes", with_events, replay)
