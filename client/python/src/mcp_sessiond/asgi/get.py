"""GET: what the client has missed, then what is said next. The app inside never sees one of the client's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from ..errors import SessiondError
from ..events import STANDALONE, AfterEvent, Cursor, Replayed, StreamStart
from ..session import Session
from ..values import Json
from .http import COMMENT, begin_events, disconnected, event, priming, respond, send_part
from .readers import Reader, Readers
from .record import Record, gap
from .settings import PRIMES, Receive, Scope, Send, Settings, header

TOLD = "mcp.standalone"
"""The key of the session's state that has the id of the last event of the standalone stream that a client
was sent.
"""

_AWAY = 1.0


async def serve(
    settings: Settings,
    session: Session,
    record: Record,
    readers: Readers,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Answers a GET. Raises `SessiondError` before the response has begun."""
    after: Cursor
    asked: Json | None = None
    last = header(scope, b"last-event-id")
    if last:
        found = await session.find_event(last)
        if found.ended:
            # To any other status clients would come back for ever.
            await respond(send, 204)
            return
        stream, after, asked = found.stream.id, AfterEvent(last), found.stream.opened_by
    else:
        told = await session.get(TOLD)
        stream = STANDALONE
        after = AfterEvent(told) if isinstance(told, str) else StreamStart(STANDALONE)
    reader = readers.come(stream)
    tail = Tail(settings, session, stream, after, asked)
    try:
        await begin_events(send, session.id)
        if record.version >= PRIMES and isinstance(after, AfterEvent):
            # Else the client has no id to come back with, if the connection breaks before there is an event.
            await send_part(send, priming(after.event, settings.retry_ms))
        else:
            await send_part(send, COMMENT)
        await _until(tail.parts(), reader, receive, send)
    finally:
        readers.leave(stream, reader)


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


class Tail:
    """Reads a stream in the daemon, from a place on, up to the answer to the request `asked` of this id."""

    def __init__(
        self, settings: Settings, session: Session, stream: str, after: Cursor, asked: Json | None
    ) -> None:
        self._settings = settings
        self._session = session
        self._stream = stream
        self._after = after
        self._asked = asked

    async def parts(self) -> AsyncIterator[bytes]:
        """The events, as parts of a body, until the stream ends."""
        while True:
            try:
                said = await self._session.wait([self._after], self._settings.keep_alive)
            except SessiondError as error:
                if not error.passes:
                    return
                yield COMMENT
                await asyncio.sleep(_AWAY)
                continue
            async for part in self._page(said):
                yield part
            # With a daemon that is older than `close` of `append`, a will may come after the answer: that of a
            # process that was killed before it closed the stream.
            if self._stream in said.ended or any(
                is_answer(one.json.text, self._asked) for one in said.events
            ):
                return

    async def _page(self, said: Replayed) -> AsyncIterator[bytes]:
        lost = sum(gap.last + 1 - gap.first for gap in said.gaps)
        if lost:
            yield event(None, gap(lost))
        if said.events:
            yield b"".join(event(one.id, one.json.text) for one in said.events)
        elif not lost:
            yield COMMENT
        self._after = said.next[0]
        if said.events and self._stream == STANDALONE:
            try:
                await self._session.set(TOLD, said.events[-1].id)
            except SessiondError:
                pass  # The next reader may get these again.


def is_answer(text: str, asked: Json | None) -> bool:
    """Whether a message is the answer to the request of this id."""
    if asked is None:
        return False
    message = json.loads(text)
    return isinstance(message, dict) and "method" not in message and message.get("id") == asked.value()
