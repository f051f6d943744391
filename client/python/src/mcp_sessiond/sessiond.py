"""Version 1's three calls for servers on stdio. None of them ever raises into the server."""

from __future__ import annotations

import asyncio
import base64
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from . import log
from .connections import Connections
from .context import hold
from .deadline import Deadline
from .errors import FINAL, Disconnected, LeaseLost, Refused, SessiondError, UnknownSession, refusal
from .lease import Lease, Leases, Status, on
from .options import Options
from .session import Access, Session

_TOKEN_MAX = 65_536
_RETRY_AFTER = 5.0
_RETRY_TIMEOUT = 1.0

P = ParamSpec("P")
T = TypeVar("T")
Otherwise = TypeVar("Otherwise")


Call = Callable[Concatenate["Sessiond", P], Coroutine[Any, Any, T]]


def _swallowing(otherwise: Otherwise) -> Callable[[Call[P, T]], Call[P, T | Otherwise]]:
    """A call of a server's: one at a time, and with a value where it fails."""

    def wrap(method: Call[P, T]) -> Call[P, T | Otherwise]:
        @functools.wraps(method)
        async def call(self: Sessiond, /, *arguments: P.args, **named: P.kwargs) -> T | Otherwise:
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

    def __init__(self, options: Options | None = None) -> None:
        self._connections = Connections(options or Options())
        self._leases = Leases(self._connections)
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._is_offered = False
        self._disabled_at = 0.0
        self._is_announced = False
        # What is claimed for another process is not this one's.
        if self._connections.options.instance is None:
            hold(self._held)

    @property
    def status(self) -> Status:
        """Whether resume works for this instance, as of the last call."""
        return self._leases.status

    @classmethod
    def init(cls, options: Options | None = None) -> Sessiond:
        """Takes the options."""
        return cls(options)

    @_swallowing(None)
    async def load(self) -> bytes | None:
        """The token that a former instance stored, to be offered to the broker. None: start afresh."""
        deadline = self._deadline()
        if deadline is None:
            return None
        claimed = await self._leases.claim(deadline)
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
            log.logger.warning(
                "Resume token not stored: a token has 1 to %d bytes, not %d", _TOKEN_MAX, len(token)
            )
            return False
        deadline = self._deadline()
        if deadline is None:
            return False
        try:
            stored = await self._leases.call(
                "store_token", {"token": base64.b64encode(token).decode()}, deadline
            )
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
        # Only what this process was offered can have been accepted; for an ancestor, another
        # command may have been offered it.
        if stored["resumed"] and (self._is_offered or self._connections.options.instance is not None):
            log.logger.info(log.RESUMED)
        self._is_offered = False
        return True

    @_swallowing(False)
    async def reject(self) -> bool:
        """The broker has refused the token, which is deleted. True once no later load gives it. The session
        stays.
        """
        deadline = self._deadline()
        if deadline is None:
            return False
        if self._leases.held is None and self._connections.options.instance is None:
            return True
        refused = self._leases.held
        if refused is None:
            await self._leases.claim_again(deadline)
            refused = self._leases.held
        self._is_offered = False
        log.logger.warning(log.REJECTED)
        while True:
            lease = await self._leases.here(deadline)
            # Under another lease there may be a token that nobody has refused.
            if refused is None or (lease.session, lease.epoch) != (refused.session, refused.epoch):
                return True
            try:
                await on(lease.connection, "reject_token", lease.ref(), deadline)
                return True
            except Disconnected:
                await asyncio.sleep(min(0.005, deadline.left))
            except (LeaseLost, UnknownSession):
                self._leases.held = Lease(lease.session, lease.epoch, lease.outcome, None)
                return True

    @_swallowing(None)
    async def release(self) -> None:
        """Gives the session up for the next instance with the same key. A process that exits need not."""
        lease, self._leases.held = self._leases.held, None
        self._is_offered = False
        if lease and lease.connection and not lease.connection.is_ended:
            self._leases.status = Status()
            try:
                await lease.connection.request("release", lease.ref(), self._connections.deadline())
            except SessiondError:
                pass  # Where the daemon is gone, so is the lease soon: with this process.

    @_swallowing(None)
    async def session(self) -> Session | None:
        """The session of this instance with what it contains. None: resume does not work for this instance."""
        deadline = self._deadline()
        if deadline is None:
            return None
        await self._leases.claim_again(deadline)
        return self._session()

    @_swallowing(None)
    async def begin_anew(self) -> Session | None:
        """Ends the session that this instance has or would resume, and gives a fresh one: for stdio's
        `initialize`.
        """
        deadline = self._deadline()
        if deadline is None:
            return None
        await self._leases.claim(deadline, fresh=True)
        self._is_offered = False
        return self._session()

    def _held(self) -> Session | None:
        return None if self.status.is_final else self._session()

    def _session(self) -> Session | None:
        return (
            Session(self._connections, self._leases.held.session, _ClaimedAccess(self))
            if self._leases.held
            else None
        )

    def _turn(self) -> asyncio.Lock:
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def _deadline(self) -> Deadline | None:
        timeout = self._connections.options.timeout
        if self.status.state != "disabled":
            return Deadline(timeout)
        if self.status.is_final or time.monotonic() - self._disabled_at < _RETRY_AFTER:
            return None
        return Deadline(min(timeout, _RETRY_TIMEOUT))

    def _disable(self, error: SessiondError) -> None:
        if error.code == "no_verified_host":
            log.logger.warning(log.UNVERIFIED)
        elif not self._is_announced:
            self._is_announced = True
            log.logger.warning("Session resume disabled: %s", error)
        self._is_offered = False
        self._disabled_at = time.monotonic()
        self._leases.status = Status("disabled", reason=error)
        if self.status.is_final:
            self._leases.held = None


class _ClaimedAccess(Access):
    """The session is the one that an instance has claimed."""

    def __init__(self, sessiond: Sessiond) -> None:
        self._sessiond = sessiond

    async def fields(self, session: str, deadline: Deadline) -> dict[str, str]:
        async with self._sessiond._turn():
            held = self._sessiond._leases.held
            if held is None:
                raise refusal({"code": "lease_ended"}, "nobody holds the session")
            if held.session == session:
                lease = await self._sessiond._leases.here(deadline)
                if lease.session == session:
                    return {"epoch": lease.epoch}
            raise refusal({"code": "unknown_session"}, "there is no such session, or no longer")
