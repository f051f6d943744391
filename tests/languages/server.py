"""A server on the Python SDK whose sessions server.mjs may go on with: server.py PORT"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python" / "src"))
import uvicorn  # noqa: E402
from mcp.server.mcpserver import Context, MCPServer  # noqa: E402

from mcp_sessiond.asgi import durable, session_of  # noqa: E402

server = MCPServer("languages")


@server.tool()
async def visit(ctx: Context) -> str:
    session = session_of(ctx)
    visits = await session.get("visits", 0) + 1
    await session.set("visits", visits)
    params = ctx.session.client_params
    assert params
    return f"Python: visit {visits} of {params.client_info.name}"


@server.tool()
async def hang(ctx: Context) -> str:
    await ctx.report_progress(1)
    await asyncio.Event().wait()
    return ""


class Serving(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("listening", flush=True)


app = durable(server.streamable_http_app(), service="languages")
Serving(uvicorn.Config(app, port=int(sys.argv[1]), log_level="warning")).run()
