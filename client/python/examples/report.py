"""An MCP server over HTTP that writes a report, as a task that survives it: python examples/report.py [PORT]"""

import asyncio
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

from mcp_sessiond.durable_tasks import DurableTasks, begin_task

server = MCPServer("report", extensions=[DurableTasks("example-report", poll_ms=100)])

FORM = {
    "mode": "form",
    "message": "Which title?",
    "requestedSchema": {"type": "object", "properties": {"title": {"type": "string"}}},
}


@server.tool()
async def report(pages: int) -> str:
    """Writes a report of so many pages, and asks for its title."""
    task = await begin_task()  # The client has its answer now, and asks for the result later.
    answer = await task.ask("elicitation/create", FORM)
    for page in range(1, pages + 1):
        await task.tell(f"page {page} of {pages}")
        await asyncio.sleep(0.01)
    return f"{answer['content']['title']}, {pages} pages"


app = server.streamable_http_app()

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, log_level="warning")
