"""Leases of one host, whose servers have up to 1,000 each: what a claim takes, and how long a daemon that was killed takes to be
ready again."""

import pathlib, statistics, subprocess, sys

from figures import head, row
from sides import Daemon, running

SIZES = [10, 100, 1_000, 10_000, 30_000, 90_000]
# Of one server. A claim looks at all that its own process has.
EACH = 1_000
STARTS = 3


class Server:
    def __init__(self, daemon, first, end):
        command = [sys.executable, pathlib.Path(__file__).with_name("claimant.py"), str(first), str(end)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=daemon.environment, text=True, **pipes)
        self.claim_us = float(self.process.stdout.readline())

    def claim_again(self):
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Leases:
    def __init__(self, quick, _most):
        self.sizes = [size for size in SIZES if not quick or size <= 1_000]

    def run(self):
        head("leases of one host", "claim, µs", "bytes each", "SIGKILL to ready, ms")
        servers, before = [], 0
        with running(Daemon) as (daemon,):
            empty = daemon.resident()
            try:
                for size in self.sizes:
                    servers += [Server(daemon, first, min(first + EACH, size)) for first in range(before, size, EACH)]
                    yield self.look(size, daemon, servers, empty)
                    before = size
            finally:
                for server in servers:
                    server.end()

    @staticmethod
    def look(size, daemon, servers, empty):
        # Where there are few, the allocator's share of them says nothing.
        each = (daemon.resident() - empty) / size if size >= 1_000 else None
        ready = statistics.median(daemon.start_again() for _ in range(STARTS))
        outcome = servers[0].claim_again()
        assert outcome == "held", f"a lease was lost: {outcome}"
        claim = servers[-1].claim_us
        row(f"{size:,}", f"{claim:.0f}", "" if each is None else f"{each:,.0f}", f"{ready:.0f}")
        return {"size": size, "of": daemon.name, "claim_us": claim, "bytes": each, "ready_ms": ready}
