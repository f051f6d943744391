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
from .http import SESSION, Refusal
from .inner import Call, Inner
from .live import Live, shake
from .record import STATE, Record
from .settings import Scope, Settings

logger = logging.getLogger("mcp_sessiond")


class Table:
    """Sessions by the ids that clients know."""

    def __init__(self, settings: Settings, inner: Inner) -> None:
        self._settings = settings
        self._inner = inner
        options = settings.options
        held = Options(**{**vars(options), "timeout": min(options.timeout, settings.hold)})
        self.sessions = Sessions(settings.service, held)
        self._live: dict[str, Live] = {}
        self._restoring: dict[str, asyncio.Task[Live]] = {}

    async def begin(self, scope: Scope, params: Any, call: Call, result: Any) -> Live:
        """A new session, whose handshake the app inside has just answered. Raises `SessiondError`."""
        inner_id = call.header(SESSION)
        assert inner_id
        record = Record.new(params, result)
        try:
            session = await self.sessions.create(
                binding=self._settings.caller(scope),
                lifetimes=self._settings.lifetimes,
                status="ready" if record.fits else "initializing",
                metadata=Json(record.text()) if record.fits else None,
            )
            if not record.fits:
                await session.set(STATE, Json(record.text()))
                await session.update(status="ready")
        except SessiondError:
            await self._inner.sent(scope, "DELETE", inner_id, record.version).whole()
            raise
        live = Live(self._settings, self._inner, session, record, inner_id)
        await live.listen(scope)
        self._keep(live)
        return live

    async def session(self, id: str, scope: Scope) -> tuple[Session, Record]:
        """The session of this id, for whoever sends this request. Raises `SessiondError`, `Refusal`."""
        live = self._live.get(id)
        if live and live.session.caller == self._settings.caller(scope):
            return live.session, live.record
        sessions = self.sessions.on_behalf_of(self._settings.caller(scope))
        session, view = await sessions.open_viewed(id)
        record = await Record.of(session, view)
        if record is None:
            raise Refusal.unknown_session()
        return session, record

    async def live(self, id: str, scope: Scope) -> Live:
        """The session of this id in the app inside: restored, if this process has not served it yet.

        Raises `SessiondError`, `Refusal`.
        """
        session, record = await self.session(id, scope)
        live = self._live.get(id)
        if live and not live.is_over:
            live.session = session
            return live
        restoring = self._restoring.get(id)
        if restoring is None:
            restoring = self._restoring[id] = asyncio.create_task(self._restore(session, record, scope))
            restoring.add_done_callback(lambda _: self._restoring.pop(id, None))
        return await asyncio.shield(restoring)

    async def _restore(self, session: Session, record: Record, scope: Scope) -> Live:
        inner_id, _ = await shake(self._inner, scope, record.initialize)
        live = Live(self._settings, self._inner, session, record, inner_id)
        await live.listen(scope)
        self._keep(live)
        logger.info("Session %s was restored", session.id)
        return live

    def _keep(self, live: Live) -> None:
        self._live[live.session.id] = live
        self._look_again(live, self._settings.idle)

    def _look_again(self, live: Live, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._rest, live)

    def _rest(self, live: Live) -> None:
        """A session that nobody uses leaves the app inside. Its next request restores it."""
        left = self._settings.idle - live.idle_for()
        if live.is_over:
            if self._live.get(live.session.id) is live:
                del self._live[live.session.id]
        elif left > 0:
            self._look_again(live, left)
        else:
            del self._live[live.session.id]
            live.spawn(live.end())

    async def end(self, id: str, scope: Scope) -> None:
        """The client ends the session. Raises `SessiondError`."""
        session, _ = await self.session(id, scope)
        await session.terminate()
        live = self._live.pop(id, None)
        if live:
            await live.end()


def parse(body: bytes) -> Any:
    """The message of a body. Raises `Refusal`."""
    try:
        return json.loads(body)
    except ValueError:
        raise Refusal(400, -32700, "the body is no message of JSON-RPC 2.0") from None
