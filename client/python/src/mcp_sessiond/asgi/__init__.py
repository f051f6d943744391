"""Sessions that survive the process, for servers of the official SDK (`mcp`) and FastMCP over Streamable
HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..context import session_of
from ..options import Options
from ..values import Caller, Lifetimes
from .app import Durable
from .settings import App, Scope, SessionCookie, Settings, bearer

__all__ = ["Durable", "SessionCookie", "bearer", "durable", "session_of"]


def durable(
    app: App,
    *,
    service: str,
    path: str = "/mcp",
    caller: Callable[[Scope], Caller | None] = bearer,
    cookie: SessionCookie | None = None,
    modern: Literal["refuse", "pass"] = "refuse",
    retry_ms: int = 5_000,
    idle: float = 1_800.0,
    keep_alive: float = 15.0,
    lifetimes: Lifetimes | None = None,
    options: Options | None = None,
) -> Durable:
    """The same ASGI app, whose sessions survive its process: `app = durable(mcp.streamable_http_app(),
    service="notes")`.

    `service` is the name under which the daemon keeps the sessions; every process that says it serves them.
    `path` is where MCP is served; all else goes to the app as it is. `caller` tells from a request's scope
    who sends it: a session belongs to the caller that has made it. By default that is the hash of the
    bearer token, and nobody without one. `cookie`, as `SessionCookie()`: sessions are named in the cookie
    `mcp_session_id`, too, which is read where the header is missing. `modern`: MCP 2026-07-28 has no sessions. `refuse` leads its
    clients to `initialize`; `pass` leaves them to the app. `retry_ms` is how long a client waits before it
    comes back. A session without requests for `idle` seconds leaves the app inside, and its next request
    restores it. After `keep_alive` seconds without an event a comment is sent. `lifetimes` says when the
    daemon ends a session, by default as it is configured. An app that begins no sessions gets requests as
    they are. What the app answers in JSON is answered in JSON, too, as soon as it is stored.
    A FastMCP server whose author has named no `session_state_store` keeps its state in the daemon.
    """
    settings = Settings(
        service=service,
        path=path,
        caller=caller,
        cookie=cookie,
        modern=modern,
        retry_ms=retry_ms,
        idle=idle,
        keep_alive=keep_alive,
        lifetimes=lifetimes,
        options=options or Options(),
    )
    return Durable(app, settings)
