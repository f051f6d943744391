"""POST: a request of the client's goes to the app inside, and what that says is stored before it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from ..events import AfterEvent, Cursor, StreamStart
from ..streams import Stream
from .get import EventReader
from .http import COMMENT, SESSION, Headers, begin_events, disconnected, event, priming, send_part
from .inner_app import Call, InnerApp
from .readers import Reader
from .served_session import ServedSession
from .settings import Receive, Scope, Send, Settings


async def answer(inner: InnerApp, served: ServedSession, scope: Scope, body: bytes, send: Send) -> int:
    """Passes on what wants no answer. Returns the app's status, without a response where it does not know
    the session.
    """
    call = inner.passed(scope, body, served.inner_id)
    status = await call.status
    if status == 404 and await served.is_forgotten():
        return status
    await pass_on(call, served.session.id, send)
    return 0 if status == 404 else status


async def pass_on(call: Call, session: str | None, send: Send) -> None:
    """The app's response as it is, but for the session's id."""
    await call.stand()
    named: Headers = [(SESSION, session.encode())] if session else []
    headers = [(name, value) for name, value in call.headers if name != SESSION] + named
    await send({"type": "http.response.start", "status": await call.status, "headers": headers})
    async for part in call.parts():
        await send_part(send, part)
    await send_part(send, b"", is_last=True)


class Request:
    """A request of the client's, with its stream."""

    def __init__(
        self, settings: Settings, inner: InnerApp, served: ServedSession, message: dict[str, Any], body: bytes
    ) -> None:
        self._body = body
        self._settings = settings
        self._inner = inner
        self._served = served
        self._message = message
        self._own = message["id"]

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answers it. False: the app inside does not know the session, and nothing was done.

        Raises `SessiondError` before the app has got it.
        """
        served = self._served
        stream, primed = await served.open(self._own)
        key = served.ids.begin(self._message, stream.id)
        served.lists.asked(key, self._message)
        reader = served.readers.add(stream.id)
        # As it came, where the app gets the client's own id: a copy might say other numbers.
        is_changed = self._message["id"] is not self._own
        body = json.dumps(self._message).encode() if is_changed else self._body
        call = self._inner.passed(scope, body, served.inner_id)
        try:
            status = await self._status(call)
            if status not in (200, None):
                served.ids.answered(key)
                served.spawn(served.close(stream))
                if status == 404 and await served.is_forgotten():
                    return False
                try:
                    await pass_on(call, served.session.id, send)
                finally:
                    served.ids.end(key)
                return True
            # Its middleware's headers come with the first answer that there is.
            first = call if status else served.pinged(scope)
            await first.stand()
            if first is not call:
                await first.whole()
            await served.announce(stream)
            served.spawn(served.forward(call, stream, key, self._own))
            await self._send(stream, primed, reader, receive, send)
            return True
        finally:
            served.readers.remove(stream.id, reader)

    async def _status(self, call: Call) -> int | None:
        """The status of the app's response; None where it lets the client wait: that has to get an id to
        come back with.
        """
        done, _ = await asyncio.wait({call.status}, timeout=self._settings.begin)
        return call.status.result() if done else None

    async def _send(
        self, stream: Stream, primed: str | None, reader: Reader, receive: Receive, send: Send
    ) -> None:
        gone = asyncio.create_task(disconnected(receive))
        sending = asyncio.create_task(self._send_all(stream, primed, reader, send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send_all(self, stream: Stream, primed: str | None, reader: Reader, send: Send) -> None:
        await begin_events(send, self._served.session.id)
        if primed:
            await send_part(send, priming(primed, self._settings.retry_ms))
        after: Cursor = AfterEvent(primed) if primed else StreamStart(stream.id)
        async for part in self._parts(stream, after, reader):
            await send_part(send, part)
        await send_part(send, b"", is_last=True)

    async def _parts(self, stream: Stream, after: Cursor, reader: Reader) -> AsyncIterator[bytes]:
        while True:
            while reader.waiting:
                id, text = reader.waiting.popleft()
                after = AfterEvent(id) if id else after
                yield event(id, text)
            if reader.is_behind:
                # It was too slow: the daemon has the rest.
                async for part in EventReader(self._settings, self._served.session, stream.id, after).parts():
                    yield part
                return
            if reader.is_over:
                return
            if not await reader.wait(self._settings.keep_alive):
                yield COMMENT
