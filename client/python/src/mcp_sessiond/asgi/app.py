"""The middleware: which request goes where."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from dataclasses import dataclass
from typing import Any

from .. import log
from ..context import KEY, serve_http
from ..errors import (
    BindingMismatch,
    InvalidArgument,
    SessiondError,
    SessionTerminated,
    UnknownSession,
)
from ..values import Caller, Identity
from . import cookie, get, post
from .fastmcp_state import FastMcpState
from .http import (
    INVALID,
    NO_METHOD,
    RECONNECT,
    SESSION,
    UNSUPPORTED,
    VERSION,
    Headers,
    Refusal,
    read_again,
    read_body,
    respond,
    respond_json,
)
from .inner_app import NOTED, Call, InnerApp
from .lists import declaring
from .served_session import AppRefuses, ServedSession
from .sessions import ServedSessions, is_id, is_message, parse
from .settings import (
    CALLER,
    PRIMES,
    App,
    Message,
    Receive,
    Scope,
    Send,
    Settings,
    bearer,
    header,
    verified,
)

logger = logging.getLogger("mcp_sessiond")

_USERS_MAX = 4_096

VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]


class Durable:
    """An ASGI app around the one of an MCP SDK, whose sessions survive its process."""

    def __init__(self, app: App, settings: Settings) -> None:
        serve_http()
        self._app = app
        self._settings = settings
        self._inner = InnerApp(app)
        self._state = FastMcpState(app, settings)
        self._has_told = False
        # Whether the app begins no sessions; None: it has not said so yet.
        self._is_stateless: bool | None = None
        # By the hashes of their tokens: the users whom the app's verifier has named.
        self._users: dict[Caller, Identity | None] = {}
        self._sessions: ServedSessions | None = None

    @property
    def sessions(self) -> ServedSessions:
        """The sessions of this process."""
        if self._sessions is None:
            self._sessions = ServedSessions(self._settings, self._inner)
        return self._sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # So that the log says at the start where the daemon can't be used, and not at the first request.
            trying = asyncio.create_task(self._try())
            try:
                await self._app(scope, receive, send)
            finally:
                trying.cancel()
            return
        if scope["type"] != "http" or self._is_stateless:
            await self._app(scope, receive, send)
            return
        if not self._is_meant(scope):
            await self._app(scope, receive, self._watched(scope, send))
            return
        asked, noted = _Asked(), Headers()
        serving: Scope = {**scope, NOTED: noted}
        sending = _with_noted(send, noted)
        try:
            try:
                serving = await self._with_user(serving)
                await self._serve(serving, receive, sending, asked)
            except SessiondError as error:
                log.hidden(error)
                await self._refuse(Refusal.of(error), serving, sending, asked)
            except Refusal as refusal:
                await self._refuse(refusal, serving, sending, asked)
        except AppRefuses as refuses:
            await post.pass_on(refuses.call, header(scope, SESSION), sending)
        except _Stateless:
            await self._app(scope, receive if asked.body is None else read_again(asked.body, receive), send)

    async def _try(self) -> None:
        try:
            await self.sessions.daemon.reach()
        except SessiondError as error:
            log.hidden(error)

    def _is_meant(self, scope: Scope) -> bool:
        """Whether a request is for the path where MCP is served. ASGI's path includes that of a mount or of the
        server's root (ASGI, HTTP, `root_path`), which an author may name or not.
        """
        path, root = scope.get("path", ""), scope.get("root_path", "").rstrip("/")
        within = path[len(root) :] if root and path.startswith(f"{root}/") else path
        wanted = self._settings.path.rstrip("/")
        return wanted in (path.rstrip("/"), within.rstrip("/"))

    def _watched(self, scope: Scope, send: Send) -> Send:
        """Notes where the app begins a session that is not kept, and says so once."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and not self._has_told:
                if any(name.lower() == SESSION for name, _ in message.get("headers", ())):
                    self._has_told = True
                    logger.warning(
                        "A session was begun at %s, which is not kept: `durable` keeps those at %s. Name the other one by its "
                        "option `path`.",
                        scope.get("path"),
                        self._settings.path,
                    )
            await send(message)

        return sent

    async def _with_user(self, scope: Scope) -> Scope:
        """The same request, with the user whom the app's own verifier names: a token that is refreshed keeps its session.

        The app is asked in a session that it does not know, once for each token. Whether the token is valid it says at each
        request again. Raises `AppRefuses`.
        """
        shown = bearer(scope)
        if shown is None or self._settings.caller is not bearer or scope["method"] == "OPTIONS":
            return scope
        if shown not in self._users:
            user = verified(scope)
            if user is None:
                call = await self._let_in(scope)
                if self._is_stateless:
                    raise _Stateless
                user = verified(call.scope)
            if len(self._users) >= _USERS_MAX:
                del self._users[next(iter(self._users))]
            self._users[shown] = user
        found = self._users[shown]
        return scope if found is None else {**scope, CALLER: found}

    async def _refuse(self, refusal: Refusal, scope: Scope, send: Send, asked: _Asked) -> None:
        """Answers by a refusal of the adapter's, unless the app does not let the caller in at all, or has no sessions."""
        call = await self._let_in(scope)
        if self._is_stateless and asked.is_whole:
            raise _Stateless
        await call.stand()
        await refusal.answer(send, asked.id)

    async def _let_in(self, scope: Scope) -> Call:
        """What the app says to a `ping` in a session that it does not know, so that nothing comes of it. Raises `AppRefuses`
        where it does not let the caller in.
        """
        call = self._inner.ping(scope, "unknown", None)
        status = await call.status
        if status in (401, 403, 421) or 300 <= status < 400:
            raise AppRefuses(call)
        await call.whole()
        if status == 200 and self._is_stateless is None:
            is_stateless = await self._begins_none(scope)
            is_news, self._is_stateless = self._is_stateless is None, is_stateless
            if is_news and is_stateless:
                self._state.give_up()
                logger.warning(
                    "The app at %s begins no sessions (`stateless_http`), so nothing is kept: `durable` passes requests on as "
                    "they are. Let the app have sessions, or leave out `durable`.",
                    self._settings.path,
                )
        return call

    async def _begins_none(self, scope: Scope) -> bool | None:
        """Whether the app answers `initialize` without a session; None: it does not answer. A session is ended at once."""
        info = {"name": "mcp-sessiond", "version": "1"}
        params = {"protocolVersion": VERSIONS[0], "capabilities": {}, "clientInfo": info}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        call = self._inner.sent(scope, "POST", None, None, message)
        status, session = await call.status, call.header(SESSION)
        await call.whole()
        if session:
            await self._inner.sent(scope, "DELETE", session, VERSIONS[0]).whole()
            return False
        return True if status == 200 else None

    async def _serve(self, scope: Scope, receive: Receive, send: Send, asked: _Asked) -> None:
        method, session, version = scope["method"], header(scope, SESSION), header(scope, VERSION)
        is_modern = version is not None and version > PRIMES
        if method == "OPTIONS" or (is_modern and self._settings.modern == "pass"):
            await self._app(scope, receive, send)
            return
        missing = Refusal(400, INVALID, "the header `Mcp-Session-Id` is missing: send `initialize` first")
        body, message = b"", None
        if method == "POST":
            asked.is_whole = False
            asked.body = body = await read_body(receive, self._settings.body_max)
            asked.is_whole = True
            message, refusal = parse(body)
            is_request = isinstance(message, dict) and "method" in message and is_id(message.get("id"))
            asked.id = message["id"] if is_request else None
            if refusal is not None:
                raise refusal
        wished = header(scope, RECONNECT) if session is None and _is_initialize(message) else None
        if session is None and wished is None and self._settings.cookie:
            session, refusal = await cookie.find(self.sessions, self._settings.caller_of(scope), scope)
            missing = refusal or missing
            if session is not None:
                scope, send = cookie.with_header(scope, session), cookie.without_header(send)
        if method == "POST":
            await self._post(message, body, session or wished or missing, scope, receive, send)
        elif method not in ("GET", "DELETE"):
            raise Refusal(405, INVALID, f"the method {method} is not allowed")
        elif session is None:
            raise missing
        elif method == "DELETE":
            served, call = await self._admitted(session, scope)
            await self.sessions.end(served, is_known=call.method != "DELETE")
            await respond(send, 204)
        else:
            await self._get(session, scope, receive, send)

    async def _admitted(self, id: str, scope: Scope) -> tuple[ServedSession, Call]:
        """The session, and what the app has said to this request: it lets its caller in. Nothing that is recorded is
        given out before that. Raises `SessiondError`, `Refusal`, and `AppRefuses` where the app does not let it in.
        """
        has_restored = False
        while True:
            served = await self.sessions.served(id, scope)
            call = await served.asked(scope)
            status = await call.status
            # 409: the app has a reader of its own, which is the adapter.
            if status < 300 or (status == 409 and call.method == "GET"):
                version = header(scope, VERSION)
                if version not in (None, "2024-11-05", served.handshake.version, *VERSIONS):
                    known = ", ".join(VERSIONS)
                    raise Refusal(400, INVALID, f"`MCP-Protocol-Version` is not a supported version; supported are {known}")
                served.use(scope)
                await call.stand()
                if call.method != "GET":
                    await call.whole()
                return served, call
            if status != 404 or has_restored or not await served.is_forgotten():
                raise AppRefuses(call)
            await served.end()
            has_restored = True

    async def _get(self, id: str, scope: Scope, receive: Receive, send: Send) -> None:
        # The app is heard as soon as its client is back; and it says whether the client may read.
        served, call = await self._admitted(id, scope)
        # An app that has answered the GET itself has looked at this, each version in its own way.
        if call.method != "GET" and "text/event-stream" not in (header(scope, b"accept") or ""):
            raise Refusal(406, INVALID, "`Accept` must have text/event-stream")
        await get.serve(self._settings, served, scope, receive, send)

    async def _post(
        self, message: Any, body: bytes, id: str | Refusal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`id` names the session, or is the refusal for a message that needs one."""
        method = message.get("method") if isinstance(message, dict) else None
        version = header(scope, VERSION)
        if _is_initialize(message):
            named = id if isinstance(id, str) else None
            await self._initialize(message, body, named, scope, send)
        elif method == "server/discover" and self._settings.modern == "pass":
            await self._app(scope, read_again(body, receive), send)
        elif method == "server/discover":
            # Of all answers it is the one after which every official client sends `initialize`.
            raise Refusal(404, NO_METHOD, "the server keeps sessions: begin with `initialize`")
        elif version is not None and version > PRIMES:
            data = {"supported": VERSIONS, "requested": version}
            raise Refusal(400, UNSUPPORTED, "the server keeps sessions: begin with `initialize`", data=data)
        elif isinstance(id, Refusal):
            raise id
        elif not isinstance(message, dict):
            raise Refusal(400, INVALID, "batches are not supported")
        else:
            await self._pass(message, body, id, scope, receive, send)

    async def _pass(
        self, message: dict[str, Any], body: bytes, id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """A message of a session's: once more where the app inside has forgotten the session, in a new one."""
        own = message.get("id")
        for attempt in range(2):
            served = await self.sessions.served(id, scope)
            served.use(scope)
            served.working += 1
            try:
                if "id" in message:
                    message["id"] = own
                if await self._passed(served, message, body, scope, receive, send):
                    return
            finally:
                served.working -= 1
            if attempt == 0:
                await served.end()
        raise Refusal(502, -32000, "the server does not know its own session")

    async def _passed(
        self, served: ServedSession, message: Any, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Whether the app inside knows the session. Else nothing was done."""
        inside = {**scope, KEY: served.session}
        if "method" in message and is_id(message.get("id")):
            request = post.Request(self._settings, self._inner, served, message, body)
            return await request.serve(inside, receive, send)
        if "method" in message and "id" in message:
            raise Refusal(400, INVALID, "the id of a request is a string or a number")
        own = copy.deepcopy(message)
        if not is_message(message):
            # The app refuses it in its own way.
            return await post.answer(self._inner, served, inside, body, send) != 404
        if not served.ids.to_app(message):
            return await self._taken(served, body, inside, send)
        if message.get("method") == "notifications/initialized":
            return await self._passed_initialized(served, body, inside, send)
        body = body if message == own else json.dumps(message).encode()
        return await post.answer(self._inner, served, inside, body, send) != 404

    async def _taken(self, served: ServedSession, body: bytes, inside: Scope, send: Send) -> bool:
        """Whether the app inside knows the session. It does not need this message, and is asked for no more than whether it lets
        the client in.
        """
        call = served.pinged(inside)
        if await call.status < 300:
            await call.stand()
            await call.whole()
            await respond(send, 202)
            return True
        # The app refuses it in its own way.
        return await post.answer(self._inner, served, inside, body, send) != 404

    async def _passed_initialized(
        self, served: ServedSession, body: bytes, inside: Scope, send: Send
    ) -> bool:
        """Whether the app inside knows the session. A client that was restarted goes through the handshake again, of which the app
        needs no second half.
        """
        if served.is_initialized:
            return await self._taken(served, body, inside, send)
        served.is_initialized = True
        status = await post.answer(self._inner, served, inside, body, send)
        served.is_initialized = 200 <= status < 300
        return status != 404

    async def _reconnected(self, id: str, params: Any, scope: Scope) -> ServedSession | None:
        """The session that an `initialize` goes on with: a client that was restarted and still has its session gets
        the recorded answer. None: it begins a new one, since that session is gone, or it is another client's or
        speaks another version. By `RECONNECT` a client asks for the session, whoever has begun it.

        MCP has 404 for an unknown session (2025-11-25, Session Management). `initialize` alone departs from that:
        clients send the id of a session that is gone, and would get 404 until they are started again.
        """
        try:
            served, _ = await self._admitted(id, scope)
        except (UnknownSession, SessionTerminated, InvalidArgument, BindingMismatch):
            return None
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise
        is_asked_for = header(scope, SESSION) is None
        return served if is_asked_for or served.handshake.is_of(params) else None

    async def _initialize(self, message: Any, body: bytes, id: str | None, scope: Scope, send: Send) -> None:
        if id is not None:
            served = await self._reconnected(id, message.get("params", {}), scope)
            if served is not None:
                said = {"jsonrpc": "2.0", "id": message["id"], "result": served.handshake.result}
                await respond_json(send, 200, said, [(SESSION, served.session.id.encode())])
                return
            # The app knows nothing of the session that is gone.
            scope = without_session(scope)
        call = Call(self._app, scope, body)
        if await call.status != 200 or call.header(SESSION) is None:
            await post.pass_on(call, None, send)
            return
        await call.stand()
        answers = [said async for text in call.messages() if "method" not in (said := json.loads(text))]
        result = next((said["result"] for said in answers if "result" in said), None)
        if result is None:
            refused = next((said["error"] for said in answers if "error" in said), None)
            if refused is None:
                raise Refusal(502, -32000, "the server did not answer `initialize`")
            # The app has refused it: nothing is kept.
            await respond_json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "error": refused}, [])
            return
        result = declaring(result)
        served = await self.sessions.begin(scope, message.get("params", {}), call, result)
        said = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        named = [(SESSION, served.session.id.encode())]
        if self._settings.cookie:
            named.append(self._settings.cookie.naming(served.session.id))
        await respond_json(send, 200, said, named)


class _Stateless(Exception):
    """The app has no sessions: it gets the request as it is."""


@dataclass
class _Asked:
    """What was read of a request."""

    id: Any = None
    """Its id."""
    body: bytes | None = None
    """Its whole body; None: that is still to be read."""
    is_whole: bool = True
    """Whether the app can still get the request as it is."""


def _is_initialize(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") == "initialize" and "id" in message


def _with_noted(send: Send, noted: Headers) -> Send:
    """Responses that have the headers of the app's middleware, too."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            # A response may set several cookies.
            present = {name for name, _ in headers} - {b"set-cookie"}
            added = [one for one in noted if one[0] not in present and one not in headers]
            message = {**message, "headers": [*headers, *added]}
        await send(message)

    return sent


def without_session(scope: Scope) -> Scope:
    """The same request, which names no session."""
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != SESSION]}
