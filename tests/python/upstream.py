"""A FastMCP server over HTTP that forgets everything when it ends: python upstream.py PORT [events]

It prints where it listens. With `events` it numbers its events and says them again. Each `initialize` is told by a line.

  increment                    answers the count, as text
  slow {gate}                  tells by a log message that it has begun, waits until the file `gate` is there, and answers as
                               `increment`
  steps {n, gate}              tells n steps as progress, waits for the gate after the first one, and answers n
"""
import asyncio
import os
import socket
import sys

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore
from fastmcp.server.middleware import Middleware

port, options = int(sys.argv[1]), sys.argv[2:]
server = FastMCP("fastmcp")
count = 0


def say(line):
    print(line, flush=True)


class Tell(Middleware):
    async def on_initialize(self, context, call_next):
        say("initialize")
        return await call_next(context)


server.add_middleware(Tell())


async def opened(gate):
    while not os.path.exists(gate):
        await asyncio.sleep(0.01)


@server.tool
def increment() -> str:
    global count
    count += 1
    return str(count)


@server.tool
async def slow(gate: str, context: Context, n: int = 0) -> str:
    await context.info(f"begun {gate}")
    await opened(gate)
    return increment()


@server.tool
async def steps(n: int, gate: str, context: Context) -> str:
    for step in range(1, n + 1):
        await context.report_progress(step, n)
        if step == 1:
            await opened(gate)
    return str(n)


app = server.http_app(path="/mcp", event_store=EventStore() if "events" in options else None)
listening = socket.create_server(("127.0.0.1", port))
say(f"listening at http://127.0.0.1:{listening.getsockname()[1]}/mcp")
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
