"""A server on the SDK, over HTTP, whose events are kept in one of several ways: server.py PORT alone|durable|store|sqlite|redis [WHERE]

Its tools are those of tests/bench/serve/server.py, and `tell {steps}`, which tells progress as fast as it can. WHERE is a file of
SQLite, or the URL of a Redis.
"""

import asyncio
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

port, way, *where = sys.argv[1:]
server = MCPServer("bench", log_level="WARNING")
count = 0


def tool(function):
    return server.tool(structured_output=False)(function)


@tool
async def answer(bytes: int) -> str:
    return "m" * bytes


@tool
async def increment() -> str:
    global count
    count += 1
    return str(count)


@tool
async def get() -> str:
    return str(count)


@tool
async def tell(steps: int, ctx: Context) -> str:
    for number in range(1, steps + 1):
        await ctx.report_progress(number)
    return "done"


@tool
async def steps(steps: int, began: str, gate: str, done: str, ctx: Context) -> str:
    for number in range(1, steps + 1):
        await ctx.report_progress(number)
        if number == 1:
            open(began, "w").close()
            # Opening waits for the writer.
            await asyncio.to_thread(lambda: open(gate).close())
    # By then the answer is said, too.
    asyncio.get_running_loop().call_later(0.2, lambda: open(done, "w").close())
    return "done"


if way in ("sqlite", "redis"):
    from mcp_persist import with_persistence

    app = with_persistence(server, backend=way, url=where[0], ttl=3600, durable_sessions=True)
elif way == "durable":
    from mcp_sessiond.asgi import durable

    app = durable(server.streamable_http_app(), service="bench")
elif way == "store":
    from mcp_sessiond.event_store import DurableEventStore

    store = DurableEventStore("bench")
    app = store.around(server.streamable_http_app(event_store=store))
else:
    app = server.streamable_http_app()
uvicorn.run(app, port=int(port), log_level="warning")
