"""The requests under way on one connection, by number. Nothing here does I/O.

`Connection` and `Io` are interfaces: of a connection, and of sockets, timers and processes. `asynchronous.py`
implements both under asyncio, `blocking/` with threads. There no coroutine ever suspends, so both share the
rest of the client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from . import wire
from .deadline import Deadline
from .errors import Disconnected, SessiondError


class Answer(Protocol):
    """A future: asyncio's, or that of `concurrent.futures`."""

    def done(self) -> bool:
        """Whether it has a result."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Gives it its result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Gives it an error."""


A = TypeVar("A", bound=Answer)
Request = tuple[int, bytes]


class Exchange(Generic[A]):
    """Which answer belongs to which request."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.waiting: dict[int, A] = {}
        self._frames = wire.Frames()
        self._number = 0

    def begin(self, method: str, params: dict[str, Any], answer: A) -> Request:
        """The number of a new request, and its bytes."""
        self._number += 1
        data = wire.frame(wire.request(self._number, method, params), self.hello.frame_max)
        self.waiting[self._number] = answer
        return self._number, data

    def forget(self, number: int) -> bytes:
        """Drops a request. Returns the bytes of its cancellation; none where it was answered."""
        if self.waiting.pop(number, None) is None:
            return b""
        return wire.frame(wire.cancellation(number), self.hello.frame_max)

    def received(self, data: bytes) -> None:
        """Hands out the answers in what was received. Raises `ProtocolError`."""
        for body in self._frames.feed(data):
            number, result, error = wire.answer(body)
            answer = self.waiting.pop(number, None) if isinstance(number, int) else None
            if answer is None or answer.done():
                continue
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

    def broke(self) -> None:
        """The connection has ended: nothing more is answered."""
        waiting, self.waiting = self.waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(Disconnected("the connection to the daemon broke"))


class Connection(ABC):
    """A connection to a daemon that has said welcome."""

    hello: wire.Hello

    @property
    @abstractmethod
    def is_ended(self) -> bool:
        """Whether it broke."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """How many requests are under way on it."""

    @abstractmethod
    async def request(self, method: str, params: dict[str, Any], deadline: Deadline) -> Any:
        """One request. Raises `Refused`, `Disconnected`, `NoAnswer`."""

    @abstractmethod
    async def ended(self) -> None:
        """Returns once it broke."""

    @abstractmethod
    def close(self) -> None:
        """Hangs up."""


class Io(ABC):
    """Sockets, timers and processes, as the client needs them."""

    @abstractmethod
    async def connect(self, path: Path, deadline: Deadline) -> Connection:
        """Connects to the socket, checks who listens, and says hello.

        Raises `OSError`, `ConnectError`, `NoAnswer`.
        """

    @abstractmethod
    async def run(self, arguments: list[str], environment: dict[str, str], deadline: Deadline) -> int | None:
        """Runs a command without input and output. Its exit code; None: it still runs. Raises `OSError`."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Waits."""

    @abstractmethod
    def mutex(self) -> AbstractAsyncContextManager[object]:
        """A lock."""

    @abstractmethod
    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """Runs this concurrently. The caller has to keep the result for as long as the work is to go on."""

    @abstractmethod
    def owner(self) -> object:
        """Whose connections these are: the event loop that runs, or the process. Can be referred to weakly."""


def is_absent(error: BaseException) -> bool:
    """Whether nobody listens at the socket."""
    return isinstance(error, (FileNotFoundError, ConnectionRefusedError))


def may_pass(error: BaseException) -> bool:
    """Whether the next attempt to connect may go better."""
    if isinstance(error, SessiondError):
        return error.code == "disconnected" or (
            error.code == "hello_refused" and getattr(error, "number", 0) in (3, 4)
        )
    return isinstance(error, (BlockingIOError, InterruptedError, ConnectionError))
