"""`notifications/tasks`, for clients that listen to them by `subscriptions/listen`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, Notification, RequestId

from ..errors import SessiondError, SessionTerminated, UnknownSession, UnknownTask
from ..retry import RETRY_SECONDS
from ..tasks import Task
from .methods import CallerOf, has_declared
from .task_store import TaskStore
from .wire import detailed_task, not_declared, refusal

# Tasks that one subscription hears of: for each of them a call of the daemon's waits.
_TASKS_MAX = 64


class TaskNotification(Notification[dict[str, Any], str]):
    """A notification, as it is written."""


class ListenMiddleware:
    """Middleware of the SDK's: tells a client that listens to tasks how they change."""

    def __init__(self, store: TaskStore, caller: CallerOf) -> None:
        self._store = store
        self._caller = caller

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Passes on all but the tasks of a `subscriptions/listen`."""
        asked = ctx.params.get("notifications") if ctx.method == "subscriptions/listen" and ctx.params else None
        ids = asked.get("taskIds") if isinstance(asked, dict) else None
        if ids is None or ctx.request_id is None:
            return await call_next(ctx)
        if not has_declared(ctx):
            raise not_declared()
        if not isinstance(ids, list) or len(ids) > _TASKS_MAX:
            raise MCPError(INVALID_PARAMS, f"`taskIds` is an array of at most {_TASKS_MAX} ids of tasks")
        found = await self._found([id for id in ids if isinstance(id, str)], ctx)
        session = _Session(ctx.session, list(found))
        telling = [asyncio.create_task(_tell(session, ctx.request_id, *one)) for one in found.items()]
        try:
            return await call_next(replace(ctx, session=cast(ServerSession, session)))
        finally:
            for one in telling:
                one.cancel()
            with anyio.CancelScope(shield=True):
                # What they could not send to a client that has gone is nobody's concern.
                await asyncio.gather(*telling, return_exceptions=True)

    async def _found(self, ids: list[str], ctx: ServerRequestContext[Any, Any]) -> dict[str, Task]:
        found = {}
        for id in ids:
            try:
                found[id] = await self._store.find(id, self._caller(ctx))
                await found[id].view()
            except (UnknownTask, UnknownSession, SessionTerminated):
                found.pop(id, None)
            except SessiondError as error:
                raise refusal(error) from None
        return found


class _Session:
    """The SDK's session, whose acknowledgement names the tasks, too."""

    def __init__(self, session: ServerSession, ids: list[str]) -> None:
        self._session = session
        self._ids = ids
        self.acknowledged = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(self, notification: Any, related_request_id: RequestId | None = None) -> None:
        """Sends a notification."""
        send = cast(Callable[[object, RequestId | None], Awaitable[None]], self._session.send_notification)
        if notification.method != "notifications/subscriptions/acknowledged":
            await send(notification, related_request_id)
            return
        params = notification.params.model_dump(by_alias=True, mode="json", exclude_none=True)
        if self._ids:
            params["notifications"]["taskIds"] = self._ids
        await send(TaskNotification(method=notification.method, params=params), related_request_id)
        self.acknowledged.set()


async def _tell(session: _Session, request: RequestId, id: str, task: Task) -> None:
    """Tells how the task is, and each time that it has changed, until it has ended."""
    await session.acknowledged.wait()
    version = 0
    while True:
        try:
            view = await task.changed(version)
        except SessiondError as error:
            if not error.passes:
                return
            await asyncio.sleep(RETRY_SECONDS)
            continue
        if view.version == version:
            continue
        version = view.version
        params = {**detailed_task(id, view), "_meta": {SUBSCRIPTION_ID_META_KEY: request}}
        del params["resultType"]
        await session.send_notification(TaskNotification(method="notifications/tasks", params=params), request)
        if view.is_final:
            return
