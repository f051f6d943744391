"""Where the tasks are: each in a session of the service, which is bound to the task's caller."""

from __future__ import annotations

import logging
import re
import secrets

from ..errors import (
    BindingMismatch,
    InvalidArgument,
    SessiondError,
    SessionTerminated,
    UnknownSession,
    UnknownTask,
)
from ..options import Options
from ..sessions import Sessions
from ..tasks import Task, TaskView, truncated
from ..values import Caller, Lifetimes

logger = logging.getLogger("mcp_sessiond")

# The id of the session, which has 128 random bits, and of the task in it, which has 256.
_ID = re.compile(r"([\w-]{22})\.([\w-]{1,128})", re.ASCII)
# How long the session of a task stays once the task's own time is over.
_IDLE_MS = 60_000
# What the protocol has room for.
_TTL_MAX, _POLL_MAX = 2**64 - 1, 2**32 - 1
_NO_TASK = "there is no such task, or its time is over"


class TaskStore:
    """The tasks that the processes of a service keep for their callers.

    A task's id, as its client knows it, is that of the session, a dot, and that of the task in it.
    """

    def __init__(self, service: str, options: Options | None) -> None:
        self._sessions = Sessions(service, options)
        self._has_warned = False

    async def create(
        self, caller: Caller | None, message: str | None, ttl_ms: int, poll_ms: int
    ) -> tuple[str, Task, TaskView]:
        """Makes a task of this caller's. Its id may be told when this returns. Raises `SessiondError` where
        the daemon can't keep it, and then one line of the log says why.
        """
        try:
            # First: a session that was made for nothing counts for a while, also if it is ended.
            _check(ttl_ms, poll_ms)
            session = await self._sessions.create(
                secrets.token_urlsafe(16),
                binding=caller,
                lifetimes=Lifetimes(_IDLE_MS, 0, 0),
                status="ready",
            )
            told = None if message is None else truncated(message)
            task, view = await session.create_task(message=told, ttl_ms=ttl_ms, poll_ms=poll_ms)
        except SessiondError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("Calls are answered directly, and not as tasks: %s", error)
            raise
        self._has_warned = False
        return f"{session.id}.{task.id}", task, view

    async def find(self, id: str, caller: Caller | None) -> Task:
        """The task of this id. Raises `UnknownTask`, with the same words where it belongs to another caller."""
        named = _ID.fullmatch(id)
        try:
            if named:
                session, view = await self._sessions.on_behalf_of(caller).open_viewed(named[1])
                # What nobody in particular has made is not for those that have a name.
                if view.bound == (caller is not None):
                    return session.task(named[2])
        except (UnknownSession, SessionTerminated, BindingMismatch, InvalidArgument):
            pass
        raise unknown_task()


def _check(ttl_ms: int, poll_ms: int) -> None:
    for name, least, most, given in (("ttl_ms", 1, _TTL_MAX, ttl_ms), ("poll_ms", 0, _POLL_MAX, poll_ms)):
        if not isinstance(given, int) or not least <= given <= most:
            sentence = f"`{name}` is a whole number from {least} to {most}"
            raise InvalidArgument(sentence, "invalid_argument", 400, {})


def unknown_task() -> UnknownTask:
    """There is no such task for this caller."""
    return UnknownTask(_NO_TASK, "unknown_task", 400, {})
