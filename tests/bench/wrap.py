#!/usr/bin/env python3
"""`mcp-sessiond wrap` against a plain child and against what others keep servers with, in turns in one run.

Usage: tests/bench/wrap.py [--quick] [calls|starts|kills]…, after `cargo build --release -p mcp-sessiond` and `npm --prefix tests/node ci`, as
tests/bench/run does it. Linux only: it looks into /proc.

--quick: calls by a plain child and by ours alone, three rounds of each, for a machine that is busy.
"""

import os, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).with_suffix("")))
import calls, installed, kills, memory, starts, ways

if sys.argv[1:2] == ["--quick"]:
    installed.need(installed.BINARY)
    calls.table([("tiny", ways.TINY)], None, (ways.Direct, ways.Wrap), 3)
    sys.exit()
installed.need(installed.BINARY, installed.PROXY, installed.PORTER, installed.EVERYTHING)
parts = sys.argv[1:] or ["calls", "starts", "kills"]
print(f"Load average before: {os.getloadavg()[0]:.1f}, of {os.cpu_count()} cores.\n")
if "calls" in parts:
    holds = memory.Memory()
    calls.table([("tiny", ways.TINY), ("server-everything", ways.EVERYTHING)], holds)
    print()
    holds.table()
    print()
if "starts" in parts:
    starts.table([("tiny", ways.TINY, 15), ("server-everything", ways.EVERYTHING, 7)])
    print()
if "kills" in parts:
    kills.table(ways.TINY, 9, 3)
    print()
print(f"Load average after: {os.getloadavg()[0]:.1f}.")
