"""An MCP server over HTTP whose sessions survive it: python examples/notes.py [PORT]"""

import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from mcp_sessiond.asgi import durable, session_of

server = MCPServer("notes")


@server.tool()
async def note(text: str, ctx: Context) -> str:
    """Keeps a note, and tells all notes of this session."""
    session = session_of(ctx)
    notes = [*await session.get("notes", []), text]
    await session.set("notes", notes)
    return ", ".join(notes)


app = durable(server.streamable_http_app(), service="example-notes")

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, log_level="warning")
