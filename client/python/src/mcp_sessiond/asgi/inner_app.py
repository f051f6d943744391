"""Requests to the app inside: it sees HTTP and nothing else, and goes on when the client outside hangs up."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator

from ..context import CURRENT, KEY
from .coding import Unreadable, decoded
from .http import SESSION, VERSION, Events, Headers
from .settings import App, Message, Scope

_PARTS_MAX = 64

NOTED = "mcp_sessiond.headers"
"""Where a request's scope has the headers that the app's middleware gives the response to it: a list."""
_OF_THE_BODY = {
    b"allow",
    b"cache-control",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"date",
    b"location",
    SESSION,
    b"retry-after",
    b"server",
    b"transfer-encoding",
    b"www-authenticate",
    b"x-accel-buffering",
}
"""Headers that belong to one response, and not to the app's middleware."""


class Call:
    """A request to the app inside, and its response."""

    def __init__(self, app: App, scope: Scope, body: bytes) -> None:
        self.method: str = scope["method"]
        # The answer is read here, and coded for nobody.
        headers = [one for one in scope["headers"] if one[0] != b"accept-encoding"]
        self.scope = {**scope, "headers": [*headers, (b"accept-encoding", b"identity")]}
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The status of the response; 500 where the app has failed before it had one."""
        self.headers: Headers = []
        self._body = body
        self._was_read = False
        self._has_ended = False
        self._hung_up = asyncio.Event()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(_PARTS_MAX)
        self._task = asyncio.create_task(self._run(app))

    async def _run(self, app: App) -> None:
        CURRENT.set(self.scope.get(KEY))
        try:
            await app(self.scope, self._receive, self._send)
        finally:
            if not self.status.done():
                self.status.set_result(500)
            self._hung_up.set()
            while True:
                try:
                    self._parts.put_nowait(None)
                    break
                except asyncio.QueueFull:
                    await asyncio.sleep(0)

    async def _receive(self) -> Message:
        if not self._was_read:
            self._was_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            if not self.status.done():
                self.status.set_result(message["status"])
        elif message["type"] == "http.response.body" and message.get("body") and not self._hung_up.is_set():
            await self._parts.put(message["body"])

    def header(self, name: bytes) -> str | None:
        """A header of the response."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), None)

    @property
    def is_json(self) -> bool:
        """Whether the response is one message, and not a stream of events."""
        return (self.header(b"content-type") or "").startswith("application/json")

    async def stand(self) -> None:
        """The response to the client's request stands for this one, and has the headers of the app's middleware."""
        await self.status
        self.scope[NOTED][:] = [one for one in self.headers if one[0] not in _OF_THE_BODY]

    async def parts(self) -> AsyncIterator[bytes]:
        """The parts of the body, up to its end: the app has done with the request then."""
        while not self._has_ended and (part := await self._parts.get()) is not None:
            yield part
        self._has_ended = True

    async def whole(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.parts()])

    async def ended(self) -> None:
        """Waits until the app has done with the request. What it still says is dropped."""
        async for _ in self.parts():
            pass

    async def messages(self) -> AsyncIterator[str]:
        """The JSON-RPC messages of the body: of a stream of events, or the one that it is. Raises `Unreadable`."""
        await self.status
        parts = decoded(self.parts(), self.header(b"content-encoding") or "")
        try:
            if (self.header(b"content-type") or "").startswith("text/event-stream"):
                events = Events()
                async for part in parts:
                    for data in events.feed(part):
                        yield data
            elif body := b"".join([part async for part in parts]):
                yield body.decode()
        except UnicodeDecodeError:
            raise Unreadable("it is not UTF-8") from None

    def hang_up(self) -> None:
        """Ends the request, as a client does that goes."""
        self._hung_up.set()
        if not self._parts.empty():
            self._task.cancel()


class InnerApp:
    """The app inside."""

    def __init__(self, app: App) -> None:
        self.app = app

    def passed(self, scope: Scope, body: bytes, session: str) -> Call:
        """The client's request with another session id."""
        kept = [(name, value) for name, value in scope["headers"] if name not in (SESSION, b"content-length")]
        kept += [(SESSION, session.encode()), (b"content-length", str(len(body)).encode())]
        return Call(self.app, {**scope, "headers": kept}, body)

    def asked(self, scope: Scope, session: str) -> Call:
        """The client's request without a body, with another session id."""
        ours = {SESSION, b"content-length", b"last-event-id"}
        headers = [(name, value) for name, value in scope["headers"] if name not in ours]
        headers += [(SESSION, session.encode()), (b"content-length", b"0")]
        return Call(self.app, {**scope, "headers": headers}, b"")

    def ping(self, scope: Scope, session: str, version: str | None) -> Call:
        """A `ping` on behalf of the client whose request this is."""
        message = {"jsonrpc": "2.0", "id": f"ping-{secrets.token_hex(8)}", "method": "ping"}
        return self.sent(scope, "POST", session, version, message)

    def sent(
        self, scope: Scope, method: str, session: str | None, version: str | None, message: object = None
    ) -> Call:
        """A request of the adapter's own, on behalf of the client whose request this is."""
        body = b"" if message is None else json.dumps(message).encode()
        ours = {SESSION, VERSION, b"content-type", b"content-length", b"accept", b"last-event-id"}
        headers = [(name, value) for name, value in scope["headers"] if name not in ours]
        headers += [
            (b"accept", b"application/json, text/event-stream"),
            (b"content-length", str(len(body)).encode()),
        ]
        if body:
            headers.append((b"content-type", b"application/json"))
        if session:
            headers.append((SESSION, session.encode()))
        if version:
            headers.append((VERSION, version.encode()))
        return Call(self.app, {**scope, "method": method, "headers": headers}, body)
