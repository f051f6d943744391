"""The streams of a session: what is appended to them, what was said, and what is said next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from .connection import Connection
from .connections import Connections, Params
from .deadline import Deadline
from .events import STANDALONE, AfterEvent, Appended, Cursor, FoundEvent, Replayed, StreamStart, StreamView
from .values import as_json, request_id

_PAGE = 100
_WAIT_MAX = 25.0
_ENDED_EARLY_PAUSE = 0.05


class Streams:
    """What a `Session` does with its streams. A stream id has 1 to 128 visible ASCII characters."""

    if TYPE_CHECKING:
        _connections: Connections

        async def _of(self, deadline: Deadline) -> Params: ...

        async def _change(self, method: str, params: Params) -> Any: ...

    async def open_stream(self, id: str, *, opened_by: object = None, will: object = None) -> Stream:
        """Opens a stream, unless it is open. `opened_by` is the id of the request that it answers.

        `will` is a message. If this process exits while the stream is open, the daemon appends the will
        within a second and closes the stream. A later call puts another will in its place. Raises
        `StreamClosed`.
        """
        params = {
            "stream": id,
            "opened_by": None if opened_by is None else as_json(opened_by),
            "will": None if will is None else as_json(will),
        }
        await self._change("open_stream", params)
        return Stream(self, id)

    def stream(self, id: str) -> Stream:
        """A stream that is open already. Nothing is sent."""
        return Stream(self, id)

    def standalone(self) -> Stream:
        """The stream for what belongs to no request: it is always open."""
        return Stream(self, STANDALONE)

    async def streams(self) -> list[StreamView]:
        """All streams, in order of their ids."""
        found: list[StreamView] = []
        while True:
            page = await self._change("list_streams", {"after": found[-1].id if found else None})
            found += [StreamView.read(raw) for raw in page]
            if len(page) < _PAGE:
                return found

    async def find_event(self, event: str) -> FoundEvent:
        """The stream of an event id, and whether that is complete. Raises `UnknownCursor`."""
        found = await self._change("find_event", {"event": event})
        stream = StreamView.read(found["stream"])
        return FoundEvent(stream, int(found["position"]), int(found["number"]), found["ended"])

    async def prune(self, keep: int, stream: str | None = None) -> int:
        """Deletes the oldest events of the session, or of a stream, so that at most `keep` stay. How many
        were deleted.
        """
        pruned = await self._change("prune_events", {"stream": stream, "keep": str(keep)})
        return int(pruned["events"])

    async def replay(self, after: Cursor, most: int | None = None) -> Replayed:
        """One page of what was said after a place. Raises `UnknownCursor`, `UnknownStream`."""
        return Replayed.read(await self._change("replay", {"after": after.wire(), "most": most}))

    async def wait(self, after: Sequence[Cursor], seconds: float = _WAIT_MAX) -> Replayed:
        """What is said next after up to 64 places in different streams, or after one number.

        Without events where nothing was said in time; `next` is where to go on either way. Raises as
        `replay`.
        """
        until, cursors = time.monotonic() + seconds, list(after)
        while True:
            left = max(0.0, until - time.monotonic())
            began = time.monotonic()
            said = await self._wait_once(cursors, min(left, _WAIT_MAX))
            if said.events or said.gaps or said.ended or time.monotonic() >= until:
                return said
            cursors = list(said.next)
            # The daemon is about to exit.
            if time.monotonic() - began < min(left, _WAIT_MAX):
                await asyncio.sleep(min(_ENDED_EARLY_PAUSE, left))

    async def _wait_once(self, after: Sequence[Cursor], seconds: float) -> Replayed:
        deadline = Deadline(seconds + self._connections.options.timeout)
        until = time.monotonic() + seconds
        of = await self._of(deadline)
        of.pop("epoch", None)
        cursors = [cursor.wire() for cursor in after]

        def params(_: Connection) -> Params:
            # What was waited before a connection broke counts.
            left = max(0, int((until - time.monotonic()) * 1000))
            return {"of": of, "after": cursors, "timeout_ms": left}

        return Replayed.read(await self._connections.wait("wait", params, deadline))

    async def follow(self, after: Cursor, seconds: float = _WAIT_MAX) -> AsyncIterator[Replayed]:
        """All that was said after a place in one stream, then all that is said, until the stream has ended.

        Gives a page without events each time nothing was said for so many seconds.
        """
        while True:
            said = await self.wait([after], seconds)
            yield said
            if said.ended:
                return
            after = said.next[0]


class Stream:
    """A stream of a session's."""

    def __init__(self, session: Streams, id: str) -> None:
        self.id = id
        """Its id."""
        self._session = session

    def __repr__(self) -> str:
        return f"Stream({self.id})"

    @property
    def start(self) -> StreamStart:
        """Its beginning."""
        return StreamStart(self.id)

    async def append(self, message: object, *, close: bool = False) -> Appended:
        """Appends a message. It is kept, once, when this returns. With `close` the stream is closed with it,
        in one step: its last will does not follow on the message. Raises `StreamClosed`, `UnknownStream`,
        `QuotaExceeded`.
        """
        return (await self.append_all([message], close=close))[0]

    async def append_all(
        self, messages: Sequence[object], request: str | None = None, *, close: bool = False
    ) -> list[Appended]:
        """Appends up to 256 messages with 3 MiB together, all or none. None is a priming event: an id
        without a message.

        `request` is an idempotency key of 1 to 64 visible ASCII characters: a repeated call with the same
        one, also in another process, appends nothing and returns the first answer. With `close` the stream
        is closed with the messages, by a repeated call, too.
        """
        texts = [None if message is None else as_json(message) for message in messages]
        params = {"stream": self.id, "request": request or request_id(), "messages": texts}
        appended = await self._session._change("append", {**params, "close": close or None})
        return [Appended.read(raw) for raw in appended]

    async def prime(self) -> Appended:
        """Appends a priming event: an id for a client to come back with, before there is a message."""
        return (await self.append_all([None]))[0]

    async def replay(self, after: str | None = None) -> Replayed:
        """One page of what it has said: from its beginning, or after an event of this id. Raises
        `UnknownCursor`.
        """
        return await self._session.replay(self.start if after is None else AfterEvent(after))

    async def close(self) -> StreamView:
        """Closes the stream: nothing is appended any more. What it has said can be replayed."""
        return StreamView.read(await self._session._change("close_stream", {"stream": self.id}))

    async def orphan(self) -> StreamView:
        """The stream's reader is gone: all but answers goes to the standalone stream from now on."""
        return StreamView.read(await self._session._change("orphan_stream", {"stream": self.id}))

    async def unorphan(self) -> StreamView:
        """The stream's reader is back."""
        return StreamView.read(await self._session._change("unorphan_stream", {"stream": self.id}))

    async def prune_session(self, keep: int) -> int:
        """Deletes the oldest events of the stream's session, so that at most `keep` stay. How many were
        deleted.
        """
        return await self._session.prune(keep)
