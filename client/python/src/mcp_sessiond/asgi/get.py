"""GET: the events that the client has missed, then each new one. The app inside sees no GET of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from .. import log
from ..errors import SessiondError
from ..events import STANDALONE, AfterEvent, Cursor, Replayed, StreamStart
from ..session import Session
from .handshake import gap_notice
from .http import COMMENT, begin_events, disconnected, event, priming, respond, send_part
from .readers import Reader
from .served_session import ServedSession
from .settings import Receive, Scope, Send, Settings, header

DELIVERED_KEY = "mcp.standalone"
"""The key of the session's state that has the id of the last event of the standalone stream that a client
was sent.
"""

_AWAY = 1.0


async def serve(
    settings: Settings, served: ServedSession, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answers a GET. Raises `SessiondError` before the response has begun."""
    session, readers = served.session, served.readers
    after: Cursor
    last = header(scope, b"last-event-id")
    if last:
        found = await session.find_event(last)
        if found.ended:
            # To any other status clients would come back for ever.
            await respond(send, 204)
            return
        stream, after = found.stream.id, AfterEvent(last)
    else:
        delivered = await session.get(DELIVERED_KEY)
        stream = STANDALONE
        after = AfterEvent(delivered) if isinstance(delivered, str) else StreamStart(STANDALONE)
    if stream == STANDALONE:
        # Its client may not call for long.
        await served.announce(session.standalone())
    reader = readers.add(stream)
    events = EventReader(settings, session, stream, after)
    try:
        await begin_events(send, session.id)
        if served.primes and isinstance(after, AfterEvent):
            # Else the client has no id to come back with, if the connection breaks before there is an event.
            await send_part(send, priming(after.event, settings.retry_ms))
        else:
            await send_part(send, COMMENT)
        await _until(events.parts(), reader, receive, send)
    finally:
        readers.remove(stream, reader)


async def _until(parts: AsyncIterator[bytes], reader: Reader, receive: Receive, send: Send) -> None:
    """Sends parts until there are no more, the client hangs up, or another reader has come."""

    async def all() -> None:
        async for part in parts:
            await send_part(send, part)

    tasks = [asyncio.create_task(work) for work in (all(), disconnected(receive), reader.ended())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not tasks[1].done() or tasks[1].cancelled():
        await send_part(send, b"", is_last=True)


class EventReader:
    """Reads a stream in the daemon, from a cursor on, up to the stream's end."""

    def __init__(self, settings: Settings, session: Session, stream: str, after: Cursor) -> None:
        self._settings = settings
        self._session = session
        self._stream = stream
        self._after = after

    async def parts(self) -> AsyncIterator[bytes]:
        """The events, as parts of a body, until the stream ends."""
        while True:
            try:
                said = await self._session.wait([self._after], self._settings.keep_alive)
            except SessiondError as error:
                if not error.passes:
                    return
                log.hidden(error)
                yield COMMENT
                await asyncio.sleep(_AWAY)
                continue
            async for part in self._page(said):
                yield part
            if self._stream in said.ended:
                return

    async def _page(self, said: Replayed) -> AsyncIterator[bytes]:
        lost = sum(gap.last + 1 - gap.first for gap in said.gaps)
        if lost:
            yield event(None, gap_notice(lost))
        if said.events:
            yield b"".join(event(one.id, one.json.text) for one in said.events)
        elif not lost:
            yield COMMENT
        self._after = said.next[0]
        if said.events and self._stream == STANDALONE:
            try:
                await self._session.set(DELIVERED_KEY, said.events[-1].id)
            except SessiondError:
                pass  # The next reader may get these again.
