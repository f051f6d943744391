"""The cookie that names a session, for pages: a browser sends it, also after the page was loaded again."""

from __future__ import annotations

from ..errors import BindingMismatch, InvalidArgument, SessionTerminated, UnknownSession
from ..values import Caller
from .http import SESSION, Refusal
from .sessions import ServedSessions
from .settings import COOKIE, Message, Scope, Send

# Another server on the same host can set one, too, and the browser does not tell whose each is.
_COOKIES_MAX = 4


async def find(
    served: ServedSessions, caller: Caller | None, scope: Scope
) -> tuple[str | None, Refusal | None]:
    """The session of the request's caller that a cookie names; else the refusal for a request that needs one,
    where a cookie names another. Raises `SessiondError`.
    """
    refusal = None
    for id in _named(scope):
        try:
            _, view = await served.daemon.on_behalf_of(caller).open_viewed(id)
            # What nobody in particular has begun, and anybody may know, is not for a caller that has a name.
            if view.bound == (caller is not None):
                await served.session(id, scope)
                return id, None
            refusal = Refusal.unknown_session()
        except (UnknownSession, SessionTerminated, InvalidArgument):
            refusal = Refusal.unknown_session()
        except BindingMismatch as error:
            refusal = Refusal.of(error)
        except Refusal as refused:
            refusal = refused
    return None, refusal


def with_header(scope: Scope, id: str) -> Scope:
    """The same request, with the session's id in the header."""
    return {**scope, "headers": [*scope["headers"], (SESSION, id.encode("latin-1"))]}


def without_header(send: Send) -> Send:
    """Responses that do not name the session: scripts of a page can read the header, and not the cookie."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message["headers"] if name.lower() != SESSION]
            message = {**message, "headers": headers}
        await send(message)

    return sent


def _named(scope: Scope) -> list[str]:
    cookies = ";".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
    return [value for name, _, value in pairs if name == COOKIE][:_COOKIES_MAX]
