"""Who reads a stream: at most one reader of each in this process, and the newest wins."""

from __future__ import annotations

import asyncio
from collections import deque

_QUEUE_MAX = 256


class Reader:
    """The reader of a stream. What is stored is given to it at once, as long as it keeps up."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[str | None, str]] = deque()
        """Ids and messages that it has not sent yet. What is not stored has no id."""
        self.is_behind = False
        """Whether it has to read from the daemon what it was not given."""
        self.is_over = False
        """Whether there will be nothing more, or another reader has come."""
        self.is_finished = False
        """Whether that is because the stream is closed."""
        self.answer: str | None = None
        """The answer to the stream's request, as soon as it is stored."""
        self._woken = asyncio.Event()

    def give(self, id: str | None, message: str, *, is_answer: bool = False) -> None:
        """A message that was stored, or without an id one that can't be."""
        self.answer = message if is_answer else self.answer
        if len(self.waiting) >= _QUEUE_MAX:
            self.waiting.clear()
            self.is_behind = True
        if not self.is_behind:
            self.waiting.append((id, message))
        self._woken.set()

    def end(self) -> None:
        """There will be nothing more."""
        self.is_over, self.is_finished = True, False
        self._woken.set()

    def finish(self) -> None:
        """The stream is closed: who reads it in the daemon comes to its end there."""
        self.is_over = self.is_finished = True
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Returns once there is something to do. False: there was nothing in time."""
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        self._woken.clear()
        return True

    async def ended(self) -> None:
        """Returns once another reader has come, or the session has ended."""
        while not self.is_over or self.is_finished:
            await self._woken.wait()
            self._woken.clear()


class Readers:
    """The readers of a session's streams."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}

    def add(self, stream: str) -> Reader:
        """A reader has come: the former one goes."""
        if former := self._readers.get(stream):
            former.end()
        reader = self._readers[stream] = Reader()
        return reader

    def __contains__(self, stream: str) -> bool:
        return stream in self._readers

    def remove(self, stream: str, reader: Reader) -> None:
        """A reader has gone."""
        reader.end()
        if self._readers.get(stream) is reader:
            del self._readers[stream]

    def of(self, stream: str) -> Reader | None:
        """Who reads this stream."""
        return self._readers.get(stream)

    @property
    def any(self) -> bool:
        """Whether anybody reads."""
        return bool(self._readers)

    def end_all(self) -> None:
        """All readers go."""
        for reader in list(self._readers.values()):
            reader.end()
