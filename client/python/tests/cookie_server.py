"""A server of MCP 2026-07-28 whose sessions are web sessions, found by a cookie: cookie_server.py check DESCRIPTOR JOURNAL

  who {}  the name that the session of the request has: its first call draws one
"""

from __future__ import annotations

import secrets
import socket
import sys

import support  # noqa: F401
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starsessions import SessionAutoloadMiddleware, SessionMiddleware

from mcp_sessiond.starsessions import DurableStore

server = MCPServer("test")


@server.tool()
async def who(ctx: Context) -> str:
    request = ctx.request_context.request
    assert request
    return str(request.session["name"])


app = server.streamable_http_app()


async def named(scope: object, receive: object, send: object) -> None:
    if scope["type"] == "http":
        scope["session"].setdefault("name", secrets.token_hex(8))
    await app(scope, receive, send)


inside = SessionAutoloadMiddleware(named)
listening = socket.socket(fileno=int(sys.argv[2]))
print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
whole = SessionMiddleware(inside, store=DurableStore("web"), cookie_https_only=False, lifetime=3_600)
uvicorn.Server(uvicorn.Config(whole, log_level="warning")).run([listening])
