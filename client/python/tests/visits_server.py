"""A server on stdio whose tool finds the session of its instance by its context: python visits_server.py mcp1|mcp2|fastmcp"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from mcp_sessiond import Options, Sessiond, session_of  # noqa: E402

kind = sys.argv[1]
if kind == "fastmcp":
    from fastmcp import Context, FastMCP
elif kind == "mcp1":
    from mcp.server.fastmcp import Context, FastMCP
else:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as FastMCP

server = FastMCP("visits")


@server.tool()
async def visit(ctx: Context) -> str:
    session = session_of(ctx)
    visits = await session.get("visits", 0) + 1
    await session_of(ctx).set("visits", visits)
    return str(visits)


async def main() -> None:
    await Sessiond.init(Options(start=False)).session()
    await server.run_stdio_async()


asyncio.run(main())
