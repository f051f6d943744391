"""Lists and calls through each way, in turns, and what the processes between host and servers hold."""

import statistics, time

from figures import at, head, in_turn, row
from ways import ALL, servers

ROUNDS = 5
# FastMCP starts all servers for each request, so one round of it has few.
LISTS, CALLS, FEW = 20, 200, 3
# A keeper lets go of what it needed to start a second after a front has attached.
SETTLED = 2.5


def lists(way, host, times):
    """p50 in ms."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        way.list(host)
        took.append((time.perf_counter() - began) * 1000)
    return at(0.5, took)


def measure(number, rounds):
    commands = servers(number)
    ways, hosts, started = [kind(commands) for kind in ALL], {}, {}
    figures, listed = {way.name: [] for way in ways}, {}
    try:
        for way in ways:
            began = time.perf_counter()
            hosts[way.name] = way.spawn()
            hosts[way.name].initialize()
            listed[way.name] = way.list(hosts[way.name])
            started[way.name] = (time.perf_counter() - began) * 1000
        time.sleep(SETTLED)
        # Before the calls, which leave some of it where it was needed.
        holds = {way.name: way.memory() for way in ways}
        for way in in_turn(ways, rounds):
            host, is_slow = hosts[way.name], way.name.startswith("FastMCP")
            list_ms = lists(way, host, FEW if is_slow else LISTS)
            took = host.drive("echo", {"message": "m" * 100}, FEW if is_slow else CALLS, 1)
            figures[way.name].append((list_ms, at(0.5, took) * 1000))
    finally:
        for host in hosts.values():
            host.close()
        for way in ways:
            way.stop()
    what, direct = str(number), figures["direct"]
    for way in ways:
        of = figures[way.name]
        cells = [what, way.name, f"{started[way.name]:.0f}", str(listed[way.name])]
        for which, digits in ((0, 2), (1, 2)):
            ours, theirs = [one[which] for one in of], [one[which] for one in direct]
            cells += [f"{statistics.median(ours):.{digits}f}", f"{statistics.median(a / b for a, b in zip(ours, theirs)):.1f}"]
        rss, pss, processes = holds[way.name]
        row(*cells, f"{rss:.0f}", f"{pss:.0f}", str(processes))
        what = ""


def table(numbers, rounds):
    head("servers", "by", "spawn to tools/list, ms", "tools", "list, ms", "/ direct", "call, ms", "/ direct", "RSS, MiB", "PSS, MiB", "processes")
    for number in numbers:
        measure(number, rounds)
