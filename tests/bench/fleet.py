#!/usr/bin/env python3
"""A fleet: 1, 2, 4 and 8 daemons on one PostgreSQL, each with the same number of callers. Calls a second of all, and who had the
processors.

Usage: tests/bench/run fleet [--quick] [--into=DIRECTORY], which builds the executable with that backend, and starts PostgreSQL by
tests/servers (which needs what tests/run installs). It prints a table, writes docs/pictures/scale/fleet.json, and draws it.

The server answers on a Unix socket of the same machine, and has fsync=off: a commit waits for no disk.

--quick: one and two daemons for a moment, to see that it works; into target/scale.
"""

import functools, os, pathlib, statistics, subprocess, sys

HERE = pathlib.Path(__file__).resolve()
SCALE = HERE.with_name("scale")
sys.path.insert(0, str(SCALE.parents[1] / "python"))
sys.path.insert(0, str(SCALE))
import installed, record, sides
from figures import head, in_turn, row
from load import load

ASKS = {"get": "state get", "set": "state set", "append": "append of one"}
CALLERS = 16
ROUNDS = 3
# Less than this part of the processors' time is nobody's: they are what there is not enough of.
HARDLY = 0.1


def postgresql(url):
    """The pid of the server, by the directory of its socket."""
    directory = url.partition("@")[2].rpartition(":")[0].replace("%2F", "/")
    return int(pathlib.Path(directory, "data/postmaster.pid").read_text().split()[0])


def bound(found, size):
    """What keeps it from being faster on this machine."""
    cores = os.cpu_count()
    if found["daemons"] / size > 1 - HARDLY:
        return "the thread that serves"
    if found["idle"] < HARDLY * cores:
        parts = {"PostgreSQL": found["postgresql"], "the daemons": found["daemons"], "what asks": found["asks"]}
        return f"the processors, most by {max(parts, key=parts.get)}"
    return "waiting for each other"


def measure(size, url, server, seconds):
    """The rows of one fleet, in tables of its own."""
    settings = {"storage.url": f"{url}?schema=fleet_{os.getpid()}_{size}"}
    of = lambda number: functools.partial(sides.Daemon, name=f"d{number}", **settings)
    with sides.running(*map(of, range(size))) as daemons:
        all = {"of": [daemon.of for daemon in daemons], "name": "f"}
        load("fill", until=size * CALLERS, **all)
        pids = [daemon.process.pid for daemon in daemons]
        came = {ask: [] for ask in ASKS}
        for ask in in_turn(ASKS, ROUNDS):
            order = {"ask": ask, "callers": size * CALLERS, "seconds": seconds, "pids": [*pids, server]}
            came[ask].append(load("rate", **order, **all))
    for ask, rounds in came.items():
        share = lambda *who: statistics.median(sum(one["busy"][str(name)] for name in who) / one["seconds"] for one in rounds)
        found = {
            "rate": statistics.median(one["rate"] for one in rounds),
            "daemons": share(*pids),
            "postgresql": share(server),
            "asks": share("load"),
            "idle": share("idle"),
        }
        found |= {f"{who}_us": found[who] / found["rate"] * 1e6 for who in ("daemons", "postgresql")}
        rate, *shares, of_daemons, of_postgresql = found.values()
        cells = [f"{rate:,.0f}", *(f"{value:.2f}" for value in shares), f"{of_daemons:.0f}", f"{of_postgresql:.0f}"]
        row(str(size), ASKS[ask], *cells, bound(found, size))
        yield {"size": size, "of": "mcp-sessiond", "ask": ask, "callers": size * CALLERS, **found, "bound": bound(found, size)}


def main():
    if not (url := os.environ.get("MCP_SESSIOND_TEST_POSTGRES")):
        sys.exit(f"{sys.argv[0]}: run it by tests/bench/run fleet, which starts PostgreSQL")
    quick = "--quick" in sys.argv
    sides.allow_descriptors()
    before, server = os.getloadavg()[0], postgresql(url)
    program = pathlib.Path(f"/proc/{server}/exe").resolve()
    option = next((word.partition("=")[2] for word in sys.argv if word.startswith("--into=")), None)
    into = installed.ROOT / (option or ("target/scale" if quick else "docs/pictures/scale"))
    kept = record.Record(into / "fleet.json", {"PostgreSQL": record.version(program)})
    cores = f"processors, of {os.cpu_count()}: daemons"
    head("daemons", "call", "calls/s", cores, "PostgreSQL", "who asks", "idle", "µs a call: daemons", "PostgreSQL", "bounded by")
    rows = []
    for size in (1, 2) if quick else (1, 2, 4, 8):
        rows += measure(size, url, server, 0.4 if quick else 2)
    kept.keep("fleet", before, rows)
    subprocess.run([installed.ROOT / "target/matplotlib/bin/python", SCALE / "plots.py", into], check=True)


main()
