"""Sockets, timers and processes under asyncio."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from . import directory, wire
from .deadline import Deadline
from .errors import Disconnected, SessiondError
from .exchange import Connection, Exchange, Io


class _Hello(asyncio.Protocol):
    """Reads the hello, and then hands over to the exchange."""

    def __init__(self) -> None:
        self.exchange: Exchange[asyncio.Future[Any]] | None = None
        self.greeted: asyncio.Future[wire.Hello] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self.drained = asyncio.Event()
        self.drained.set()
        self._greeting = wire.Greeting()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(wire.hello())

    def data_received(self, data: bytes) -> None:
        try:
            if self.exchange is None:
                if (challenge := self._greeting.feed(data)) and self.transport:
                    self.transport.write(challenge)
                if (hello := self._greeting.hello) is None:
                    return
                self.exchange = Exchange(hello)
                data = self._greeting.rest
                if not self.greeted.done():
                    self.greeted.set_result(hello)
            self.exchange.received(data)
        except SessiondError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(Disconnected("the connection to the daemon broke"))

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()

    def _fail(self, error: SessiondError) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(error)
            self.greeted.exception()
        if self.exchange:
            self.exchange.broke()
        self.drained.set()
        if not self.ended.done():
            self.ended.set_result(None)
        if self.transport:
            self.transport.abort()


class AsyncioConnection(Connection):
    """A connection. Requests of several tasks are under way at once."""

    def __init__(
        self, protocol: _Hello, exchange: Exchange[asyncio.Future[Any]], transport: asyncio.Transport
    ) -> None:
        self.hello = exchange.hello
        self._protocol = protocol
        self._exchange = exchange
        self._transport = transport

    @property
    def is_ended(self) -> bool:
        return self._protocol.ended.done() or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        return len(self._exchange.waiting)

    async def request(self, method: str, params: dict[str, Any], deadline: Deadline) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number, data = self._exchange.begin(method, params, answer)
        if self.is_ended:
            self._exchange.broke()
        else:
            self._transport.write(data)
        # A timer of its own: `wait_for` would make a task of it.
        timer = asyncio.get_running_loop().call_later(deadline.left, _late, answer, deadline)
        try:
            await self._protocol.drained.wait()
            return await answer
        finally:
            timer.cancel()
            answer.cancel()
            cancelled = self._exchange.forget(number)
            if cancelled and not self.is_ended:
                self._transport.write(cancelled)

    async def ended(self) -> None:
        await asyncio.shield(self._protocol.ended)

    def close(self) -> None:
        self._transport.close()


def _late(answer: asyncio.Future[Any], deadline: Deadline) -> None:
    if not answer.done():
        answer.set_exception(deadline.error())


def _tell(done: asyncio.Future[int], status: int) -> None:
    if not done.done():
        done.set_result(status)


class AsyncioIo(Io):
    """Those of the event loop that runs."""

    async def connect(self, path: Path, deadline: Deadline) -> Connection:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.setblocking(False)
            await self._bound(asyncio.get_running_loop().sock_connect(stream, str(path)), deadline)
            directory.check_daemon(stream)
            transport, protocol = await asyncio.get_running_loop().create_unix_connection(_Hello, sock=stream)
        except BaseException:
            stream.close()
            raise
        try:
            await self._bound(asyncio.shield(protocol.greeted), deadline)
        except BaseException:
            transport.abort()
            raise
        assert protocol.exchange
        return AsyncioConnection(protocol, protocol.exchange, transport)

    async def _bound(self, work: Coroutine[Any, Any, Any] | asyncio.Future[Any], deadline: Deadline) -> None:
        try:
            await asyncio.wait_for(work, deadline.left)
        except asyncio.TimeoutError:
            raise deadline.error() from None

    async def run(self, arguments: list[str], environment: dict[str, str], deadline: Deadline) -> int | None:
        # Not by asyncio's own means: those need a watcher of children, which is the server's.
        null = subprocess.DEVNULL
        child = subprocess.Popen(arguments, env=environment, stdin=null, stdout=null, stderr=null)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()

        def wait() -> None:
            status = child.wait()
            try:
                loop.call_soon_threadsafe(_tell, done, status)
            except RuntimeError:
                pass  # The loop is closed: nobody waits.

        threading.Thread(target=wait, daemon=True).start()
        try:
            return await asyncio.wait_for(done, deadline.left)
        except asyncio.TimeoutError:
            return None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def mutex(self) -> asyncio.Lock:
        return asyncio.Lock()

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        return asyncio.get_running_loop().create_task(work)

    def owner(self) -> object:
        return asyncio.get_running_loop()
