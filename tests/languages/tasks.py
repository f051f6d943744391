"""A server on the official Python SDK whose tasks every worker of the service knows, in whatever language: tasks.py PORT

  work {gate}  goes on as a task, and waits for the file `gate`
  greet        goes on as a task, asks for a name and then for a colour, and greets
  fail         goes on as a task that ends by an error of JSON-RPC
"""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python" / "src"))
import uvicorn  # noqa: E402
from mcp.server.mcpserver import MCPServer  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

from mcp_sessiond.durable_tasks import DurableTasks, begin_task  # noqa: E402

server = MCPServer("languages", extensions=[DurableTasks("languages")])


def question(message: str) -> dict[str, object]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return {"mode": "form", "message": message, "requestedSchema": schema}


@server.tool()
async def work(gate: str) -> str:
    await begin_task(message="begun")
    while not os.path.exists(gate):
        await asyncio.sleep(0.005)
    return "worked"


@server.tool()
async def greet() -> str:
    task = await begin_task(message="begun")
    name = await task.ask("elicitation/create", question("Who are you?"))
    colour = await task.ask("elicitation/create", question("Which colour?"))
    return f"Hello, {name['content']['name']} in {colour['content']['name']}!"


@server.tool()
async def fail() -> str:
    await begin_task(message="begun")
    raise MCPError(-32050, "API rate limit exceeded", {"after": 5})


class Serving(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("listening", flush=True)


Serving(uvicorn.Config(server.streamable_http_app(), port=int(sys.argv[1]), log_level="warning")).run()
