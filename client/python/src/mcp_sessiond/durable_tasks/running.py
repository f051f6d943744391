"""A task while its tool works, in the process that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel

from ..errors import SessiondError, SessionTerminated, TaskEnded, UnknownSession, UnknownTask
from ..retry import RETRY_SECONDS, retry_while_away
from ..tasks import Task, TaskView, truncated

logger = logging.getLogger("mcp_sessiond")

Outcome = Callable[[asyncio.Task[Any]], Any]
"""What a tool has answered, as MCP has it. Raises what the tool has raised."""


class RunningTask:
    """What a tool that goes on as a task says and asks. Where the call is answered directly, `tell` has no
    effect and `ask` is refused.
    """

    def __init__(
        self,
        id: str | None = None,
        task: Task | None = None,
        view: TaskView | None = None,
        *,
        why_not: MCPError | None = None,
    ) -> None:
        self.id = id
        """The id that the client has; None where the call is answered directly."""
        self.why_not = why_not
        """Why it is, as an error for the client; None where there is a task."""
        self._task = task
        self._view = view
        self._news = asyncio.Event()
        self._names: set[str] = set()

    async def tell(self, message: str, *, poll_ms: int | None = None) -> None:
        """Tells people how far the work is: 4,096 bytes are kept. `poll_ms` is how often clients should ask
        from now on. Never raises.
        """
        if self._task is None:
            return
        try:
            self._see(await self._task.update(message=truncated(message), poll_ms=poll_ms))
        except (TaskEnded, UnknownTask):
            pass  # The work is about to be cancelled.
        except SessiondError as error:
            logger.warning("What a tool has told of its task is not kept: %s", error)

    async def ask(self, method: str, params: Mapping[str, Any], *, key: str | None = None) -> Any:
        """Asks the client (`elicitation/create`, `sampling/createMessage`, `roots/list`) and waits for its
        answer, however long that takes, also for a daemon that is away. The task is `input_required` until
        then.

        A key names one request of this task, and no other one ever. Raises `why_not` where there is no task,
        and a `SessiondError` where the request can't be kept or the task has ended.
        """
        if self.why_not:
            raise self.why_not
        assert self._task
        name = key or self._name()
        self._names.add(name)
        request = {name: {"method": method, "params": dict(params)}}
        task = self._task
        self._see(await retry_while_away(lambda: task.update(ask=request)))
        while True:
            assert self._view
            if self._view.is_final:
                raise TaskEnded("the task has ended", "task_ended", 409, {})
            for one in self._view.inputs:
                if one.key == name and one.response is not None:
                    return one.response.value()
            await self._news.wait()

    def _name(self) -> str:
        number = 1
        while f"request-{number}" in self._names:
            number += 1
        return f"request-{number}"

    def _see(self, view: TaskView) -> None:
        if self._view is None or view.version > self._view.version:
            self._view = view
            news, self._news = self._news, asyncio.Event()
            news.set()

    async def run(self, work: asyncio.Task[Any], outcome: Outcome) -> None:
        """Ends the task as its work ends, and the work where the task has ended by other means."""
        watch = asyncio.create_task(self._watch(work))
        try:
            await asyncio.wait([work])
        finally:
            # At the latest when the process exits. Then it is the daemon that ends the task.
            work.cancel()
            watch.cancel()
        try:
            if work.cancelled():
                await self._end(lambda task: task.cancel())
                return
            result = outcome(work)
            if isinstance(result, BaseModel):
                result = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            await self._end(lambda task: task.complete(result))
        except MCPError as error:
            await self._fail(error)
        except Exception:
            logger.exception("A tool that went on as a task has failed")
            await self._fail(MCPError(INTERNAL_ERROR, "Internal error"))

    async def _watch(self, work: asyncio.Task[Any]) -> None:
        assert self._task and self._view
        while not self._view.is_final:
            try:
                self._see(await self._task.changed(self._view.version))
            except SessiondError as lost:
                if not lost.passes:
                    break
                await asyncio.sleep(RETRY_SECONDS)
        work.cancel()

    async def _fail(self, error: MCPError) -> None:
        def fail(error: MCPError) -> Awaitable[None]:
            told = error.error.model_dump(mode="json", by_alias=True, exclude_none=True)
            return self._end(lambda task: task.fail(told))

        try:
            await fail(error)
        except MCPError as refused:
            # It is too large. Why it is says less.
            with contextlib.suppress(MCPError):
                await fail(refused)

    async def _end(self, end: Callable[[Task], Awaitable[TaskView]]) -> None:
        """Kept in memory until the daemon is back. Raises `MCPError` where it can't be kept at all."""
        assert self._task
        task = self._task
        try:
            await retry_while_away(lambda: end(task), "The end of a task waits to be kept")
        except (TaskEnded, UnknownTask, UnknownSession, SessionTerminated):
            pass  # Its client has cancelled it, or its time is over.
        except SessiondError as error:
            logger.warning("The end of a task is not kept: %s", error)
            raise MCPError(INTERNAL_ERROR, str(error)) from None
