"""The line to the daemon: connections that are made anew when they break, and the one place where a call is
repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from . import directory, start
from .errors import (
    ConnectError,
    Disconnected,
    NoAnswer,
    NotRunning,
    OutcomeUnknown,
    Refused,
    SessiondError,
    refusal,
)
from .exchange import Io, Link, is_absent, may_pass
from .options import Options, Patience

_PAUSE_MIN = 0.002
_PAUSE_MAX = 0.1
_BROKEN_PAUSE = 0.005
_CROWDED_PAUSE = 0.02
# A daemon that was started has so long to appear before another one is started:
# the one before it may have been about to exit.
_START_AGAIN = 0.5
# Somewhat fewer requests than a daemon takes on a connection, and connections of a process, by default.
_PLACES = 24
_LANES = 40
_AWAY_MS = 1_000

Params = dict[str, Any]
Ready = Callable[[Link], Params]


class _Home:
    """The connections of one event loop, or of one process."""

    def __init__(self, io: Io) -> None:
        self.connecting = io.mutex()
        self.calls: Link | None = None
        # Connections for calls that wait: in the order in which they are filled.
        self.lanes: list[Link] = []


# Connections of a parent process: a child that dropped them could disturb the parent's event loop.
_parents: list[object] = []


class Line:
    """Reaches the daemon. Usable by several event loops, and in a child after `fork`."""

    def __init__(self, options: Options, io: Io) -> None:
        self.options = options
        self.io = io
        self._homes: WeakKeyDictionary[object, _Home] = WeakKeyDictionary()
        self._pid = os.getpid()
        self._is_known = False

    def patience(self) -> Patience:
        """How long a call may take."""
        return Patience(self.options.timeout)

    async def call(self, method: str, params: Params | Ready, patience: Patience | None = None) -> Any:
        """One call, over as many connections as it takes. What it sends must have no further effect when
        repeated.

        Raises `Refused`, `ConnectError`, `NoAnswer`.
        """
        result, _ = await self.telling(method, params, patience)
        return result

    async def telling(
        self, method: str, params: Params | Ready, patience: Patience | None = None
    ) -> tuple[Any, int]:
        """As `call`. Tells also how many times the call was sent."""
        patience = patience or self.patience()
        return await self._repeat(method, params, patience, self._home(), waits=False)

    async def wait(self, method: str, params: Ready, patience: Patience) -> Any:
        """A call that waits, on a connection where it keeps no other waiting."""
        result, _ = await self._repeat(method, params, patience, self._home(), waits=True)
        return result

    async def link(self, patience: Patience) -> Link:
        """The connection for calls that are answered at once: made if there is none."""
        home = self._home()
        if home.calls and not home.calls.is_ended:
            return home.calls
        async with home.connecting:
            if home.calls is None or home.calls.is_ended:
                home.calls = await self.connect(patience)
            return home.calls

    def close(self) -> None:
        """Hangs up the connections of this event loop, or of this process. A later call makes new ones."""
        home = self._home()
        for link in [home.calls, *home.lanes]:
            if link:
                link.close()
        home.calls, home.lanes = None, []

    def _home(self) -> _Home:
        if self._pid != os.getpid():
            _parents.append(self._homes)
            self._homes, self._pid, self._is_known = WeakKeyDictionary(), os.getpid(), False
        key = self.io.home()
        home = self._homes.get(key)
        if home is None:
            home = self._homes[key] = _Home(self.io)
        return home

    async def _lane(self, home: _Home, patience: Patience) -> Link:
        async with home.connecting:
            home.lanes = [lane for lane in home.lanes if not lane.is_ended]
            free = next((lane for lane in home.lanes if lane.in_flight < _PLACES), None)
            if free is None and len(home.lanes) < _LANES:
                free = await self.connect(patience)
                home.lanes.append(free)
            return free or min(home.lanes, key=lambda lane: lane.in_flight)

    async def _repeat(
        self, method: str, params: Params | Ready, patience: Patience, home: _Home, *, waits: bool
    ) -> tuple[Any, int]:
        is_in_doubt, tries = False, 0
        while True:
            try:
                link = await (self._lane(home, patience) if waits else self.link(patience))
                while link.in_flight >= _PLACES and not link.is_ended and patience.left:
                    await self.io.sleep(min(_CROWDED_PAUSE, patience.left))
                tries += 1
                said = params(link) if callable(params) else params
                return await link.request(method, said, patience), tries
            except Disconnected:
                is_in_doubt = is_in_doubt or tries > 0
                if patience.left <= _BROKEN_PAUSE:
                    raise patience.out() from None
                await self.io.sleep(_BROKEN_PAUSE)
            except Refused as error:
                is_in_doubt = is_in_doubt or isinstance(error, OutcomeUnknown)
                after = error.retry_after
                if not error.passes or after is None:
                    raise
                if after >= patience.left:
                    raise _doubtful(error) if is_in_doubt else error from None
                await self.io.sleep(after)
            except ConnectError as error:
                raise _doubtful(error) if is_in_doubt else error from None

    async def connect(self, patience: Patience) -> Link:
        """A new connection. Starts a daemon where none runs, if the options allow it. Raises
        `ConnectError`.
        """
        runtime = directory.directory(self.options.directory)
        pause, started, last = _PAUSE_MIN, None, "it did not finish its hello"
        while True:
            try:
                directory.check(runtime)
                link = await self.io.connect(directory.socket_in(runtime), patience)
                self._is_known = True
                return link
            except NoAnswer:
                pass
            except (OSError, ConnectError) as error:
                if isinstance(error, NotRunning) or is_absent(error):
                    # A daemon that has answered before is restarting, as a rule.
                    if not self.options.start and not self._is_known:
                        raise directory.not_running(runtime) from None
                    due = started is None or started.seconds - started.left >= _START_AGAIN
                    if self.options.start and due:
                        await self._start(patience)
                        started, pause = Patience(3600.0), _PAUSE_MIN
                elif not may_pass(error):
                    raise (
                        error if isinstance(error, ConnectError) else ConnectError(f"{runtime}: {error}")
                    ) from error
                last = str(error)
            if patience.left <= pause:
                where = directory.socket_in(runtime)
                waited = f"was not reached within {patience.seconds * 1000:.0f} ms ({last})"
                raise ConnectError(f"the daemon at {where} {waited}; see `mcp-sessiond doctor`")
            await self.io.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)

    async def _start(self, patience: Patience) -> None:
        runtime = directory.directory(self.options.directory)
        for command in start.commands(runtime, self.options.binary):
            try:
                status = await self.io.run(command.arguments, command.environment, patience)
            except OSError as error:
                if command.is_last:
                    raise command.not_found(error) from error
                continue
            if command.judge(status):
                return


def _doubtful(error: SessiondError) -> SessiondError:
    """The error of a call that may have been carried out: one that says that nothing was done would be
    wrong.
    """
    after = error.fields.get("retry_after_ms", _AWAY_MS) if isinstance(error, Refused) else _AWAY_MS
    return refusal({"code": "outcome_unknown", "sentence": str(error), "retry_after_ms": after}, str(error))
