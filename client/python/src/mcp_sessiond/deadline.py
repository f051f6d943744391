"""The deadline of a call, with all its attempts."""

from __future__ import annotations

import time

from .errors import NoAnswer


class Deadline:
    """How long one call may take with all that it takes, in seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = min(seconds, 24 * 3600.0)
        self._until = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds that are left, not below 0."""
        return max(0.0, self._until - time.monotonic())

    @property
    def until_ms(self) -> str:
        """The end, in ms of `CLOCK_MONOTONIC`, as the daemon reads a deadline."""
        clock = time.clock_gettime(time.CLOCK_MONOTONIC)
        return str(int((clock + self.left) * 1000))

    def error(self) -> NoAnswer:
        """The error where the time is over."""
        return NoAnswer(self.seconds)
