"""Sockets, timers and processes with threads. No coroutine here ever suspends, so that `run` needs no event loop."""

from __future__ import annotations

import concurrent.futures
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from .. import directory, wire
from ..deadline import Deadline
from ..errors import Disconnected, SessiondError
from ..exchange import Connection, Exchange, Io

P = ParamSpec("P")
T = TypeVar("T")
Future = concurrent.futures.Future[Any]


def run(work: Coroutine[Any, Any, T]) -> T:
    """What comes of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a call of the blocking client has waited for an event loop")


class ThreadConnection(Connection):
    """A connection, and the thread that reads it. Requests of several threads are under way at once."""

    def __init__(self, stream: socket.socket, hello: wire.Hello) -> None:
        self.hello = hello
        self._stream = stream
        self._exchange: Exchange[Future] = Exchange(hello)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._read, name="mcp-sessiond", daemon=True).start()

    def _read(self) -> None:
        try:
            while data := self._stream.recv(1 << 16):
                with self._lock:
                    self._exchange.received(data)
        except (OSError, SessiondError):
            pass
        with self._lock:
            self._ended.set()
            self._exchange.broke()
        self._stream.close()

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def in_flight(self) -> int:
        return len(self._exchange.waiting)

    async def request(self, method: str, params: dict[str, Any], deadline: Deadline) -> Any:
        answer: Future = Future()
        with self._lock:
            if self.is_ended:
                raise Disconnected("the connection to the daemon broke")
            number, data = self._exchange.begin(method, params, answer)
        try:
            self._send(data)
            return answer.result(deadline.left)
        except concurrent.futures.TimeoutError:
            raise deadline.error() from None
        finally:
            with self._lock:
                cancelled = self._exchange.forget(number)
            if cancelled and not self.is_ended:
                self._send(cancelled)

    def _send(self, data: bytes) -> None:
        try:
            with self._writing:
                self._stream.sendall(data)
        except OSError:
            # The thread that reads finds out, too, and answers every request.
            self.close()

    async def ended(self) -> None:
        self._ended.wait()

    def close(self) -> None:
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class _Mutex:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._lock.release()


class ThreadIo(Io):
    """Those of a process that blocks."""

    async def connect(self, path: Path, deadline: Deadline) -> Connection:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.settimeout(deadline.left or 0.001)
            stream.connect(str(path))
            directory.check_daemon(stream)
            stream.sendall(wire.hello())
            greeting = wire.Greeting()
            while greeting.hello is None:
                stream.settimeout(deadline.left or 0.001)
                more = stream.recv(greeting.missing)
                if not more:
                    raise Disconnected("the daemon hung up before it said hello")
                stream.sendall(greeting.feed(more))
            stream.settimeout(None)
            return ThreadConnection(stream, greeting.hello)
        except TimeoutError:
            stream.close()
            raise deadline.error() from None
        except BaseException:
            stream.close()
            raise

    async def run(self, arguments: list[str], environment: dict[str, str], deadline: Deadline) -> int | None:
        null = subprocess.DEVNULL
        child = subprocess.Popen(arguments, env=environment, stdin=null, stdout=null, stderr=null)
        try:
            return child.wait(deadline.left)
        except subprocess.TimeoutExpired:
            return None

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def mutex(self) -> _Mutex:
        return _Mutex()

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        thread = threading.Thread(target=run, args=(work,), name="mcp-sessiond", daemon=True)
        thread.start()
        return thread

    def owner(self) -> object:
        return self


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The same method of a class that blocks: it has the asynchronous object as `_inner`."""

    def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> T:
        return run(method(self._inner, *arguments, **named))

    call.__doc__ = method.__doc__
    call.__name__ = method.__name__
    return call
