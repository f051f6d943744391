"""The contents of a session, in Python's library: contents.py write|answer|read SESSION …; see `run`."""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python" / "src"))
from mcp_sessiond import Sessions, StreamStart, Write  # noqa: E402

VALUE = {"text": 'é☃\0"', "list": [1, 2.5, None, True, {}]}
verb, name, *rest = sys.argv[1:]


async def write(sessions: Sessions, who: str) -> None:
    session = await sessions.create(name, status="ready", metadata={"from": who})
    await session.write([
        Write("whole", {**VALUE, "from": who}),
        Write("removed", 1),
        Write("short", "soon gone", expires_ms=3_600_000),
    ])
    await session.remove("removed")
    stream = await session.open_stream("call-1", opened_by=1)
    await stream.append({"method": "notifications/progress", "params": VALUE})
    await stream.append({"id": 1, "result": who})
    await stream.close()
    await session.standalone().append({"method": "notifications/message", "params": who})
    failed, _ = await session.create_task(message="will fail")
    await failed.fail({"code": -1, "message": who})
    task, view = await session.create_task(ttl_ms=3_600_000, poll_ms=100, message=who)
    now = await task.update(ask={"name": {"method": "elicitation/create", "params": VALUE}})
    print(view.id, flush=True)
    while now.status == "input_required":
        now = await task.changed(now.version)
    response = now.inputs[0].response
    assert response
    await task.complete({"answer": response.value()})


async def read(sessions: Sessions) -> None:
    session = await sessions.open(name)
    state = {one.key: await session.get(one.key) for one in await session.keys()}
    streams = {}
    for one in await session.streams():
        # What there is fits on one page.
        events = [event.message for event in (await session.replay(StreamStart(one.id))).events]
        streams[one.id] = {"closed": one.closed, "messages": events}
    tasks = {}
    for listed in await session.tasks():
        task = await session.task(listed.id).view()
        shown = {"status": task.status, "message": task.message, "ttlMs": task.ttl_ms, "pollMs": task.poll_ms}
        shown |= {"result": task.result and task.result.value(), "error": task.error and task.error.value()}
        tasks[listed.id] = {key: value for key, value in shown.items() if value is not None}
    metadata = (await session.view()).metadata
    secret = (await sessions.secret()).current.hex()
    told = {"metadata": metadata and metadata.value(), "state": state, "streams": streams, "tasks": tasks, "secret": secret}
    print(json.dumps(told))


async def main() -> None:
    sessions = Sessions("languages")
    match verb:
        case "write":
            await write(sessions, "Python")
        case "answer":
            await (await sessions.open(name)).task(rest[0]).update(answer={"name": "Python"})
        case "read":
            await read(sessions)


asyncio.run(main())
