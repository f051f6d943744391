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

from .errors import AlreadyExists, SessiondError, UnknownSession
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
_KINDS: dict[str, Callable[[dict[str, Any]], ServerEvent]] = {
    "tools_list_changed": lambda _: ToolsListChanged(),
    "prompts_list_changed": lambda _: PromptsListChanged(),
    "resources_list_changed": lambda _: ResourcesListChanged(),
    "resource_updated": lambda told: ResourceUpdated(uri=told["uri"]),
}
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
        self._hearing: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._heard = asyncio.Event()

    async def publish(self, event: ServerEvent) -> None:
        """Tells an event to every listener."""
        told = {"kind": _NAMES[type(event)]}
        if isinstance(event, ResourceUpdated):
            told["uri"] = event.uri
        try:
            if self._hearing:
                await asyncio.wait_for(self._heard.wait(), self._sessions.timeout)
            await (await self._opened()).standalone().append(told)
        except (SessiondError, asyncio.TimeoutError) as error:
            logger.warning(
                "An event reaches the listeners of this process alone: %s", error or "the daemon is away"
            )
            self._tell(event)
        # Lets listeners run between the events of a burst.
        await asyncio.sleep(0)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Registers a listener. What it returns ends that, and may be called twice."""
        token = object()
        self._listeners[token] = listener
        if self._hearing is None or self._hearing.done():
            self._hearing = asyncio.get_running_loop().create_task(self._hear())

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    async def _hear(self) -> None:
        after: Cursor | None = None
        while True:
            try:
                session = await self._opened()
                if after is None:
                    after = AfterNumber((await session.view()).last_number)
                    self._heard.set()
                said = await session.wait([after])
                after = said.next[0]
                for event in said.events:
                    read = _KINDS.get(event.message.get("kind"))
                    if read:
                        self._tell(read(event.message))
            except SessiondError as error:
                if not error.passes:
                    # The session has ended, and the next one numbers its events from 1.
                    after, self._session = AfterNumber(0), None
                await asyncio.sleep(_AWAY)

    def _tell(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("A listener has failed")

    async def _opened(self) -> Session:
        if self._session is None:
            try:
                self._session = await self._sessions.open(_SESSION)
            except UnknownSession:
                try:
                    self._session = await self._sessions.create(
                        _SESSION, status="ready", lifetimes=Lifetimes(idle_ms=_IDLE_MS)
                    )
                except AlreadyExists:
                    self._session = await self._sessions.open(_SESSION)
        return self._session
