"""A server on stdio for tests of many hosts at once: python3 -I -S shared_server.py [DIRECTORY] [ANYTHING]

Every tool is called with a `tag`, which says whose the call is, and nothing is ever answered or sent about a call without it:

  echo        answers the tag
  increment   answers how often this was called, by whomever
  steps       sends `n` messages of progress with the tag in them, then answers it
  slow        sends one message of progress, then waits until the file `gate` is there, or the call is cancelled, and answers the tag
  ask         asks the host by `elicitation/create`, with the tag as message; answers what it was answered, or `refused`
  late        answers at once, and asks the host once the file `gate` is there; the file `gate`.answer then has what came of it
  touch       says that the resource `uri` was updated, then answers the tag
  log         sends a message of the log of this `level`, with the tag as data
  changed     says that the list of tools has changed
  env         answers the environment, as JSON
  arguments   answers what it was started with, as JSON
  pid         answers its pid
  die         exits at once

It remembers subscriptions, and answers `resources/read` of `subscribed:` with them. It asks nobody for roots. SHARED_HANDSHAKES names a
file to which it appends each `initialize`, COUNTER_PIDS one for its pid. While there is a file `hold` in DIRECTORY, `initialize` waits, and
there is a file `held`; a file `refuse` is taken away, and `initialize` refused once.
"""
import json
import os
import sys
import threading
import time

TOOLS = ["echo", "increment", "steps", "slow", "ask", "late", "touch", "log", "changed", "env", "arguments", "pid", "die"]
lock = threading.Lock()
count = 0
asked = 0
answers = {}
came = threading.Condition()
cancelled = set()
subscribed = set()

if "COUNTER_PIDS" in os.environ:
    with open(os.environ["COUNTER_PIDS"], "a") as file:
        file.write(f"{os.getpid()}\n")


def say(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def notify(method, **params):
    say({"method": method, "params": params})


def wait_for(gate, number):
    while not os.path.exists(gate) and number not in cancelled:
        time.sleep(0.02)


def ask(tag):
    global asked
    with came:
        asked += 1
        number = asked
    schema = {"type": "object", "properties": {"tag": {"type": "string"}}}
    say({"id": number, "method": "elicitation/create", "params": {"message": tag, "requestedSchema": schema}})
    with came:
        came.wait_for(lambda: number in answers)
        answer = answers.pop(number)
    return answer["result"]["content"]["tag"] if "result" in answer else "refused"


def late(tag, gate):
    wait_for(gate, None)
    answer = ask(tag)
    with open(gate + ".new", "w") as file:
        file.write(answer)
    os.rename(gate + ".new", gate + ".answer")


def call(number, name, arguments, token):
    global count
    tag = arguments.get("tag", "")
    if name == "increment":
        with came:
            count += 1
            return count
    if name == "steps":
        for step in range(arguments["n"]):
            notify("notifications/progress", progressToken=token, progress=step + 1, message=tag)
    elif name == "slow":
        notify("notifications/progress", progressToken=token, progress=1, message=tag)
        wait_for(arguments["gate"], number)
    elif name == "ask":
        return ask(tag)
    elif name == "late":
        threading.Thread(target=late, args=(tag, arguments["gate"]), daemon=True).start()
    elif name == "touch":
        notify("notifications/resources/updated", uri=arguments["uri"])
    elif name == "log":
        notify("notifications/message", level=arguments["level"], data=tag)
    elif name == "changed":
        notify("notifications/tools/list_changed")
    elif name == "env":
        return json.dumps(dict(os.environ))
    elif name == "arguments":
        return json.dumps(sys.argv[1:])
    elif name == "pid":
        return os.getpid()
    elif name == "die":
        os._exit(1)
    return tag


def may_begin():
    """Whether `initialize` is not to be refused, once it is to be answered."""
    directory = sys.argv[1] if len(sys.argv) > 1 else os.devnull
    hold, held, refuse = (os.path.join(directory, name) for name in ("hold", "held", "refuse"))
    if os.path.exists(hold):
        open(held, "w").close()
    while os.path.exists(hold):
        time.sleep(0.02)
    try:
        os.remove(refuse)
    except OSError:
        return True
    return False


def answer(number, method, params):
    if method == "initialize":
        if "SHARED_HANDSHAKES" in os.environ:
            with open(os.environ["SHARED_HANDSHAKES"], "a") as file:
                file.write(json.dumps(params) + "\n")
        if not may_begin():
            return None
        version = min(params["protocolVersion"], "2025-06-18")
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}, "tasks": {}}
        info = {"name": "crowd", "version": "1.0.0"}
        return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        text = str(call(number, params["name"], params.get("arguments") or {}, token))
        return {"content": [{"type": "text", "text": text}]}
    if method == "resources/subscribe":
        subscribed.add(params["uri"])
        return {}
    if method == "resources/unsubscribe":
        subscribed.discard(params["uri"])
        return {}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": json.dumps(sorted(subscribed))}]}
    return {} if method in ("ping", "logging/setLevel") else None


def serve(message):
    result = answer(message["id"], message["method"], message.get("params") or {})
    # A call that was cancelled is not answered (MCP, Cancellation).
    if message["id"] in cancelled:
        return
    said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    say({"id": message["id"], **said})


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "method" not in message:
        with came:
            answers[message["id"]] = message
            came.notify_all()
    elif "id" in message:
        if message["method"] == "tools/call":
            threading.Thread(target=serve, args=(message,), daemon=True).start()
        else:
            serve(message)
    elif message["method"] == "notifications/cancelled":
        cancelled.add(message["params"]["requestId"])
