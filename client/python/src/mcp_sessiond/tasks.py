"""The tasks of a session: work that goes on after the request that began it was answered (the Tasks extension
of MCP 2026-07-28, SEP-2663).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .connections import Connections, Params
from .deadline import Deadline
from .values import Json, Raw, as_json, request_id

MESSAGE_MAX = 4_096
"""Bytes of a task's message: the daemon takes no more."""
_PAGE = 100
_WAIT_MAX = 25.0
_ENDED_EARLY_PAUSE = 0.05

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""What has become of a task. The last three are final."""
FINAL: tuple[TaskStatus, ...] = ("completed", "failed", "cancelled")
"""The states of a task that has ended."""


@dataclass(frozen=True)
class TaskInput:
    """A request of a task's for its client. `response` is None as long as it is open."""

    key: str
    request: Json
    response: Json | None


@dataclass(frozen=True)
class TaskView:
    """A task as it is now. Times are in ms, moments since the Unix epoch."""

    id: str
    status: TaskStatus
    created_ms: int
    updated_ms: int
    ttl_ms: int
    """How long after its creation it is kept."""
    version: int
    """Grows with each change, from 1."""
    message: str | None = field(repr=False)
    poll_ms: int | None
    inputs: Sequence[TaskInput]
    """Empty in lists, and where the task has ended."""
    result: Json | None
    """Of one that is `completed`; not in lists."""
    error: Json | None
    """Of one that has `failed`; not in lists."""

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL

    @classmethod
    def read(cls, raw: Raw) -> TaskView:
        """Out of the daemon's answer."""

        def text(of: Raw, name: str) -> Json | None:
            return None if of.get(name) is None else Json(of[name])

        inputs = [
            TaskInput(one["key"], Json(one["request"]), text(one, "response"))
            for one in raw.get("inputs") or []
        ]
        return cls(
            raw["task"],
            raw["status"],
            created_ms=int(raw["created_ms"]),
            updated_ms=int(raw["updated_ms"]),
            ttl_ms=int(raw["ttl_ms"]),
            version=int(raw["version"]),
            message=raw.get("message"),
            poll_ms=raw.get("poll_ms"),
            inputs=inputs,
            result=text(raw, "result"),
            error=text(raw, "error"),
        )


class Tasks:
    """What a `Session` does with its tasks."""

    if TYPE_CHECKING:
        _connections: Connections

        async def _of(self, deadline: Deadline) -> Params: ...

        async def _change(self, method: str, params: Params) -> Any: ...

    async def create_task(
        self,
        *,
        ttl_ms: int | None = None,
        poll_ms: int | None = None,
        message: str | None = None,
        request: str | None = None,
    ) -> tuple[Task, TaskView]:
        """Creates a task, which is kept when this returns: its id may be told then.

        If this process exits before the task has ended, the task has failed, and its error says that the
        outcome is unknown. `ttl_ms` is how long it is kept, at most and by default what is configured;
        `poll_ms` how often clients should ask; `message` what people are told, at most 4,096 bytes.
        `request` is an idempotency key: repeating a call with it gives the same task. Raises `QuotaExceeded`
        where all of the session's tasks are under way.
        """
        params = {
            "request": request or request_id(),
            "ttl_ms": None if ttl_ms is None else str(ttl_ms),
            "poll_ms": poll_ms,
            "message": message,
        }
        view = TaskView.read(await self._change("create_task", params))
        return self.task(view.id), view

    def task(self, id: str) -> Task:
        """The task of this id. Nothing is sent."""
        return Task(self, id)

    async def tasks(self) -> list[TaskView]:
        """All tasks, in order of their ids, without their requests and results."""
        found: list[TaskView] = []
        while True:
            page = await self._change("list_tasks", {"after": found[-1].id if found else None})
            found += [TaskView.read(raw) for raw in page]
            if len(page) < _PAGE:
                return found


class Task:
    """A task of a session's. Its calls raise `UnknownTask` where there is none, or its time is over, and those
    that change it `TaskEnded`.
    """

    def __init__(self, session: Tasks, id: str) -> None:
        self._session = session
        self.id = id
        """Its id, for the client."""

    async def view(self) -> TaskView:
        """The task as it is now."""
        return TaskView.read(await self._session._change("get_task", {"task": self.id}))

    async def update(
        self,
        *,
        message: str | None = None,
        ttl_ms: int | None = None,
        poll_ms: int | None = None,
        ask: Mapping[str, object] | None = None,
        answer: Mapping[str, object] | None = None,
        take: bool = False,
    ) -> TaskView:
        """Changes the task: all of it, or nothing. What is None stays. Repeating it has no further effect.

        `ask` has requests for the client, by keys that the task has not used for another request; `answer`
        the client's answers, of which the daemon ignores those to what was not asked, or is answered already.
        With `take` this process writes the task from now on: its exit is the end of the task.
        """
        return await self._update(
            message=message,
            ttl_ms=None if ttl_ms is None else str(ttl_ms),
            poll_ms=poll_ms,
            ask=_texts(ask, "request"),
            answer=_texts(answer, "response"),
            take=take or None,
        )

    async def complete(self, result: object) -> TaskView:
        """Ends the task by its result."""
        return await self._update(end={"completed": as_json(result)})

    async def fail(self, error: object) -> TaskView:
        """Ends the task by an error of JSON-RPC."""
        return await self._update(end={"failed": as_json(error)})

    async def cancel(self) -> TaskView:
        """Cancels the task. Its writer finds that out by `changed`, or by `TaskEnded`."""
        return await self._update(end="cancelled")

    async def changed(self, version: int, seconds: float = _WAIT_MAX) -> TaskView:
        """Waits until the task has another version than this, or has ended; the task as it is when the time
        is over.
        """
        until = time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            began = time.monotonic()
            view = await self._wait_once(version, min(left, _WAIT_MAX))
            if view.version != version or view.is_final or time.monotonic() >= until:
                return view
            # The daemon is about to exit.
            if time.monotonic() - began < min(left, _WAIT_MAX):
                await asyncio.sleep(min(_ENDED_EARLY_PAUSE, left))

    async def _wait_once(self, version: int, seconds: float) -> TaskView:
        connections = self._session._connections
        deadline = Deadline(seconds + connections.options.timeout)
        until = time.monotonic() + seconds
        of = await self._session._of(deadline)
        of.pop("epoch", None)

        def params(_: object) -> Params:
            left = max(0, int((until - time.monotonic()) * 1000))
            return {"of": of, "task": self.id, "version": str(version), "timeout_ms": left}

        return TaskView.read(await connections.wait("wait_task", params, deadline))

    async def _update(self, **params: Any) -> TaskView:
        return TaskView.read(await self._session._change("update_task", {"task": self.id, **params}))


def _texts(given: Mapping[str, object] | None, name: str) -> list[dict[str, str]] | None:
    return [{"key": key, name: as_json(value)} for key, value in given.items()] if given else None


def truncated(message: str) -> str:
    """As much of a message as the daemon takes."""
    return message.encode(errors="replace")[:MESSAGE_MAX].decode(errors="ignore")
