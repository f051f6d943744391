"""The sessions of one owner: made, opened, listed."""

from __future__ import annotations

import base64
import secrets
import time
import uuid
from typing import Literal

from .connections import Connections, Params
from .errors import AlreadyExists, UnknownSession
from .options import Options
from .session import Access, LeaseAccess, ServiceAccess, Session
from .values import (
    Caller,
    Failed,
    Lifetimes,
    Raw,
    Ready,
    Secret,
    SessionView,
    Settable,
    as_json,
    request_id,
    status_wire,
)

Views = list[SessionView]


class Sessions:
    """The sessions of a host or of a service. Nothing is sent before the first call.

    Every call raises `SessiondError`s. What passes is waited for, within `Options.timeout`: a daemon that
    is restarting or busy, an answer that was lost.
    """

    def __init__(self, service: str | None, options: Options | None = None) -> None:
        """The sessions of a service, which every process of this user that says the name is; None: of this
        process's host.
        """
        self.service = service
        self._connections = Connections(options or Options())
        self._caller: Caller | None = None

    @property
    def timeout(self) -> float:
        """Seconds that one call may take in all."""
        return self._connections.options.timeout

    async def reach(self) -> None:
        """Connects to the daemon, which is started if need be. Raises `ConnectError`."""
        await self._connections.connection(self._connections.deadline())

    def on_behalf_of(self, caller: Caller | None) -> Sessions:
        """The same, asked for by this caller of the server: sessions that are bound to it can be opened."""
        same = Sessions.__new__(Sessions)
        same.service, same._connections, same._caller = self.service, self._connections, caller
        return same

    async def create(
        self,
        id: str | None = None,
        *,
        binding: Caller | None = None,
        on_mismatch: Literal["refuse", "terminate"] = "refuse",
        lifetimes: Lifetimes | None = None,
        status: Settable | Ready | Failed = "initializing",
        metadata: object = None,
    ) -> Session:
        """Makes a session. `metadata` is JSON of at most 65,536 bytes. With a binding only calls of that
        caller find it.

        A host's session is leased to this process. Raises `AlreadyExists`, `SessionTerminated`,
        `QuotaExceeded`.
        """
        made = await self._connections.call(
            "create_session",
            {
                "session": id or (_session_id() if self.service else None),
                "service": self.service,
                "request": request_id(),
                "binding": None
                if binding is None
                else {"caller": binding.wire(), "on_mismatch": on_mismatch},
                "lifetimes": None if lifetimes is None else lifetimes.wire(),
                "status": status_wire(status),
                "metadata": None if metadata is None else as_json(metadata),
            },
        )
        return self._had(made, binding or self._caller)

    async def open(self, id: str) -> Session:
        """Takes a session up by its id: one that lives. Raises `UnknownSession`, `SessionTerminated`,
        `BindingMismatch`.
        """
        return (await self.open_viewed(id))[0]

    async def open_viewed(self, id: str) -> tuple[Session, SessionView]:
        """As `open`. Tells also how the session is now."""
        caller = self._caller.wire() if self._caller else None
        raw = await self._connections.call(
            "open_session", {"session": id, "service": self.service, "caller": caller}
        )
        return self._had(raw, self._caller), SessionView.read(raw)

    async def open_or_create(self, id: str, lifetimes: Lifetimes | None = None) -> Session:
        """Takes up the session of this id, which is made if there is none, `ready` and with these lifetimes.
        Raises `SessionTerminated`, `BindingMismatch`, `QuotaExceeded`.
        """
        try:
            return await self.open(id)
        except UnknownSession:
            pass
        try:
            return await self.create(id, status="ready", lifetimes=lifetimes)
        except AlreadyExists:
            # Another process has made it just now.
            return await self.open(id)

    async def get(self, id: str) -> SessionView:
        """A session as it is now, also one that was terminated. Raises `UnknownSession`, `BindingMismatch`."""
        caller = self._caller.wire() if self._caller else None
        raw = await self._connections.call(
            "get_session", {"session": id, "service": self.service, "caller": caller}
        )
        return SessionView.read(raw)

    async def open_handle(self, handle: str) -> Session:
        """Takes up the session of a handle. Raises `Refused` with `unknown_handle` or `handle_expired`."""
        caller = self._caller.wire() if self._caller else None
        raw = await self._connections.call(
            "open_handle", {"handle": handle, "service": self.service, "caller": caller}
        )
        # A handle leads to a host's session, and gives no lease.
        return self._had(raw, self._caller) if self.service else await self.open(raw["session"])

    async def list(self) -> Views:
        """All of them, in order of their ids, without metadata. Terminated ones are among them for a while."""
        found: Views = []
        while True:
            after = found[-1].id if found else None
            page = await self._connections.call(
                "list_own_sessions", {"service": self.service, "after": after}
            )
            if not page:
                return found
            found += [SessionView.read(raw) for raw in page]

    async def secret(self) -> Secret:
        """The secret of the service, which all its processes share: for what clients bring back, such as the
        `requestState` of MCP 2026-07-28. The daemon makes it at the first call.
        """
        return await self._secret({})

    async def rotate_secret(self) -> Secret:
        """Puts a new key in the place of the current one, which still counts for 24 hours. Raises
        `QuotaExceeded` where eight of them do.
        """
        return await self._secret({"rotate": True, "request": request_id()})

    async def _secret(self, more: Params) -> Secret:
        raw = await self._connections.call("service_secret", {"service": self.service, **more})
        return Secret(_bytes(raw["current"]), [_bytes(one) for one in raw.get("former") or []])

    async def close(self) -> None:
        """Hangs up the connections of this event loop. Sessions stay; a later call makes new connections."""
        self._connections.close()

    def _had(self, raw: Raw, caller: Caller | None) -> Session:
        access: Access = ServiceAccess(self.service) if self.service else LeaseAccess(raw["epoch"])
        return Session(self._connections, raw["session"], access, caller)


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _session_id() -> str:
    """A UUID of version 7 (RFC 9562): of our own, so that the call may be repeated."""
    milliseconds = int(time.time() * 1000)
    value = milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))
