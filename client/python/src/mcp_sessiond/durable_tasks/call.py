"""A call of a tool, which may go on as a task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio

from ..errors import SessiondError
from ..values import Caller
from .kept import KeptTasks
from .running import Outcome, RunningTask
from .wire import CreateTaskResult, not_declared

Run = Callable[[], Awaitable[Any]]

_TOO_LATE = "the call was answered before it could go on as a task"

_CURRENT: ContextVar[Call | None] = ContextVar("mcp_sessiond_call", default=None)
# The event loop itself holds tasks weakly.
_RUNNING: set[asyncio.Task[None]] = set()


class Call:
    """One call of a tool's. `declared`: its client takes tasks."""

    def __init__(
        self,
        kept: KeptTasks,
        caller: Caller | None,
        declared: bool,
        *,
        ttl_ms: int | None,
        poll_ms: int | None,
    ) -> None:
        self.declared = declared
        self._kept = kept
        self._caller = caller
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms
        self._beginning = asyncio.Lock()
        self._running: RunningTask | None = None
        self._answered = False
        self._begun: asyncio.Future[CreateTaskResult] = asyncio.get_running_loop().create_future()

    async def serve(self, run: Run, outcome: Outcome, *, at_once: bool) -> Any:
        """What the tool answers, or that it goes on as a task; with `at_once` before it has begun."""
        token = _CURRENT.set(self)
        try:
            if not self.declared:
                return await self._directly(run)
            if at_once:
                await self.begin()
            work = asyncio.create_task(_through(run))
        finally:
            _CURRENT.reset(token)
        try:
            await asyncio.wait([work, self._begun], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The client has hung up, which cancels a call. It was told no id, so nobody can come for a task.
            work.cancel()
            if self._begun.done():
                self._go_on(work, outcome)
            else:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([work])
            raise
        if not self._begun.done():
            self._answered = True
            return work.result()
        self._go_on(work, outcome)
        return self._begun.result()

    async def _directly(self, run: Run) -> Any:
        try:
            return await run()
        finally:
            self._answered = True

    def _go_on(self, work: asyncio.Task[Any], outcome: Outcome) -> None:
        assert self._running
        going = asyncio.create_task(self._running.run(work, outcome))
        _RUNNING.add(going)
        going.add_done_callback(_RUNNING.discard)

    def require(self) -> None:
        """Raises `MCPError` where the client does not take tasks."""
        if not self.declared:
            raise not_declared()

    async def begin(
        self, message: str | None = None, ttl_ms: int | None = None, poll_ms: int | None = None
    ) -> RunningTask:
        """The task of this call, which is kept when this returns."""
        async with self._beginning:
            if self._running is None:
                if self._answered:
                    raise LookupError(_TOO_LATE)
                self._running = await self._create(message, ttl_ms, poll_ms)
            return self._running

    async def _create(self, message: str | None, ttl_ms: int | None, poll_ms: int | None) -> RunningTask:
        if not self.declared:
            return RunningTask()
        ttl, poll = ttl_ms or self._ttl_ms, poll_ms or self._poll_ms
        created = await self._kept.create(self._caller, message, ttl, poll)
        if created is None:
            return RunningTask()
        id, task, view = created
        if self._answered:
            with contextlib.suppress(SessiondError):
                await task.cancel()
            raise LookupError(_TOO_LATE)
        self._begun.set_result(CreateTaskResult.of(id, view))
        return RunningTask(id, task, view)


async def begin_task(
    *,
    message: str | None = None,
    ttl_ms: int | None = None,
    poll_ms: int | None = None,
    required: bool = False,
) -> RunningTask:
    """Lets the call that is being served go on as a task: its client is answered now, and what the tool
    returns is the task's result. Called again it gives the same task.

    `message` is what people are told, `ttl_ms` how long the task is kept at most, `poll_ms` how often clients
    should ask for it. Where the client does not take tasks, or the daemon can't keep one, the call is
    answered directly, and the `id` of what this returns is None; with `required` a client that does not take
    tasks gets an error of MCP. Raises `LookupError` outside of a call, after its answer, and where the server
    has no `DurableTasks` among its extensions.
    """
    call = _CURRENT.get()
    if call is None:
        raise LookupError("no call of a tool is being served by a server with the extension `DurableTasks`")
    if required:
        call.require()
    return await call.begin(message, ttl_ms, poll_ms)


async def _through(run: Run) -> Any:
    return await run()

