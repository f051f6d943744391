"""POST: a request of the client's goes to the app inside, and what that says is stored before it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any

from ..events import AfterEvent, Cursor, StreamStart
from ..streams import Stream
from ..values import Json, as_json
from .get import EventReader
from .handshake import outcome_unknown
from .http import (
    COMMENT,
    SESSION,
    Headers,
    begin_events,
    disconnected,
    event,
    priming,
    respond_json,
    send_part,
)
from .inner_app import Call, InnerApp
from .readers import Reader
from .served_session import ServedSession
from .settings import Receive, Scope, Send, Settings, header

_NARROW_EVENT_MAX = 1 << 20


def _is_narrow(scope: Scope) -> bool:
    """Whether the client reads at most 1 MiB an event: `mcp` 2, which sends its requests by httpx2."""
    return "httpx2" in (header(scope, b"user-agent") or "")


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
            is_json = call.is_json if status else served.answers_json
            if not is_json:
                # Its middleware's headers come with the first answer that there is.
                first = call if status else served.pinged(scope)
                await first.stand()
                if first is not call:
                    await first.whole()
            is_narrow = not is_json and _is_narrow(scope)
            # Before an answer that is sent whole there is room for nothing.
            await served.announce(served.session.standalone() if is_json or is_narrow else stream)
            forwarding = served.spawn(served.forward(call, stream, key, self._own))
            is_whole = self._is_sent_whole(call, forwarding, reader, is_json=is_json, is_narrow=is_narrow)
            await self._send(self._send_all(is_whole, stream, primed, reader, send), receive)
            return True
        finally:
            served.readers.remove(stream.id, reader)

    async def _status(self, call: Call) -> int | None:
        """The status of the app's response; None where it lets the client wait: that has to get an id to
        come back with.
        """
        done, _ = await asyncio.wait({call.status}, timeout=self._settings.begin)
        return call.status.result() if done else None

    async def _send(self, work: Coroutine[Any, Any, None], receive: Receive) -> None:
        """Sends, unless the client hangs up."""
        gone, sending = asyncio.create_task(disconnected(receive)), asyncio.create_task(work)
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _is_sent_whole(
        self, call: Call, forwarding: asyncio.Task[None], reader: Reader, *, is_json: bool, is_narrow: bool
    ) -> bool:
        """Whether the client gets the answer in JSON: as soon as it is stored, where the app answers so; and where the client can't
        read it as an event, and was sent nothing yet.
        """
        if is_json:
            await call.stand()
            if is_whole := call.is_json or await call.status != 200:
                # Which goes on when the client hangs up.
                await asyncio.wait({forwarding})
            return is_whole
        if not is_narrow:
            return False
        # Not for longer: until then it has no id to come back with.
        await reader.wait(self._settings.begin)
        return (
            reader.answer is not None
            and len(reader.waiting) == 1
            and len(event(*reader.waiting[0])) > _NARROW_EVENT_MAX
        )

    async def _send_all(
        self, is_whole: Awaitable[bool], stream: Stream, primed: str | None, reader: Reader, send: Send
    ) -> None:
        session = self._served.session.id
        if await is_whole:
            answer = reader.answer or as_json(outcome_unknown(self._own))
            await respond_json(send, 200, Json(answer), [(SESSION, session.encode())])
            return
        await begin_events(send, session)
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
