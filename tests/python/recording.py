"""An MCP server on stdio that says what it was told: python3 -I -S recording.py NAME

It has one resource, `told://NAME`, which can be subscribed to, and logs of a level. Its tool `told` answers both, as JSON.
"""
import json
import sys

URI = f"told://{sys.argv[1]}"
told = {"level": None, "subscribed": []}


def answer(method, params):
    if method == "initialize":
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
        info = {"name": "told", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": "told", "inputSchema": {"type": "object"}}]}
    if method == "resources/list":
        return {"resources": [{"uri": URI, "name": "what was told"}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(told)}]}
    if method == "logging/setLevel":
        told["level"] = params["level"]
        return {}
    if method in ("resources/subscribe", "resources/unsubscribe"):
        told["subscribed"] = [URI] if method == "resources/subscribe" else []
        return {}
    return {} if method == "ping" else None


for line in sys.stdin.buffer:
    message = json.loads(line)
    # Notifications want no answer.
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params"))
    said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
