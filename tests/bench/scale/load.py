"""What asks: tests/bench/scale/load, a program of its own, since Python would be slower than what it measures."""

import json, os, subprocess, sys


def load(what, of, **order):
    """Has it carry out an order (tests/bench/scale/load/order.rs), and returns what came of it."""
    if not (program := os.environ.get("LOAD_BENCH")):
        sys.exit(f"{sys.argv[0]}: run it by tests/bench/run, which sets LOAD_BENCH")
    order = {"what": what, "of": [of] if isinstance(of, dict) else of, **order}
    done = subprocess.run([program, json.dumps(order)], stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{sys.argv[0]}: this failed: {order}")
    return json.loads(done.stdout)
