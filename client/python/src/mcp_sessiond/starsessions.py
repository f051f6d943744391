"""A `SessionStore` of starsessions, for the web sessions of Starlette and FastAPI: each is a session of the
service.
"""

from __future__ import annotations

import base64
import time

from starsessions import SessionStore

from .errors import SessionTerminated, UnknownSession
from .options import Options
from .sessions import Sessions
from .values import Lifetimes

_KEY = "mcp.web"
# Where a session lasts until the browser is closed, the server can't know when that is.
_UNKNOWN = 30 * 24 * 3600


class DurableStore(SessionStore):
    """Keeps web sessions in the daemon: `SessionMiddleware(app, store=DurableStore("shop"))`. Calls raise
    `SessiondError`s.
    """

    def __init__(self, service: str, options: Options | None = None) -> None:
        self._sessions = Sessions(service, options)

    async def read(self, session_id: str, lifetime: int) -> bytes:
        """The data of a session; nothing where there is none, or its time is over."""
        try:
            told = await (await self._sessions.open(session_id)).get(_KEY)
        except (UnknownSession, SessionTerminated):
            return b""
        return base64.b64decode(told["data"]) if told and told["until"] > time.time() else b""

    async def write(self, session_id: str, data: bytes, lifetime: int, ttl: int) -> str:
        """Writes the data of a session for `ttl` seconds. Returns its id: another one where that session
        was ended.
        """
        seconds = ttl if ttl > 0 else lifetime if lifetime > 0 else _UNKNOWN
        lifetimes = Lifetimes(idle_ms=seconds * 1000, absolute_ms=0)
        try:
            session = await self._sessions.open_or_create(session_id, lifetimes)
            await session.update(lifetimes=lifetimes)
        except SessionTerminated:
            session = await self._sessions.create(status="ready", lifetimes=lifetimes)
        told = {"data": base64.b64encode(data).decode(), "until": time.time() + seconds}
        await session.set(_KEY, told)
        return session.id

    async def remove(self, session_id: str) -> None:
        """Ends a session."""
        try:
            await (await self._sessions.open(session_id)).terminate()
        except (UnknownSession, SessionTerminated):
            pass
