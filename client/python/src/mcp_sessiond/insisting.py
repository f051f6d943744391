"""Changes that wait for a daemon that is away, however long that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .errors import SessiondError

AWAY = 0.5
"""How long to wait before a daemon that is away is asked again, in seconds."""

T = TypeVar("T")


async def insisting(change: Callable[[], Awaitable[T]]) -> T:
    """Makes a change, again and again while the daemon is away: one that has no further effect when it is
    repeated. Raises what does not pass.
    """
    while True:
        try:
            return await change()
        except SessiondError as error:
            if not error.passes:
                raise
        await asyncio.sleep(AWAY)
