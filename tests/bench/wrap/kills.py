"""From SIGKILL of one process to the next good answer, and whether the server still knows what it knew."""

import math, signal, statistics, time

from processes import end
from stdio import Lost, Refused
from ways import Direct, Porter, Proxy, Wrap

# Seconds. A host takes a server for dead that does not answer for so long, or that answers nothing but errors.
PATIENCE = 5
# A server that has lived 10 s is started again at once by its keeper; one that dies younger waits, 100 ms at first.
AGE = 10.5


class Kill:
    """One kill, and what came of it."""

    def __init__(self, way):
        self.way, self.host = way, way.spawn().initialize()
        for _ in range(3):
            self.count = self.host.tool("increment")
        self.pids = way.pids(self.host)

    def kill(self, what):
        way, host, pids = self.way, self.host, self.pids
        self.failed, self.respawned = 0, 0
        began = time.perf_counter()
        end(pids[what], signal.SIGKILL)
        way.killed(what)
        host, after = self.recover(way, host, pids[what] == host.pid)
        self.ms = (time.perf_counter() - began) * 1000 if host else math.inf
        self.kept = after == self.count
        if host:
            host.close()

    def recover(self, way, host, gone):
        """Calls until there is an answer; spawns the host's process again when it is gone, or after PATIENCE."""
        began = time.monotonic()
        while True:
            try:
                if gone:
                    host.kill()
                    if self.respawned == 2:
                        return None, None
                    self.respawned, began = self.respawned + 1, time.monotonic()
                    host = way.spawn()
                    host.initialize()
                    gone = False
                return host, host.tool("get", timeout=PATIENCE)
            except Refused:
                self.failed += 1
                time.sleep(0.001)
                gone = time.monotonic() > began + PATIENCE
            except Lost:
                self.failed += 1
                gone = True


def measure(kind, server, whats, times):
    for what in whats:
        ways, seen = [kind(server) for _ in range(times)], []
        try:
            seen = [Kill(way) for way in ways]
            time.sleep(AGE if what == "backend" else 0)
            for each in seen:
                each.kill(what)
        finally:
            for way in ways:
                way.stop()
        took = [each.ms for each in seen]
        good = lambda of: f"{sum(of)} of {times}"
        middle = lambda of: f"{statistics.median(of):.0f}"
        shown = lambda ms: f"{ms:.1f}" if ms < math.inf else "never"
        cells = [kind.name, what, shown(statistics.median(took)), f"{shown(min(took))} to {shown(max(took))}"]
        cells += [middle([each.failed for each in seen]), middle([each.respawned for each in seen])]
        print("|", " | ".join([*cells, good([each.kept for each in seen])]), "|", flush=True)


def table(server, times, times_of_peers):
    print(
        "| SIGKILL | of its | ms to the next good answer | of | calls that failed | front spawned again | count kept |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    measure(Direct, server, ["backend"], times)
    measure(Wrap, server, ["front", "daemon", "keeper", "backend"], times)
    measure(Proxy, server, ["front", "holder", "backend"], times_of_peers)
    measure(Porter, server, ["front", "daemon", "backend"], times_of_peers)
