"""Changes that wait for a daemon that is away, however long that takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .errors import SessiondError

logger = logging.getLogger("mcp_sessiond")

RETRY_SECONDS = 0.5
"""How long to wait before a daemon that is away is asked again, in seconds."""

T = TypeVar("T")


async def retry_while_away(change: Callable[[], Awaitable[T]], waits: str | None = None) -> T:
    """Makes a change, again and again while the daemon is away: one that has no further effect when it is
    repeated. Raises what does not pass. `waits` is said once in the log, with the reason.
    """
    while True:
        try:
            return await change()
        except SessiondError as error:
            if not error.passes:
                raise
            if waits:
                logger.warning("%s: %s", waits, error)
                waits = None
        await asyncio.sleep(RETRY_SECONDS)
