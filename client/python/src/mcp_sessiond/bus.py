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
_KINDS: dict[str, Callable[[dict[str, Any]], ServerEvent]] = {
    "tools": lambda _: ToolsListChanged(),
    "prompts": lambda _: PromptsListChanged(),
    "resources": lambda _: ResourcesListChanged(),
    "resource": lambda told: ResourceUpdated(uri=told["uri"]),
}
_NAMES = {
    ToolsListChanged: "tools",
    PromptsListChanged: "prompts",
    ResourcesListChanged: "resources",
    ResourceUpdated: "resource",
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
        told = {"kind": _NAMES[type(event)], "uri": getattr(event, "uri", None)}
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
                    read = _KINDS.get(event.message["kind"])
                    if read:
                        self._tell(read(event.message))
            except SessiondError as error:
                if not error.passes:
                    after, self._session = None, None
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
                self._session = await self._sessions.open("bus")
            except UnknownSession:
                try:
                    self._session = await self._sessions.create(
                        "bus", status="ready", lifetimes=Lifetimes(0, 0, 0)
                    )
                except AlreadyExists:
                    self._session = await self._sessions.open("bus")
        return self._session
