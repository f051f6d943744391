"""The Tasks extension of MCP 2026-07-28 (SEP-2663) for servers on the official SDK, `mcp` 2.3: tasks that
survive the process, in the daemon. `durable_tasks.fastmcp` has the same for FastMCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp_types import CallToolRequestParams, InputRequiredResult

from .call import begin_task
from .listen import ListenMiddleware
from .methods import TasksExtension, caller_of
from .running import RunningTask
from .wire import IDENTIFIER, no_input_required

__all__ = ["DurableTasks", "RunningTask", "begin_task", "caller_of"]


class DurableTasks(TasksExtension, Extension):
    """`MCPServer("notes", extensions=[DurableTasks("notes", tools=["report"])])`.

    A call of one of `tools` is answered by a task at once, where its client takes tasks. In any other tool
    `begin_task` does that. Every process that says the service's name serves its tasks. If the one that
    works on a task exits, the task is `failed`, and the error says that the outcome is unknown.

    `caller` tells whose a request is: a task is found by its own caller alone. `ttl_ms` is how long a task is
    kept after its creation, an hour, and at most what is configured; `poll_ms` how often clients should ask.
    """

    identifier = IDENTIFIER

    @property
    def listening(self) -> ListenMiddleware:
        """Middleware, `MCPServer(…, middleware=[tasks.listening])`: tells clients that listen how their tasks
        change, by `notifications/tasks`. Without it they ask.
        """
        return ListenMiddleware(self._store, self._caller)

    def methods(self) -> Sequence[MethodBinding]:
        """`tasks/get`, `tasks/update` and `tasks/cancel`."""
        return self._bound(MethodBinding)

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Runs the tool so that it may go on as a task."""
        at_once = params.name in self._tools
        call = self._call(ctx)
        answer: HandlerResult = await call.serve(lambda: call_next(ctx), _outcome, at_once=at_once)
        return answer


def _outcome(work: asyncio.Task[HandlerResult]) -> HandlerResult:
    result = work.result()
    if isinstance(result, InputRequiredResult):
        raise no_input_required()
    return result
