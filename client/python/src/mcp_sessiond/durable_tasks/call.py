"""A call of a tool, which may go on as a task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import anyio

from ..errors import SessiondError
from ..values import Caller
from .running import Outcome, RunningTask
from .task_store import TaskStore
from .wire import CreateTaskResult, not_declared, not_kept

TTL_MS = 3_600_000
"""How long a task is kept after its creation, unless its server says otherwise: an hour, for each is a
session of the service, of which there is a limited number.
"""
POLL_MS = 1_000
"""How often clients should ask for a task."""

Run = Callable[[], Awaitable[Any]]

_TOO_LATE = "the call was answered before it could go on as a task"

_CURRENT: ContextVar[Call | None] = ContextVar("mcp_sessiond_call", default=None)
# The event loop itself holds tasks weakly.
_ALIVE: set[asyncio.Task[Any]] = set()

T = TypeVar("T")


class Call:
    """One call of a tool's. `declared`: its client takes tasks."""

    def __init__(
        self,
        store: TaskStore,
        caller: Caller | None,
        declared: bool,
        *,
        ttl_ms: int,
        poll_ms: int,
    ) -> None:
        self.declared = declared
        self._store = store
        self._caller = caller
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms
        self._creating: asyncio.Task[None] | None = None
        self._running: RunningTask | None = None
        self._is_over = False
        self._begun: asyncio.Future[CreateTaskResult] = asyncio.get_running_loop().create_future()

    async def serve(self, run: Run, outcome: Outcome, *, at_once: bool, required: bool = False) -> Any:
        """What the tool answers, or that it goes on as a task: with `at_once` before it has begun, with
        `required` or not at all. Raises `MCPError`, and what the tool raises.
        """
        token = _CURRENT.set(self)
        try:
            if not self.declared:
                return await self._run(run, at_once, required)
            # It has the context of the request, and outlives that.
            work = asyncio.create_task(self._run(run, at_once, required))
        finally:
            _CURRENT.reset(token)
        try:
            await asyncio.wait([work, self._begun], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The client has hung up, which cancels a call. It was told no id, so nobody can come for a task.
            work.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([work])
            if self._begun.done():
                self._go_on(work, outcome)
            raise
        if not self._begun.done():
            return work.result()
        self._go_on(work, outcome)
        return self._begun.result()

    async def _run(self, run: Run, at_once: bool, required: bool) -> Any:
        try:
            if at_once:
                begun = await self.begin()
                if required and begun.why_not:
                    raise begun.why_not
            return await run()
        finally:
            self._is_over = True

    def _go_on(self, work: asyncio.Task[Any], outcome: Outcome) -> None:
        assert self._running
        _keep_alive(asyncio.create_task(self._running.run(work, outcome)))

    async def begin(
        self, message: str | None = None, ttl_ms: int | None = None, poll_ms: int | None = None
    ) -> RunningTask:
        """The task of this call, which is kept when this returns."""
        if self._running is None:
            if self._creating is None and not self._is_over:
                self._creating = _keep_alive(asyncio.create_task(self._create(message, ttl_ms, poll_ms)))
            if self._creating:
                # It goes on where its caller is cancelled meanwhile: the daemon may have made the task already.
                await asyncio.shield(self._creating)
        if self._running is None:
            raise LookupError(_TOO_LATE)
        return self._running

    async def _create(self, message: str | None, ttl_ms: int | None, poll_ms: int | None) -> None:
        if not self.declared:
            self._running = RunningTask(why_not=not_declared())
            return
        ttl = self._ttl_ms if ttl_ms is None else ttl_ms
        poll = self._poll_ms if poll_ms is None else poll_ms
        try:
            id, task, view = await self._store.create(self._caller, message, ttl, poll)
        except SessiondError as error:
            self._running = RunningTask(why_not=not_kept(error))
            return
        if self._is_over:
            with contextlib.suppress(SessiondError):
                await task.cancel()
            return
        self._running = RunningTask(id, task, view)
        self._begun.set_result(CreateTaskResult.of(id, view))


async def begin_task(
    *,
    message: str | None = None,
    ttl_ms: int | None = None,
    poll_ms: int | None = None,
    required: bool = False,
) -> RunningTask:
    """Lets the call that is being served go on as a task: its client is answered now, and what the tool
    returns is the task's result. Called again it gives the same task.

    `message` is what people are told, of which 4,096 bytes are kept, `ttl_ms` how long the task is kept at
    most, `poll_ms` how often clients should ask for it. Where the client does not take tasks, or the daemon
    can't keep one, the call is answered directly, and the `id` of what this returns is None; with `required`
    the client gets an error of MCP then. Raises `LookupError` outside of a call, after its answer, and where
    the server has no `DurableTasks` among its extensions.
    """
    call = _CURRENT.get()
    if call is None:
        raise LookupError("no call of a tool is being served by a server with the extension `DurableTasks`")
    running = await call.begin(message, ttl_ms, poll_ms)
    if required and running.why_not:
        raise running.why_not
    return running


def _keep_alive(task: asyncio.Task[T]) -> asyncio.Task[T]:
    _ALIVE.add(task)
    task.add_done_callback(_ALIVE.discard)
    return task
