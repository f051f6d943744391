"""A client of a session: there until it leaves, whatever becomes of connections and daemons."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from .connection import Connection
from .connections import Connections, Params
from .deadline import Deadline
from .errors import SessiondError

_PAUSE = 0.005
_RETRY_AFTER = 5.0


class Attachment:
    """A client that has come to a session (`Session.attach`). Call `detach` when it goes, or use `async
    with`.

    Until then it is attached again whenever the connection was lost.
    """

    def __init__(self, connections: Connections, of: Callable[[Deadline], Awaitable[Params]]) -> None:
        self._connections = connections
        self._of = of
        self._connection: Connection | None = None
        self._is_detached = False
        self._reattaching: asyncio.Task[None] | None = None

    @classmethod
    async def of(cls, connections: Connections, of: Callable[[Deadline], Awaitable[Params]]) -> Attachment:
        """A client of the session that `of` names."""
        attachment = cls(connections, of)
        await attachment._attach()
        attachment._reattaching = asyncio.create_task(attachment._reattach())
        return attachment

    async def _attach(self) -> None:
        deadline = self._connections.deadline()
        of = await self._of(deadline)

        def params(connection: Connection) -> Params:
            # It belongs to the connection that it was sent on.
            self._connection = connection
            return of

        await self._connections.call("attach_session", params, deadline)

    async def _reattach(self) -> None:
        while self._connection and not self._is_detached:
            await self._connection.ended()
            pause = _PAUSE
            while not self._is_detached:
                await asyncio.sleep(pause)
                try:
                    await self._attach()
                    break
                except SessiondError as error:
                    if not error.passes:
                        return
                    pause = _RETRY_AFTER

    async def detach(self) -> None:
        """The client goes. The daemon knows when this returns, if it is there."""
        if self._is_detached:
            return
        self._is_detached = True
        if self._connection and not self._connection.is_ended:
            deadline = self._connections.deadline()
            try:
                await self._connection.request("detach_session", await self._of(deadline), deadline)
            except SessiondError:
                pass  # Where the connection breaks, the client has gone with it.
        if self._reattaching:
            self._reattaching.cancel()

    async def __aenter__(self) -> Attachment:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.detach()
