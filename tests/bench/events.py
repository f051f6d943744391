#!/usr/bin/env python3
"""tests/bench/events.py: how fast events go through a server on rmcp with `durable`, and what memory that takes.

  tests/bench/events.py [EVENTS]    EVENTS (100,000) times progress, as fast as a tool can tell it, to one client

Beside it, in the same run, the same server as the SDK has it, with sessions in memory. Both are release builds. For TypeScript
client/typescript/test/rate.mjs does the same, for Python client/python/tests/flood.py.
"""

import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client" / "python" / "tests"))
import support  # noqa: E402
from flood import memory  # noqa: E402
from raw import Raw  # noqa: E402

BUILT = ROOT / "target" / "release"


def flood(arguments, events):
    """Events a second, and the memory in MB: of the server before, after a tenth, and at the end; of the daemon at the end."""
    daemon = support.Daemon().start()
    command = [BUILT / "durable-server", "127.0.0.1:0", *arguments]
    server = subprocess.Popen(command, env=daemon.environment, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1]
        client = Raw(int(url.split(":")[2].split("/")[0]))
        client.initialize()
        taken, began, told = [memory(server.pid)], time.monotonic(), 0
        for part in (events // 10, events - events // 10):
            response = client.tool(part, "count", key="x" * 100, steps=part)
            said = sum(1 for _ in response.messages())
            assert said == part + 1, f"{said} of {part + 1} messages came"
            told += said
            taken.append(memory(server.pid))
        return told / (time.monotonic() - began), [*taken, memory(daemon.process.pid)]
    finally:
        server.kill()
        server.wait()
        daemon.remove()


def main():
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    build = ["cargo", "build", "--release", "--quiet"]
    subprocess.run([*build, "-p", "mcp-sessiond-tests", "--bin", "durable-server"], cwd=ROOT, check=True)
    subprocess.run([*build, "-p", "mcp-sessiond"], cwd=ROOT, check=True)
    support.BINARY = str(BUILT / "mcp-sessiond")
    print(f"{events} events | events a second | MB: server before, after a tenth, at the end; daemon")
    for name, arguments in {"rmcp, sessions in memory": ["plain"], "`durable`": []}.items():
        rate, taken = flood(arguments, events)
        print(f"{name} | {rate:,.0f} | {', '.join(map(str, taken))}", flush=True)


main()
