"""What an author may tell `durable`, and the types of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..options import Options
from ..values import Caller, Credential, Identity, Lifetimes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

PRIMES = "2025-11-25"
"""The first version of MCP whose streams begin with an event that has an id and no data. Versions are
dates.
"""


COOKIE = "mcp_session_id"
"""The cookie that names a session, where cookies are on."""


def header(scope: Scope, name: bytes) -> str | None:
    """A header of a request. `name` is in lower case."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def bearer(scope: Scope) -> Caller | None:
    """The caller by the hash of its bearer token; None where there is none."""
    kind, _, token = (header(scope, b"authorization") or "").partition(" ")
    return Credential.of(token.strip().encode("latin-1")) if kind.lower() == "bearer" and token else None


CALLER = "mcp_sessiond.caller"
"""Where a request's scope has its caller, where the app's verifier has named it."""


def verified(scope: Scope) -> Identity | None:
    """The user of the token that the SDK's own verifier has left on a request which the app has seen. None: it has not, or
    names no subject.

    Nothing else is believed: an app that knows its users by a cookie lets in any `Authorization` header. A client id is
    the same for all users of a host.
    """
    token = getattr(scope.get("user"), "access_token", None)
    shown = (header(scope, b"authorization") or "").partition(" ")[2].strip()
    if token is None or not shown or getattr(token, "token", None) != shown:
        return None
    claims = getattr(token, "claims", None) or {}
    subject = getattr(token, "subject", None) or claims.get("sub")
    issuer = claims.get("iss") or "verifier"
    if not isinstance(subject, str) or not isinstance(issuer, str) or not subject:
        return None
    return Identity(issuer, subject)


@dataclass(frozen=True)
class SessionCookie:
    """How the cookie `mcp_session_id` is set: `HttpOnly`, until the browser is closed."""

    path: str = "/"
    """For this path and those below it."""
    secure: bool = False
    """Whether browsers send it over TLS alone."""
    same_site: Literal["Strict", "Lax", "None"] = "Strict"
    """From which pages browsers send it (RFC 6265bis, section 4.1.2.7). With `None` it is `Secure`, too."""

    def __post_init__(self) -> None:
        if self.same_site not in ("Strict", "Lax", "None"):
            raise ValueError("`same_site` of a cookie is Strict, Lax or None")
        if not all("!" <= sign <= "~" and sign != ";" for sign in self.path) or self.path[:1] != "/":
            raise ValueError("`path` of a cookie begins with / and has visible ASCII characters, without ;")

    def naming(self, id: str) -> tuple[bytes, bytes]:
        """The header of a response that sets it."""
        secure = "; Secure" if self.secure or self.same_site == "None" else ""
        cookie = f"{COOKIE}={id}; Path={self.path}; HttpOnly; SameSite={self.same_site}{secure}"
        return b"set-cookie", cookie.encode()


@dataclass(frozen=True)
class Settings:
    """The options of `durable`. Times are in seconds unless their names say otherwise."""

    service: str
    path: str = "/mcp"
    caller: Callable[[Scope], Caller | None] = bearer
    cookie: SessionCookie | None = None
    modern: Literal["refuse", "pass"] = "refuse"
    retry_ms: int = 5_000
    idle: float = 1_800.0
    keep_alive: float = 15.0
    hold: float = 5.0
    begin: float = 1.0
    body_max: int = 4 << 20
    lifetimes: Lifetimes | None = None
    options: Options = field(default_factory=Options)

    def caller_of(self, scope: Scope) -> Caller | None:
        """The caller of a request."""
        found: Caller | None = scope.get(CALLER)
        return found if found is not None else self.caller(scope)
