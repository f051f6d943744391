"""A server over HTTP on one of the SDKs, with one line added: http_server.py mcp1|mcp2|fastmcp DESCRIPTOR [JOURNAL] [store|memory|cookie|json]

It prints a line once it listens. Its journal has a line for each `initialize` and each call.

  count {key, steps, hold, gate}  tells as many numbers as `steps` says, each as progress; after the number `hold` it waits for the
                                  file `gate`; and answers
  flood {steps, size}             tells as many numbers as fast as it can, and answers
  big {key, bytes}                answers so many bytes
  announce                        tells of its own accord that there are other tools
  ask                             asks the client for its roots, and answers how many there are
  visits                          counts the calls of the session, in its state, and tells id and client of the session
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import support  # noqa: F401
import uvicorn
from mcp.server.streamable_http import EventMessage, EventStore

from mcp_sessiond.asgi import SessionCookie, durable, session_of

kind = sys.argv[1]
journal = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if len(sys.argv) > 3 else 2


class InMemory(EventStore):
    """Events of this process alone, without an end: a list."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        stream = self.events[int(last_event_id) - 1][0]
        for number, (of, message) in enumerate(self.events[int(last_event_id) :], int(last_event_id) + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


store: Any = None
if sys.argv[4:] == ["store"]:
    from mcp_sessiond.event_store import DurableEventStore

    store = DurableEventStore("test")
elif sys.argv[4:] == ["memory"]:
    store = InMemory()

if kind == "mcp1":
    from mcp.server.fastmcp import Context, FastMCP

    server = FastMCP("test", event_store=store)
elif kind == "mcp2":
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as FastMCP

    server = FastMCP("test")
else:
    from fastmcp import Context, FastMCP

    server = FastMCP("test")


@server.tool()
async def count(key: str, steps: int, hold: int, gate: str, ctx: Context) -> str:
    os.write(journal, f"{key}\n".encode())
    for number in range(1, steps + 1):
        await ctx.report_progress(number, steps, key)
        while number == hold and not os.path.exists(gate):
            await asyncio.sleep(0.005)
    return f"{key} {steps}"


@server.tool()
async def visits(ctx: Context) -> str:
    session = session_of(ctx)
    number = await session.get("visits", 0) + 1
    await session.set("visits", number)
    info = ctx.session.client_params
    return f"{session.id} {number} {info.clientInfo.name if hasattr(info, 'clientInfo') else info.client_info.name}"


@server.tool()
async def flood(steps: int, size: int, ctx: Context) -> str:
    for number in range(steps):
        await ctx.report_progress(number, steps, "x" * size)
    return str(steps)


@server.tool(structured_output=False) if kind != "fastmcp" else server.tool(output_schema=None)
async def big(key: str, bytes: int) -> str:
    return "x" * bytes


@server.tool()
async def announce(ctx: Context) -> str:
    # Not on behalf of the call: `related_request_id` is not set.
    await ctx.session.send_tool_list_changed()
    return "announced"


@server.tool()
async def ask(ctx: Context) -> str:
    roots = await ctx.session.list_roots()
    return str(len(roots.roots))


@server.resource("visits://{whose}")
async def resource(whose: str, ctx: Context) -> str:
    return session_of(ctx).id


@server.prompt()
async def prompt(ctx: Context) -> str:
    return session_of(ctx).id


async def completion(ref: object, argument: object, context: object) -> object:
    from mcp.types import Completion

    session = session_of(server.get_context()) if kind == "mcp1" else session_of()
    return Completion(values=[session.id])


def guarded(app: Any) -> Any:
    """The app refuses each token whose name a file beside the journal has."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        token = dict(scope.get("headers", ())).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if token and os.path.exists(f"{sys.argv[3]}.{token}"):
            headers = [(b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"revoked"})
        else:
            await app(scope, receive, send)

    return guard


server.completion()(completion) if kind != "fastmcp" else server.completion(completion)


if store:
    if kind == "mcp1":
        app = server.streamable_http_app()
    elif kind == "mcp2":
        app = server.streamable_http_app(event_store=store)
    else:
        app = server.http_app(path="/mcp", event_store=store)
    app = store.around(app) if sys.argv[4] == "store" else app
else:
    given: Any = {"json_response": True} if sys.argv[4:] == ["json"] else {}
    if kind == "mcp1":
        # Its app has no options.
        for name, value in given.items():
            setattr(server.settings, name, value)
        app = server.streamable_http_app()
    else:
        app = server.http_app(path="/mcp", **given) if kind == "fastmcp" else server.streamable_http_app(**given)
    cookie = SessionCookie() if sys.argv[4:] == ["cookie"] else None
    app = durable(guarded(app), service="test", retry_ms=100, cookie=cookie)
listening = socket.socket(fileno=int(sys.argv[2]))
print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
