"""A client of a session: there until it leaves, whatever becomes of connections and daemons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from .errors import SessiondError
from .exchange import Link
from .line import Line, Params
from .options import Patience

_PAUSE = 0.005
_RETRY_AFTER = 5.0


class Attachment:
    """A client that has come to a session (`Session.attach`). Call `detach` when it goes, or use `async
    with`.

    Until then it is attached again whenever the connection was lost.
    """

    def __init__(self, line: Line, of: Callable[[Patience], Awaitable[Params]]) -> None:
        self._line = line
        self._of = of
        self._link: Link | None = None
        self._has_left = False
        self._keeping: object = None

    @classmethod
    async def of(cls, line: Line, of: Callable[[Patience], Awaitable[Params]]) -> Attachment:
        """A client of the session that `of` names."""
        attachment = cls(line, of)
        await attachment._attach()
        attachment._keeping = line.io.spawn(attachment._keep())
        return attachment

    async def _attach(self) -> None:
        patience = self._line.patience()
        of = await self._of(patience)

        def params(link: Link) -> Params:
            # It belongs to the connection that it was sent on.
            self._link = link
            return of

        await self._line.call("attach_session", params, patience)

    async def _keep(self) -> None:
        while self._link and not self._has_left:
            await self._link.ended()
            pause = _PAUSE
            while not self._has_left:
                await self._line.io.sleep(pause)
                try:
                    await self._attach()
                    break
                except SessiondError as error:
                    if not error.passes:
                        return
                    pause = _RETRY_AFTER

    async def detach(self) -> None:
        """The client goes. The daemon knows when this returns, if it is there."""
        if self._has_left:
            return
        self._has_left = True
        if self._link and not self._link.is_ended:
            patience = self._line.patience()
            try:
                await self._link.request("detach_session", await self._of(patience), patience)
            except SessiondError:
                pass  # Where the connection breaks, the client has gone with it.
        cancel = getattr(self._keeping, "cancel", None)
        if cancel:
            cancel()

    async def __aenter__(self) -> Attachment:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.detach()
