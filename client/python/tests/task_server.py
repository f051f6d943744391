"""A server with the Tasks extension: task_server.py mcp2|fastmcp DESCRIPTOR|:PORT|stdio JOURNAL [auth]

With `auth` it takes tokens such as `alice.1`, whose subject is `alice`, and `.1`, which has none. SERVICE names its service (`test`). The tools
that tests/conformance/tasks calls are those of tests/harness/bin/tasks_server.rs.

It prints a line once it listens. Its tools write a line in the journal, and wait for files beside it.

  plain {}            answers
  whole {}            goes on as a task from its beginning on
  work {gate}         goes on as a task, and waits for the file `gate`, if one is named
  greet {}            asks for a name, and then for a colour, and greets
  pair {gate}         asks for two names at once, and waits for `gate`
  late {}             answers, begins a task once the file `late` is there, and writes in the journal what that raises
  early {}            says that it is there, and then goes on as a task
  slow {}             never answers, nor goes on as a task
  fail {}             ends by an error of JSON-RPC
  wrong {}            ends by an error of the tool
  structured {}       has a structured result
  huge {bytes}        ends by an error of JSON-RPC whose message has so many bytes
  names {}            asks twice at once, once by a name that it gives itself
  long {}             has messages that are too long, the second one once there is the file `long`
  never {}            wants a task that the daemon refuses
  patient {}          begins a task, gives that up once there is the file `patience`, and begins it again; its result is the id
  big {bytes}         has a result of so many bytes
  required {}         the same, by what FastMCP says of a tool
  must {}             can't answer without a task
  guarded {}          asks for a name by `InputRequiredResult` (SEP-2322), then goes on as a task, and asks for another
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import support  # noqa: F401
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError

from mcp_sessiond import Options
from mcp_sessiond.asgi import durable
from mcp_sessiond.durable_tasks import begin_task
from mcp_sessiond.request_state import request_state_security

kind, directory = sys.argv[1], Path(sys.argv[3]).parent
journal = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

OPTIONS = Options(timeout=2, start=False)
SERVICE = os.environ.get("SERVICE", "test")
has_auth = sys.argv[4:] == ["auth"]


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        subject = token.partition(".")[0] or None
        return AccessToken(token=token, client_id="app", scopes=[], subject=subject, claims={"iss": "https://a"})


if kind == "mcp2":
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import InputRequiredResult

    from mcp_sessiond.durable_tasks import DurableTasks

    tasks = DurableTasks(SERVICE, tools=["whole"], ttl_ms=3_600_000, poll_ms=50, options=OPTIONS)
    security = request_state_security(SERVICE, options=OPTIONS)
    more: dict[str, Any] = {"request_state_security": security, "middleware": [tasks.listening]}
    if has_auth:
        settings = AuthSettings.model_validate({"issuer_url": "https://a", "resource_server_url": None})
        more |= {"auth": settings, "token_verifier": Verifier()}
    server: Any = MCPServer("test", extensions=[tasks], **more)
else:
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError
    from fastmcp.server.auth import TokenVerifier
    from fastmcp.utilities.tasks import TaskConfig
    from mcp_types import InputRequiredResult

    from mcp_sessiond.durable_tasks.fastmcp import DurableTasks

    class FastVerifier(TokenVerifier):
        verify_token = Verifier.verify_token

    security = request_state_security(SERVICE, options=OPTIONS)
    auth = FastVerifier() if has_auth else None
    server = FastMCP("test", request_state_security=security, auth=auth)
    server.add_extension(DurableTasks(SERVICE, ttl_ms=3_600_000, poll_ms=50, options=OPTIONS))


later: set[asyncio.Task[None]] = set()


def form(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return {"mode": "form", "message": message, "requestedSchema": schema}


def begun(name: str) -> None:
    os.write(journal, f"{name} {os.getpid()}\n".encode())


async def until(gate: str | None) -> None:
    while gate and not (directory / gate).exists():
        await asyncio.sleep(0.005)


@server.tool()
async def plain() -> str:
    return "plain"


@server.tool(**({} if kind == "mcp2" else {"task": True}))
async def whole() -> str:
    return "whole"


@server.tool()
async def work(ctx: Context, gate: str | None = None) -> str:
    task = await begin_task(message="begun")
    begun("work")
    await task.tell("half of it is done")
    await ctx.report_progress(1, 2, "told to nobody")
    try:
        await until(gate)
    except asyncio.CancelledError:
        begun("dropped")
        raise
    return "worked"


@server.tool()
async def late() -> str:
    async def begin() -> None:
        await until("late")
        try:
            await begin_task()
        except LookupError as error:
            begun(f"{error}")

    later.add(asyncio.create_task(begin()))
    return "late"


@server.tool()
async def early() -> str:
    begun("early")
    try:
        await begin_task()
    except asyncio.CancelledError:
        begun("dropped")
        raise
    return "early"


@server.tool()
async def slow() -> str:
    begun("slow")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        begun("dropped")
        raise
    return "slow"


@server.tool()
async def greet() -> str:
    task = await begin_task(message="begun")
    name = await task.ask("elicitation/create", form("Who are you?"))
    colour = await task.ask("elicitation/create", form("Which colour?"), key="colour")
    return f"Hello, {name['content']['name']} in {colour['content']['name']}!"


@server.tool()
async def pair(gate: str | None = None) -> str:
    task = await begin_task()
    asked = (task.ask("elicitation/create", form(key), key=key) for key in ("first", "second"))
    first, second = await asyncio.gather(*asked)
    await until(gate)
    return f"{first['content']['name']} and {second['content']['name']}"


@server.tool()
async def fail() -> str:
    await begin_task()
    raise MCPError(-32050, "API rate limit exceeded", {"after": 5})


@server.tool()
async def huge(bytes: int) -> str:
    await begin_task()
    raise MCPError(-32050, "x" * bytes)


@server.tool()
async def names() -> str:
    task = await begin_task()
    asked = (task.ask("elicitation/create", form(f"{key}"), key=key) for key in ("request-2", None))
    first, second = await asyncio.gather(*asked)
    return f"{first['content']['name']} and {second['content']['name']}"


@server.tool()
async def long() -> str:
    task = await begin_task(message="\u00e4" * 4_096, required=True)
    begun("long")
    await until("long")
    await task.tell("x" * 5_000)
    await until("longer")
    return "long"


@server.tool()
async def never() -> str:
    await begin_task(ttl_ms=-5, required=True)
    return "never"


@server.tool()
async def patient() -> str:
    beginning = asyncio.create_task(begin_task())
    await asyncio.sleep(0)
    begun("beginning")
    await until("patience")
    beginning.cancel()
    first, second = await asyncio.gather(begin_task(), begin_task())
    assert first is second and first.id
    await until("patient")
    return first.id


@server.tool()
async def wrong() -> str:
    await begin_task()
    raise ToolError("invalid input")


@server.tool()
async def structured() -> dict[str, int]:
    await begin_task()
    return {"n": 7}


@server.tool()
async def big(bytes: int) -> str:
    await begin_task()
    return "x" * bytes


@server.tool()
async def short(gate: str | None = None) -> str:
    await begin_task(ttl_ms=300)
    try:
        await until(gate)
    except asyncio.CancelledError:
        begun("dropped")
        raise
    return "short"


async def required() -> str:
    return "required"


if kind == "mcp2":
    server.tool()(required)
else:
    server.tool(task=TaskConfig(mode="required"))(required)


@server.tool()
async def must() -> str:
    await begin_task(required=True)
    return "must"


@server.tool()
async def guarded(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses
    if not answers:
        asked = {"name": {"method": "elicitation/create", "params": form("Who are you?")}}
        return InputRequiredResult.model_validate({"inputRequests": asked})
    task = await begin_task()
    other = await task.ask("elicitation/create", form("Who else?"))
    return f"{answers['name'].content['name']} and {other['content']['name']}"


@server.tool()
async def twice(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses
    if not answers:
        asked = {"name": {"method": "elicitation/create", "params": form("Who are you?")}}
        return InputRequiredResult.model_validate({"inputRequests": asked, "requestState": f"by {os.getpid()}"})
    return f"{answers['name'].content['name']} {ctx.request_state}"


if sys.argv[2] == "stdio":
    server.run("stdio")
    sys.exit()
app = server.http_app(path="/mcp") if kind == "fastmcp" else server.streamable_http_app()
app = durable(app, service=SERVICE, modern="pass")
if sys.argv[2].startswith(":"):
    listening = socket.create_server(("127.0.0.1", int(sys.argv[2][1:])))
else:
    listening = socket.socket(fileno=int(sys.argv[2]))
print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
