#!/usr/bin/env python3
"""What it costs, over size: sessions, leases, events, callers, backends and values, beside Redis where it has the like.

Usage: tests/bench/run scale [--quick] [--most=N] [--into=DIRECTORY] [sessions|leases|events|callers|backends|values|plots]…

It prints tables, writes figures.json into the directory, docs/pictures/scale by default, and draws them there. Linux only: it looks into
/proc. It has to run as root, since nobody else may look into a keeper's memory.

--quick: the smallest sizes and few calls, to see in a minute that all of it works; into target/scale.
--most=N: the largest number of sessions, by default 1,000,000, which takes three minutes and 4 GiB of memory.
plots: measures nothing, and draws what the file has.
"""

import os, pathlib, subprocess, sys

HERE = pathlib.Path(__file__)
sys.path.insert(0, str(HERE.resolve().parents[1] / "python"))
sys.path.insert(0, str(HERE.with_suffix("")))
import backends, callers, events, installed, leases, record, sessions, sides, values

PARTS = {
    "sessions": sessions.Sessions,
    "leases": leases.Leases,
    "events": events.Events,
    "callers": callers.Callers,
    "backends": backends.Backends,
    "values": values.Values,
}

quick = "--quick" in sys.argv
option = lambda name: next((word.partition("=")[2] for word in sys.argv if word.startswith(f"--{name}=")), None)
most = int(option("most") or 1_000_000)
parts = [word for word in sys.argv[1:] if not word.startswith("--")] or [*PARTS, "plots"]
if unknown := [part for part in parts if part not in [*PARTS, "plots"]]:
    sys.exit(f"{sys.argv[0]}: no part {unknown[0]}: {', '.join(PARTS)}, plots")
into = installed.ROOT / (option("into") or ("target/scale" if quick else "docs/pictures/scale"))
sides.allow_descriptors()
kept = record.Record(into / "figures.json", {"Redis": record.version("redis-server", r"v=(\S+)")})
for part in parts:
    if part in PARTS:
        before = os.getloadavg()[0]
        kept.keep(part, before, list(PARTS[part](quick, most).run()))
        print(flush=True)
# Nothing else that is measured has any use for the library, which is in an environment of its own.
subprocess.run([installed.ROOT / "target/matplotlib/bin/python", HERE.with_suffix("") / "plots.py", into], check=True)
