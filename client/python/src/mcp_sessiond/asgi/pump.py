"""What the app inside says goes into the daemon, and then to the reader."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ..errors import InvalidArgument, QuotaExceeded, SessiondError
from ..retry import retry_while_away
from ..streams import Stream
from ..values import Json, request_id
from .handshake import not_kept
from .readers import Readers
from .request_ids import RequestIds
from .room import with_room

logger = logging.getLogger("mcp_sessiond")

_QUEUE = 256
_BATCH_BYTES = 2 << 20


class Pump:
    """Stores what is said on one stream, in batches, and gives it to the stream's reader."""

    def __init__(
        self,
        stream: Stream,
        ids: RequestIds,
        readers: Readers,
        key: str | None = None,
        answering: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None,
    ) -> None:
        """`key`: of the request that the stream answers. `answering` is called with it and the app's answer before that is stored."""
        self.answered = False
        """Whether the app has answered the stream's request."""
        self.closed = False
        """Whether the stream was closed: the answer closes it."""
        self._stream = stream
        self._ids = ids
        self._readers = readers
        self._key = key
        self._answering = answering
        self._answer: dict[str, Any] = {}
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(_QUEUE)

    async def run(self, messages: AsyncIterator[str]) -> None:
        """Stores all that is said, up to its end. Raises `SessiondError` where the session has ended."""
        storing = asyncio.create_task(self._store_all())
        try:
            async for text in messages:
                if storing.done():
                    break
                await self._put(text, storing)
                if self.answered:
                    break
            await self._put(None, storing)
            await storing
        finally:
            storing.cancel()

    async def _put(self, text: str | None, storing: asyncio.Task[None]) -> None:
        # Where nothing is stored any more nobody makes room.
        putting = asyncio.ensure_future(self._queue.put(text))
        await asyncio.wait({putting, storing}, return_when=asyncio.FIRST_COMPLETED)
        putting.cancel()

    async def _store_all(self) -> None:
        is_last = False
        while not is_last:
            texts = [await self._queue.get()]
            while not self._queue.empty() and sum(len(text or "") for text in texts) < _BATCH_BYTES:
                texts.append(self._queue.get_nowait())
            told = [self._translated(text) for text in texts if text is not None]
            is_last = None in texts or self.answered
            if told:
                if self.answered and self._answering and self._key is not None:
                    await self._answering(self._key, self._answer)
                await self.store(told, close=self.answered)

    def _translated(self, text: str) -> str:
        try:
            message = json.loads(text)
        except ValueError:
            return text
        if not isinstance(message, dict):
            return text
        is_answer = (
            "method" not in message and self._key is not None and json.dumps(message.get("id")) == self._key
        )
        changed = self._ids.to_client(message)
        if is_answer and self._key is not None:
            self.answered, self._answer = True, message
            self._ids.answered(self._key)
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False) if changed else text

    async def store(self, texts: list[str], *, close: bool = False) -> None:
        """Stores messages, and closes the stream with the last of them. A message reaches no reader before it is stored.
        Raises `SessiondError`.
        """
        try:
            if len(texts) > 1:
                await self._append(texts, close)
            else:
                await with_room(self._stream.prune_session, lambda: self._append(texts, close))
        except (QuotaExceeded, InvalidArgument) as error:
            if len(texts) == 1:
                await self._replace(texts[0], error, close)
                return
            for text in texts[:-1]:
                await self.store([text])
            await self.store(texts[-1:], close=close)

    async def _append(self, texts: list[str], close: bool, given: str | None = None) -> None:
        """`given`: what the reader is given in the place of the one message that is stored."""
        # The daemon knows a repeated call by it.
        request = request_id()
        messages = [Json(text) for text in texts]
        appended = await retry_while_away(
            lambda: self._stream.append_all(messages, request, close=close), "Messages wait to be stored"
        )
        self.closed = self.closed or close
        for number, (one, text) in enumerate(zip(appended, texts, strict=True), 1):
            if reader := self._readers.of(one.stream):
                is_answer = close and number == len(texts)
                reader.give(one.id, text if given is None else given, is_answer=is_answer)

    async def _replace(self, text: str, error: SessiondError, close: bool) -> None:
        """Stores a short error in the place of an answer, which is given under that event's id to the reader that
        waits. A reader that got it resumes behind it, and one that did not gets the error.
        """
        message: dict[str, Any] = json.loads(text)
        if "method" not in message:
            short = not_kept(message.get("id"), len(text.encode()), str(error))
            await self._append([json.dumps(short)], close, given=text)
        elif reader := self._readers.of(self._stream.id):
            # Nobody can come back for it.
            reader.give(None, text)
        else:
            logger.warning("A message of %d bytes could not be stored, and is lost: %s", len(text), error)
