"""Which session a handler works for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from .session import Session

KEY = "mcp_sessiond.session"
"""Where a request's scope has its session."""
CURRENT: ContextVar[Session | None] = ContextVar("mcp_sessiond_session", default=None)
"""The session of the request that is handled: for SDKs that hand the context of a request on to its
handler.
"""

Holder = Callable[[], Session | None]
"""Gives the session that an instance of a server on stdio holds."""

_holders: list[Holder] = []
_serves_http = False


def hold(holder: Holder) -> None:
    """This process may hold a session of its host's from now on."""
    _holders.append(holder)


def serve_http() -> None:
    """This process serves sessions over HTTP from now on: no handler works for the session of the process itself."""
    global _serves_http
    _serves_http = True


def session_of(context: Any = None) -> Session:
    """The session that a handler works for. `context` is what the SDK hands to tools, resources and prompts.

    A handler that is given none leaves it out, or with `mcp` 1.30 gives what `server.get_context()` returns. Over HTTP it is the
    session of the request, in a server on stdio, with its context, that of the instance, once `load` or `session` of `Sessiond` has claimed it. Raises
    `LookupError` elsewhere.
    """
    # Without a context it can't be known that the request did not come over HTTP.
    is_told = context is not None
    for name in ("request_context", "request", "scope"):
        context = getattr(context, name, context)
    is_request = hasattr(context, "get")
    found = context.get(KEY) if is_request else CURRENT.get()
    if found is None and is_told and not is_request and not _serves_http:
        found = _of_instance()
    if not isinstance(found, Session):
        raise LookupError(
            "there is no session: the request has not come through `mcp_sessiond.asgi.durable`, and no `Sessiond` of this process "
            "has claimed one by `await sessiond.session()`"
        )
    return found


def _of_instance() -> Session | None:
    """The one session that this process holds. None: it holds none, or several."""
    held = [session for holder in _holders if (session := holder())]
    return held[0] if len({session.id for session in held}) == 1 else None
