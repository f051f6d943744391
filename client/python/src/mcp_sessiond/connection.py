"""One connection to the daemon, and the requests under way on it, by number."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from . import directory, wire
from .deadline import Deadline
from .errors import Disconnected, SessiondError


class Connection(asyncio.Protocol):
    """A connection. Requests of several tasks are under way at once."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        # Set once the daemon has said welcome.
        self._hello: asyncio.Future[wire.Hello] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._drained = asyncio.Event()
        self._drained.set()
        self._greeting = wire.Greeting()
        self._frames = wire.Frames()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, path: Path, deadline: Deadline) -> Connection:
        """Connects to the socket, checks who listens, and says hello.

        Raises `OSError`, `ConnectError`, `NoAnswer`.
        """
        stream = socket.socket(socket.AF_UNIX)
        loop = asyncio.get_running_loop()
        try:
            stream.setblocking(False)
            await _within(loop.sock_connect(stream, str(path)), deadline)
            directory.check_daemon(stream)
            transport, connection = await loop.create_unix_connection(cls, sock=stream)
        except BaseException:
            stream.close()
            raise
        try:
            await _within(asyncio.shield(connection._hello), deadline)
        except BaseException:
            transport.abort()
            raise
        return connection

    @property
    def is_ended(self) -> bool:
        """Whether it broke."""
        return self._ended.done() or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """How many requests are under way on it."""
        return len(self._waiting)

    async def request(self, method: str, params: dict[str, Any], deadline: Deadline) -> Any:
        """One request. Raises `Refused`, `Disconnected`, `NoAnswer`."""
        loop = asyncio.get_running_loop()
        if self.is_ended:
            raise _disconnected()
        frame_max = self._hello.result().frame_max
        self._number += 1
        number, answer = self._number, loop.create_future()
        data = wire.frame(wire.request(number, method, params), frame_max)
        self._waiting[number] = answer
        self._transport.write(data)
        # A timer of its own: `wait_for` would make a task of it.
        timer = loop.call_later(deadline.left, lambda: _fail(answer, deadline.error()))
        try:
            await self._drained.wait()
            return await answer
        finally:
            timer.cancel()
            answer.cancel()
            if self._waiting.pop(number, None) and not self.is_ended:
                self._transport.write(wire.frame(wire.cancellation(number), frame_max))

    async def ended(self) -> None:
        """Returns once it broke."""
        await asyncio.shield(self._ended)

    def close(self) -> None:
        """Hangs up."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(wire.hello())

    def data_received(self, data: bytes) -> None:
        try:
            if not self._hello.done():
                if challenge := self._greeting.feed(data):
                    self._transport.write(challenge)
                if self._greeting.hello is None:
                    return
                self._hello.set_result(self._greeting.hello)
                data = self._greeting.rest
            for body in self._frames.feed(data):
                self._answered(*wire.answer(body))
        except SessiondError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(_disconnected())

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def _answered(self, number: object, result: Any, error: SessiondError | None) -> None:
        answer = self._waiting.pop(number, None) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _end(self, error: SessiondError) -> None:
        if not self._hello.done():
            self._hello.set_exception(error)
            self._hello.exception()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            _fail(answer, _disconnected())
        self._drained.set()
        if not self._ended.done():
            self._ended.set_result(None)
        self._transport.abort()


def _disconnected() -> Disconnected:
    return Disconnected("the connection to the daemon broke")


def _fail(answer: asyncio.Future[Any], error: SessiondError) -> None:
    if not answer.done():
        answer.set_exception(error)


async def _within(work: Awaitable[Any], deadline: Deadline) -> None:
    try:
        await asyncio.wait_for(work, deadline.left)
    except asyncio.TimeoutError:
        raise deadline.error() from None
