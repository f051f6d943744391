"""A counter that speaks MCP over stdio, as small as can be, for tests that run hundreds at once: python3 -I -S tiny.py

Tools: `increment` and `get`; both answer the count; and `echo`, which answers its `message`. It ends with its input.
"""
import json
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("increment", "get", "echo")]
count = 0


def answer(method, params):
    global count
    if method == "initialize":
        info = {"name": "tiny", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        count += params["name"] == "increment"
        text = params["arguments"]["message"] if params["name"] == "echo" else str(count)
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
