#!/usr/bin/env python3
"""Memory of idle sessions, and the time from the start of a daemon that was killed to its readiness, with 10,000 leases.

Usage: tests/bench/sessions.py [SESSIONS], after `cargo build --release -p mcp-sessiond`.
"""

import os, pathlib, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
import sessiond

SESSIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000


def start():
    """Starts a daemon; returns it, and the ms until it was ready."""
    command = [ROOT / "target/release/mcp-sessiond", "run", "--set", f"limits.sessions_per_host={SESSIONS}"]
    began = time.monotonic()
    daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    next(line for line in daemon.stderr if " ready " in line)
    return daemon, (time.monotonic() - began) * 1000


def resident(daemon):
    """KiB."""
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


with tempfile.TemporaryDirectory(prefix="sessiond-") as directory:
    os.environ["MCP_SESSIOND_DIR"] = directory
    daemon, empty_ms = start()
    empty = resident(daemon)
    for number in range(SESSIONS):
        sessiond.call("claim", {"label": f"session {number}"})
    full = resident(daemon)
    daemon.kill(), daemon.wait()
    daemon, full_ms = start()
    sessiond.connect.cache_clear()
    held = sessiond.call("claim", {"label": "session 7"})["outcome"]
    daemon.terminate(), daemon.wait()

print(f"| daemon, idle | {empty / 1024:.1f} MiB resident |")
print(f"| an idle session, of {SESSIONS} | {(full - empty) / SESSIONS:.2f} KiB |")
print(f"| from start to ready: empty / {SESSIONS} leases after SIGKILL | {empty_ms:.0f} / {full_ms:.0f} ms |")
sys.exit(0 if held == "held" else "a lease was lost")
