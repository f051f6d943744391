"""One session, as this process serves it: in the daemon, and in the app inside."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any

from .. import inner_ids
from ..context import KEY
from ..errors import SessiondError, StreamClosed
from ..events import STANDALONE
from ..session import Session
from ..streams import Stream
from ..values import as_json
from .coding import Unreadable
from .handshake import Handshake, outcome_unknown, unreadable
from .http import SESSION, Refusal
from .inner_app import Call, InnerApp
from .lists import Lists
from .pump import Pump
from .readers import Readers
from .request_ids import RequestIds
from .room import with_room
from .settings import PRIMES, Scope, Settings

logger = logging.getLogger("mcp_sessiond")

_OPENED_BY_MAX = 256
"""Bytes that the id of a stream's request may have in the daemon, as JSON."""

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class AppRefuses(Exception):
    """The app inside refuses the recorded handshake on behalf of a request's caller: its response."""

    def __init__(self, call: Call) -> None:
        super().__init__("the server refuses the recorded handshake")
        self.call = call


class ServedSession:
    """A session that the app inside knows under an id of its own."""

    def __init__(
        self, settings: Settings, inner: InnerApp, session: Session, handshake: Handshake, begun: Call
    ) -> None:
        """`begun`: the app's answer to `initialize`."""
        inner_id = begun.header(SESSION)
        assert inner_id
        self.session = session
        self.handshake = handshake
        self.inner_id = inner_id
        self.answers_json = begun.is_json
        """Whether the app answers in JSON, as soon as it has done with a request."""
        inner_ids.add(inner_id, session.id)
        self.ids = RequestIds()
        self.readers = Readers()
        self.lists = Lists(handshake.result)
        self.is_initialized = False
        """Whether the app inside got `notifications/initialized`."""
        self.is_over = False
        """Whether the app inside does not know the session any more."""
        self.working = 0
        """How many requests of the client's are being looked at."""
        self._settings = settings
        self._inner = inner
        self._standalone: Call | None = None
        self._scope: Scope | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._used = asyncio.get_running_loop().time()

    @property
    def primes(self) -> bool:
        """Whether streams begin with an event without data."""
        return self.handshake.version >= PRIMES

    def use(self, scope: Scope | None = None) -> None:
        """The client has sent a request, or got an answer."""
        self._scope = scope or self._scope
        self._used = asyncio.get_running_loop().time()

    def idle_for(self) -> float:
        """Seconds since the client's last request; 0 while a call or a stream is open."""
        is_busy = self.working or self.ids.is_busy or self.readers.any
        return 0.0 if is_busy else asyncio.get_running_loop().time() - self._used

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Does this beside everything else."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def listen(self, scope: Scope) -> None:
        """Opens the standalone stream of the app inside, so that it drops nothing that belongs to no
        request.
        """
        self._scope = scope
        call = self._standalone = self._inner.sent(scope, "GET", self.inner_id, self.handshake.version)
        if await call.status == 200:
            self.spawn(self._hear(call))

    async def asked(self, scope: Scope) -> Call:
        """What the app says to this request, which the adapter answers itself: asked with its own method, path
        and headers, since the app may look at tokens, hosts, origins and paths.

        A method that the app does not have (405) it has not looked at further: it is asked by a `ping`.
        """
        if scope["method"] in ("GET", "DELETE"):
            call = self._inner.asked(scope, self.inner_id)
            status = await call.status
            if scope["method"] == "GET" and status == 200:
                self._hear_instead(call)
            if status != 405:
                return call
            await call.whole()
        return self.pinged(scope)

    def pinged(self, scope: Scope) -> Call:
        """What the app says to a `ping` of this request's caller."""
        return self._inner.ping(scope, self.inner_id, self.handshake.version)

    async def is_forgotten(self) -> bool:
        """Whether the app inside has forgotten the session. That one request is answered by 404 does not say so: its
        path, or what it asks for, may be unknown.
        """
        if self.is_over or self._scope is None:
            return True
        call = self.pinged(self._scope)
        status = await call.status
        await call.whole()
        return status == 404

    def _hear_instead(self, call: Call) -> None:
        """The app has opened another standalone stream: from now on it says there what belongs to no request."""
        former, self._standalone = self._standalone, call
        self.spawn(self._hear(call))
        if former:
            former.hang_up()

    async def _hear(self, call: Call) -> None:
        pump = Pump(self.session.standalone(), self.ids, self.readers)
        try:
            await pump.run(call.messages())
        except SessiondError as error:
            logger.warning("Session %s is not served any more: %s", self.session.id, error)
        except Unreadable as error:
            logger.warning("What belongs to no call of session %s is lost: %s", self.session.id, error)
            return
        if self._standalone is not call:
            return
        # The session has ended, or the process is about to: clients come back, here or to the next one.
        self.is_over = True
        self.readers.end_all()

    async def open(self, request: Any) -> tuple[Stream, str | None]:
        """A stream for the answer to this request, and the id of its priming event. Raises `SessiondError`."""
        name = f"post-{secrets.token_hex(8)}"
        # The daemon keeps short ids beside a stream. Nothing here reads them: the will has the whole id.
        fits = len(json.dumps(request).encode()) <= _OPENED_BY_MAX
        opened_by = request if fits else None
        will, prune = outcome_unknown(request), self.session.prune
        stream = await with_room(prune, lambda: self.session.open_stream(name, opened_by=opened_by, will=will))
        if not self.primes:
            return stream, None
        try:
            return stream, (await with_room(prune, stream.prime)).id
        except SessiondError:
            await self.close(stream)
            raise

    async def compare_lists(self, scope: Scope) -> None:
        """Asks the app inside for the lists that the client knows, on behalf of the client whose request this is."""

        async def page(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
            id = f"lists-{secrets.token_hex(8)}"
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            inside = {**scope, KEY: self.session}
            call = self._inner.sent(inside, "POST", self.inner_id, self.handshake.version, message)
            if await call.status >= 300:
                await call.whole()
                return None
            results = [found for text in [text async for text in call.messages()] if (found := _result(text))]
            return results[0] if results and isinstance(results[0], dict) else None

        try:
            await self.lists.compare(self.session, page)
        except (SessiondError, Unreadable) as error:
            logger.debug("The lists of session %s are not compared: %s", self.session.id, error)
        # The request that restored the session has not waited so long. A client that reads may send no other for hours.
        if STANDALONE in self.readers:
            await self.announce(self.session.standalone())

    async def announce(self, stream: Stream) -> None:
        """Tells the client on this stream of lists that have changed since another process has served the session."""
        changes = self.lists.changes()
        if not changes:
            return
        try:
            await Pump(stream, self.ids, self.readers).store([as_json(one) for one in changes])
            await self.lists.store(self.session)
        except SessiondError as error:
            logger.debug("Changed lists of session %s are not told: %s", self.session.id, error)

    async def _answering(self, key: str, answer: dict[str, Any]) -> None:
        self.lists.answered(key, answer.get("result"))
        # Before the client knows the list.
        if not self.lists.is_stored:
            try:
                await self.lists.store(self.session)
            except SessiondError as error:
                logger.debug("The lists of session %s are not recorded: %s", self.session.id, error)

    async def forward(self, call: Call, stream: Stream, key: str, request: Any) -> None:
        """Stores what the app says to a request; the answer closes the stream."""

        async def messages() -> AsyncIterator[str]:
            try:
                async for text in call.messages():
                    yield text
            except Unreadable as error:
                yield as_json(unreadable(json.loads(key), str(error)))

        pump = Pump(stream, self.ids, self.readers, key, answering=self._answering)
        try:
            await pump.run(messages())
            if not pump.answered:
                await pump.store([as_json(outcome_unknown(request))], close=True)
        except StreamClosed:
            pass  # The daemon has carried out the stream's will.
        except SessiondError as error:
            logger.warning("A call of session %s is lost: %s", self.session.id, error)
        finally:
            self.use()
            self.spawn(self._forget(call, key))
        await self.close(stream, is_closed=pump.closed)

    async def _forget(self, call: Call, key: str) -> None:
        # Not before: when the app has answered, it still deletes what it knows by the request's id.
        await call.ended()
        self.ids.end(key)

    async def close(self, stream: Stream, *, is_closed: bool = False) -> None:
        """Closes a stream, unless it is; its reader goes."""
        try:
            if not is_closed:
                await stream.close()
        except SessiondError as error:
            logger.debug("A stream could not be closed: %s", error)
        if reader := self.readers.of(stream.id):
            reader.finish()

    async def end(self, *, is_known: bool = True) -> None:
        """The app inside forgets the session, on behalf of the caller that used it last. `is_known`: whether it has not
        yet.
        """
        self.is_over = True
        inner_ids.remove(self.inner_id)
        self.readers.end_all()
        if self._standalone:
            self._standalone.hang_up()
        if self._scope and is_known:
            await self._inner.sent(self._scope, "DELETE", self.inner_id, self.handshake.version).whole()


async def initialize(inner: InnerApp, scope: Scope, params: Any) -> Call:
    """Initialises the app inside with these parameters: its answer, which names its session.

    Raises `AppRefuses`, or `Refusal` where it does not answer.
    """
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    call = inner.sent(scope, "POST", None, None, message)
    if await call.status >= 300:
        raise AppRefuses(call)
    said = [text async for text in call.messages()]
    inner_id = call.header(SESSION)
    result = next((found for found in map(_result, said) if found is not None), None)
    if inner_id is None or result is None:
        raise Refusal(502, -32000, "the server does not answer the recorded handshake")
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    told = inner.sent(scope, "POST", inner_id, version, INITIALIZED)
    await told.whole()
    return call


def _result(text: str) -> Any:
    try:
        return json.loads(text).get("result")
    except (ValueError, AttributeError):
        return None
