"""The contents of a session, in Python's library: contents.py write|answer|read SESSION …; see `run`."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python" / "src"))
from mcp_sessiond import StreamStart, Write  # noqa: E402
from mcp_sessiond.blocking import Sessions  # noqa: E402

VALUE = {"text": 'é☃\0"', "list": [1, 2.5, None, True, {}]}
verb, name, *rest = sys.argv[1:]
sessions = Sessions("languages")


def write(who: str) -> None:
    session = sessions.create(name, status="ready", metadata={"from": who})
    session.write([
        Write("whole", {**VALUE, "from": who}),
        Write("removed", 1),
        Write("short", "soon gone", expires_ms=3_600_000),
    ])
    session.remove("removed")
    stream = session.open_stream("call-1", opened_by=1)
    stream.append({"method": "notifications/progress", "params": VALUE})
    stream.append({"id": 1, "result": who})
    stream.close()
    session.standalone().append({"method": "notifications/message", "params": who})
    failed, _ = session.create_task(message="will fail")
    failed.fail({"code": -1, "message": who})
    task, view = session.create_task(ttl_ms=3_600_000, poll_ms=100, message=who)
    now = task.update(ask={"name": {"method": "elicitation/create", "params": VALUE}})
    print(view.id, flush=True)
    while now.status == "input_required":
        now = task.changed(now.version)
    response = now.inputs[0].response
    assert response
    task.complete({"answer": response.value()})


def read() -> None:
    session = sessions.open(name)
    keys = [one.key for one in session.keys()]
    state = {key: session.get(key) for key in keys}
    streams = {}
    for one in session.streams():
        # What there is fits on one page.
        events = [event.message for event in session.replay(StreamStart(one.id)).events]
        streams[one.id] = {"closed": one.closed, "messages": events}
    tasks = {}
    for listed in session.tasks():
        task = session.task(listed.id).view()
        shown = {"status": task.status, "message": task.message, "ttlMs": task.ttl_ms, "pollMs": task.poll_ms}
        shown |= {"result": task.result and task.result.value(), "error": task.error and task.error.value()}
        tasks[listed.id] = {key: value for key, value in shown.items() if value is not None}
    metadata = session.view().metadata
    secret = sessions.secret().current.hex()
    told = {"metadata": metadata and metadata.value(), "state": state, "streams": streams, "tasks": tasks, "secret": secret}
    print(json.dumps(told))


match verb:
    case "write":
        write("Python")
    case "answer":
        sessions.open(name).task(rest[0]).update(answer={"name": "Python"})
    case "read":
        read()
