"""An `EventStore` for servers of the SDK `mcp` that want nothing but resumable streams: events in the daemon.

`mcp_sessiond.asgi.durable` does more, and needs no event store: sessions survive the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

from .asgi.http import SESSION, read_again
from .asgi.settings import App, Message, Receive, Scope, Send, header
from .errors import SessiondError, UnknownCursor
from .events import STANDALONE, AfterEvent
from .options import Options
from .session import Session
from .sessions import Sessions
from .streams import Stream
from .values import Json

logger = logging.getLogger("mcp_sessiond")


class _Reader:
    """A request, whose response may be a stream."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._over = asyncio.Event()
        self.is_open = False
        """Whether its response has begun, and not ended."""
        self.has_ended = asyncio.Event()
        """Whether the app has done with it."""

    async def receive(self) -> Message:
        """What the client sends; that it has hung up, once another one reads in its place."""
        received, over = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({received, over}, return_when=asyncio.FIRST_COMPLETED)
            return received.result() if received.done() else {"type": "http.disconnect"}
        finally:
            received.cancel()
            over.cancel()

    @property
    def is_over(self) -> bool:
        """Whether another one reads in its place."""
        return self._over.is_set()

    async def end(self) -> None:
        """The app takes the client for gone, and has done with it when this returns."""
        self._over.set()
        await self.has_ended.wait()


class _Streams:
    """The streams of one session of the SDK's. The SDK calls them by the ids of requests, which may come
    again.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.open: dict[str, Stream] = {}
        # The SDK's name of each stream of ours.
        self.names: dict[str, str] = {}
        # By their keys: who reads each, as far as it is known.
        self.readers: dict[str, _Reader] = {}

    async def take_over(self, key: str, reader: _Reader) -> None:
        """A client has come back: whoever still looks like a reader of the stream is a connection that broke without a
        word. The SDK gives it what is said, or refuses the client, until it is gone.
        """
        former = self.readers.get(key)
        self.readers[key] = reader
        if former and former is not reader:
            await former.end()

    def leave(self, reader: _Reader) -> None:
        """This request has come to its end."""
        self.readers = {key: one for key, one in self.readers.items() if one is not reader}
        reader.has_ended.set()


_CURRENT: ContextVar[_Streams | None] = ContextVar("mcp_sessiond_streams", default=None)
_READER: ContextVar[_Reader | None] = ContextVar("mcp_sessiond_reader", default=None)


class DurableEventStore(EventStore):
    """Keeps events in the daemon: `store = DurableEventStore("notes")`, `app =
    store.around(mcp.streamable_http_app())`.

    The SDK has one store for all sessions, and does not tell it whose an event is. So the app is wrapped:
    the request that begins a session tells the store, and the tasks of that session know it from then on.
    Nothing is kept of an event outside of a wrapped app, nor while the daemon is away; one line of the log
    says so. No call ever raises.

    A client that comes back takes over its stream, however long the SDK takes its former connection for alive: of
    a stream without a priming event, as before MCP 2025-11-25, the SDK does not tell who reads it.
    """

    def __init__(self, service: str, options: Options | None = None) -> None:
        self._sessions = Sessions(service, options)
        self._known: MutableMapping[str, _Streams] = {}
        self._has_warned = False

    def around(self, app: App) -> App:
        """The app, with the store knowing whose each request is."""

        async def known(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            id = header(scope, SESSION)
            streams = self._known.setdefault(id, _Streams()) if id else _Streams()
            reader = _Reader(receive)
            is_standalone = scope["method"] == "GET" and header(scope, b"last-event-id") is None
            # Whether the app has refused the request since another one reads the standalone stream.
            is_taken = False

            async def told(message: Message) -> None:
                nonlocal is_taken
                if message["type"] == "http.response.start":
                    # The response to `initialize` tells the session's id.
                    named = dict(message.get("headers", ())).get(SESSION)
                    if named and id is None:
                        self._known[named.decode("latin-1")] = streams
                    if is_standalone and message["status"] == 200:
                        streams.readers[STANDALONE] = reader
                    former = streams.readers.get(STANDALONE, reader)
                    is_taken = is_standalone and message["status"] == 409 and former is not reader
                if not is_taken:
                    reader.is_open = bool(message.get("more_body", message["type"] == "http.response.start"))
                    await send(message)

            # Routers write into the scope.
            same = {**scope}
            tokens = _CURRENT.set(streams), _READER.set(reader)
            try:
                await app(scope, reader.receive, told)
                if is_taken:
                    await streams.take_over(STANDALONE, reader)
                    await app(same, read_again(b"", reader.receive), told)
            finally:
                _CURRENT.reset(tokens[0])
                _READER.reset(tokens[1])
                streams.leave(reader)
                if reader.is_open and reader.is_over:
                    await send({"type": "http.response.body"})
                if scope["method"] == "DELETE" and id:
                    self._known.pop(id, None)

        return known

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Stores an event; None is a priming event. Its id, which can't be resumed from where the event was
        not stored.
        """
        try:
            streams = _CURRENT.get()
            if streams is not None:
                return await self._store(streams, stream_id, message)
            self._warn("the app was not wrapped by `DurableEventStore.around`")
        except SessiondError as error:
            self._warn(str(error))
        except Exception as error:
            self._warn(f"{type(error).__name__} in the client library")
        return f"not-stored-{secrets.token_hex(16)}"

    async def _store(self, streams: _Streams, stream_id: str, message: Any) -> str:
        if streams.session is None:
            streams.session = await self._sessions.create(status="ready")
        stream = streams.open.get(stream_id)
        # A priming event is the first of a new request.
        if message is None and (reader := _READER.get()):
            streams.readers[_key(stream_id)] = reader
        if stream is None or (message is None and _key(stream_id) != STANDALONE):
            stream = await self._begin(streams, streams.session, stream_id)
        text = None if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        is_last = text is not None and _key(stream_id) != STANDALONE and "method" not in json.loads(text)
        appended = await stream.append(None if text is None else Json(text), close=is_last)
        if is_last:
            del streams.open[stream_id]
        return appended.id

    async def _begin(self, streams: _Streams, session: Session, stream_id: str) -> Stream:
        if _key(stream_id) == STANDALONE:
            stream = session.standalone()
        else:
            stream = await session.open_stream(f"post-{secrets.token_hex(8)}")
        streams.open[stream_id] = stream
        streams.names[stream.id] = stream_id
        return stream

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replays the stream of an event after it. The SDK's name of the stream; None where the id is
        unknown.
        """
        try:
            streams = _CURRENT.get()
            if streams is None or streams.session is None:
                return None
            found = await streams.session.find_event(last_event_id)
            name, reader = streams.names.get(found.stream.id), _READER.get()
            if name and reader:
                await streams.take_over(_key(name), reader)
            after, more = AfterEvent(last_event_id), True
            while more:
                said = await streams.session.replay(after)
                for event in said.events:
                    await send_callback(EventMessage(_message(event.json.text), event.id))
                    after = AfterEvent(event.id)
                more = said.more
            return name
        except UnknownCursor:
            pass
        except SessiondError as error:
            self._warn(str(error))
        return None

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("Events are not stored: %s", why)


def _key(name: str) -> str:
    """The SDK's name of a stream, but for the standalone one, before which FastMCP puts a session's name."""
    return STANDALONE if name.endswith(f":{STANDALONE}") else name


def _message(text: str) -> Any:
    try:
        from mcp_types import jsonrpc_message_adapter

        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ImportError:
        from mcp.types import JSONRPCMessage

        validate: Any = getattr(JSONRPCMessage, "model_validate_json")  # noqa: B009
        return validate(text)
