"""Version 1's three calls for servers on stdio. None of them ever raises into the server."""

from __future__ import annotations

import base64
import functools
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from . import log
from .asynchronous import AsyncioIo
from .errors import FINAL, Disconnected, LeaseLost, NoAnswer, Refused, SessiondError, UnknownSession, refusal
from .exchange import Io, Link
from .line import Line, Params
from .options import Options, Patience
from .session import Hold, Session

_TOKEN_MAX = 65_536
_RETRY_AFTER = 5.0
_RETRY_TIMEOUT = 1.0

P = ParamSpec("P")
T = TypeVar("T")
O = TypeVar("O")


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
class _Lease:
    session: str
    epoch: str
    outcome: str
    link: Link | None

    def ref(self) -> Params:
        return {"session": self.session, "epoch": self.epoch}


Call = Callable[Concatenate["Sessiond", P], Coroutine[Any, Any, T]]


def _swallowing(otherwise: O) -> Callable[[Call[P, T]], Call[P, T | O]]:
    """A call of a server's: one at a time, and with a value where it fails."""

    def wrap(method: Call[P, T]) -> Call[P, T | O]:
        @functools.wraps(method)
        async def call(self: Sessiond, /, *arguments: P.args, **named: P.kwargs) -> T | O:
            try:
                async with self._turn():
                    return await method(self, *arguments, **named)
            except SessiondError as error:
                self._disable(error)
            except Exception as error:
                self._disable(SessiondError(f"{type(error).__name__} in the client library"))
            return otherwise

        return call

    return wrap


class Sessiond:
    """An MCP server's session with the daemon. Nothing is sent before the first call."""

    def __init__(self, options: Options | None = None, *, io: Io | None = None) -> None:
        self._line = Line(options or Options(), io or AsyncioIo())
        self._mutexes: dict[int, Any] = {}
        self._lease: _Lease | None = None
        self._is_offered = False
        self._disabled_at = 0.0
        self._is_announced = False
        self.status = Status()
        """Whether resume works for this instance, as of the last call."""

    @classmethod
    def init(cls, options: Options | None = None) -> Sessiond:
        """Takes the options."""
        return cls(options)

    @_swallowing(None)
    async def load(self) -> bytes | None:
        """The token that a former instance stored, to be offered to the broker. None: start afresh."""
        patience = self._patience()
        if patience is None:
            return None
        claimed = await self._claim(patience)
        if claimed["token_status"] == "absent":
            log.absent(claimed["outcome"], claimed.get("because"))
        token = claimed.get("token")
        self._is_offered = token is not None
        return None if token is None else base64.b64decode(token)

    @_swallowing(False)
    async def store(self, token: bytes) -> bool:
        """Keeps a token that the broker has issued: 1 to 65,536 bytes. True once the daemon has it for good.

        To repeat the call has no further effect.
        """
        if not 1 <= len(token) <= _TOKEN_MAX:
            log.logger.warning("Resume token not stored: a token has 1 to %d bytes, not %d", _TOKEN_MAX, len(token))
            return False
        patience = self._patience()
        if patience is None:
            return False
        try:
            stored = await self._leased("store_token", {"token": base64.b64encode(token).decode()}, patience)
        except Refused as error:
            if error.code == "write_failed":
                log.write_failed(error)
                return False
            if error.passes:
                log.write_failed(error.fields.get("sentence", error))
                self._is_announced = True
                raise
            if error.code in FINAL or isinstance(error, LeaseLost | UnknownSession):
                raise
            log.logger.warning("Resume token not stored: %s", error)
            return False
        # Only what this process was offered can have been accepted; for an ancestor, another command may have been.
        if stored["resumed"] and (self._is_offered or self._line.options.instance is not None):
            log.logger.info(log.RESUMED)
        self._is_offered = False
        return True

    @_swallowing(False)
    async def reject(self) -> bool:
        """The broker has refused the token, which is deleted. True once no later load gives it. The session stays."""
        patience = self._patience()
        if patience is None:
            return False
        if self._lease is None and self._line.options.instance is None:
            return True
        refused = self._lease
        if refused is None:
            await self._claim_again(patience)
            refused = self._lease
        self._is_offered = False
        log.logger.warning(log.REJECTED)
        while True:
            lease = await self._lease_here(patience)
            # Under another lease there may be a token that nobody has refused.
            if refused is None or (lease.session, lease.epoch) != (refused.session, refused.epoch):
                return True
            try:
                await _on(lease.link, "reject_token", lease.ref(), patience)
                return True
            except Disconnected:
                await self._line.io.sleep(min(0.005, patience.left))
            except (LeaseLost, UnknownSession):
                self._lease = _Lease(lease.session, lease.epoch, lease.outcome, None)
                return True

    @_swallowing(None)
    async def release(self) -> None:
        """Gives the session up for the next instance with the same key. A process that exits need not."""
        lease, self._lease = self._lease, None
        self._is_offered = False
        if lease and lease.link and not lease.link.is_ended:
            self.status = Status()
            try:
                await lease.link.request("release", lease.ref(), self._line.patience())
            except SessiondError:
                pass  # Where the daemon is gone, so is the lease soon: with this process.

    @_swallowing(None)
    async def session(self) -> Session | None:
        """The session of this instance with what it contains. None: resume does not work for this instance."""
        patience = self._patience()
        if patience is None:
            return None
        await self._claim_again(patience)
        return self._session()

    @_swallowing(None)
    async def begin_anew(self) -> Session | None:
        """Ends the session that this instance has or would resume, and gives a fresh one: for stdio's `initialize`."""
        patience = self._patience()
        if patience is None:
            return None
        await self._claim(patience, fresh=True)
        self._is_offered = False
        return self._session()

    def _session(self) -> Session | None:
        return Session(self._line, self._lease.session, _ClaimHold(self)) if self._lease else None

    def _turn(self) -> Any:
        key = id(self._line.io.home())
        return self._mutexes.setdefault(key, self._line.io.mutex())

    def _patience(self) -> Patience | None:
        timeout = self._line.options.timeout
        if self.status.state != "disabled":
            return Patience(timeout)
        if self.status.is_final or time.monotonic() - self._disabled_at < _RETRY_AFTER:
            return None
        return Patience(min(timeout, _RETRY_TIMEOUT))

    def _disable(self, error: SessiondError) -> None:
        if error.code == "no_verified_host":
            log.logger.warning(log.UNVERIFIED)
        elif not self._is_announced:
            self._is_announced = True
            log.logger.warning("Session resume disabled: %s", error)
        self._is_offered = False
        self._disabled_at = time.monotonic()
        self.status = Status("disabled", reason=error)
        if self.status.is_final:
            self._lease = None

    async def _claim(self, patience: Patience, *, fresh: bool = False) -> dict[str, Any]:
        options, used = self._line.options, self._lease
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
        self._lease = _Lease(claimed["session"], claimed["epoch"], outcome, link)
        self.status = Status("active", claimed["session"], int(claimed["epoch"]), outcome)
        return claimed

    async def _claim_again(self, patience: Patience) -> _Lease:
        """Claims what this instance had. Another session that has a history is a sibling's, and is given back."""
        former = self._lease
        claimed = await self._claim(patience)
        lease = self._lease
        assert lease
        has_a_past = claimed["outcome"] == "resumed" or (
            claimed["outcome"] == "held" and claimed["token_status"] != "absent"
        )
        if former and former.session != lease.session and has_a_past:
            self._lease = _Lease(former.session, former.epoch, former.outcome, None)
            try:
                await _on(lease.link, "release", lease.ref(), patience)
            except SessiondError:
                pass
            sentence = "this instance's session was lost; the next instance starts afresh"
            raise refusal({"code": "session_lost"}, sentence)
        return lease

    async def _lease_here(self, patience: Patience) -> _Lease:
        """The lease, claimed on the connection that there is now."""
        link = await self._line.link(patience)
        if self._lease and self._lease.link is link:
            return self._lease
        return await self._claim_again(patience)

    async def _leased(self, method: str, params: Params, patience: Patience) -> Any:
        has_claimed_again = False
        while True:
            lease = await self._lease_here(patience)
            try:
                return await _on(lease.link, method, {**lease.ref(), **params}, patience)
            except Disconnected:
                if not patience.left:
                    raise NoAnswer(patience.seconds) from None
                await self._line.io.sleep(min(0.005, patience.left))
            except (LeaseLost, UnknownSession):
                if has_claimed_again:
                    raise
                has_claimed_again = True
                await self._claim_again(patience)
            except Refused as error:
                after = error.retry_after
                if not error.passes or after is None or after >= patience.left:
                    raise
                await self._line.io.sleep(after)


async def _on(link: Link | None, method: str, params: Params, patience: Patience) -> Any:
    if link is None:
        raise Disconnected("the connection to the daemon broke")
    return await link.request(method, params, patience)


class _ClaimHold(Hold):
    """The session is the one that an instance has claimed."""

    def __init__(self, sessiond: Sessiond) -> None:
        self._sessiond = sessiond

    async def ready(self, session: str, patience: Patience) -> dict[str, str]:
        async with self._sessiond._turn():
            held = self._sessiond._lease
            if held is None:
                raise refusal({"code": "lease_ended"}, "nobody holds the session")
            if held.session == session:
                lease = await self._sessiond._lease_here(patience)
                if lease.session == session:
                    return {"epoch": lease.epoch}
            raise refusal({"code": "unknown_session"}, "there is no such session, or no longer")
