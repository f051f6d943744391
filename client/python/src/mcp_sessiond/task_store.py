"""A `TaskStore` for the experimental tasks of `mcp` 1.30 (MCP 2025-11-25), on the low-level server: tasks in the
session of their client.

The Tasks extension of MCP 2026-07-28 is in `mcp_sessiond.durable_tasks`.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.experimental.tasks.store import TaskStore
from mcp.types import (
    INTERNAL_ERROR,
    CallToolResult,
    GetTaskPayloadResult,
    Result,
    Task,
    TaskMetadata,
    TaskStatus,
    TextContent,
)

from .asgi import session_of
from .errors import SessiondError, SessionTerminated, TaskEnded, UnknownSession, UnknownTask
from .retry import retry_while_away
from .session import Session
from .tasks import FINAL, TaskView, truncated
from .tasks import Task as DaemonsTask
from .values import Json

logger = logging.getLogger("mcp_sessiond")

# How often clients should ask, in ms: as the SDK's own store.
_POLL_MS = 500
# The SDK says that a task asks its client, but not what: that goes another way.
_WAITS = "waits-"


class DurableTaskStore(TaskStore):
    """`server.experimental.enable_tasks(store=DurableTaskStore(server))`, with `durable` around the app.

    A task is found by the session that has made it alone, in any process of the service. It has the daemon's
    id, and not the one that the SDK draws: that is refused to a session that was restored. If the process
    that works on a task exits, the task is `failed`, and its result says that the outcome is unknown.
    What a task asks its client by is in the memory of the process. `tasks/list` of the SDK lists none.
    Calls raise `ValueError`s as the interface says, and `SessiondError`s.
    """

    def __init__(self, server: Server[Any, Any]) -> None:
        self._server = server
        # What was said last of a task that has not ended: `wait_for_update` waits for what comes after.
        self._last_seen: dict[str, TaskView] = {}
        self._results: dict[str, str] = {}

    @property
    def _session(self) -> Session:
        return session_of(self._server.request_context)

    async def create_task(self, metadata: TaskMetadata, task_id: str | None = None) -> Task:
        """Makes a task of the session whose request is being served."""
        _, view = await self._session.create_task(ttl_ms=metadata.ttl, poll_ms=_POLL_MS)
        return self._seen(view)

    async def get_task(self, task_id: str) -> Task | None:
        """The task as it is now; None where there is none."""
        try:
            return self._seen(await self._session.task(task_id).view())
        except UnknownTask:
            self._last_seen.pop(task_id, None)
            return None

    async def update_task(
        self, task_id: str, status: TaskStatus | None = None, status_message: str | None = None
    ) -> Task:
        """Changes the task, unless it has ended. A daemon that is away is waited for. Of a message 4,096 bytes
        are kept.

        The SDK has no use for an error of `failed`, which would end the session: so that is never raised.
        """
        task, message = self._session.task(task_id), truncated(status_message or "")
        try:
            return self._seen(await self._changed(task, status, message))
        except SessiondError as error:
            told = self._last_seen.get(task_id)
            if isinstance(error, (UnknownTask, UnknownSession, SessionTerminated)):
                self._last_seen.pop(task_id, None)
            if isinstance(error, UnknownTask) and told:
                return _task(told)
            if status == "failed":
                logger.warning("The end of a task is not kept: %s", error)
                return _task(told) if told else _gone(task_id, message)
            if isinstance(error, UnknownTask):
                raise ValueError(f"Task with ID {task_id} not found") from None
            raise
        finally:
            if status in FINAL:
                self._results.pop(task_id, None)

    async def _changed(self, task: DaemonsTask, status: TaskStatus | None, message: str) -> TaskView:
        try:
            return await retry_while_away(lambda: self._update(task, status, message), "A change of a task waits")
        except TaskEnded:
            return await retry_while_away(task.view)

    async def _update(self, task: DaemonsTask, status: TaskStatus | None, message: str) -> TaskView:
        view = await task.update(message=message) if message else await task.view()
        if status == "completed":
            return await task.complete(Json(self._results.get(task.id, "{}")))
        if status == "failed":
            return await task.fail({"code": INTERNAL_ERROR, "message": message or "the task has failed"})
        if status == "cancelled":
            return await task.cancel()
        if status == "input_required":
            return await task.update(ask={f"{_WAITS}{len(view.inputs)}": {}})
        if status == "working":
            return await task.update(answer={one.key: {} for one in view.inputs if one.response is None})
        return view

    async def store_result(self, task_id: str, result: Result) -> None:
        """The result with which the task is about to be completed."""
        self._results[task_id] = result.model_dump_json(by_alias=True, exclude_none=True)

    async def get_result(self, task_id: str) -> Result | None:
        """The result of a task that has ended."""
        try:
            view = await self._session.task(task_id).view()
        except UnknownTask:
            return None
        if view.error is not None:
            message = str(view.error.value().get("message", ""))
            return CallToolResult(content=[TextContent(type="text", text=message)], isError=True)
        return None if view.result is None else GetTaskPayloadResult.model_validate(view.result.value())

    async def list_tasks(self, cursor: str | None = None) -> tuple[list[Task], str | None]:
        """The tasks of the session, in one page."""
        return [_task(view) for view in await self._session.tasks()], None

    async def delete_task(self, task_id: str) -> bool:
        """Deletes nothing: a task goes when its time is over."""
        return False

    async def wait_for_update(self, task_id: str) -> None:
        """Waits until the task has changed since `get_task` told it."""
        task, told = self._session.task(task_id), self._last_seen.get(task_id)
        version = told.version if told else 0
        try:
            while (await task.changed(version)).version == version:
                pass
        except UnknownTask:
            raise ValueError(f"Task with ID {task_id} not found") from None

    async def notify_update(self, task_id: str) -> None:
        """Nothing: the daemon wakes who waits."""

    def _seen(self, view: TaskView) -> Task:
        if view.is_final:
            self._last_seen.pop(view.id, None)
        else:
            self._last_seen[view.id] = view
        return _task(view)


def _gone(id: str, message: str) -> Task:
    """A task that the daemon does not have."""
    now = datetime.now(timezone.utc)
    return Task(
        taskId=id, status="failed", statusMessage=message, createdAt=now, lastUpdatedAt=now, ttl=None
    )


def _task(view: TaskView) -> Task:
    message = view.message
    if view.error is not None:
        message = str(view.error.value().get("message", message))
    return Task(
        taskId=view.id,
        status=view.status,
        statusMessage=message,
        createdAt=datetime.fromtimestamp(view.created_ms / 1000, timezone.utc),
        lastUpdatedAt=datetime.fromtimestamp(view.updated_ms / 1000, timezone.utc),
        ttl=view.ttl_ms,
        pollInterval=view.poll_ms,
    )
