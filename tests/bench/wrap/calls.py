"""Calls by each way, in turns: how long one takes, and how many are answered."""

import statistics

from figures import MIB, at, in_turn, size
from ways import Direct, Porter, Proxy, Wrap

# Bytes of the message, which is answered; calls in flight; calls of a round.
CASES = [(100, 1, 300), (100, 16, 800), (MIB, 1, 12), (MIB, 16, 32)]


def rounds(hosts, message, calls, in_flight, number):
    """The seconds of each call, and the calls per second of each round, by way."""
    took = {name: [] for name in hosts}
    arguments = {"message": message}
    for name, host in hosts.items():
        # Its buffers and code are warm.
        host.drive("echo", arguments, max(calls // 4, in_flight), in_flight)
    for name, host in in_turn(hosts.items(), number):
        took[name].append(host.drive("echo", arguments, calls, in_flight))
    return took


def measure(what, server, memory, kinds, number):
    ways = [way(server) for way in kinds]
    hosts = {}
    try:
        for way in ways:
            hosts[way.name] = way.spawn().initialize()
            hosts[way.name].request("tools/list", {})
            if memory:
                memory.note(way, hosts[way.name])
        if memory:
            memory.look("after tools/list", ways)
        for bytes, in_flight, calls in CASES:
            took = rounds(hosts, "m" * bytes, calls, in_flight, number)
            report(f"{what}, {size(bytes)}, {in_flight} in flight", took, in_flight)
        if memory:
            memory.look("after those calls", ways)
    finally:
        for host in hosts.values():
            host.close()
        for way in ways:
            way.stop()


def report(what, took, in_flight):
    # Round by round, since the machine's speed drifts.
    figures = {name: [figures_of(each, in_flight) for each in by_round] for name, by_round in took.items()}
    for name, by_round in figures.items():
        p50, p99, rate = (statistics.median(of) for of in zip(*by_round))
        pairs = list(zip(by_round, figures["direct"]))
        over = [statistics.median(ours[which] - theirs[which] for ours, theirs in pairs) for which in (0, 1)]
        ratio = [statistics.median(ours[which] / theirs[which] for ours, theirs in pairs) for which in (0, 2)]
        cells = [what, name, f"{p50:.2f}", f"{over[0]:+.2f}", f"{ratio[0]:.2f}", f"{p99:.2f}", f"{over[1]:+.2f}"]
        print("|", " | ".join([*cells, f"{rate:.0f}", f"{ratio[1]:.2f}"]), "|", flush=True)
        what = ""


def figures_of(took, in_flight):
    """p50 and p99 in ms, and calls per second: of so many in flight, each takes the time of all."""
    return at(0.5, took) * 1000, at(0.99, took) * 1000, in_flight * len(took) / sum(took)


def table(servers, memory, kinds=(Direct, Wrap, Proxy, Porter), number=12):
    print("| echo | by | p50, ms | over direct | / direct | p99, ms | over direct | calls/s | / direct |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for nth, (what, server) in enumerate(servers):
        measure(what, server, memory if nth == 0 else None, kinds, number)
