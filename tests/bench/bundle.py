#!/usr/bin/env python3
"""Several servers through `mcp-sessiond wrap --all`, directly, and through what else puts several behind one, in turns in one run.

Usage: tests/bench/bundle.py [--rounds=N] [calls|hangs]…, after `cargo build --release -p mcp-sessiond` and `npm --prefix tests/node ci`, as
tests/bench/run does it. Linux only: it looks into /proc.
"""

import os, pathlib, sys

HERE = pathlib.Path(__file__)
sys.path[:0] = [str(HERE.with_suffix("")), str(HERE.with_name("wrap"))]
import calls, hangs, installed

installed.need(installed.BINARY, installed.PORTER, installed.FASTMCP)
parts = [part for part in sys.argv[1:] if not part.startswith("-")] or ["calls", "hangs"]
rounds = next((int(part.split("=")[1]) for part in sys.argv if part.startswith("--rounds=")), calls.ROUNDS)
print(f"Load average before: {os.getloadavg()[0]:.1f}, of {os.cpu_count()} cores.\n")
if "calls" in parts:
    calls.table([1, 5, 20], rounds)
    print()
if "hangs" in parts:
    hangs.table(5)
    print()
print(f"Load average after: {os.getloadavg()[0]:.1f}.")
