"""Tasks as the Tasks extension writes them (SEP-2663), and its errors."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RequestParams,
    Result,
)

from .. import log
from ..errors import InvalidArgument, SessiondError, UnknownSession, UnknownTask
from ..tasks import TaskView

IDENTIFIER = "io.modelcontextprotocol/tasks"
"""The extension, in the capabilities of clients and servers."""


class TaskParams(RequestParams):
    """Which task is meant."""

    task_id: str


class UpdateParams(TaskParams):
    """The client's answers, by the keys of the task's requests."""

    input_responses: dict[str, Any]


class CreateTaskResult(Result):
    """The answer to a call that goes on as a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None

    @classmethod
    def of(cls, id: str, view: TaskView) -> CreateTaskResult:
        """A task that was created."""
        return cls.model_validate({**_task(id, view), "resultType": "task"})


def detailed_task(id: str, view: TaskView) -> dict[str, Any]:
    """A task with all that `tasks/get` tells of it."""
    told = _task(id, view)
    if view.status == "input_required":
        told["inputRequests"] = {one.key: one.request.value() for one in view.inputs if one.response is None}
    if view.result is not None:
        told["result"] = view.result.value()
    if view.error is not None:
        told["error"] = view.error.value()
        message = told["error"].get("message")
        # The daemon writes none when it ends the task of a process that has exited.
        if isinstance(message, str):
            told["statusMessage"] = message
    return {"resultType": "complete", **told}


def _task(id: str, view: TaskView) -> dict[str, Any]:
    told = {
        "taskId": id,
        "status": view.status,
        "createdAt": _moment(view.created_ms),
        "lastUpdatedAt": _moment(view.updated_ms),
        "ttlMs": view.ttl_ms,
    }
    if view.message is not None:
        told["statusMessage"] = view.message
    if view.poll_ms is not None:
        told["pollIntervalMs"] = view.poll_ms
    return told


def _moment(ms: int) -> str:
    """ISO 8601, to the millisecond."""
    moment = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def other_name() -> MCPError:
    """The header `Mcp-Name` is not the id of the task (SEP-2663, with SEP-2243)."""
    return MCPError(HEADER_MISMATCH, "the header `Mcp-Name` is not `params.taskId`: send both alike")


def not_declared() -> MCPError:
    """The request's client has not declared the extension."""
    data: dict[str, Any] = {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
    message = f"the client must declare the extension {IDENTIFIER} in the capabilities of this request"
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, data)


def not_kept(error: SessiondError) -> MCPError:
    """The daemon can't keep a new task."""
    if isinstance(error, InvalidArgument):
        return MCPError(INTERNAL_ERROR, f"a task can't be kept: {error}")
    return MCPError(INTERNAL_ERROR, "a task can't be kept at the moment: try again")


def no_input_required() -> MCPError:
    """A tool has asked its client by its result, which the client of a task never sees."""
    return MCPError(INTERNAL_ERROR, "a tool that goes on as a task asks its client by `RunningTask.ask`")


def refusal(error: SessiondError) -> MCPError:
    """What a client is told about an error of the daemon's: nothing of paths and sockets."""
    if isinstance(error, UnknownTask | UnknownSession):
        return MCPError(INVALID_PARAMS, "Task not found: there is no such task, or its time is over")
    if isinstance(error, InvalidArgument):
        return MCPError(INVALID_PARAMS, str(error))
    log.hidden(error)
    why = "the daemon mcp-sessiond can't do this now: try again" if error.passes else str(error)
    return MCPError(INTERNAL_ERROR, why)
