"""A `SubscriptionBus` for servers of `mcp` 2.x: `subscriptions/listen` of MCP 2026-07-28 across all
processes of a service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from .errors import SessiondError, SessionTerminated, UnknownCursor, UnknownSession
from .events import AfterNumber, Cursor
from .options import Options
from .session import Session
from .sessions import Sessions
from .values import Lifetimes

logger = logging.getLogger("mcp_sessiond")

_AWAY = 1.0
_SESSION = "mcp.events"
"""The session whose standalone stream has the events, in the shape of the TypeScript SDK's `ServerEvent`: a
service may have processes in both languages.
"""
_IDLE_MS = 24 * 3_600_000
"""How long it lives after its last use: it has nothing but events that were heard."""
_KINDS: dict[str, Callable[[], ServerEvent]] = {
    "tools_list_changed": ToolsListChanged,
    "prompts_list_changed": PromptsListChanged,
    "resources_list_changed": ResourcesListChanged,
}
_ENDED = (UnknownSession, SessionTerminated, UnknownCursor)
"""What is said of a session that has ended, also if there is another one of its id since."""
_NAMES = {
    ToolsListChanged: "tools_list_changed",
    PromptsListChanged: "prompts_list_changed",
    ResourcesListChanged: "resources_list_changed",
    ResourceUpdated: "resource_updated",
}


class DurableBus:
    """Tells events to the listeners of every process that says the service's name: `MCPServer("notes",
    subscriptions=DurableBus("notes"))`.

    No call raises. While the daemon is away, an event reaches the listeners of its own process alone, and
    the log says so.
    """

    def __init__(self, service: str, options: Options | None = None) -> None:
        self._sessions = Sessions(service, options)
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._is_alone = False
        self._is_listening = asyncio.Event()
        # Why no listener hears the other processes, before any has.
        self._listen_error: SessiondError | None = None

    async def publish(self, event: ServerEvent) -> None:
        """Tells an event to every listener."""
        told = {"kind": _NAMES[type(event)]}
        if isinstance(event, ResourceUpdated):
            told["uri"] = event.uri
        try:
            if self._listening:
                await asyncio.wait_for(self._is_listening.wait(), self._sessions.timeout)
            if self._listen_error:
                raise self._listen_error
            await self._append(told)
            self._is_alone = False
        except (SessiondError, asyncio.TimeoutError) as error:
            if not self._is_alone:
                why = str(error) or "the daemon is away"
                logger.warning("Events reach the listeners of this process alone: %s", why)
            self._is_alone = True
            self._deliver(event)
        # Lets listeners run between the events of a burst.
        await asyncio.sleep(0)

    async def _append(self, told: dict[str, str]) -> None:
        try:
            await (await self._opened()).standalone().append(told)
        except _ENDED:
            self._session = None
            await (await self._opened()).standalone().append(told)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Registers a listener. What it returns ends that, and may be called twice."""
        token = object()
        self._listeners[token] = listener
        if self._listening is None or self._listening.done():
            self._listening = asyncio.get_running_loop().create_task(self._listen())

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    async def _listen(self) -> None:
        after: Cursor | None = None
        while True:
            try:
                session = await self._opened()
                if after is None:
                    after = AfterNumber((await session.view()).last_number)
                    self._listen_error = None
                    self._is_listening.set()
                said = await session.wait([after])
                after = said.next[0]
                for event in said.events:
                    if read := _read(event.message):
                        self._deliver(read)
            except SessiondError as error:
                if after is None and not error.passes:
                    self._listen_error = error
                    self._is_listening.set()
                if isinstance(error, _ENDED):
                    self._session = None
                    if after:
                        # The next one numbers its events from 1.
                        after = AfterNumber(0)
                await asyncio.sleep(_AWAY)

    def _deliver(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("A listener has failed")

    async def _opened(self) -> Session:
        if self._session is None:
            lifetimes = Lifetimes(idle_ms=_IDLE_MS)
            self._session = await self._sessions.open_or_create(_SESSION, lifetimes)
        return self._session


def _read(message: Any) -> ServerEvent | None:
    """The event in a message; None where it is another one's, which may be of any shape."""
    told = message if isinstance(message, dict) else {}
    kind, uri = told.get("kind"), told.get("uri")
    if kind == "resource_updated":
        return ResourceUpdated(uri=uri) if isinstance(uri, str) else None
    return _KINDS[kind]() if isinstance(kind, str) and kind in _KINDS else None
