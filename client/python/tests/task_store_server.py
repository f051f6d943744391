"""A low-level server of `mcp` 1.30 with its experimental tasks: task_store_server.py mcp1 DESCRIPTOR JOURNAL

  work {gate}        as a task: says that half of it is done, and waits for the file `gate` beside the journal
  ask {}             as a task: asks for a name
  fail {size, gate}  as a task: waits for the file `gate`, if one is named, and raises an error whose text has so many characters
  tasks {}           tells the tasks of the session

While there is a file `hold` beside the journal, a task that is about to be completed waits, and the journal says `completing`.
"""

from __future__ import annotations

import asyncio
import json
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
from mcp_sessiond.tasks import Task, TaskView

warnings.simplefilter("ignore")
journal = Path(sys.argv[3])
server: Server[Any, Any] = Server("test")
store = DurableTaskStore(server)
server.experimental.enable_tasks(store=store)
complete = Task.complete


def note(what: str) -> None:
    with journal.open("a") as log:
        log.write(f"{what} {os.getpid()}\n")


async def until(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


async def held(self: Task, result: object) -> TaskView:
    hold = journal.parent / "hold"
    if hold.exists():
        note("completing")
        await until(lambda: not hold.exists())
    return await complete(self, result)


Task.complete = held  # type: ignore[method-assign]


@server.list_tools()
async def list_tools() -> list[Tool]:
    return [Tool(name=name, inputSchema={"type": "object"}) for name in ("work", "ask", "fail", "tasks")]


def text(said: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=said)])


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    if name == "tasks":
        listed, _ = await store.list_tasks()
        return text(json.dumps([[task.taskId, task.status] for task in listed]))

    async def work(task: Any) -> CallToolResult:
        note(name)
        if name == "fail":
            await until((journal.parent / arguments.get("gate", "")).exists)
            raise ValueError("x" * arguments["size"])
        if name == "ask":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            answer = await task.elicit(message="Who are you?", requestedSchema=schema)
            return text(f"Hello, {answer.content['name']}!")
        await task.update_status("half of it is done")
        await until((journal.parent / arguments["gate"]).exists)
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
