"""A counter that speaks MCP over stdio, as small as can be, for tests that run hundreds at once: python3 -I -S tiny.py

Tools: `increment` (by `by`, or by one) and `get`, which answer the count, `parent`, which answers the pid of whoever
started it; and `echo`, which answers its `message`. It ends with its input.
"""
import json
import os
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("increment", "get", "parent")]
TOOLS.append({"name": "echo", "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}}})
STEP = 1
count = 0


def call(name, arguments):
    global count
    if name == "increment":
        count += arguments.get("by", STEP)
    return {"parent": os.getppid(), "echo": arguments.get("message")}.get(name, count)


def answer(method, params):
    if method == "initialize":
        info = {"name": "tiny", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = str(call(params["name"], params.get("arguments") or {}))
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


for line in sys.stdin.buffer:
    message = json.loads(line)
    # Notifications want no answer.
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params"))
    said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
