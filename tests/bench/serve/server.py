"""The server behind each gateway, on stdio, which answers in a few µs: python3 -I -S server.py

It speaks MCP of both eras. Its tools:

  answer {bytes}         a text of so many bytes
  increment              the count, which goes up by one
  get                    the count
  steps {steps, began, gate, done}
                         tells progress 1, makes the file `began`, waits until somebody has opened the FIFO `gate` for
                         writing, tells the rest of the progress, answers "done", and makes the file `done`

It ends with its input.
"""

import json
import os
import sys
import threading

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("answer", "increment", "get", "steps")]
MODERN = {"resultType": "complete"}
KEPT = {**MODERN, "ttlMs": 0, "cacheScope": "private"}
writing = threading.Lock()
# The parts of answers that are long, by their bytes, as JSON.
texts = {}
count = 0


def write(line):
    with writing:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def say(message):
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request, arguments):
    size = arguments["bytes"]
    if size not in texts:
        texts[size] = json.dumps({"content": [{"type": "text", "text": "m" * size}], **MODERN}).encode()
    write(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (json.dumps(request).encode(), texts[size]))


def steps(request, params):
    arguments, token = params["arguments"], params.get("_meta", {}).get("progressToken")
    for number in range(1, arguments["steps"] + 1):
        if token is not None:
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        if number == 1:
            open(arguments["began"], "w").close()
            # Opening waits for the writer.
            open(arguments["gate"]).close()
    tell(request, "done")
    open(arguments["done"], "w").close()


def tell(request, text):
    say({"id": request, "result": {"content": [{"type": "text", "text": text}], **MODERN}})


def call(request, params):
    global count
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "answer":
        return answer(request, arguments)
    if name == "steps":
        return threading.Thread(target=steps, args=(request, params), daemon=True).start()
    count += name == "increment"
    return tell(request, str(count))


def result(method, params):
    info = {"name": "bench", "version": "1.0.0"}
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "server/discover":
        of = {"_meta": {"io.modelcontextprotocol/serverInfo": info}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **KEPT, **of}
    return {"tools/list": {"tools": TOOLS, **KEPT}, "ping": {}}.get(method)


for line in sys.stdin.buffer:
    message = json.loads(line)
    # Notifications want no answer.
    if "id" not in message or "method" not in message:
        continue
    if message["method"] == "tools/call":
        call(message["id"], message["params"])
        continue
    found = result(message["method"], message.get("params"))
    error = {"code": -32601, "message": "Method not found"}
    say({"id": message["id"], **({"error": error} if found is None else {"result": found})})
os._exit(0)
