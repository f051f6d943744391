"""Room in a session whose owner has used up its memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import QuotaExceeded

_KEEP_EVENTS = (256, 16)
"""How many events stay in such a session: many small ones, then few."""

T = TypeVar("T")


async def with_room(prune: Callable[[int], Awaitable[int]], change: Callable[[], Awaitable[T]]) -> T:
    """Makes a change. Where there is no memory for it, `prune` deletes the oldest events of the session first.
    Raises `SessiondError`.
    """
    for keep in _KEEP_EVENTS:
        try:
            return await change()
        except QuotaExceeded as error:
            if not error.of_memory:
                raise
        await prune(keep)
    return await change()
