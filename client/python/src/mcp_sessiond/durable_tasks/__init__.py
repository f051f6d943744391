"""The Tasks extension of MCP 2026-07-28 (SEP-2663) for servers on the official SDK, `mcp` 2.3: tasks that
survive the process, in the daemon. `durable_tasks.fastmcp` has the same for FastMCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp_types import CallToolRequestParams, InputRequiredResult

from ..options import Options
from .call import POLL_MS, TTL_MS, Call, begin_task
from .kept import KeptTasks
from .listening import Listening
from .methods import VERSIONS, CallerOf, TaskMethods, caller_of, has_declared
from .running import RunningTask
from .wire import IDENTIFIER, TaskParams, UpdateParams, no_input_required

__all__ = ["DurableTasks", "RunningTask", "begin_task", "caller_of"]


class DurableTasks(Extension):
    """`MCPServer("notes", extensions=[DurableTasks("notes", tools=["report"])])`.

    A call of one of `tools` is answered by a task at once, where its client takes tasks. In any other tool
    `begin_task` does that. Every process that says the service's name serves its tasks. If the one that
    works on a task exits, the task is `failed`, and the error says that the outcome is unknown.

    `caller` tells whose a request is: a task is found by its own caller alone. `ttl_ms` is how long a task is
    kept after its creation, an hour, and at most what is configured; `poll_ms` how often clients should ask.
    """

    identifier = IDENTIFIER

    def __init__(
        self,
        service: str,
        *,
        tools: Collection[str] = (),
        caller: CallerOf = caller_of,
        ttl_ms: int = TTL_MS,
        poll_ms: int = POLL_MS,
        options: Options | None = None,
    ) -> None:
        self._kept = KeptTasks(service, options)
        self._tools = frozenset(tools)
        self._caller = caller
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms
        self.listening = Listening(self._kept, caller)
        """Middleware, `MCPServer(…, middleware=[tasks.listening])`: tells clients that listen how their tasks
        change, by `notifications/tasks`. Without it they ask.
        """

    def methods(self) -> Sequence[MethodBinding]:
        """`tasks/get`, `tasks/update` and `tasks/cancel`."""
        does = TaskMethods(self._kept, self._caller)
        return [
            MethodBinding("tasks/get", TaskParams, does.get, VERSIONS),
            MethodBinding("tasks/update", UpdateParams, does.update, VERSIONS),
            MethodBinding("tasks/cancel", TaskParams, does.cancel, VERSIONS),
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Runs the tool so that it may go on as a task."""
        call = Call(
            self._kept, self._caller(ctx), has_declared(ctx), ttl_ms=self._ttl_ms, poll_ms=self._poll_ms
        )
        at_once = params.name in self._tools
        answer: HandlerResult = await call.serve(lambda: call_next(ctx), _outcome, at_once=at_once)
        return answer



def _outcome(work: asyncio.Task[HandlerResult]) -> HandlerResult:
    result = work.result()
    if isinstance(result, InputRequiredResult):
        raise no_input_required()
    return result
