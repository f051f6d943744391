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
from ..tasks import Task, TaskView
from ..values import Caller, Lifetimes

logger = logging.getLogger("mcp_sessiond")

# The id of the session, which has 128 random bits, and of the task in it, which has 256.
_ID = re.compile(r"([\w-]{22})\.([\w-]{1,128})", re.ASCII)
# How long the session of a task stays once the task's own time is over.
_IDLE_MS = 60_000
_NO_TASK = "there is no such task, or its time is over"


class KeptTasks:
    """The tasks that the processes of a service keep for their callers.

    A task's id, as its client knows it, is that of the session, a dot, and that of the task in it.
    """

    def __init__(self, service: str, options: Options | None) -> None:
        self._sessions = Sessions(service, options)
        self._has_warned = False

    async def create(
        self, caller: Caller | None, message: str | None, ttl_ms: int | None, poll_ms: int | None
    ) -> tuple[str, Task, TaskView] | None:
        """Makes a task of this caller's. Its id may be told when this returns. None where the daemon can't
        keep it, and then one line of the log says why.
        """
        try:
            session = await self._sessions.create(
                secrets.token_urlsafe(16),
                binding=caller,
                lifetimes=Lifetimes(_IDLE_MS, 0, 0),
                status="ready",
            )
            task, view = await session.create_task(message=message, ttl_ms=ttl_ms, poll_ms=poll_ms)
        except SessiondError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("Calls are answered directly, and not as tasks: %s", error)
            return None
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


def unknown_task() -> UnknownTask:
    """There is no such task for this caller."""
    return UnknownTask(_NO_TASK, "unknown_task", 400, {})
