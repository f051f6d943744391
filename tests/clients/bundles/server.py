"""A server of a bundle: sh -c 'echo "+ $PPID $$ NAME" >>STARTS; exec python3 -I -S server.py NAME STARTS JOURNAL'

Its tools: `work` tells its steps as progress and waits for the file `gate` after the first one, if there is a gate; `count` tells how often it was
called; `ask` asks the host's model; `log` tells a number as a log message; and `own_NAME`, which no other server has. Each answers `KEY NAME PID` and what it has
found. JOURNAL gets a line for each call that begins, `begin KEY NAME PID`, and `cancelled KEY` for one that was cancelled.

STARTS has `+ KEEPER PID NAME` for each start, also of servers that are none of these, and `~ NAME` before the keeper of NAME is killed. It gets `= NUMBER`, how
many a bundle is starting, and `- PID` when the last of the lists is asked for.
"""

import json
import os
import sys
import threading
import time

NAME, STARTS, PID = sys.argv[1], sys.argv[2], os.getpid()
journal = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
starts = os.open(STARTS, os.O_WRONLY | os.O_APPEND)
writing, asked, answers, cancelled, open_calls = threading.Lock(), threading.Condition(), {}, set(), {}
counts = {"count": 0, "log": 0, "ask": 0}
LISTS = {
    "tools/list": {"tools": [{"name": name, "description": f"{NAME} {name}", "inputSchema": {"type": "object"}}
                             for name in ("work", "count", "ask", "log", f"own_{NAME}")]},
    "prompts/list": {"prompts": [{"name": "hello", "description": f"{NAME} hello"}]},
    "resources/list": {"resources": [{"name": NAME, "uri": f"thing://{NAME}/x"}, {"name": f"the same, of {NAME}", "uri": "file:///same"}]},
    "resources/templates/list": {"resourceTemplates": [{"name": NAME, "uriTemplate": f"thing://{NAME}/" + "{what}"}]},
}
not_listed = set(LISTS)


def note(words, file=journal):
    os.write(file, f"{words}\n".encode())


def say(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def starting():
    """How many are being started by a bundle. What is started again because it has died is not."""
    with open(STARTS) as file:
        noted = [line.split() for line in file if line.endswith("\n")]
    first, renewed = {}, set()
    for what, *words in noted:
        if what == "~":
            renewed.add(words[0])
        elif what == "+" and words[0] not in first:
            # A server whose keeper was lost is started again at once.
            first[words[0]] = None if words[2] in renewed else words[1]
            renewed.discard(words[2])
    ready = {words[1] for words in noted if words[0] == "-"}
    return sum(lives(pid) for pid in set(first.values()) - ready - {None})


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def work(request, arguments, token):
    for step in range(1, arguments["steps"] + 1):
        if token is not None:
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "message": f"{arguments['key']} {PID}"}})
        while step == 1 and arguments.get("gate") and not os.path.exists(arguments["gate"]) and request not in cancelled:
            time.sleep(0.005)
    return arguments["steps"]


def ask(request, arguments, token):
    counts["ask"] += 1
    mine = counts["ask"]
    text = {"role": "user", "content": {"type": "text", "text": f"{arguments['key']} {NAME} {PID}"}}
    say({"id": mine, "method": "sampling/createMessage", "params": {"messages": [text], "maxTokens": 5}})
    with asked:
        asked.wait_for(lambda: mine in answers)
        answer = answers.pop(mine)
    return answer.get("result", {}).get("content", {}).get("text") or f"refused {answer.get('error', {}).get('code')}"


def count(request, arguments, token):
    counts["count"] += 1
    return counts["count"]


def log(request, arguments, token):
    with writing:
        counts["log"] += 1
        mine = counts["log"]
        data = {"of": f"{NAME} {PID}", "number": mine}
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}}
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    return mine


def call(request, params):
    arguments, name = params["arguments"], params["name"]
    note(f"begin {arguments['key']} {NAME} {PID}")
    found = {"work": work, "ask": ask, "count": count, "log": log, f"own_{NAME}": count}[name](request, arguments, params.get("_meta", {}).get("progressToken"))
    if request not in cancelled:
        say({"id": request, "result": {"content": [{"type": "text", "text": f"{arguments['key']} {NAME} {PID} {found}"}]}})


def answer(method, params):
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "logging": {}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": {"name": NAME, "version": "1"}}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"{NAME} {PID}"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"{NAME} {PID}"}}]}
    if method in not_listed:
        not_listed.discard(method)
        if not not_listed:
            note(f"- {PID}", starts)
    return LISTS.get(method, {} if method in ("ping", "logging/setLevel") else None)


note(f"= {starting()}", starts)
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method is None:
        with asked:
            answers[message["id"]] = message
            asked.notify_all()
    elif "id" not in message:
        if method == "notifications/cancelled" and params["requestId"] in open_calls:
            cancelled.add(params["requestId"])
            note(f"cancelled {open_calls[params['requestId']]}")
    elif method == "tools/call":
        open_calls[message["id"]] = params["arguments"]["key"]
        threading.Thread(target=call, args=(message["id"], params), daemon=True).start()
    else:
        result = answer(method, params)
        error = {"code": -32601, "message": "Method not found"}
        say({"id": message["id"], **({"error": error} if result is None else {"result": result})})
