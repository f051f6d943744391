"""Spawn to the answer of `initialize`, and to a list of tools, where one of several servers hangs at its start."""

import time

from figures import head, row
from stdio import Lost, Refused
from ways import ALL, Direct, servers

# A host that waits longer than this has given up.
PATIENCE = 45


def measure(kind, number):
    way = kind(servers(number, hanging=1))
    began, cells = time.perf_counter(), []
    since = lambda: f"{(time.perf_counter() - began) * 1000:.0f}"
    host = way.spawn()
    try:
        client = {"name": "bench", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        host.request("initialize", params, PATIENCE)
        cells.append(since())
        host.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        tools = way.list(host, PATIENCE)
        cells += [since(), str(tools)]
    except (Lost, Refused) as error:
        cells += [f"not in {PATIENCE} s" if "in time" in str(error) else f"refused: {str(error)[:80]}"]
    finally:
        host.kill()
        way.stop()
    row(way.name, *(cells + ["", "", ""])[:3])


def table(number):
    head(f"{number} servers, one hangs", "`initialize` is answered, ms", "tools/list, ms", "tools")
    for kind in ALL:
        if kind is not Direct:
            measure(kind, number)
