"""A low-level server of `mcp` 1.30 with its experimental tasks: task_store_server.py mcp1 DESCRIPTOR JOURNAL

  work {gate}  as a task: says that half of it is done, and waits for the file `gate` beside the journal
  ask {}       as a task: asks for a name
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import warnings
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import support  # noqa: F401
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool
from starlette.applications import Starlette
from starlette.routing import Route

from mcp_sessiond.asgi import durable
from mcp_sessiond.task_store import DurableTaskStore

warnings.simplefilter("ignore")
journal = Path(sys.argv[3])
server: Server[Any, Any] = Server("test")
server.experimental.enable_tasks(store=DurableTaskStore(server))


@server.list_tools()
async def list_tools() -> list[Tool]:
    return [Tool(name=name, inputSchema={"type": "object"}) for name in ("work", "ask")]


def text(said: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=said)])


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    async def work(task: Any) -> CallToolResult:
        with journal.open("a") as log:
            log.write(f"{name} {os.getpid()}\n")
        if name == "ask":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            answer = await task.elicit(message="Who are you?", requestedSchema=schema)
            return text(f"Hello, {answer.content['name']}!")
        await task.update_status("half of it is done")
        while not (journal.parent / arguments["gate"]).exists():
            await asyncio.sleep(0.005)
        return text("worked")

    return await server.request_context.experimental.run_task(work)


manager = StreamableHTTPSessionManager(server)


@asynccontextmanager
async def lifespan(_: Starlette) -> Any:
    async with manager.run():
        yield


class Endpoint:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await manager.handle_request(scope, receive, send)


inside = Starlette(routes=[Route("/mcp", Endpoint())], lifespan=lifespan)
listening = socket.socket(fileno=int(sys.argv[2]))
print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
app = durable(inside, service="test", retry_ms=100)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
