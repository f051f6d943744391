#!/usr/bin/env python3
"""`mcp-sessiond serve` beside what else puts HTTP in front of a server on stdio, in turns in one run.

Usage: tests/bench/serve.py [--quick] [--rounds=N] [calls|resumed|sessions|kills|spent]…, after `cargo build --release -p
mcp-sessiond` and `npm --prefix tests/node ci`, as tests/bench/run does it. Linux only: it looks into /proc. It has to run as
root, since nobody else may look into a keeper's memory.

--quick: few rounds with few calls, to see in a minute that all of it works.
--rounds=N: so often each gateway has its turn in `calls`, by default 12 times; a turn of all takes a minute.
spent, which only runs if named: perf's report on where a call of 100 bytes spends the processor's time, in `serve`, its
daemon and its keeper.
"""

import os, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).with_suffix("")))
import calls, installed, kills, resumed, sessions, spent

PARTS = {"calls": calls.Calls, "resumed": resumed.Resumed, "sessions": sessions.Sessions, "kills": kills.Kills}

quick = "--quick" in sys.argv
for option in sys.argv[1:]:
    if option.startswith("--rounds="):
        calls.ROUNDS = int(option.partition("=")[2])
parts = [part for part in sys.argv[1:] if not part.startswith("--")] or list(PARTS)
PARTS["spent"] = spent.Spent
if unknown := [part for part in parts if part not in PARTS]:
    sys.exit(f"{sys.argv[0]}: no part {unknown[0]}: {', '.join(PARTS)}")
installed.need(installed.BINARY, installed.PROXY, installed.SUPERGATEWAY, installed.PORTER)
print(", ".join(f"{name} {version}" for name, version in installed.versions().items()) + ".")
print(f"Load average before: {os.getloadavg()[0]:.1f}, of {os.cpu_count()} cores.\n")
for part in parts:
    PARTS[part](quick).run()
print(f"Load average after: {os.getloadavg()[0]:.1f}.")
