"""The sessions that this process serves: begun, found again, restored, ended."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from ..errors import SessiondError
from ..options import Options
from ..session import Session
from ..sessions import Sessions
from ..values import Json
from .handshake import STATE, Handshake
from .http import SESSION, Refusal
from .inner_app import Call, InnerApp
from .served_session import ServedSession, initialize
from .settings import Scope, Settings

logger = logging.getLogger("mcp_sessiond")


class ServedSessions:
    """Sessions by the ids that clients know."""

    def __init__(self, settings: Settings, inner: InnerApp) -> None:
        self._settings = settings
        self._inner = inner
        options = settings.options
        held = Options(**{**vars(options), "timeout": min(options.timeout, settings.hold)})
        self.daemon = Sessions(settings.service, held)
        self._served: dict[str, ServedSession] = {}
        self._restoring: dict[str, asyncio.Task[ServedSession]] = {}

    async def begin(self, scope: Scope, params: Any, call: Call, result: Any) -> ServedSession:
        """A new session, whose handshake the app inside has just answered. Raises `SessiondError`."""
        inner_id = call.header(SESSION)
        assert inner_id
        handshake = Handshake.new(params, result)
        try:
            session = await self.daemon.create(
                binding=self._settings.caller(scope),
                lifetimes=self._settings.lifetimes,
                status="ready" if handshake.fits else "initializing",
                metadata=Json(handshake.text()) if handshake.fits else None,
            )
            if not handshake.fits:
                await session.set(STATE, Json(handshake.text()))
                await session.update(status="ready")
        except SessiondError:
            await self._inner.sent(scope, "DELETE", inner_id, handshake.version).whole()
            raise
        served = ServedSession(self._settings, self._inner, session, handshake, inner_id)
        await served.listen(scope)
        self._add(served)
        return served

    async def session(self, id: str, scope: Scope) -> tuple[Session, Handshake]:
        """The session of this id, on behalf of the request's caller. Raises `SessiondError`, `Refusal`."""
        served = self._served.get(id)
        if served and served.session.caller == self._settings.caller(scope):
            return served.session, served.handshake
        sessions = self.daemon.on_behalf_of(self._settings.caller(scope))
        session, view = await sessions.open_viewed(id)
        handshake = await Handshake.of(session, view)
        if handshake is None:
            raise Refusal.unknown_session()
        return session, handshake

    async def served(self, id: str, scope: Scope) -> ServedSession:
        """The session of this id in the app inside: restored, if this process has not served it yet.

        Raises `SessiondError`, `Refusal`.
        """
        session, handshake = await self.session(id, scope)
        served = self._served.get(id)
        if served and not served.is_over:
            served.session = session
            return served
        restoring = self._restoring.get(id)
        if restoring is None:
            restoring = self._restoring[id] = asyncio.create_task(self._restore(session, handshake, scope))
            restoring.add_done_callback(lambda _: self._restoring.pop(id, None))
        return await asyncio.shield(restoring)

    async def _restore(self, session: Session, handshake: Handshake, scope: Scope) -> ServedSession:
        inner_id, _ = await initialize(self._inner, scope, handshake.initialize)
        served = ServedSession(self._settings, self._inner, session, handshake, inner_id)
        await served.listen(scope)
        self._add(served)
        logger.info("Session %s was restored", session.id)
        return served

    def _add(self, served: ServedSession) -> None:
        self._served[served.session.id] = served
        self._check_later(served, self._settings.idle)

    def _check_later(self, served: ServedSession, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._close_if_idle, served)

    def _close_if_idle(self, served: ServedSession) -> None:
        """A session that nobody uses leaves the app inside. Its next request restores it."""
        left = self._settings.idle - served.idle_for()
        if served.is_over:
            if self._served.get(served.session.id) is served:
                del self._served[served.session.id]
        elif left > 0:
            self._check_later(served, left)
        else:
            del self._served[served.session.id]
            served.spawn(served.end())

    async def end(self, id: str, scope: Scope) -> None:
        """The client ends the session. Raises `SessiondError`."""
        session, _ = await self.session(id, scope)
        await session.terminate()
        served = self._served.pop(id, None)
        if served:
            await served.end()


def parse(body: bytes) -> Any:
    """The message of a body. Raises `Refusal`."""
    try:
        return json.loads(body)
    except ValueError:
        raise Refusal(400, -32700, "the body is not a JSON-RPC 2.0 message") from None
