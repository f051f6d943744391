"""The connections to the daemon: they are made anew when they break. A call is repeated here and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from . import directory, start
from .connection import Connection
from .deadline import Deadline
from .errors import (
    ConnectError,
    Disconnected,
    HelloRefused,
    NoAnswer,
    NotRunning,
    OutcomeUnknown,
    Refused,
    SessiondError,
    refusal,
)
from .options import Options

_PAUSE_MIN = 0.002
_PAUSE_MAX = 0.1
_BROKEN_PAUSE = 0.005
_FULL_PAUSE = 0.02
# A daemon that was started has so long to appear before another one is started:
# the one before it may have been about to exit.
_START_AGAIN = 0.5
# Somewhat fewer requests than a daemon takes on a connection, and connections of a process, by default.
_REQUESTS_MAX = 24
_LANES_MAX = 40
_AWAY_MS = 1_000

Params = dict[str, Any]
Ready = Callable[[Connection], Params]


class _Opened:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.connecting = asyncio.Lock()
        self.connecting_lane = asyncio.Lock()
        self.calls: Connection | None = None
        # Connections for calls that wait: in the order in which they are filled.
        self.lanes: list[Connection] = []


class Connections:
    """Reaches the daemon. Usable by several event loops, and in a child after `fork`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = WeakKeyDictionary()
        self._was_reached = False

    def deadline(self) -> Deadline:
        """How long a call may take."""
        return Deadline(self.options.timeout)

    async def call(self, method: str, params: Params | Ready, deadline: Deadline | None = None) -> Any:
        """One call, over as many connections as it takes. What it sends must have no further effect when
        repeated.

        Raises `Refused`, `ConnectError`, `NoAnswer`.
        """
        deadline = deadline or self.deadline()
        return await self._repeat(method, params, deadline, self._opened(), waits=False)

    async def wait(self, method: str, params: Ready, deadline: Deadline) -> Any:
        """A call that waits, on a connection where it keeps no other waiting."""
        return await self._repeat(method, params, deadline, self._opened(), waits=True)

    async def connection(self, deadline: Deadline) -> Connection:
        """The connection for calls that are answered at once: made if there is none."""
        opened = self._opened()
        if opened.calls and not opened.calls.is_ended:
            return opened.calls
        async with opened.connecting:
            if opened.calls is None or opened.calls.is_ended:
                opened.calls = await self.connect(deadline)
            return opened.calls

    def close(self) -> None:
        """Hangs up the connections of this event loop. A later call makes new ones."""
        opened = self._opened()
        for connection in [opened.calls, *opened.lanes]:
            if connection:
                connection.close()
        opened.calls, opened.lanes = None, []

    def _opened(self) -> _Opened:
        return self._by_loop.setdefault(asyncio.get_running_loop(), _Opened())

    async def _lane(self, opened: _Opened, deadline: Deadline) -> Connection:
        # Not the lock of the calls: what waits may take longer to connect than a call may take in all.
        async with opened.connecting_lane:
            opened.lanes = [lane for lane in opened.lanes if not lane.is_ended]
            free = next((lane for lane in opened.lanes if lane.in_flight < _REQUESTS_MAX), None)
            if free is None and len(opened.lanes) < _LANES_MAX:
                free = await self.connect(deadline)
                opened.lanes.append(free)
            return free or min(opened.lanes, key=lambda lane: lane.in_flight)

    async def _repeat(
        self, method: str, params: Params | Ready, deadline: Deadline, opened: _Opened, *, waits: bool
    ) -> Any:
        is_in_doubt, was_sent = False, False
        while True:
            try:
                connection = await (self._lane(opened, deadline) if waits else self.connection(deadline))
                while connection.in_flight >= _REQUESTS_MAX and not connection.is_ended and deadline.left:
                    await asyncio.sleep(min(_FULL_PAUSE, deadline.left))
                was_sent = True
                given = params(connection) if callable(params) else params
                return await connection.request(method, given, deadline)
            except Disconnected:
                is_in_doubt = is_in_doubt or was_sent
                if deadline.left <= _BROKEN_PAUSE:
                    raise deadline.error() from None
                await asyncio.sleep(_BROKEN_PAUSE)
            except Refused as error:
                is_in_doubt = is_in_doubt or isinstance(error, OutcomeUnknown)
                after = error.retry_after
                if not error.passes or after is None:
                    raise
                if after >= deadline.left:
                    raise _doubtful(error) if is_in_doubt else error from None
                await asyncio.sleep(after)
            except ConnectError as error:
                raise _doubtful(error) if is_in_doubt else error from None

    async def connect(self, deadline: Deadline) -> Connection:
        """A new connection. Starts a daemon where none runs, if the options allow it. Raises
        `ConnectError`.
        """
        runtime = directory.directory(self.options.directory)
        pause, started, last = _PAUSE_MIN, None, "it did not finish its hello"
        while True:
            try:
                directory.check(runtime)
                connection = await Connection.open(directory.socket_in(runtime), deadline)
                self._was_reached = True
                return connection
            except NoAnswer:
                pass
            except (OSError, ConnectError) as error:
                if isinstance(error, (NotRunning, FileNotFoundError, ConnectionRefusedError)):
                    # A daemon that has answered before is restarting, as a rule.
                    if not self.options.start and not self._was_reached:
                        raise directory.not_running(runtime) from None
                    due = started is None or started.seconds - started.left >= _START_AGAIN
                    if self.options.start and due:
                        await self._start(deadline)
                        started, pause = Deadline(3600.0), _PAUSE_MIN
                elif not _may_pass(error):
                    raise (
                        error if isinstance(error, ConnectError) else ConnectError(f"{runtime}: {error}")
                    ) from error
                last = str(error)
            if deadline.left <= pause:
                where = directory.socket_in(runtime)
                waited = f"was not reached within {deadline.seconds * 1000:.0f} ms ({last})"
                raise ConnectError(f"the daemon at {where} {waited}; see `mcp-sessiond doctor`")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)

    async def _start(self, deadline: Deadline) -> None:
        runtime = directory.directory(self.options.directory)
        for command in start.commands(runtime, self.options.binary):
            try:
                status = await command.run(deadline)
            except OSError as error:
                if command.is_last:
                    raise command.not_found(error) from error
                continue
            if command.judge(status):
                return


def _may_pass(error: Exception) -> bool:
    """Whether the next attempt to connect may go better."""
    if isinstance(error, HelloRefused):
        return error.number in (3, 4)
    return isinstance(error, (Disconnected, BlockingIOError, InterruptedError, ConnectionError))


def _doubtful(error: SessiondError) -> SessiondError:
    """The error of a call that may have been carried out: one that says that nothing was done would be
    wrong.
    """
    after = error.fields.get("retry_after_ms", _AWAY_MS) if isinstance(error, Refused) else _AWAY_MS
    return refusal({"code": "outcome_unknown", "sentence": str(error), "retry_after_ms": after}, str(error))
