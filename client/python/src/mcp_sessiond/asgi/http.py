"""Bodies, refusals and streams of events, as ASGI has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import (
    BindingMismatch,
    QuotaExceeded,
    SessiondError,
    SessionTerminated,
    UnknownCursor,
    UnknownSession,
)
from ..values import Json
from .settings import Message, Receive, Send

CONNECTION = -32000
NO_SESSION = -32001
INVALID = -32600
NO_METHOD = -32601
UNREADABLE = -32700
UNSUPPORTED = -32022

SESSION = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
RECONNECT = b"x-mcp-reconnect-session"
"""Names the session that an `initialize` would go on with, if it is there."""
COMMENT = b": still here\n\n"


class Refusal(Exception):
    """A request is refused: with this status of HTTP, and a JSON-RPC error as body."""

    def __init__(
        self, status: int, code: int, message: str, retry_after: int | None = None, data: object = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.data = data

    @classmethod
    def of(cls, error: SessiondError) -> Refusal:
        """The refusal for an error of the daemon's. Of paths and sockets a client learns nothing."""
        # Another caller does not learn that there is such a session.
        if isinstance(error, UnknownSession | SessionTerminated | BindingMismatch):
            return cls.unknown_session()
        if isinstance(error, UnknownCursor):
            return cls(400, INVALID, "this event id names no place in this session")
        after = getattr(error, "retry_after", None)
        if error.passes or isinstance(error, QuotaExceeded):
            why = (
                str(error)
                if isinstance(error, QuotaExceeded)
                else "the daemon mcp-sessiond can't do this now"
            )
            return cls(503, CONNECTION, why, max(1, int(after or 1)))
        return cls(error.http_status, INVALID if error.http_status == 400 else CONNECTION, str(error))

    @classmethod
    def unknown_session(cls) -> Refusal:
        """There is no such session (MCP 2025-11-25, Session Management)."""
        return cls(
            404,
            NO_SESSION,
            "there is no such session, or it has ended: send `initialize` without a session id",
        )

    async def answer(self, send: Send, id: object = None) -> None:
        """Sends it, as the answer to the request of this id."""
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.data is not None:
            error["data"] = self.data
        headers = [] if self.retry_after is None else [(b"retry-after", str(self.retry_after).encode())]
        if self.status == 405:
            headers.append((b"allow", b"GET, POST, DELETE"))
        await respond_json(send, self.status, {"jsonrpc": "2.0", "error": error, "id": id}, headers)


Headers = list[tuple[bytes, bytes]]


async def respond(send: Send, status: int, body: bytes = b"", headers: Headers | None = None) -> None:
    """A whole response."""
    await send({"type": "http.response.start", "status": status, "headers": headers or []})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, value: object, headers: Headers) -> None:
    """A response whose body is JSON."""
    text = value.text if isinstance(value, Json) else json.dumps(value, separators=(",", ":"))
    body = text.encode()
    length = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await respond(send, status, body, length + headers)


async def begin_events(send: Send, session: str) -> None:
    """The head of a response that is a stream of events."""
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache, no-transform"),
        (b"x-accel-buffering", b"no"),
        (SESSION, session.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_part(send: Send, part: bytes, *, is_last: bool = False) -> None:
    """A part of a body."""
    await send({"type": "http.response.body", "body": part, "more_body": not is_last})


def event(id: str | None, text: str) -> bytes:
    """A message as an event of a stream. JSON has no line ends but between its tokens."""
    name = "" if id is None else f"id: {id}\n"
    return f"event: message\n{name}data: {text.replace(chr(10), ' ').replace(chr(13), ' ')}\n\n".encode()


def priming(id: str, retry_ms: int) -> bytes:
    """An event without data: an id to come back with, and how long the client is to wait before it does."""
    return f"id: {id}\nretry: {retry_ms}\ndata: \n\n".encode()


async def read_body(receive: Receive, most: int) -> bytes:
    """The body of a request. Raises `Refusal` where it has too many bytes or the client hangs up."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, INVALID, "the client has hung up")
        body += message.get("body", b"")
        if len(body) > most:
            raise Refusal(413, INVALID, f"the body has more than {most} bytes")
        if not message.get("more_body"):
            return bytes(body)


def read_again(body: bytes, receive: Receive) -> Receive:
    """`receive` of a request whose body was read."""
    has_read = False

    async def again() -> Message:
        nonlocal has_read
        if has_read:
            return await receive()
        has_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def disconnected(receive: Receive) -> None:
    """Returns once the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass
class Events:
    """Reads a stream of events (HTML, section 9.2.6): the data of each that has any."""

    _line: bytearray = field(default_factory=bytearray)
    _data: list[bytes] = field(default_factory=list)

    def feed(self, part: bytes) -> Iterator[str]:
        """The data of the events that end in this part."""
        *lines, rest = (bytes(self._line) + part).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                if data:
                    yield data.decode()
