"""A client of report.py, which is killed after a task and in the middle of one: python examples/tasks.py"""

import asyncio
from pathlib import Path
from typing import Any, Literal

from kill import free_port, start, text
from mcp import Client, ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result

SERVER = Path(__file__).with_name("report.py")


class TaskId(RequestParams):
    """What the requests about tasks have in common."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class GetTask(Request[TaskId, Literal["tasks/get"]]):
    """Asks what has become of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class UpdateTask(Request[TaskId, Literal["tasks/update"]]):
    """Answers what a task has asked."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class Created(Result):
    """A call goes on as a task."""

    result_type: Literal["task"] = "task"
    task_id: str


class Task(Result):
    """A task as it is now."""

    status: str
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """What the client of the SDK does with a call that goes on as a task: it waits for the result."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.created: asyncio.Queue[str] = asyncio.Queue()

    def claims(self) -> list[ResultClaim[Any]]:
        """The results that are tasks."""
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    async def _resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.created.put_nowait(created.task_id)
        return await result(context.session, created.task_id)


async def result(session: ClientSession, id: str) -> CallToolResult:
    """The result of a task, whoever has begun it."""
    while True:
        task = await session.send_request(GetTask(params=TaskId(task_id=id)), Task)
        if task.error:
            raise RuntimeError(task.error["message"])
        if task.result:
            return CallToolResult.model_validate(task.result)
        for key, asked in (task.input_requests or {}).items():
            print("the task asks:", asked["params"]["message"])
            answers = {key: {"action": "accept", "content": {"title": "Whales"}}}
            params = TaskId(task_id=id, input_responses=answers)
            await session.send_request(UpdateTask(params=params), Result)
        await asyncio.sleep(0.1)


async def main() -> None:
    """The story."""
    port = free_port()
    server = start(SERVER, port)
    tasks = Tasks()
    async with Client(f"http://127.0.0.1:{port}/mcp", extensions=[tasks]) as client:
        print("the report:", text(await client.call_tool("report", {"pages": 3})))
        long = asyncio.create_task(client.call_tool("report", {"pages": 100_000}))
        ids = [await tasks.created.get() for _ in range(2)]
        server.kill()
        server.wait()
        print("the server was killed")
        long.cancel()
        await asyncio.wait([long])
    server = start(SERVER, port)
    async with Client(f"http://127.0.0.1:{port}/mcp", extensions=[Tasks()]) as client:
        print("the same report:", text(await result(client.session, ids[0])))
        try:
            await result(client.session, ids[1])
        except RuntimeError as error:
            print("the long one:", error)
    server.terminate()
    server.wait()


if __name__ == "__main__":
    asyncio.run(main())
