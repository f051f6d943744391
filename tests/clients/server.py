"""The server behind `serve`, on stdio: python3 -I -S server.py JOURNAL

Its tool `count` tells as many numbers as `steps` says, each as progress of the call, and then answers with them. After the number
`hold` it waits for the file `gate`; -1: it never waits. Each call that it begins is a line of JOURNAL, with the `key` that it was called with.
"""

import json
import os
import sys
import threading
import time

JOURNAL = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
TOOLS = [{"name": "count", "inputSchema": {"type": "object"}}]
writing = threading.Lock()


def say(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def count(request, params):
    arguments = params["arguments"]
    os.write(JOURNAL, f"{arguments['key']}\n".encode())
    token = params.get("_meta", {}).get("progressToken")
    for number in range(arguments["steps"] + 1):
        if number and token is not None:
            progress = {"progressToken": token, "progress": number, "message": arguments["key"]}
            say({"method": "notifications/progress", "params": progress})
        while number == arguments["hold"] and not os.path.exists(arguments["gate"]):
            time.sleep(0.005)
    text = f"{arguments['key']} {arguments['steps']}"
    say({"id": request, "result": {"content": [{"type": "text", "text": text}]}})


def answer(method, params):
    if method == "initialize":
        info = {"name": "campaign", "version": "1.0.0"}
        asked = params["protocolVersion"]
        version = asked if asked in VERSIONS else VERSIONS[-1]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    return {"tools/list": {"tools": TOOLS}, "ping": {}}.get(method)


for line in sys.stdin.buffer:
    message = json.loads(line)
    # Notifications want no answer.
    if "id" not in message or "method" not in message:
        continue
    if message["method"] == "tools/call":
        threading.Thread(target=count, args=(message["id"], message["params"]), daemon=True).start()
        continue
    result = answer(message["method"], message.get("params"))
    error = {"code": -32601, "message": "Method not found"}
    say({"id": message["id"], **({"error": error} if result is None else {"result": result})})
