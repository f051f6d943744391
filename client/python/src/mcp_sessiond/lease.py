"""The lease of an instance: claimed, and claimed again on every new connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from . import log
from .errors import FINAL, Disconnected, LeaseLost, NoAnswer, Refused, SessiondError, UnknownSession, refusal
from .exchange import Link
from .line import Line, Params
from .options import Patience


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
    link: Link | None

    def ref(self) -> Params:
        """As calls name it."""
        return {"session": self.session, "epoch": self.epoch}


class Leases:
    """Claims, for one instance."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.held: Lease | None = None
        """The lease that the instance has, or had."""
        self.status = Status()
        """Whether resume works."""

    async def claim(self, patience: Patience, *, fresh: bool = False) -> dict[str, Any]:
        """Claims, and takes down what was got. `fresh`: a new session in the place of the one that would be
        resumed.
        """
        options, used = self._line.options, self.held
        link: Link | None = None

        def params(on: Link) -> Params:
            nonlocal link
            link = on
            return {
                "instance": options.instance,
                "label": options.label,
                "entry": options.entry,
                "client": options.client,
                "siblings": options.siblings,
                "until_ms": patience.until_ms,
                "fresh": True if fresh else None,
            }

        claimed: dict[str, Any] = await self._line.call("claim", params, patience)
        if claimed["token_status"] == "corrupted":
            log.logger.warning(log.CORRUPTED)
        # How the process came to its session says more than that it still has it.
        was_held = claimed["outcome"] == "held" and used is not None and used.session == claimed["session"]
        outcome = used.outcome if was_held and used else claimed["outcome"]
        self.held = Lease(claimed["session"], claimed["epoch"], outcome, link)
        self.status = Status("active", claimed["session"], int(claimed["epoch"]), outcome)
        return claimed

    async def claim_again(self, patience: Patience) -> Lease:
        """Claims what this instance had. Another session that has a history is a sibling's, and is given
        back.
        """
        former = self.held
        claimed = await self.claim(patience)
        lease = self.held
        assert lease
        has_a_past = claimed["outcome"] == "resumed" or (
            claimed["outcome"] == "held" and claimed["token_status"] != "absent"
        )
        if former and former.session != lease.session and has_a_past:
            self.held = Lease(former.session, former.epoch, former.outcome, None)
            try:
                await on(lease.link, "release", lease.ref(), patience)
            except SessiondError:
                pass
            sentence = "this instance's session was lost; the next instance starts afresh"
            raise refusal({"code": "session_lost"}, sentence)
        return lease

    async def here(self, patience: Patience) -> Lease:
        """The lease, claimed on the connection that there is now."""
        link = await self._line.link(patience)
        if self.held and self.held.link is link:
            return self.held
        return await self.claim_again(patience)

    async def call(self, method: str, params: Params, patience: Patience) -> Any:
        """A call under the lease: once more under another one where it was lost."""
        has_claimed_again = False
        while True:
            lease = await self.here(patience)
            try:
                return await on(lease.link, method, {**lease.ref(), **params}, patience)
            except Disconnected:
                if not patience.left:
                    raise NoAnswer(patience.seconds) from None
                await self._line.io.sleep(min(0.005, patience.left))
            except (LeaseLost, UnknownSession):
                if has_claimed_again:
                    raise
                has_claimed_again = True
                await self.claim_again(patience)
            except Refused as error:
                after = error.retry_after
                if not error.passes or after is None or after >= patience.left:
                    raise
                await self._line.io.sleep(after)


async def on(link: Link | None, method: str, params: Params, patience: Patience) -> Any:
    """One request on this connection. Raises `Disconnected` where there is none."""
    if link is None:
        raise Disconnected("the connection to the daemon broke")
    return await link.request(method, params, patience)
