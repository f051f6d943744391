"""The lease of an instance: claimed, and claimed again on every new connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from . import log
from .connection import Connection
from .connections import Connections, Params
from .deadline import Deadline
from .errors import FINAL, Disconnected, LeaseLost, NoAnswer, Refused, SessiondError, UnknownSession, refusal


@dataclass(frozen=True)
class Status:
    """Whether resume works for this instance."""

    state: Literal["unclaimed", "active", "disabled"] = "unclaimed"
    session: str | None = None
    """The id of the session that the instance holds."""
    epoch: int | None = None
    """The number of the lease."""
    outcome: str | None = None
    """How it came to the session: a word of `claim`'s `outcome`."""
    reason: SessiondError | None = None
    """Why resume is disabled. Unless `is_final`, a later call tries again."""

    @property
    def is_final(self) -> bool:
        """Whether no later call tries again."""
        return self.reason is not None and self.reason.code in FINAL


@dataclass(frozen=True)
class Lease:
    """A lease, and the connection that it was claimed on: on another one it is claimed again before it is
    used.
    """

    session: str
    epoch: str
    outcome: str
    connection: Connection | None

    def ref(self) -> Params:
        """As calls name it."""
        return {"session": self.session, "epoch": self.epoch}


class Leases:
    """Claims, for one instance."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.held: Lease | None = None
        """The lease that the instance has, or had."""
        self.status = Status()
        """Whether resume works."""

    async def claim(self, deadline: Deadline, *, fresh: bool = False) -> dict[str, Any]:
        """Claims, and takes down what was got. `fresh`: a new session in the place of the one that would be
        resumed.
        """
        options, used = self._connections.options, self.held
        connection: Connection | None = None

        def params(on: Connection) -> Params:
            nonlocal connection
            connection = on
            return {
                "instance": options.instance,
                "label": options.label,
                "entry": options.entry,
                "client": options.client,
                "siblings": options.siblings,
                "until_ms": deadline.until_ms,
                "fresh": True if fresh else None,
            }

        claimed: dict[str, Any] = await self._connections.call("claim", params, deadline)
        if claimed["token_status"] == "corrupted":
            log.logger.warning(log.CORRUPTED)
        # How the process came to its session says more than that it still has it.
        was_held = claimed["outcome"] == "held" and used is not None and used.session == claimed["session"]
        outcome = used.outcome if was_held and used else claimed["outcome"]
        self.held = Lease(claimed["session"], claimed["epoch"], outcome, connection)
        self.status = Status("active", claimed["session"], int(claimed["epoch"]), outcome)
        return claimed

    async def claim_again(self, deadline: Deadline) -> Lease:
        """Claims what this instance had. Another session that has a history is a sibling's, and is given
        back.
        """
        former = self.held
        claimed = await self.claim(deadline)
        lease = self.held
        assert lease
        has_a_past = claimed["outcome"] == "resumed" or (
            claimed["outcome"] == "held" and claimed["token_status"] != "absent"
        )
        if former and former.session != lease.session and has_a_past:
            self.held = Lease(former.session, former.epoch, former.outcome, None)
            try:
                await on(lease.connection, "release", lease.ref(), deadline)
            except SessiondError:
                pass
            sentence = "this instance's session was lost; the next instance starts afresh"
            raise refusal({"code": "session_lost"}, sentence)
        return lease

    async def here(self, deadline: Deadline) -> Lease:
        """The lease, claimed on the connection that there is now."""
        connection = await self._connections.connection(deadline)
        if self.held and self.held.connection is connection:
            return self.held
        return await self.claim_again(deadline)

    async def call(self, method: str, params: Params, deadline: Deadline) -> Any:
        """A call under the lease: once more under another one where it was lost."""
        has_claimed_again = False
        while True:
            lease = await self.here(deadline)
            try:
                return await on(lease.connection, method, {**lease.ref(), **params}, deadline)
            except Disconnected:
                if not deadline.left:
                    raise NoAnswer(deadline.seconds) from None
                await asyncio.sleep(min(0.005, deadline.left))
            except (LeaseLost, UnknownSession):
                if has_claimed_again:
                    raise
                has_claimed_again = True
                await self.claim_again(deadline)
            except Refused as error:
                after = error.retry_after
                if not error.passes or after is None or after >= deadline.left:
                    raise
                await asyncio.sleep(after)


async def on(connection: Connection | None, method: str, params: Params, deadline: Deadline) -> Any:
    """One request on this connection. Raises `Disconnected` where there is none."""
    if connection is None:
        raise Disconnected("the connection to the daemon broke")
    return await connection.request(method, params, deadline)
