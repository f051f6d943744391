"""The sessions that this process serves: begun, found again, restored, ended."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

from .. import inner_ids
from ..errors import BindingMismatch, SessiondError
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

_LISTS_SECONDS = 2.0
"""How long the request that restores a session waits for the app's lists. Later ones hear of the changes then."""


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
        self._has_warned = False

    async def begin(self, scope: Scope, params: Any, call: Call, result: Any) -> ServedSession:
        """A new session, whose handshake the app inside has just answered. Raises `SessiondError`."""
        handshake = Handshake.new(params, result)
        try:
            session = await self.daemon.create(
                binding=self._settings.caller_of(scope),
                lifetimes=self._settings.lifetimes,
                status="ready" if handshake.fits else "initializing",
                metadata=Json(handshake.text()) if handshake.fits else None,
            )
            if not handshake.fits:
                await session.set(STATE, Json(handshake.text()))
                await session.update(status="ready")
        except SessiondError:
            await self._inner.sent(scope, "DELETE", call.header(SESSION), handshake.version).whole()
            raise
        served = ServedSession(self._settings, self._inner, session, handshake, call)
        await served.listen(scope)
        self._add(served)
        return served

    async def session(self, id: str, scope: Scope) -> tuple[Session, Handshake]:
        """The session of this id, on behalf of the request's caller. Raises `SessiondError`, `Refusal`."""
        served = self._served.get(id)
        if served and served.session.caller == self._settings.caller_of(scope):
            return served.session, served.handshake
        caller = self._settings.caller_of(scope)
        try:
            try:
                session, view = await self.daemon.on_behalf_of(caller).open_viewed(id)
            except BindingMismatch:
                # It was begun before its user was known, or by a version that knew no users.
                other = self._settings.caller(scope)
                if other == caller:
                    raise
                session, view = await self.daemon.on_behalf_of(other).open_viewed(id)
        except BindingMismatch:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "A request names a session that was begun with another credential, and gets 404. If that is the same user, "
                    "tell by the option `caller` of `durable` who that is."
                )
            raise
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
        begun = await initialize(self._inner, scope, handshake.initialize)
        served = ServedSession(self._settings, self._inner, session, handshake, begun)
        served.is_initialized = True
        await served.listen(scope)
        comparing = asyncio.create_task(served.compare_lists(scope))
        served.spawn(comparing)
        await asyncio.wait({comparing}, timeout=_LISTS_SECONDS)
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
            inner_ids.remove(served.inner_id)
            if self._served.get(served.session.id) is served:
                del self._served[served.session.id]
        elif left > 0:
            self._check_later(served, left)
        else:
            del self._served[served.session.id]
            served.spawn(served.end())

    async def end(self, served: ServedSession, *, is_known: bool) -> None:
        """The client ends the session. `is_known`: whether the app inside still knows it. Raises `SessiondError`."""
        # The app has forgotten it. If the daemon refuses, the next request restores it.
        served.is_over = served.is_over or not is_known
        await served.session.terminate()
        if self._served.get(served.session.id) is served:
            del self._served[served.session.id]
        await served.end(is_known=is_known)


def parse(body: bytes) -> tuple[Any, Refusal | None]:
    """The message of a body, and why it is refused nonetheless. Raises `Refusal` where there is none."""
    found: list[str] = []

    def note(name: str) -> _NoNumber:
        found.append(name)
        return _NoNumber(name)

    try:
        message = json.loads(body, parse_constant=note)
    except (ValueError, RecursionError):
        raise Refusal(400, -32700, "the body is not a JSON-RPC 2.0 message") from None
    if not found:
        return message, None
    # Other readers of JSON take the whole message for unreadable, or the value for another one.
    where, name = next(_no_numbers(message, ""), ("", found[0]))
    why = f"`{name}` at `{where}` is not JSON: leave it out, or send null or a string"
    own = message.get("id") if isinstance(message, dict) and "method" in message else None
    if is_id(own):
        return message, Refusal(200, -32602, why)
    return None, Refusal(400, -32700, why)


def is_id(id: Any) -> bool:
    """Whether this is the id of a request (JSON-RPC 2.0, section 4)."""
    return isinstance(id, str | int) and not isinstance(id, bool)


def is_message(message: dict[str, Any]) -> bool:
    """Whether this is a notification, or an answer."""
    return ("method" in message and "id" not in message) or "result" in message or "error" in message


class _NoNumber(float):
    """NaN, Infinity or -Infinity, which Python reads as numbers and JSON does not have."""

    def __new__(cls, name: str) -> _NoNumber:
        return super().__new__(cls, name.replace("Infinity", "inf"))

    def __init__(self, name: str) -> None:
        self.name = name


def _no_numbers(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Where they are, and which."""
    if isinstance(value, _NoNumber):
        yield where, value.name
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _no_numbers(one, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _no_numbers(one, f"{where}[{at}]")
