"""The Tasks extension of MCP 2026-07-28 (SEP-2663) for servers on FastMCP 4.2: tasks that survive the process,
in the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import FastMCPError
from fastmcp.server.extensions import MethodBinding, ServerExtension, ToolCallContinuation, ToolCallOutcome
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from .call import begin_task
from .methods import TasksExtension, caller_of
from .running import RunningTask
from .wire import IDENTIFIER, no_input_required

if TYPE_CHECKING:
    from fastmcp.server.context import Context

__all__ = ["DurableTasks", "RunningTask", "begin_task", "caller_of"]


class DurableTasks(TasksExtension, ServerExtension):
    """`server.add_extension(DurableTasks("notes"))`. A tool with `task=True` goes on as a task from its
    beginning on, where its client takes tasks; any other one by `begin_task`. The options are those of
    `mcp_sessiond.durable_tasks.DurableTasks`.
    """

    identifier = IDENTIFIER

    def methods(self) -> Sequence[MethodBinding]:
        """`tasks/get`, `tasks/update` and `tasks/cancel`."""
        return self._bound(MethodBinding)

    async def intercept_tool_call(
        self, params: CallToolRequestParams, context: Context, call_next: ToolCallContinuation
    ) -> ToolCallOutcome:
        """Runs the tool so that it may go on as a task."""
        ctx = context.request_context
        if ctx is None:  # A call of the server's own, which no client has made.
            return await call_next()
        tool = await context.fastmcp.get_tool(params.name)
        mode = "forbidden" if tool is None else tool.task_config.mode
        call = self._call(ctx)
        at_once, required = mode != "forbidden" or params.name in self._tools, mode == "required"
        answer: ToolCallOutcome = await call.serve(call_next, _outcome, at_once=at_once, required=required)
        return answer


def _outcome(work: asyncio.Task[Any]) -> Any:
    try:
        result = work.result()
    except FastMCPError as error:
        return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
    if isinstance(result, InputRequiredToolResult):
        raise no_input_required()
    if not isinstance(result, ToolResult):
        return result
    told = result.to_mcp_result()
    if isinstance(told, CallToolResult):
        return told
    content, structured = told if isinstance(told, tuple) else (told, None)
    return CallToolResult(content=content, structured_content=structured)
