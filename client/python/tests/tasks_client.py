"""What the official client of `mcp` 2.3 needs to know of the Tasks extension: it polls, and answers what a task asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import anyio
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result

Answer = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class TaskId(RequestParams):
    task_id: str


class Answers(TaskId):
    input_responses: dict[str, Any]


class GetTask(Request[TaskId, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class UpdateTask(Request[Answers, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class Created(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: int = 1_000


class Task(Result):
    status: str
    poll_interval_ms: int = 1_000
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    # `inputRequests` is a field of every result in the SDK's eyes.
    input_requests: dict[str, Any] | None = None


class Polling(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer
        self.ids: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    async def _resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.ids.append(created.task_id)
        return await finish(context.session, created.task_id, self._answer)


async def finish(session: Any, id: str, answer: Answer | None = None) -> CallToolResult:
    """What has become of a task, once it has ended."""
    answered: set[str] = set()
    while True:
        task = await session.send_request(GetTask(params=TaskId(task_id=id)), Task)
        if task.result is not None:
            return CallToolResult.model_validate(task.result)
        if task.error is not None or task.status == "cancelled":
            raise RuntimeError(task.error or task.status)
        asked = {key: one for key, one in (task.input_requests or {}).items() if key not in answered}
        if asked and answer:
            answers = {key: await answer(key, one) for key, one in asked.items()}
            answered |= set(answers)
            await session.send_request(UpdateTask(params=Answers(task_id=id, input_responses=answers)), Result)
        await anyio.sleep(task.poll_interval_ms / 1000)
