"""A session: its life. `state.py`, `streams.py` and `tasks.py` have what it contains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .attachment import Attachment
from .connection import Connection
from .connections import Connections, Params
from .deadline import Deadline
from .errors import UnknownSession
from .state import State
from .streams import Streams
from .tasks import Tasks
from .values import (
    Caller,
    Credential,
    Failed,
    Lifetimes,
    Minted,
    Ready,
    SessionView,
    Settable,
    as_json,
    request_id,
    status_wire,
)

_GRACE_MS = 60_000


class Access(ABC):
    """By what right a session is changed: as a service's, or under a lease."""

    @abstractmethod
    async def fields(self, session: str, deadline: Deadline) -> dict[str, str]:
        """What a call says of the session's owner."""


class ServiceAccess(Access):
    """The session is a service's."""

    def __init__(self, service: str) -> None:
        self.service = service

    async def fields(self, session: str, deadline: Deadline) -> dict[str, str]:
        return {"service": self.service}


class LeaseAccess(Access):
    """The session is a host's, and leased to this process."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch

    async def fields(self, session: str, deadline: Deadline) -> dict[str, str]:
        return {"epoch": self.epoch}


class Session(State, Streams, Tasks):
    """A session of a host's or of a service's.

    Calls may be made from several tasks at once. A call whose answer is lost is made again, and that has no
    further effect: an append is not appended twice. Every call raises `SessiondError`s: `UnknownSession`,
    `SessionTerminated`, `BindingMismatch`, and where a host owns it `LeaseLost`; `ConnectError` and
    `NoAnswer` without the daemon.
    """

    def __init__(
        self, connections: Connections, id: str, access: Access, caller: Caller | None = None
    ) -> None:
        self.id = id
        """Its id, which is the `Mcp-Session-Id`."""
        self._connections = connections
        self._access = access
        self._caller = caller

    def __repr__(self) -> str:
        return f"Session({self.id})"

    @property
    def caller(self) -> Caller | None:
        """Who asks for it."""
        return self._caller

    def on_behalf_of(self, caller: Caller | None) -> Session:
        """The same session, asked for by this caller of the server."""
        return Session(self._connections, self.id, self._access, caller)

    async def view(self) -> SessionView:
        """The session as it is now, also when it was terminated."""
        return SessionView.read(await self._ask("get_session"))

    async def update(
        self,
        *,
        status: Settable | Ready | Failed | None = None,
        metadata: object = None,
        lifetimes: Lifetimes | None = None,
    ) -> SessionView:
        """Changes status, metadata (JSON of at most 65,536 bytes) or lifetimes. What is None stays."""
        params = {
            "status": None if status is None else status_wire(status),
            "metadata": None if metadata is None else as_json(metadata),
            "lifetimes": None if lifetimes is None else lifetimes.wire(),
        }
        return SessionView.read(await self._change("update_session", params))

    async def touch(self) -> None:
        """Says that the session is in use, which every other call does, too."""
        await self._ask("touch_session")

    async def attach(self) -> Attachment:
        """A client has come: the timer of the grace period stops. It starts when the last one has gone."""
        return await Attachment.of(self._connections, self._of)

    async def reset(self) -> SessionView:
        """Empties the session: state, streams and events go, and former event ids are unknown."""
        return SessionView.read(await self._ask("reset_session", {"request": request_id()}))

    async def terminate(self) -> None:
        """Ends the session. For a while, calls about it raise `SessionTerminated`."""
        deadline = self._connections.deadline()
        params = await self._of(deadline)
        connections, tries = self._connections, 0

        def counted(_: Connection) -> Params:
            nonlocal tries
            tries += 1
            return params

        try:
            await connections.call("terminate_session", counted, deadline)
        except UnknownSession:
            # A host's session that has ended is unknown: the first answer was lost.
            if tries < 2:
                raise

    async def rotate_credential(self, credential: bytes | str) -> None:
        """Binds the session to a new credential, whose hash alone is sent. The former one stays good for a
        minute at least.
        """
        fresh = Credential.of(credential)
        grace = max(_GRACE_MS, int(2_000 * self._connections.options.timeout))
        await self._change("rotate_credential", {"hash": fresh.hash, "grace_ms": str(grace)})
        self._caller = fresh

    async def mint_handle(self, life_ms: int | None = None) -> Minted:
        """Makes a handle, by which `Sessions.open_handle` finds the session. `life_ms` is at most what is
        configured.
        """
        made = await self._change("mint_handle", {"life_ms": None if life_ms is None else str(life_ms)})
        return Minted(made["handle"], int(made["expires_ms"]))

    async def _of(self, deadline: Deadline) -> Params:
        of: Params = {"session": self.id, **await self._access.fields(self.id, deadline)}
        if self._caller:
            of["caller"] = self._caller.wire()
        return of

    async def _change(self, method: str, params: Params) -> Any:
        deadline = self._connections.deadline()
        of = await self._of(deadline)
        return await self._connections.call(method, {"of": of, **params}, deadline)

    async def _ask(self, method: str, params: Params | None = None) -> Any:
        deadline = self._connections.deadline()
        of = await self._of(deadline)
        return await self._connections.call(method, {**of, **(params or {})}, deadline)
