#!/usr/bin/env python3
"""Two executables against each other and against a direct child, in turns in one run: is the second one no slower than the first?

Usage: tests/bench/guards.py BEFORE AFTER

Both are release builds of `cargo build --release -p mcp-sessiond`. It waits until the load average over a minute is below 0.3, and refuses
to measure (exit 75) if that takes more than fifteen minutes. It exits with 1 if AFTER is more than 5 % worse than BEFORE in any figure, or
if a process of AFTER wakes up while nothing happens. Linux only: it looks into /proc.
"""

import os, pathlib, statistics, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).with_name("wrap")))
sys.path.insert(1, str(pathlib.Path(__file__).parent))
from figures import MIB, at, head, in_turn, row
from processes import held
from starts import First, listed
from ways import TINY, Direct, Wrap

LOAD, LOAD_WAIT = 0.3, 15 * 60
# What a figure may be worse by. The medians of thirty rounds differ by up to 3 % between two runs of one executable.
WORSE = 1.05
ROUNDS = 30
# When processes have given back what they needed to start, and the daemon has written down what it was told: after ten seconds.
SETTLED = 15
IDLE = 5
# Which pages of the executable a process has touched differs from start to start, by up to 5 % of a front.
TIMES = 5


def wait_until_idle():
    until = time.monotonic() + LOAD_WAIT
    while os.getloadavg()[0] >= LOAD:
        if time.monotonic() > until:
            print(f"{sys.argv[0]}: the load average is {os.getloadavg()[0]:.2f}; nothing was measured", file=sys.stderr)
            sys.exit(75)
        time.sleep(5)


def switches(pid):
    """How often the threads of a process have given up the processor by themselves, and so how often they were woken."""
    count = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        count += int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return count


def way_of(name, binary):
    return type("Way", (Wrap,), {"name": name, "binary": pathlib.Path(binary).resolve()})(TINY)


def calls(hosts):
    """The median of p50, p99 and seconds per call, by size, calls in flight, and way."""
    found = {}
    for bytes, in_flight, count in [(100, 1, 300), (100, 16, 800), (MIB, 1, 12)]:
        took = {name: [] for name in hosts}
        for name, host in in_turn(hosts.items(), ROUNDS):
            took[name].append(host.drive("echo", {"message": "m" * bytes}, count, in_flight))
        for name, rounds in took.items():
            p50 = statistics.median(at(0.5, of) for of in rounds) * 1000
            p99 = statistics.median(at(0.99, of) for of in rounds) * 1000
            each = statistics.median(sum(of) / len(of) for of in rounds) / in_flight * 1000
            found[bytes, in_flight, name] = (p50, p99, each)
    return found


def at_rest(ways):
    """The MiB of each process while nothing happens, and how often it wakes up meanwhile, by way and process."""
    memory, wakes = {}, {}
    for _ in range(TIMES):
        hosts = {name: way.spawn().initialize() for name, way in ways.items()}
        for host in hosts.values():
            host.request("tools/list", {})
        pids = {(name, what): pid for name, way in ways.items() for what, pid in way.pids(hosts[name]).items() if what != "backend"}
        time.sleep(SETTLED)
        began = {key: switches(pid) for key, pid in pids.items()}
        time.sleep(IDLE)
        for key, pid in pids.items():
            wakes.setdefault(key, []).append(switches(pid) - began[key])
            memory.setdefault(key, []).append(held(pid)[1])
        for host in hosts.values():
            host.close()
        for way in ways.values():
            way.stop()
    middle = lambda found: {key: statistics.median(of) for key, of in found.items()}
    return middle(memory), middle(wakes)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    wait_until_idle()
    ways = {"before": way_of("before", sys.argv[1]), "after": way_of("after", sys.argv[2])}
    figures = []
    memory, wakes = at_rest(ways)
    hosts = {}
    try:
        for name, way in {"direct": Direct(TINY), **ways}.items():
            hosts[name] = way.spawn().initialize()
            hosts[name].request("tools/list", {})
        found = calls(hosts)
        for what, bytes, in_flight, which in [
            ("a call of 100 bytes, p50, ms", 100, 1, 0),
            ("a call of 100 bytes, p99, ms", 100, 1, 1),
            ("16 calls of 100 bytes at once, ms for each", 100, 16, 2),
            ("a call of 1 MiB, p50, ms", MIB, 1, 0),
        ]:
            figures.append((what, *(found[bytes, in_flight, name][which] for name in ["direct", *ways])))
        for host in hosts.values():
            host.close()
        hosts = {}
        starts = {}
        for _ in range(ROUNDS):
            starts.setdefault("direct", []).append(listed(Direct(TINY)))
            for name, way in ways.items():
                way.label = "bench"
                starts.setdefault(f"again {name}", []).append(listed(way))
                starts.setdefault(f"first {name}", []).append(listed(First(way)))
        middle = {name: statistics.median(of) for name, of in starts.items()}
        for what, kind in [("reconnect to tools/list, ms", "again"), ("first start to tools/list, ms", "first")]:
            figures.append((what, middle["direct"], middle[f"{kind} before"], middle[f"{kind} after"]))
        for what in ["front", "keeper", "daemon"]:
            figures.append((f"{what}, PSS, MiB", None, memory["before", what], memory["after", what]))
    finally:
        for host in hosts.values():
            host.close()
        for way in ways.values():
            way.stop()
    print(f"Load average: {os.getloadavg()[0]:.2f} afterwards, below {LOAD} before. {ROUNDS} rounds.\n")
    head("what", "direct", "before", "after", "after / before")
    worse = []
    for what, direct, before, after in figures:
        ratio = after / before if before and after is not None else None
        shown = [f"{value:.3f}" if value is not None else "" for value in (direct, before, after)]
        row(what, *shown, f"{ratio:.3f}" if ratio else "")
        # The tail of a few hundred calls says more about the machine than about us: it is printed, and not judged.
        if ratio and ratio > WORSE and "p99" not in what:
            worse.append(what)
    for (name, what), count in wakes.items():
        row(f"{what}, {name}: wake-ups in {IDLE} s while idle", "", "", f"{count:.0f}", "")
        if name == "after" and count:
            worse.append(f"{what} wakes up while idle")
    if worse:
        print("\nworse: " + "; ".join(worse))
        sys.exit(1)


main()
