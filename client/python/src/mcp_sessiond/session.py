"""One session: its life. `state.py`, `streams.py` and `tasks.py` have what it contains."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import Any

from . import wire
from .attachment import Attachment
from .errors import UnknownSession
from .exchange import Link
from .line import Line, Params
from .options import Patience
from .state import State
from .streams import Streams
from .tasks import Tasks
from .values import Caller, Credential, Failed, Lifetimes, Minted, SessionView, Settable, as_json, status_wire

_GRACE_MS = 60_000


class Hold(ABC):
    """By what right a session is changed."""

    @abstractmethod
    async def ready(self, session: str, patience: Patience) -> dict[str, str]:
        """What a call says of the session's owner."""


class ServiceHold(Hold):
    """The session is a service's."""

    def __init__(self, service: str) -> None:
        self.service = service

    async def ready(self, session: str, patience: Patience) -> dict[str, str]:
        return {"service": self.service}


class LeaseHold(Hold):
    """The session is a host's, and leased to this process."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch

    async def ready(self, session: str, patience: Patience) -> dict[str, str]:
        return {"epoch": self.epoch}


class Session(State, Streams, Tasks):
    """A session of a host's or of a service's.

    Calls may be made from several tasks at once. A call whose answer is lost is made again, and that has no
    further effect: an append is not appended twice. Every call raises `SessiondError`s: `UnknownSession`,
    `SessionTerminated`, `BindingMismatch`, and where a host owns it `LeaseLost`; `ConnectError` and
    `NoAnswer` without the daemon.
    """

    def __init__(self, line: Line, id: str, hold: Hold, caller: Caller | None = None) -> None:
        self.id = id
        """Its id, which is the `Mcp-Session-Id`."""
        self._line = line
        self._hold = hold
        self._caller = caller

    def __repr__(self) -> str:
        return f"Session({self.id})"

    @property
    def caller(self) -> Caller | None:
        """Who asks for it."""
        return self._caller

    def on_behalf_of(self, caller: Caller | None) -> Session:
        """The same session, asked for by this caller of the server."""
        return Session(self._line, self.id, self._hold, caller)

    async def view(self) -> SessionView:
        """The session as it is now, also when it was terminated."""
        return SessionView.read(await self._ask("get_session"))

    async def update(
        self,
        *,
        status: Settable | Failed | None = None,
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
        return await Attachment.of(self._line, self._of)

    async def reset(self) -> SessionView:
        """Empties the session: state, streams and events go, and former event ids are unknown."""
        request = mint()

        def params(link: Link) -> Params:
            return {"request": request if link.hello.has(wire.TAKES_REQUESTS) else None}

        return SessionView.read(await self._ask("reset_session", params))

    async def terminate(self) -> None:
        """Ends the session. For a while, calls about it raise `SessionTerminated`."""
        patience = self._line.patience()
        params = await self._of(patience)
        line, tries = self._line, 0

        def counted(_: Link) -> Params:
            nonlocal tries
            tries += 1
            return params

        try:
            await line.call("terminate_session", counted, patience)
        except UnknownSession:
            # A host's session that has ended is unknown: the first answer was lost.
            if tries < 2:
                raise

    async def rotate_credential(self, credential: bytes | str) -> None:
        """Binds the session to a new credential, whose hash alone is sent. The former one stays good for a
        minute at least.
        """
        fresh = Credential.of(credential)
        grace = max(_GRACE_MS, int(2_000 * self._line.options.timeout))
        await self._change("rotate_credential", {"hash": fresh.hash, "grace_ms": str(grace)})
        self._caller = fresh

    async def mint_handle(self, life_ms: int | None = None) -> Minted:
        """Makes a handle, by which `Sessions.open_handle` finds the session. `life_ms` is at most what is
        configured.
        """
        made = await self._change("mint_handle", {"life_ms": None if life_ms is None else str(life_ms)})
        return Minted(made["handle"], int(made["expires_ms"]))

    async def _of(self, patience: Patience) -> Params:
        of: Params = {"session": self.id, **await self._hold.ready(self.id, patience)}
        if self._caller:
            of["caller"] = self._caller.wire()
        return of

    async def _change(self, method: str, params: Params, more: Any = None) -> Any:
        patience = self._line.patience()
        told = {"of": await self._of(patience), **params}
        return await self._line.call(
            method, told if more is None else (lambda link: {**told, **more(link)}), patience
        )

    async def _ask(self, method: str, more: Any = None) -> Any:
        patience = self._line.patience()
        of = await self._of(patience)
        return await self._line.call(
            method, of if more is None else (lambda link: {**of, **more(link)}), patience
        )


def mint() -> str:
    """A request id: by this the daemon knows a call that is repeated."""
    return secrets.token_hex(16)
