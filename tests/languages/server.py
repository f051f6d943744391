"""A server on FastMCP, with one line added, whose sessions server.mjs may go on with: server.py PORT [FOLDER]

`/` is the page in that folder. Its tools are those of server.mjs.
"""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python" / "src"))
import uvicorn  # noqa: E402
from fastmcp import Context, FastMCP  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

from mcp_sessiond.asgi import durable, session_of  # noqa: E402

server = FastMCP("languages")


@server.tool
async def visit(ctx: Context) -> str:
    session = session_of(ctx)
    visits = await session.get("visits", 0) + 1
    await session.set("visits", visits)
    params = ctx.session.client_params
    assert params
    return f"Python: visit {visits} of {params.client_info.name}"


@server.tool
async def hang(ctx: Context) -> str:
    await ctx.report_progress(1)
    await asyncio.Event().wait()
    return ""


@server.tool
async def count(gate: str, ctx: Context) -> str:
    for number in range(1, 7):
        await ctx.report_progress(number)
        while number == 3 and not os.path.exists(gate):
            await asyncio.sleep(0.005)
    return "6"


ticking = set()


@server.tool
async def ticks(n: int, ms: int, ctx: Context) -> str:
    session = ctx.session

    async def tick() -> None:
        for number in range(1, n + 1):
            await asyncio.sleep(ms / 1000)
            await session.send_log_message("info", number)

    ticking.add(asyncio.create_task(tick()))
    return str(n)


class Serving(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("listening", flush=True)


port, *folder = sys.argv[1:]
inner = server.http_app()
if folder:
    inner.mount("/", StaticFiles(directory=folder[0], html=True))
app = durable(inner, service="languages")
Serving(uvicorn.Config(app, port=int(port), log_level="warning")).run()
