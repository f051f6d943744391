"""How fast events go through, and what memory that takes: flood.py [EVENTS] [mcp1|mcp2|fastmcp …]

A tool tells progress of 100 bytes as fast as it can, and one client reads it. It needs the environments of `client/python/test`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import support
from processes import Server
from raw import Raw

SIZE = 100
WAYS = {"memory": "the SDK, events in memory", "store": "`DurableEventStore`", "durable": "`durable`"}


def memory(pid: int) -> int:
    """What of a process is in memory, in MB."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def flood(kind: str, way: str, events: int) -> tuple[float, list[int]]:
    """Events a second, and the memory before, after a tenth of them, and at the end."""
    daemon = support.Daemon().start()
    server = Server(daemon, kind, None, *([] if way == "durable" else [way]))
    try:
        client = Raw(server.port)
        client.initialize()
        taken = [memory(server.process.pid)]
        began, told = time.monotonic(), 0
        for part in (events // 10, events - events // 10):
            response = client.tool(part, "flood", steps=part, size=SIZE)
            said = sum(1 for _ in response.messages())
            assert said == part + 1, f"{said} of {part + 1} messages came"
            told += said
            taken.append(memory(server.process.pid))
        return told / (time.monotonic() - began), taken
    finally:
        server.kill()
        server.listening.close()
        daemon.remove()


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(f"{events} events | events a second | memory at the beginning, after a tenth, at the end, in MB")
    for kind in sys.argv[2:] or ["mcp1", "mcp2", "fastmcp"]:
        for way, name in WAYS.items():
            rate, taken = flood(kind, way, events)
            print(f"{kind}, {name} | {rate:,.0f} | {', '.join(map(str, taken))}", flush=True)


if __name__ == "__main__":
    main()
